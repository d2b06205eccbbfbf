"""Whether a constraint holds, and the fewest evictions until all do, computed independently of Respread's code.

The fewest are found by trying all final placements. The order of evictions is ignored, so it may be impossible to reach
the placement with so few evictions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from bench.compare.world import MILLI_PER_CPU, Constraint, Workload, World


class Fewest(NamedTuple):
    """The best possible end."""

    violated: int
    """The fewest violated constraints at the end."""
    evictions: int
    """The fewest evictions with this result."""


class _End(NamedTuple):
    """A possible final placement of a workload's pods."""

    violated: int
    evictions: int
    placement: tuple[int, ...]


def holds(world: World, workload: Workload, constraint: Constraint, placement: Mapping[str, int]) -> bool:
    """Return whether a constraint holds, as kube-scheduler counts.

    Args:
        world: the world with its nodes.
        workload: the workload with the constraint.
        constraint: the constraint.
        placement: the workload's pods on each node.
    """
    zone_of = world.zone_of()
    counts = Counter[str]()
    for node, zone in zone_of.items():
        if _is_eligible(world, workload, constraint, zone):
            counts[zone if constraint.over == "zones" else node] += placement.get(node, 0)
    least = min(counts.values()) if len(counts) >= constraint.min_domains else 0
    return max(counts.values()) - least <= constraint.max_skew


def fewest(world: World) -> Fewest:
    """Return the best end that evictions can reach, given room, nodes and budgets.

    A workload that is rolled out needs none, because all its pods are replaced anyway.
    """
    ends = [sorted(_ends(world, each)) for each in world.workloads if not world.is_replacing(each)]
    used = [each.milli_cpu for each in world.workloads if not world.is_replacing(each)]
    return _best([zone.cpu * MILLI_PER_CPU for zone in world.zones.values() for _ in range(zone.nodes)], used, ends)


def _is_eligible(world: World, workload: Workload, constraint: Constraint, zone: str) -> bool:
    """Return whether a zone's nodes count, by `nodeAffinityPolicy: Honor`, the default, and `nodeTaintsPolicy`."""
    refused = world.zones[zone].tainted and not workload.tolerates
    return not (constraint.honors_taints and refused) and zone in (workload.only_zones or zone)


def _takes(world: World, workload: Workload, zone: str) -> bool:
    """Return whether a replacement may be placed on a zone's nodes."""
    shape = world.zones[zone]
    affinity = zone in (workload.only_zones or zone)
    return affinity and not shape.cordoned and (workload.tolerates or not shape.tainted)


def _ends(world: World, workload: Workload) -> Iterator[_End]:
    """Yield every possible final placement of a workload's pods."""
    zone_of, before = world.zone_of(), world.start(workload)
    may_leave = bool(workload.constraints) and workload.max_unavailable != 0
    choices = [
        range(0 if may_leave else pods, _most(world, workload, zone_of[node], pods) + 1)
        for node, pods in before.items()
    ]
    for placement in _placements(choices, workload.replicas):
        after = dict(zip(before, placement, strict=True))
        yield _End(
            sum(not holds(world, workload, each, after) for each in workload.constraints),
            sum(max(0, pods - after[node]) for node, pods in before.items()),
            placement,
        )


def _most(world: World, workload: Workload, zone: str, before: int) -> int:
    if not workload.constraints or workload.max_unavailable == 0 or not _takes(world, workload, zone):
        return before
    return 1 if workload.one_a_node else workload.replicas


def _placements(choices: Sequence[range], pods: int) -> Iterator[tuple[int, ...]]:
    if not choices:
        if pods == 0:
            yield ()
        return
    for first in choices[0]:
        if first <= pods:
            for rest in _placements(choices[1:], pods - first):
                yield (first, *rest)


def _best(room: Sequence[int], used: Sequence[int], ends: Sequence[Sequence[_End]]) -> Fewest:
    """Return the best combination of ends for all workloads that fits the nodes.

    Args:
        room: the free CPU of each node, in thousandths.
        used: the CPU of a pod of each workload.
        ends: the ends of each workload, the best first.
    """
    best = Fewest(sum(each[-1].violated for each in ends) + 1, 0)
    beyond = [Fewest(*map(sum, zip(*[each[0][:2] for each in ends[at:]], strict=True))) for at in range(len(ends))]

    def search(at: int, left: Sequence[int], so_far: Fewest) -> None:
        nonlocal best
        if at == len(ends):
            best = min(best, so_far)
            return
        for end in ends[at]:
            after = Fewest(so_far.violated + end.violated, so_far.evictions + end.evictions)
            ahead = beyond[at + 1] if at + 1 < len(ends) else Fewest(0, 0)
            if (after.violated + ahead.violated, after.evictions + ahead.evictions) >= best:
                return  # the following ends are no better
            rest = [free - used[at] * pods for free, pods in zip(left, end.placement, strict=True)]
            if min(rest) >= 0:
                search(at + 1, rest, after)

    search(0, room, Fewest(0, 0))
    return best
