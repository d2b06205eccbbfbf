"""What is to be known of a move after its replacement was Ready: whether that lasts, and when its pod is gone."""

from __future__ import annotations

from math import inf

import msgspec
import pytest

from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.moves.entry import Outcome
from respread.moves.following import STEADY_SECONDS, Judged
from respread.moves.ledger import Ledger
from tests.eviction_moves import SPEC, move
from tests.worlds import NOW, cluster, pod

OLD, NEW = pod("a", "node-1", SPEC), pod("b", "node-2", SPEC)
LEAVING = msgspec.structs.replace(OLD, deletion_timestamp=NOW)
MOVE = move(OLD)


def world(*pods: Pod) -> ClusterSnapshot:
    return cluster([], pods)


def followed(ledger: Ledger, *pods: Pod, outcome: Outcome = Outcome.IMPROVED) -> Ledger:
    return ledger.updated(world(*pods), 100, lambda *_: outcome)[0]


SENT, COUNTED = (each.sent(MOVE, world(OLD), 95) for each in (Ledger(), Ledger().with_chosen([MOVE], world(OLD), 95)))
STEADYING = followed(SENT, NEW)


def judged(now: float, *pods: Pod) -> tuple[bool, Judged]:
    """Return whether the replacement is still to stay Ready, and what became of it."""
    ledger, found = STEADYING.judged(world(*pods), now)
    return bool(ledger.steadying), found


def test_a_replacement_that_stays_ready_is_a_success() -> None:
    assert judged(109.9, NEW) == (True, Judged())
    assert STEADYING.next_deadline() == 110
    assert judged(110, NEW) == (False, Judged(lasting=(MOVE,)))
    after, _ = STEADYING.judged(world(NEW), 110)
    assert after.next_deadline() == inf


def test_a_replacement_that_does_not_stay_ready_is_a_failure() -> None:
    for gone in (msgspec.structs.replace(NEW, ready=False), msgspec.structs.replace(NEW, phase="Failed")):
        goes_on, found = judged(103, gone)
        assert not goes_on
        (ended,) = found.relapsed
        assert (ended.outcome, ended.failed, ended.move, ended.seconds) == (Outcome.NOT_READY, True, MOVE, 5)
        assert ended.message == "its replacement b on node-2 was Ready for less than 3 s"


def test_a_replacement_that_is_deleted_is_neither_a_success_nor_a_failure() -> None:
    other = msgspec.structs.replace(NEW, uid="another")
    going = msgspec.structs.replace(NEW, deletion_timestamp=NOW, ready=False)
    for pods in ((), (other,), (going,)):
        assert judged(103, *pods) == (False, Judged(undecided=(MOVE,)))


def test_only_replacements_of_successful_moves_are_to_stay_ready() -> None:
    assert [each.move for each in STEADYING.steadying] == [MOVE]
    assert followed(SENT, NEW, outcome=Outcome.WORSE).steadying == ()


@pytest.mark.parametrize("sent", [SENT, COUNTED])
@pytest.mark.parametrize("outcome", [Outcome.IMPROVED, Outcome.UNCHANGED])
def test_an_evicted_pod_is_ours_until_one_observation_after_its_deletion(outcome: Outcome, sent: Ledger) -> None:
    ours = [MOVE]
    assert [each.move for each in sent.ours] == ours
    ended = followed(sent, LEAVING, NEW, outcome=outcome)
    assert len(ended) == 0, "the move has ended before the pod is gone"
    assert [each.move for each in ended.ours] == ours
    same = followed(ended, LEAVING, NEW)
    assert same is ended
    lasting, _ = ended.judged(world(LEAVING, NEW), 100 + STEADY_SECONDS)
    assert [each.move for each in lasting.ours] == ours
    gone = followed(ended, NEW)
    assert gone.ours == ()
    assert followed(gone, NEW) is gone
    assert gone.expected == sent.expected, "the answer, which counts it for good, may still come"


def test_a_refused_move_that_counts_for_nothing_leaves_nothing_behind() -> None:
    """Such as one of a record that is older than the hour that limits count."""
    assert SENT.answered(MOVE, False, 96) == SENT.without(MOVE)
    assert SENT.answered(MOVE, False, 96).of(MOVE) is None
    assert SENT.forgotten(MOVE) is SENT, "what was sent stays, and what has not changed is written to no record again"


def test_a_pod_that_another_client_deletes_is_not_ours() -> None:
    assert followed(Ledger(), LEAVING).ours == ()
