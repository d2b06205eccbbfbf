"""A move that an earlier leader may not have made counts until that is certain, and other moves keep their counts."""

from __future__ import annotations

from datetime import UTC, datetime
from math import inf
from operator import ge

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respread.api.record import GroupEvictionCount, RecentEvictions, Recorded
from respread.cluster.state import ClusterSnapshot
from respread.controller.records.journal import Journal
from respread.controller.takeover import in_doubt, without
from respread.eviction.answers import Answer, EvictionResult
from respread.moves.codec import RecordedMoves, group_name
from respread.moves.entry import AGAIN_SECONDS, CERTAIN_SECONDS, Ended, MoveEntry, Outcome
from respread.moves.ledger import Ledger
from tests.eviction_moves import move, send
from tests.virtual_time import Clock
from tests.worlds import cluster

NOW = 1_800_000_000.0
MOVE = move("web-1")
(GROUP,) = MOVE.groups
SNAPSHOT = cluster([], [MOVE.pod])
MINUTE = 60.0


class Leader:
    """The journal of a leader that starts with a record."""

    def __init__(self, record: Recorded, in_flight: Ledger) -> None:
        self.clock = Clock()
        self.journal = Journal(self.clock, lambda: NOW + self.clock())
        records = {"default": record}
        found = in_doubt(in_flight, records, NOW)
        self.journal.history.recall(without(found, records, NOW), {GROUP.namespace: {}}, {})
        self.journal.take_over(in_flight, found)

    @property
    def doubts_it(self) -> bool:
        """Return whether it is not certain that the move was made."""
        return self.journal.doubts(MOVE)

    def observe(self, snapshot: ClusterSnapshot) -> tuple[Ended, ...]:
        """Take over what the watch shows, and return the moves that have ended."""
        ledger, ended = self.journal.ledger.updated(snapshot, self.clock.now, lambda *_: Outcome.IMPROVED)
        self.journal.followed(ledger, snapshot)
        return ended

    def due(self, *under_way: str) -> tuple[MoveEntry, ...]:
        """Return the moves of which it can be found out now whether they were made."""
        return self.journal.ledger.due(self.clock.now, under_way)

    @property
    def counted(self) -> tuple[int, int]:
        """Return the number of evictions that count for the policy and for the group."""
        now = NOW + self.clock()
        return (
            self.journal.history.history.count_in_last_hour("default", now),
            self.journal.history.group_history.in_last_hour(group_name(GROUP), now),
        )


def sent(seconds_ago: float) -> Ledger:
    return Ledger().sent(MOVE, SNAPSHOT, -seconds_ago, NOW - seconds_ago)


def recorded(in_flight: Ledger, *seconds_ago: float) -> Recorded:
    """Return a policy's record with moves in flight and with evictions at these times before now."""
    moves = RecordedMoves().of(in_flight, SNAPSHOT).get("default", ())
    minutes = sorted(int((NOW - each) // MINUTE) for each in seconds_ago)
    return Recorded(
        moves_in_flight=moves,
        recent_evictions=tuple(
            RecentEvictions(minute=datetime.fromtimestamp(each * MINUTE, UTC), evictions=minutes.count(each))
            for each in sorted(set(minutes))
        ),
        group_evictions=tuple(
            GroupEvictionCount(
                group=group_name(GROUP), evictions=len(minutes), last=datetime.fromtimestamp(minutes[-1] * MINUTE, UTC)
            )
            for _ in minutes[:1]
        ),
    )


@given(st.lists(st.floats(0, 3500), max_size=6), st.floats(0, 3450), st.floats(0, 3700))
def test_a_move_that_was_not_made_stops_counting_and_no_other_does(
    others: list[float], ago: float, later: float
) -> None:
    leader = Leader(recorded(sent(ago), ago, *others), sent(ago))
    without_it = Leader(recorded(Ledger(), *others), Ledger())
    assert leader.counted == (len(others) + 1,) * 2
    assert leader.journal.settle(MOVE, made=False)
    assert leader.counted == (len(others),) * 2
    for each in (leader, without_it):
        each.clock.now = later
    assert all(map(ge, leader.counted, without_it.counted)), "too few evictions do no harm"


@given(st.lists(st.floats(0, 3500), max_size=6), st.floats(0, 3450), st.floats(0, 3500))
def test_a_move_that_was_made_counts_from_the_time_of_that_finding(
    others: list[float], ago: float, later: float
) -> None:
    leader = Leader(recorded(sent(ago), ago, *others), sent(ago))
    leader.journal.settle(MOVE, made=True)
    assert leader.counted == (len(others) + 1,) * 2
    leader.clock.now = later
    assert min(leader.counted) >= 1


def test_a_move_whose_count_may_have_expired_does_not_reduce_the_others() -> None:
    leader = Leader(recorded(sent(3480.0), 3480.0, 60.0), sent(3480.0))
    assert not leader.doubts_it
    assert leader.counted[0] == 2
    leader = Leader(recorded(sent(30.0), 30.0, 3700.0), sent(30.0))
    assert leader.journal.settle(MOVE, made=False)
    assert leader.counted[0] == 0, "the eviction that is not forgotten yet is an hour old"


def test_a_move_that_was_confirmed_or_whose_policy_has_no_record_of_it_reduces_no_count() -> None:
    """A policy that is gone, or a pod that two policies have recorded."""
    made = sent(30.0).answered(MOVE, Answer(result=EvictionResult.EVICTED).made, 0.0)
    for in_record, in_flight in ((made, made), (Ledger(), sent(30.0))):
        leader = Leader(recorded(in_record, 30.0), in_flight)
        assert not leader.doubts_it
        assert leader.counted == (1, 1)
        assert in_doubt(in_flight, {}, NOW) == ()


def test_a_doubt_is_due_once_no_request_can_arrive_any_more() -> None:
    leader = Leader(recorded(sent(30), 30.0), sent(30))
    leader.clock.now = CERTAIN_SECONDS
    assert leader.due() == ()  # the move is followed, and may be sent again
    assert leader.journal.ledger.next_due() == inf
    leader.journal.doubt(MOVE)  # the move was just sent again
    (ended,) = leader.observe(SNAPSHOT)
    assert ended.unmade
    assert leader.due() == ()
    assert leader.journal.ledger.next_due() == 2 * CERTAIN_SECONDS
    leader.clock.now = 2 * CERTAIN_SECONDS
    assert leader.due(MOVE.pod.uid) == ()  # the pod was chosen again
    (doubt,) = leader.due()
    leader.journal.asked([MOVE])
    assert leader.due() == ()  # too soon after the last check
    leader.clock.now += AGAIN_SECONDS
    assert leader.due()[0].move == MOVE
    leader.journal.doubt(MOVE)
    assert not leader.journal.resolve(doubt, made=False), "something was sent since its pod was read"
    (doubt,) = (each for each in [leader.journal.ledger.of(MOVE)] if each is not None)
    assert leader.counted == (1, 1)
    assert leader.journal.resolve(doubt, made=False)
    assert leader.counted == (0, 0)
    leader.journal.take_over(Ledger(), ())
    assert not leader.journal.resolve(doubt, made=True), "another leader has found it out"


def test_the_first_of_two_doubts_is_due_first() -> None:
    two = move("web-2")
    snapshot = cluster([], [MOVE.pod, two.pod])
    ledger = sent(30).sent(two, snapshot, -30.0, NOW - 30.0).taken_over((MOVE, two), 0.0).doubted(two, 9.0)
    ledger, _ = ledger.updated(snapshot, 60.0, lambda *_: Outcome.IMPROVED)
    assert ledger.next_due() == CERTAIN_SECONDS
    assert [each.move for each in ledger.due(ledger.next_due())] == [MOVE]
    assert ledger.taken_over((), 70.0).expected == ()


def test_a_pod_that_is_chosen_again_counts_once() -> None:
    leader = Leader(recorded(sent(30), 30.0), sent(30))
    leader.clock.now = 60.0
    leader.observe(SNAPSHOT)
    send(leader.journal, MOVE, SNAPSHOT)
    assert leader.counted == (1, 1)
    leader.journal.answered(MOVE, Answer(result=EvictionResult.EVICTED), again=False)
    leader.journal.settle(MOVE, made=True)
    assert not leader.journal.settle(MOVE, made=True), "it counts already"
    assert leader.counted == (1, 1)
    assert not leader.doubts_it


def test_a_move_in_doubt_that_is_chosen_again_and_not_sent_stays_in_doubt() -> None:
    leader = Leader(recorded(sent(30), 30.0), sent(30))
    leader.clock.now = 60.0
    leader.observe(SNAPSHOT)
    leader.journal.chosen([MOVE], SNAPSHOT)
    assert leader.due() == ()
    leader.journal.forget(MOVE)
    leader.clock.now = CERTAIN_SECONDS
    assert [each.move for each in leader.due()] == [MOVE]
    assert leader.counted == (1, 1)


@pytest.mark.parametrize("in_flight", [sent(30), sent(30).not_wanted(MOVE)], ids=["goes on", "ends at once"])
def test_a_move_in_doubt_that_the_watch_shows_to_be_made_counts_for_good(in_flight: Ledger) -> None:
    leader = Leader(recorded(sent(30), 30.0), in_flight)
    leader.observe(cluster([], []))
    assert not leader.doubts_it
    assert leader.counted == (1, 1)
    assert leader.journal.ledger.expected == ()
