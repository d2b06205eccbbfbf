"""The moves that are left, counted by workload: what `remaining` works out how long they take from."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from statistics import median_low
from typing import Final, NamedTuple

from respread.cluster.meta import Labels
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.cluster.workload import WorkloadName, workload_of
from respread.eviction.limits.remaining import Lot
from respread.planning.plan import Move
from respread.planning.victims.budget_index import BudgetIndex
from respread.planning.victims.controllers import is_active, siblings_of

LONGEST_START_SECONDS: Final = 3600
"""A pod that was not Ready for longer than this was Ready before."""
_ENOUGH: Final = 50
"""How many pods of a controller are asked how long they took to become Ready."""


class Later(NamedTuple):
    """Evictions that a spread group still needs and that can't be planned for the moment."""

    policy: str
    """The name of the policy that restores it."""
    pod: Pod
    """One of its pods."""
    evictions: int


class _Key(NamedTuple):
    policy: str
    workload: WorkloadName
    labels: Labels


def lots_of(
    snapshot: ClusterSnapshot,
    budgets: BudgetIndex,
    moves: Iterable[Move],
    in_flight: Iterable[Move],
    *,
    waiting: Iterable[Move] = (),
    later: Iterable[Later] = (),
    measured: Callable[[WorkloadName], float | None] = lambda _: None,
) -> Iterator[Lot]:
    """Yield the moves that are left.

    Args:
        snapshot: the cluster.
        budgets: which budgets select which pods. It is advanced to the snapshot.
        moves: those of a plan that are made as soon as limits have room.
        in_flight: those in flight.
        waiting: those of the plan that wait for something else.
        later: others that will be planned.
        measured: returns how long replacements of a workload took until they were Ready; None if that is not known.
            Then it is taken from the pods that the workload has.
    """
    budgets.advance(snapshot)
    now, away, others = Counter[_Key](), Counter[_Key](), Counter[_Key]()
    examples: dict[_Key, Pod] = {}
    nodes: dict[_Key, Counter[str]] = {}
    for counts, which in ((now, moves), (away, in_flight), (others, waiting)):
        for move in which:
            key = _Key(move.policy, move.workload, move.pod.labels)
            counts[key] += 1
            examples.setdefault(key, move.pod)
            nodes.setdefault(key, Counter())[move.pod.node_name] += 1
    for each in later:
        key = _Key(each.policy, workload_of(each.pod), each.pod.labels)
        others[key] += each.evictions
        examples.setdefault(key, each.pod)
    for key, pod in examples.items():
        found = budgets.of(pod.namespace, pod.labels)
        budget = found[0] if len(found) == 1 else None  # With several, the API server evicts none of the pods.
        seconds = measured(key.workload)
        yield Lot(
            policy=key.policy,
            workload=key.workload,
            labels=key.labels,
            replicas=sum(map(is_active, siblings_of(snapshot, pod))),
            budget="" if budget is None else budget.name,
            disruptions=0 if budget is None else max(0, budget.expected_pods - budget.desired_healthy),
            seconds=seconds_of_pods(snapshot, pod) if seconds is None else seconds,
            now=now[key],
            later=others[key],
            in_flight=away[key],
            nodes=nodes.get(key, {}),
        )


def seconds_of_pods(snapshot: ClusterSnapshot, pod: Pod) -> float | None:
    """Return how long the pods of a pod's controller took from creation until they were Ready; None if none tells.

    It is the median, and at least a second, because Kubernetes stores whole seconds.
    """
    times = (each.ready_seconds for each in siblings_of(snapshot, pod) if is_active(each))
    found = list(islice((each for each in times if each is not None and each <= LONGEST_START_SECONDS), _ENOUGH))
    return float(max(1, median_low(found))) if found else None
