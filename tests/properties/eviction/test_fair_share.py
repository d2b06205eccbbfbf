"""Tenants whose replacements never get Ready slow the others down little. Pacing and follow-up run in a closed loop."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Any, NamedTuple

import msgspec
import pytest

from respread.api.policy import Limits
from respread.cluster.meta import OwnerReference
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterState
from respread.controller.records.history import History
from respread.eviction.limiter import Limiter
from respread.eviction.pacing import Pace
from respread.moves.entry import Ended, Outcome
from respread.moves.ledger import Ledger
from respread.planning.plan import Move
from tests.eviction_moves import SPEC, group, move
from tests.properties.instances import factor
from tests.unit.planning.blocked_plans import default_policy
from tests.worlds import NOW, cluster, pod

RECONCILE_SECONDS = 1.0
GREEDY = ("a-greedy", "b-greedy")
"""A name that sorts before all others, so that its moves are first in plans."""


class Tenant(NamedTuple):
    """A namespace with moves to make."""

    namespace: str
    moves: int
    ready_seconds: float | None
    """The time until its replacements are Ready; None if they never are."""
    from_seconds: float = 0.0
    """The time of the first plan with its moves."""


class Ran(NamedTuple):
    """The result of a run."""

    balanced_after: Mapping[str, float]
    """The seconds from the first plan of a tenant's moves until its last replacement was Ready."""
    used: float
    """The used share of the limits while healthy tenants had moves left."""


def run(tenants: Sequence[Tenant], limits: Limits, *, most_seconds: float = 5_000) -> Ran:
    """Pace, evict and replace until all moves of healthy tenants are done."""
    policy = default_policy(limits=limits)
    limiters = (Limiter.of(policy),)
    waiting = {tenant.namespace: [_move(tenant, number) for number in range(tenant.moves)] for tenant in tenants}
    state = ClusterState(cluster([], [each.pod for moves in waiting.values() for each in moves]))
    in_flight, history = Ledger(), History(lambda: 0.0)
    due: list[tuple[float, Pod]] = []
    healthy = {tenant.namespace for tenant in tenants if tenant.ready_seconds is not None}
    by_name = {tenant.namespace: tenant for tenant in tenants}
    done: dict[str, float] = {}
    now, used, possible = 0.0, 0, 0
    while healthy - done.keys():
        assert now < most_seconds, f"not done: {healthy - done.keys()}"
        for at, replacement in [each for each in due if each[0] <= now]:
            due.remove((at, replacement))
            state.apply("pods", [(replacement.key, msgspec.structs.replace(replacement, ready=True))])
        in_flight, ended = in_flight.updated(state.snapshot, now, lambda *_: Outcome.IMPROVED)
        for over in ended:
            history.learn(over, {}, None)
        under_way = {each.pod.namespace for each in in_flight.moves}
        for namespace in healthy - done.keys() - under_way:
            if not waiting[namespace]:
                done[namespace] = now - by_name[namespace].from_seconds
        planned = [
            each
            for namespace, moves in sorted(waiting.items())
            if by_name[namespace].from_seconds <= now
            for each in moves
        ]
        paced = Pace(
            snapshot=state.snapshot, limiters=limiters, in_flight=in_flight.moves, standings=history.standings, now=now
        ).of(planned)
        for each in paced.now:
            in_flight = in_flight.sent(each, state.snapshot, now)
            history.serve(each.pod.namespace)
            waiting[each.pod.namespace].remove(each)
            replacement = msgspec.structs.replace(
                each.pod, name=f"{each.pod.name}-new", uid=f"{each.pod.uid}-new", ready=False
            )
            state.apply("pods", [(each.pod.key, None), (replacement.key, replacement)])
            if (seconds := by_name[each.pod.namespace].ready_seconds) is not None:
                due.append((now + seconds, replacement))
        if any(waiting[namespace] for namespace in healthy if by_name[namespace].from_seconds <= now):
            used += len(in_flight.moves)
            possible += limits.in_flight
        assert len(in_flight.moves) <= limits.in_flight
        now += RECONCILE_SECONDS
    return Ran(done, used / possible if possible else 1.0)


def _move(tenant: Tenant, number: int) -> Move:
    app = f"{tenant.namespace}-app-{number}"
    fields: dict[str, Any] = {
        "namespace": tenant.namespace,
        "controller": OwnerReference("apps/v1", "ReplicaSet", app, f"uid-{app}"),
        "creation_timestamp": NOW,
    }
    return move(pod(f"{app}-pod", f"node-{app}", SPEC, **fields), groups=(group(app),))


def others(random: Random) -> list[Tenant]:
    return [
        Tenant(f"tenant-{number}", random.randint(5, 40), random.choice([2.0, 5.0, 20.0]), random.choice([0.0, 30.0]))
        for number in range(random.randint(1, 3))
    ]


@pytest.mark.parametrize("limits", [Limits(), Limits(in_flight=30, in_flight_per_namespace=15)], ids=["default", "30"])
@pytest.mark.parametrize("seed", range(40 if factor() > 1 else 6))
def test_two_namespaces_that_never_get_ready_leave_the_others_two_thirds_of_the_places(
    limits: Limits, seed: int
) -> None:
    healthy, places = others(Random(seed)), limits.in_flight * 2 // 3
    of_namespace = min(places, limits.in_flight_per_namespace)
    fewer = msgspec.structs.replace(limits, in_flight=places, in_flight_per_namespace=of_namespace)
    alone = run(healthy, fewer).balanced_after
    beside = run([*(Tenant(name, 300, None) for name in GREEDY), *healthy], limits).balanced_after
    for namespace, seconds in alone.items():
        (ready_seconds,) = (each.ready_seconds or 0.0 for each in healthy if each.namespace == namespace)
        proving = ready_seconds + RECONCILE_SECONDS  # it gets more moves only after its first replacement
        assert beside[namespace] <= seconds + proving, (namespace, healthy, alone, beside)


@pytest.mark.parametrize(
    ("tenants", "limits"),
    [
        pytest.param([Tenant("one", 60, 5.0)], Limits(in_flight_per_namespace=10), id="one namespace"),
        pytest.param([Tenant("one", 300, 10.0)], Limits(in_flight=50, in_flight_per_namespace=50), id="fifty at once"),
        pytest.param([Tenant(f"tenant-{number}", 40, 10.0) for number in range(4)], Limits(), id="four namespaces"),
        pytest.param(
            [Tenant(f"tenant-{number}", 10, 120.0) for number in range(30)],
            Limits(),
            id="slow ones",
            marks=pytest.mark.long,
        ),
        pytest.param(
            [Tenant("one", 100, 10.0), *(Tenant(name, 300, None) for name in GREEDY)],
            Limits(in_flight_per_namespace=10),
            id="beside two that never get ready",
        ),
    ],
)
def test_limits_stay_fully_used_while_moves_are_left(tenants: Sequence[Tenant], limits: Limits) -> None:
    assert run(tenants, limits).used >= 0.8


def test_namespaces_alternate_if_the_limit_is_one() -> None:
    tenants = [Tenant(f"tenant-{number}", 20, 3.0) for number in range(2)]
    first, second = run(tenants, Limits(in_flight=1)).balanced_after.values()
    assert abs(first - second) <= 10


def test_a_namespace_that_failed_gets_its_share_back_with_the_first_replacement_that_is_ready() -> None:
    history = History(lambda: 0.0)
    victims = [_move(Tenant("shop", 8, None), number) for number in range(8)]
    snapshot = cluster([], [each.pod for each in victims])
    policy = default_policy(limits=Limits(in_flight_per_namespace=10))

    def made() -> int:
        pace = Pace(snapshot=snapshot, limiters=(Limiter.of(policy),), standings=history.standings, now=0.0)
        return len(pace.of(victims).now)

    def end(*, ready: bool, seconds: float) -> None:
        replacement = msgspec.structs.replace(victims[0].pod, ready=ready)
        ended = Ended(
            move=victims[0], outcome=Outcome.UNCHANGED, replacement=replacement, seconds=seconds, message="over"
        )
        history.learn(ended, {}, None)

    assert made() == 8  # no other namespace has moves
    end(ready=False, seconds=300)
    assert made() == 2
    end(ready=False, seconds=1)  # its controller wanted no replacement, which is no failure
    assert made() == 2
    end(ready=True, seconds=20)
    assert made() == 8
