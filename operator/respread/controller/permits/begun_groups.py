"""The spread groups for which evictions were made, and which need more once they are at rest again."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from math import isfinite
from typing import Final

from respread.api.reasons import Reason
from respread.cluster.state import ClusterSnapshot
from respread.controller.observation import Observation
from respread.eviction.flight import Flight, still_there
from respread.eviction.limits.hour import Begun
from respread.planning.plan import BlockedGroup
from respread.planning.search.closed_form import Bounds, fewest_moves
from respread.spread.group import GroupKey, SpreadGroup

_FOR_THE_MOMENT: Final = frozenset({Reason.IN_MOTION, Reason.QUIET_PERIOD})


def begun_groups(blocked: Iterable[BlockedGroup], observation: Observation) -> Iterator[Begun]:
    """Yield them, those of the same pods as one, because an eviction may improve all of these.

    Args:
        blocked: the groups that a plan leaves alone, with the reasons.
        observation: what the plan was made for.
    """
    flights: defaultdict[GroupKey, list[tuple[str, Flight]]] = defaultdict(list)
    for flight in observation.under_way.flights:
        for key, domain in zip(flight.move.groups, flight.move.from_domains, strict=True):
            flights[key].append((domain, flight))
    needed: Counter[tuple[str, str, tuple[object, ...]]] = Counter()
    groups: dict[tuple[str, str, tuple[object, ...]], SpreadGroup] = {}
    for each in blocked:
        group = observation.spread.groups.get(each.group)
        if group is None or not group.matched or each.reason not in _FOR_THE_MOMENT:
            continue
        if not observation.history.pace_of(group).in_last_hour:
            continue
        pods = each.policy, each.group.namespace, group.matched
        groups[pods] = group
        needed[pods] = max(needed[pods], _still_needed(group, flights.get(each.group, ()), observation.snapshot))
    for (policy, namespace, matched), evictions in needed.items():
        yield Begun(policy, namespace, groups[policy, namespace, matched].matched[0], evictions)


def _still_needed(group: SpreadGroup, flights: Iterable[tuple[str, Flight]], snapshot: ClusterSnapshot) -> int:
    """Return the fewest evictions after which a group holds, once those in flight have come to where fewest are.

    Args:
        group: as the watch shows it.
        flights: its moves in flight, each with the domain that its pod leaves.
        snapshot: the cluster as the watch shows it.
    """
    counts = group.all_counts()
    for domain, flight in flights:
        if still_there(snapshot, flight.move.pod) is not None and counts.get(domain):
            counts[domain] -= 1
    for _, flight in flights:
        if counts and (flight.replacement is None or not flight.replacement.node_name):
            counts[min(counts, key=counts.__getitem__)] += 1
    bounds = Bounds(most=0 if len(counts) < group.key.min_domains else None)
    fewest = fewest_moves(tuple(sorted(Counter(counts.values()).items())), group.key.max_skew, bounds)
    return int(fewest) if isfinite(fewest) else 0
