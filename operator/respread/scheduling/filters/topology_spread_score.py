"""PodTopologySpread's score for ScheduleAnyway constraints: which feasible nodes the scheduler prefers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import floor, log
from typing import Final

import msgspec

from respread.cluster.pod import Pod
from respread.scheduling.filters.pod_topology_spread import eligible_nodes, matching_pods
from respread.scheduling.filters.topology_spread import ConstraintsInForce, SpreadConstraint
from respread.scheduling.view.node_table import NodeSet, NodeTable, slots_of
from respread.scheduling.view.pod_index import PodIndex, domain_counts

HOSTNAME: Final = "kubernetes.io/hostname"
MAX_NODE_SCORE: Final = 100


class SoftConstraint(msgspec.Struct, frozen=True):
    """A ScheduleAnyway constraint with its data for scoring."""

    constraint: SpreadConstraint
    weight: float
    """ln(n + 2), where n is the number of scored domains (for the hostname: of scored nodes)."""
    counts: Mapping[str, int]
    """Matching pods of each scored domain, counted over all eligible nodes. Empty for the hostname, where the pods of
    each node are counted."""


class SpreadScores(msgspec.Struct, frozen=True):
    """The score of every feasible node."""

    constraints: tuple[SoftConstraint, ...]
    slots: Sequence[int]
    """The slots of the scored nodes."""
    raw: Sequence[int]
    """In the order of `slots`; lower is better."""
    normalized: Sequence[int]
    """In the order of `slots`, 0 to 100; higher is better, and the best has 100."""
    ignored: NodeSet
    """Feasible nodes without one of the topology keys. Both of their scores are 0."""


def spread_scores(
    table: NodeTable, pods: PodIndex, pod: Pod, in_force: ConstraintsInForce, feasible: NodeSet
) -> SpreadScores | None:
    """Score the feasible nodes. None if there are no nodes or no soft constraints."""
    constraints = in_force.soft
    if not constraints or not feasible:
        return None
    need_all = in_force.soft_need_all_keys
    keys = {each.topology_key for each in constraints} if need_all else set()
    scored = feasible
    for key in keys:
        scored &= table.column(key).present
    slots = slots_of(scored)
    totals = [0.0] * len(slots)
    described: list[SoftConstraint] = []
    for each in constraints:
        column = table.column(each.topology_key).values
        tally = matching_pods(pods, pod, each)
        if each.topology_key == HOSTNAME:
            weight = log(len(slots) + 2)
            counts: dict[str, int] = {}
            points = [_points(tally.counts.get(slot, 0), each, weight) for slot in slots]
        else:
            eligible = eligible_nodes(table, pod, each, keys)
            by_domain = domain_counts(table, tally, each.topology_key, eligible, keyless=not need_all).counts
            domains = {column[slot] or "" for slot in slots}
            weight = log(len(domains) + 2)
            counts = {domain: by_domain.get(domain, 0) for domain in sorted(domains)}
            points_of = {domain: _points(count, each, weight) for domain, count in counts.items()}
            points = [points_of[column[slot] or ""] for slot in slots]
        for position, slot in enumerate(slots):
            if column[slot] is not None:
                totals[position] += points[position]
        described.append(SoftConstraint(each, weight, counts))
    raw = [floor(total + 0.5) for total in totals]  # as Go's `math.Round`, because no score is negative
    return SpreadScores(tuple(described), slots, raw, _normalized(raw), feasible & ~scored)


def _points(count: int, constraint: SpreadConstraint, weight: float) -> float:
    return count * weight + (constraint.max_skew - 1)


def _normalized(raw: Sequence[int]) -> list[int]:
    most = max(raw, default=0)
    if most == 0:
        return [MAX_NODE_SCORE] * len(raw)
    both = most + min(raw)
    return [MAX_NODE_SCORE * (both - score) // most for score in raw]
