"""A held move is tried again soon, and failed reads less and less often."""

from __future__ import annotations

from respread.api.reasons import Reason
from respread.holds.refusals import PAUSE, Refusals
from respread.planning.held import Held
from tests.eviction_moves import SPEC, group, move
from tests.worlds import pod

UNREAD = Held(Reason.API_UNAVAILABLE, "the LimitRanges could not be read")
MOVING = Held(Reason.IN_MOTION, "it has changed")
A, B = (move(pod(name, "node-1", SPEC), groups=(group("default"),)) for name in ("a", "b"))


class Tried:
    """A move that is tried whenever it may be, and held each time."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.lately = Refusals(lambda: self.seconds)

    def tries(self, held: Held, seconds: int) -> int:
        """Return how often it is tried in this many seconds."""
        tried, end = 0, self.seconds + seconds
        while self.seconds < end:
            if self.lately.why_not_chosen(A) is None:
                tried += 1
                self.lately.held_back(A, held)
            next_end = self.lately.next_end()
            assert next_end is not None
            assert self.seconds < next_end <= self.seconds + PAUSE.longest_seconds
            self.seconds = next_end
        return tried


def test_a_held_move_and_the_others_of_its_group_wait_for_a_pause() -> None:
    tried = Tried()
    assert tried.lately.why_not_chosen(A) is None
    tried.lately.held_back(A, MOVING)
    assert tried.lately.why_not_chosen(A) == tried.lately.why_not_chosen(B) == MOVING
    tried.seconds = PAUSE.first_seconds
    assert tried.lately.why_not_chosen(A) is None
    assert tried.lately.next_end() is None


def test_reads_that_keep_failing_are_tried_less_and_less_often() -> None:
    tried = Tried()
    assert tried.tries(UNREAD, 15) == 4  # after 1, 2, 4 and 8 s
    assert tried.tries(UNREAD, 600) == 60


def test_failed_reads_for_several_moves_at_once_count_once() -> None:
    tried = Tried()
    for each in (A, B, A, B):
        tried.lately.held_back(each, UNREAD)
    tried.seconds = PAUSE.first_seconds
    assert tried.lately.why_not_chosen(A) is None


def test_a_successful_read_resets_the_pause() -> None:
    tried = Tried()
    tried.tries(UNREAD, 60)
    tried.lately.held_back(A, MOVING)
    tried.seconds += PAUSE.first_seconds
    assert tried.tries(UNREAD, 15) == 4
    tried.seconds += 120
    assert tried.lately.next_end() is None
    assert tried.tries(UNREAD, 15) == 4
