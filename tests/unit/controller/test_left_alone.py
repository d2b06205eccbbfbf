"""Of several reasons to leave a group alone, users see the first one, and it says when the group is released."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import msgspec
import pytest

from respread.api.policy import ClusterPolicySpec, Limits, Policy
from respread.api.reasons import Reason
from respread.cluster.state import ClusterState
from respread.controller.records.history import History
from respread.holds.holds import Holds
from respread.holds.other_evictions import EVICTED, JUDGED_AFTER, ROUND, OtherEvictions
from respread.moves.entry import Counting, Ended, Outcome
from respread.timing import ClockReading
from tests.eviction_moves import move
from tests.spreads import spread_of
from tests.worlds import NOW, cluster, constraint, node, pods, spec

PODS = pods({"a1": 3}, spec(constraint()))
NODES = [node("a1", "a"), node("b1", "b")]
SNAPSHOT = cluster(NODES, PODS)
SPREAD = spread_of(SNAPSHOT)
(KEY,) = SPREAD.groups
POLICY = Policy(
    kind="ClusterRebalancePolicy",
    object_name="default",
    spec=ClusterPolicySpec(quiet_period=timedelta(seconds=30), limits=Limits(per_hour_per_group=1)),
)
REASONS = (Reason.QUIET_PERIOD, Reason.BACKING_OFF, Reason.OTHER_DESCHEDULER, Reason.LIMIT_REACHED)


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
    holds = Holds(lambda: 90.0, somebody() if Reason.OTHER_DESCHEDULER in holding else None)
    holds.quiet_periods.observe(SPREAD.groups, (), 90.0 if Reason.QUIET_PERIOD in holding else 60.0)
    past = history(backs_off=Reason.BACKING_OFF in holding, is_full=Reason.LIMIT_REACHED in holding)
    on_hold = holds.of_groups(SPREAD.groups, {"default": POLICY}, past, ClockReading(90.0, NOW.timestamp()))
    held = on_hold(KEY, "default")
    if not holding:
        assert held is None
        return
    assert held is not None
    assert held.reason is holding[0]
    back_off, evictor = (
        next(iter(past.back_offs.groups.values()), None),
        next(iter(holds.others.repeated.values()), None),
    )
    until = {
        Reason.QUIET_PERIOD: NOW + timedelta(seconds=30),
        Reason.BACKING_OFF: back_off and datetime.fromtimestamp(back_off.until, UTC),
        Reason.OTHER_DESCHEDULER: evictor and evictor.until,
        Reason.LIMIT_REACHED: None,
    }
    assert held.until == until[held.reason]
    assert (held.until is None) == (held.reason is Reason.LIMIT_REACHED)
