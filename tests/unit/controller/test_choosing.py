"""Which planned moves are made now: after a pause a single one, until it is known to be a success."""

from __future__ import annotations

from math import inf
from sys import maxsize

import msgspec
import pytest
from immutables import Map

from respread.api.policy import ClusterPolicySpec, Limits, Policy
from respread.api.reasons import Held, Reason
from respread.cluster.pod import WorkloadName
from respread.controller.choosing import choose
from respread.controller.records.history import History
from respread.eviction.limiter import Limiter
from respread.moves.entry import Outcome
from respread.moves.ledger import Ledger
from respread.planning.plan import Move, Plan
from tests.eviction_moves import SPEC, move
from tests.spreads import spread_of
from tests.unit.controller.observations import observation
from tests.worlds import NOW, cluster, constraint, node, pod, pods, spec

POLICY = Policy(kind="ClusterRebalancePolicy", object_name="default", spec=ClusterPolicySpec(mode="Enforce"))
PODS = [pod(name, "node-1", SPEC, namespace=namespace) for name, namespace in (("a", "shop"), ("b", "shop"))]
SNAPSHOT = cluster([], PODS)
FIRST, SECOND = map(move, PODS)


def chosen(
    *planned: Move, in_flight: Ledger | None = None, failures: int = 3, held: Held | None = None
) -> tuple[list[str], set[Reason]]:
    """Return the names of the pods that are moved, and why others are not, after the end of a pause."""
    clock = [NOW.timestamp()]
    history = History(lambda: clock[0])
    for name in "xyz"[:failures]:
        history.breakers = history.breakers.failed("default", WorkloadName("Deployment", "shop", name), 3, clock[0])
    end = history.breakers.next_end(clock[0])
    clock[0] = (clock[0] if end == inf else end) + 1
    paced = choose(
        Plan(moves=planned),
        observation(
            SNAPSHOT, policies=Map(default=POLICY), history=history, ledger=Ledger() if in_flight is None else in_flight
        ),
        closed_by=lambda _policy, _name: None,
        held_lately=lambda _: held,
        room=lambda _: maxsize,
    )
    return [each.pod.name for each in paced.now], {each.held.reason for each in paced.held}


def test_after_a_pause_a_single_pod_is_tried() -> None:
    assert chosen(FIRST, SECOND) == (["a"], {Reason.PAUSED})
    assert chosen(FIRST, SECOND, failures=2) == (["a", "b"], set())
    assert chosen(FIRST, held=Held(Reason.IN_MOTION, "not now")) == ([], {Reason.IN_MOTION})


@pytest.mark.parametrize("failures", [2, 3])
@pytest.mark.parametrize("is_in_flight", [True, False])
def test_no_second_pod_is_tried_before_the_first_is_known_to_be_a_success(*, is_in_flight: bool, failures: int) -> None:
    """Its replacement is Ready, and may still crash."""
    in_flight = Ledger().sent(FIRST, SNAPSHOT, 0.0)
    if not is_in_flight:
        after = cluster([], [PODS[1], pod("c", "node-1", SPEC, namespace="shop")])
        in_flight, _ = in_flight.updated(after, 1.0, lambda *_: Outcome.IMPROVED)
    assert (FIRST in in_flight) is is_in_flight
    moved, reasons = chosen(SECOND, in_flight=in_flight, failures=failures)
    assert moved == ["b"] * (failures == 2)
    assert reasons == {Reason.PAUSED} - ({Reason.PAUSED} if failures == 2 else set())


@pytest.mark.parametrize("is_closed", [True, False])
def test_a_move_that_was_held_just_now_or_whose_policy_is_closed_waits(*, is_closed: bool) -> None:
    held = Held(Reason.IN_MOTION, "not now")
    paced = choose(
        Plan(moves=(FIRST,)),
        observation(SNAPSHOT, policies=Map(default=POLICY)),
        closed_by=lambda _policy, _name: held if is_closed else None,
        held_lately=lambda _: None if is_closed else held,
        room=lambda _: maxsize,
    )
    assert paced.now == ()
    assert [each.held for each in paced.held] == [held]


SHOWN = {
    "DryRun": Reason.DRY_RUN,
    "a later wave": Reason.REPLACEMENT_WOULD_WAIT,
    "failures": Reason.PAUSED,
    "held just now": Reason.API_UNAVAILABLE,
    "limits.inFlight": Reason.LIMIT_REACHED,
    "limits.perHourPerGroup": Reason.LIMIT_REACHED,
    "no lane": Reason.IN_MOTION,
}
WHY = tuple(SHOWN)
SPREAD = spread_of(cluster([node("node-1", "a")], pods({"node-1": 2}, spec(constraint()))))


@pytest.mark.parametrize("first", range(len(WHY) + 1))
def test_the_first_of_several_reasons_why_a_move_waits_is_shown(first: int) -> None:
    holding, planned = WHY[first:], msgspec.structs.replace(SECOND, groups=tuple(SPREAD.groups))
    in_flight, per_group = 1 if "limits.inFlight" in holding else 9, 0 if "limits.perHourPerGroup" in holding else 1
    limits = Limits(in_flight=in_flight, per_hour_per_group=per_group, in_flight_per_workload=9, in_flight_per_node=9)
    policy = msgspec.structs.replace(POLICY, spec=ClusterPolicySpec(mode="Enforce", limits=limits))
    history = History(NOW.timestamp)
    for name in "xyz" if "failures" in holding else "":
        workload = WorkloadName("Deployment", "shop", name)
        history.breakers = history.breakers.failed("default", workload, 3, NOW.timestamp())
    wave = msgspec.structs.replace(planned, wave=1, waits=Held(Reason.REPLACEMENT_WOULD_WAIT, ""))
    paced = choose(
        Plan(moves=(wave if "a later wave" in holding else planned,)),
        observation(
            SNAPSHOT,
            spread=SPREAD,
            policies=Map(default=policy),
            limiters=(Limiter.of(policy),),
            history=history,
            ledger=Ledger().sent(FIRST, SNAPSHOT, 0.0),
        ),
        closed_by=lambda _policy, _name: Held(Reason.DRY_RUN, "") if "DryRun" in holding else None,
        held_lately=lambda _: Held(Reason.API_UNAVAILABLE, "") if "held just now" in holding else None,
        room=lambda _: 0 if "no lane" in holding else 1,
    )
    assert [each.held.reason for each in paced.held] == [SHOWN[each] for each in holding[:1]]
    assert paced.now == (() if holding else (planned,))
