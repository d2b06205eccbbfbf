"""Of several reasons to leave a group alone, users see the first one, and it says when the group is released."""

from __future__ import annotations

from datetime import timedelta

import msgspec
import pytest
from immutables import Map

from respread.api.policy import ClusterPolicySpec, Limits, Policy
from respread.api.reasons import Reason
from respread.cluster.state import ClusterState
from respread.controller.permits.left_alone import left_alone, left_alone_until
from respread.controller.quiet_period import QuietPeriods
from respread.controller.records.history import History
from respread.controller.records.other_evictions import EVICTED, JUDGED_AFTER, ROUND, OtherEvictions
from respread.moves.entry import Counting, Ended, Outcome
from respread.planning.plan import BlockedGroup
from tests.eviction_moves import move
from tests.spreads import spread_of
from tests.unit.controller.observations import observation
from tests.worlds import NOW, cluster, constraint, node, pods, spec

PODS = pods({"a1": 3}, spec(constraint()))
NODES = [node("a1", "a"), node("b1", "b")]
SNAPSHOT = cluster(NODES, PODS)
SPREAD = spread_of(SNAPSHOT)
((KEY, GROUP),) = SPREAD.groups.items()
POLICY = Policy(
    kind="ClusterRebalancePolicy",
    object_name="default",
    spec=ClusterPolicySpec(quiet_period=timedelta(seconds=30), limits=Limits(per_hour_per_group=1)),
)
REASONS = (Reason.QUIET_PERIOD, Reason.BACKING_OFF, Reason.OTHER_DESCHEDULER, Reason.LIMIT_REACHED)


def quiet_since(seconds: float) -> QuietPeriods:
    quiet = QuietPeriods()
    quiet.observe(SPREAD.groups, (), seconds)
    return quiet


def history(*, backs_off: bool, is_full: bool) -> History:
    known = History(NOW.timestamp)
    evicted = move(PODS[0], groups=(KEY,))
    if is_full:
        known.count(Counting("default", ("default",), (KEY,)))
    if backs_off:
        ended = Ended(move=evicted, outcome=Outcome.UNCHANGED, replacement=PODS[1], seconds=1.0, message="")
        known.learn(ended, SPREAD.groups, POLICY)
    return known


def somebody() -> OtherEvictions:
    """Return who has evicted pods in two rounds."""
    others, state = OtherEvictions(), ClusterState(SNAPSHOT)
    others.observe(SNAPSHOT, frozenset(), NOW - 4 * ROUND)
    for number in (3, 1):
        now = NOW - number * ROUND
        going = msgspec.structs.replace(PODS[0], uid=str(number), deletion_timestamp=now, disruption=EVICTED)
        state.apply("pods", [(going.key, going)])
        for after in (timedelta(), JUDGED_AFTER):
            others.observe(state.snapshot, frozenset(), now + after)
    return others


@pytest.mark.parametrize("first", range(len(REASONS) + 1))
def test_the_first_of_several_reasons_is_shown(first: int) -> None:
    """The quiet period comes before the back-off, then another evictor, and then the limit of an hour."""
    holding = REASONS[first:]
    quiet = quiet_since(90.0 if Reason.QUIET_PERIOD in holding else 60.0)
    others = somebody() if Reason.OTHER_DESCHEDULER in holding else OtherEvictions()
    observed = observation(
        SNAPSHOT,
        spread=SPREAD,
        policies=Map(default=POLICY),
        now=90.0,
        history=history(backs_off=Reason.BACKING_OFF in holding, is_full=Reason.LIMIT_REACHED in holding),
    )
    held = left_alone(observed, quiet, others)(KEY, "default")
    if not holding:
        assert held is None
        return
    assert held is not None
    assert held.reason is holding[0]
    blocked = BlockedGroup(group=KEY, policy="default", reason=held.reason, message="")
    until = left_alone_until(observed, quiet, others, lambda seconds: seconds)(blocked)
    back_off = observed.history.release(GROUP)
    assert (
        until
        == {
            Reason.QUIET_PERIOD: 120.0,
            Reason.BACKING_OFF: back_off,
            Reason.OTHER_DESCHEDULER: held.until and held.until.timestamp(),
            Reason.LIMIT_REACHED: None,
        }[held.reason]
    )
    assert first == len(REASONS) - 1 or until is not None
