"""A replacement must stay Ready for some time to count as a success."""

from __future__ import annotations

import msgspec

from respread.cluster.pod import Pod
from respread.eviction.probation import STEADY_SECONDS, Judged, Probation
from respread.moves.entry import Ended, Outcome
from tests.eviction_moves import SPEC, move
from tests.worlds import NOW, cluster, pod

NEW = pod("b", "node-2", SPEC)
IMPROVED = Ended(move=move("a"), outcome=Outcome.IMPROVED, replacement=NEW, seconds=5, message="it is Ready")
WATCHED = Probation().begun([IMPROVED], 100)


def judged(now: float, *pods: Pod) -> tuple[Probation, Judged]:
    return WATCHED.judged(cluster([], pods), now)


def test_a_replacement_that_stays_ready_is_a_success() -> None:
    going_on, verdict = judged(100 + STEADY_SECONDS - 0.1, NEW)
    assert going_on == WATCHED
    assert verdict == Judged((), ())
    assert WATCHED.next_end() == 100 + STEADY_SECONDS
    going_on, verdict = judged(100 + STEADY_SECONDS, NEW)
    assert verdict == Judged((IMPROVED.move,), ())
    assert going_on == Probation()
    assert going_on.next_end() is None


def test_a_replacement_that_does_not_stay_ready_is_a_failure() -> None:
    for gone in (msgspec.structs.replace(NEW, ready=False), msgspec.structs.replace(NEW, phase="Failed")):
        going_on, verdict = judged(103, gone)
        assert going_on == Probation()
        (ended,) = verdict.relapsed
        assert (ended.outcome, ended.failed, ended.move) == (Outcome.NOT_READY, True, IMPROVED.move)
        assert ended.message == "its replacement b on node-2 was Ready for less than 3 s"


def test_a_replacement_that_is_deleted_is_neither_a_success_nor_a_failure() -> None:
    other = msgspec.structs.replace(NEW, uid="another")
    going = msgspec.structs.replace(NEW, deletion_timestamp=NOW, ready=False)
    for pods in ((), (other,), (going,)):
        assert judged(103, *pods) == (Probation(), Judged((), (), (IMPROVED.move,)))


def test_only_successful_moves_are_on_probation() -> None:
    worse = msgspec.structs.replace(IMPROVED, outcome=Outcome.WORSE)
    assert Probation().begun([worse], 1).moves == ()
    assert WATCHED.moves == (IMPROVED.move,)
