"""The spread groups that need evictions and are left alone only for the moment, as while they are in motion."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from math import isfinite
from typing import Final, NamedTuple, TypeAlias

from immutables import Map

from respread.api.reasons import Reason
from respread.cluster.state import ClusterSnapshot
from respread.controller.observation import Observation
from respread.eviction.limits.hour import Begun
from respread.eviction.limits.lots import Later
from respread.moves.entry import MoveEntry, still_there
from respread.planning.plan import BlockedGroup
from respread.planning.search.closed_form import fewest_evictions
from respread.spread.group import GroupKey, SpreadGroup

_Entries: TypeAlias = dict[GroupKey, list[tuple[str, MoveEntry]]]
_FOR_THE_MOMENT: Final = frozenset({Reason.IN_MOTION, Reason.QUIET_PERIOD})
_WHILE_IN_FLIGHT: Final = frozenset({Reason.HELD_BY_BUDGET, Reason.PODS_NOT_READY})
"""Reasons that end with the moves in flight of a group, if it has any."""


class _Needed(NamedTuple):
    """Spread groups of the same pods, and the fewest evictions that they still need."""

    policy: str
    group: SpreadGroup
    """One of them."""
    evictions: int


def begun_groups(blocked: Iterable[BlockedGroup], observation: Observation) -> Iterator[Begun]:
    """Yield those for which evictions were made, those of the same pods as one, because an eviction may improve all.

    Args:
        blocked: the groups that a plan leaves alone, with the reasons.
        observation: what the plan was made for.
    """
    paused = (
        each
        for each in blocked
        if each.reason in _FOR_THE_MOMENT
        and (group := observation.spread.groups.get(each.group)) is not None
        and observation.history.pace_of(group).in_last_hour
    )
    for each in _needed(paused, observation, _entries(observation)):
        yield Begun(each.policy, each.group.key.namespace, each.group.matched[0], each.evictions)


def later_moves(blocked: Iterable[BlockedGroup], observation: Observation) -> Iterator[Later]:
    """Yield the evictions of groups that are left alone only for the moment, whether or not any was made for them.

    Args:
        blocked: the groups that a plan leaves alone, with the reasons.
        observation: what the plan was made for.
    """
    entries = _entries(observation)
    waiting = (
        each
        for each in blocked
        if each.reason in _FOR_THE_MOMENT or (each.reason in _WHILE_IN_FLIGHT and each.group in entries)
    )
    for each in _needed(waiting, observation, entries):
        of_namespace = observation.snapshot.pods_by_labels.get(each.group.key.namespace, Map())
        pod = next(iter(of_namespace.get(each.group.matched[0], Map()).values()), None)
        if pod is not None:
            yield Later(each.policy, pod, each.evictions)


def _entries(observation: Observation) -> _Entries:
    """Return the moves in flight by the groups that they improve, each with the domain that its pod leaves."""
    entries: _Entries = {}
    for entry in observation.ledger.under_way:
        for key, domain in zip(entry.move.groups, entry.move.from_domains, strict=True):
            entries.setdefault(key, []).append((domain, entry))
    return entries


def _needed(blocked: Iterable[BlockedGroup], observation: Observation, entries: _Entries) -> Iterator[_Needed]:
    needed: Counter[tuple[str, str, tuple[object, ...]]] = Counter()
    groups: dict[tuple[str, str, tuple[object, ...]], SpreadGroup] = {}
    for each in blocked:
        group = observation.spread.groups.get(each.group)
        if group is None or not group.matched:
            continue
        pods = each.policy, each.group.namespace, group.matched
        groups[pods] = group
        needed[pods] = max(needed[pods], _still_needed(group, entries.get(each.group, ()), observation.snapshot))
    for key, evictions in needed.items():
        yield _Needed(key[0], groups[key], evictions)


def _still_needed(group: SpreadGroup, entries: Iterable[tuple[str, MoveEntry]], snapshot: ClusterSnapshot) -> int:
    """Return the fewest evictions after which a group holds, once those in flight have come to where fewest are.

    Args:
        group: as the watch shows it.
        entries: its moves in flight, each with the domain that its pod leaves.
        snapshot: the cluster as the watch shows it.
    """
    counts = group.all_counts()
    for domain, entry in entries:
        if still_there(snapshot, entry.move.pod) is not None and counts.get(domain):
            counts[domain] -= 1
    for _, entry in entries:
        if counts and (entry.replacement is None or not entry.replacement.node_name):
            counts[min(counts, key=counts.__getitem__)] += 1
    fewest = fewest_evictions(group.key.counts(counts, len(counts)))
    return int(fewest) if isfinite(fewest) else 0
