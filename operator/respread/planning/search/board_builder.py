"""Builds a board from spread groups: which pods are equivalent, which are movable, and bounds of counts."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from sys import maxsize
from typing import TypeAlias
from zlib import crc32

from respread.cluster.meta import Labels, OwnerReference
from respread.cluster.pod import Pod
from respread.planning.placement import Placement, is_replaced_when_gone
from respread.planning.room.demand import held_by
from respread.planning.search.board import Board, Piece, Spot
from respread.planning.search.tally import Tally
from respread.planning.tasks import Task
from respread.planning.victims.protection import victim_order
from respread.scheduling.filters.taint_toleration import shunned_nodes
from respread.scheduling.filters.topology_spread import counts_as_pod
from respread.scheduling.view.node_table import NodeSet, node_set, slots_of
from respread.spread.counts import Bounds, Histogram, histogram_of
from respread.spread.group import DomainMap, SpreadGroup, domain_map, template_of
from respread.spread.index import group_keys_of

_Identity: TypeAlias = tuple[str, tuple[Labels, int, OwnerReference | None], str]


def set_up(
    tasks: Sequence[Task], placement: Placement, ranks: Mapping[str, int], leaving: Collection[str] = ()
) -> Board:
    """Return the board on which tasks of different components, mostly one, are solved together.

    All their pods have a node, except replacements of moves in flight. The most important policy has rank 0. `leaving`
    are the nodes that lose their pods anyway.
    """
    groups = [group for task in tasks for group in task.groups]
    pods = [pod for task in tasks for pod in task.pods]
    coming = [pod for task in tasks for pod in task.coming]
    cure = {key: ranks[policy] for task in tasks for key, policy in task.cure.items()}
    slot_of = placement.table.slot_of
    pieces, piece_of = _pieces(groups, pods, coming, placement)
    movable: dict[Spot, list[Pod]] = {}
    for pod in sorted((pod for task in tasks for pod in task.victims), key=victim_order):
        if (slot := slot_of.get(pod.node_name)) is not None:
            movable.setdefault(Spot(piece_of[_identity(pod)], slot), []).append(pod)
    occupied = node_set([slot for pod in pods if (slot := slot_of.get(pod.node_name)) is not None])
    tallies = [
        _tally(group, at, pieces, movable, pods, placement, cure.get(group.key)) for at, group in enumerate(groups)
    ]
    ends = accumulate(len(task.groups) for task in tasks)
    return Board(
        tallies,
        pieces,
        movable,
        occupied,
        placement,
        components=[range(end - len(task.groups), end) for task, end in zip(tasks, ends, strict=True)],
        turn=crc32(str(pods[0].key).encode()),
        ranks=max(ranks.values()) + 1,
        leaving=node_set([slot for name in leaving if (slot := slot_of.get(name)) is not None]),
        waiting=[piece_of[_identity(pod)] for pod in coming],
    )


def _identity(pod: Pod) -> _Identity:
    """Return a value that is equal for pods with equivalent replacements: of one template, with the same claims."""
    own_claims = pod.spec.stateful_claims or pod.spec.ephemeral_volumes
    return pod.namespace, template_of(pod).identity, pod.name if own_claims and is_replaced_when_gone(pod) else ""


def _pieces(
    groups: Sequence[SpreadGroup], pods: Iterable[Pod], coming: Iterable[Pod], placement: Placement
) -> tuple[list[Piece], dict[_Identity, int]]:
    matched = [(group.key.namespace, frozenset(group.matched)) for group in groups]
    carried: dict[tuple[object, ...], list[int]] = {}
    for index, group in enumerate(groups):
        for template in group.carriers:
            carried.setdefault((group.key.namespace, template.identity), []).append(index)
    samples: dict[_Identity, Pod] = {}
    for pod in pods:
        samples.setdefault(_identity(pod), pod)
    for pod in coming:
        # The groups don't know its labels and template if no other pod has them.
        if samples.setdefault(_identity(pod), pod) is pod:
            keys = group_keys_of(pod)
            carried[pod.namespace, template_of(pod).identity] = [
                index for index, group in enumerate(groups) if group.key in keys
            ]
            matched = [
                (namespace, labels | {pod.labels} if group.key.selector.matches(pod.labels) else labels)
                for (namespace, labels), group in zip(matched, groups, strict=True)
            ]
    pieces = []
    for pod in samples.values():
        template = template_of(pod)
        own = carried.get((pod.namespace, template.identity), ())
        pieces.append(
            Piece(
                template=template,
                sample=pod,
                replacement=placement.prepare(pod),
                when_gone=is_replaced_when_gone(pod),
                counted_by=tuple(
                    index
                    for index, (namespace, labels) in enumerate(matched)
                    if namespace == pod.namespace and pod.labels in labels
                ),
                hard=tuple(index for index in own if groups[index].key.when_unsatisfiable == "DoNotSchedule"),
                soft=tuple(index for index in own if groups[index].key.when_unsatisfiable == "ScheduleAnyway"),
                shunned=shunned_nodes(placement.table, pod.spec.tolerations),
            )
        )
    return pieces, {identity: number for number, identity in enumerate(samples)}


def _tally(
    group: SpreadGroup,
    at: int,
    pieces: Sequence[Piece],
    movable: dict[Spot, list[Pod]],
    pods: Iterable[Pod],
    placement: Placement,
    rank: int | None,
) -> Tally:
    """Make a group's tally, with what its pods that stay and the domains that take no replacement mean for it.

    Its rank is that of the policy that wants it cured; None if it is not to be cured.
    """
    domains = domain_map(placement.table, group)
    numbers = [number for number, piece in enumerate(pieces) if at in piece.counted_by]
    if rank is None:
        return Tally(group, domains, cure=False, counted=numbers)
    counted = [pieces[number] for number in numbers]
    staying, moving = Counter(group.counts), Counter[int]()
    reachable: NodeSet = 0
    for (number, slot), victims in movable.items():
        if at in pieces[number].counted_by and (domain := domains.of_slot[slot]) is not None:
            staying[domain] -= len(victims)
            moving[slot] += len(victims)
        reachable |= 1 << slot  # An evicted pod leaves its room.
    feasible: NodeSet = 0
    for piece in counted:
        if piece.replacement.unknown is None:
            # Other pods of the board may come, and go, that its affinity terms are about.
            reachable |= piece.replacement.admitted(spread=False, terms=False)
            feasible |= piece.replacement.statically_feasible
    bounds = Bounds(
        staying=histogram_of(staying, domains.size),
        incoming=_outside(group, domains, pods, placement),
        # A replacement may land outside of all domains unless it has the constraint itself.
        leaving=any(
            at not in piece.hard and piece.replacement.statically_feasible & ~domains.eligible
            for piece in counted
            if piece.replacement.unknown is None
        ),
    )
    return Tally(
        group,
        domains,
        cure=True,
        counted=numbers,
        bounds=bounds,
        closed=domains.closed(reachable & feasible, group.counts),
        full=_full(domains, group.counts, moving, reachable & feasible, _Room(placement, movable, counted)),
        never=domains.closed(feasible, group.counts),
        rank=rank,
    )


class _Room:
    """How many replacements nodes have room for, at most, once all pods that can be moved have left them."""

    def __init__(self, placement: Placement, movable: Mapping[Spot, Iterable[Pod]], pieces: Iterable[Piece]) -> None:
        self._free = placement.view.free
        self._movable = movable
        self._pieces = pieces

    @cached_property
    def _least(self) -> Mapping[str, int]:
        """The smallest need of a replacement, of each resource that all of them need."""
        wanted = [{name: amount for name, _, amount in piece.replacement.needs} for piece in self._pieces]
        first, *others = wanted
        return {name: min(needs[name] for needs in wanted) for name in first if all(name in needs for needs in others)}

    @cached_property
    def _held(self) -> Mapping[int, Mapping[str, int]]:
        """What the pods that can be moved hold, by slot."""
        held: defaultdict[int, Counter[str]] = defaultdict(Counter)
        for spot, pods in self._movable.items():
            for pod in pods:
                held[spot.slot].update(held_by(pod))
        return held

    def of(self, slot: int) -> int:
        """Return the number for one node."""
        held, free = self._held.get(slot, {}), self._free
        fitting = ((free.of(name).free[slot] + held.get(name, 0)) // least for name, least in self._least.items())
        return max(0, min(fitting, default=maxsize))


def _full(
    domains: DomainMap, counts: Mapping[str, int], moving: Mapping[int, int], open_nodes: NodeSet, room: _Room
) -> Histogram:
    """Return how many pods the domains can have at most, but for those with an open node for each of the fullest one's.

    `moving` is how many of the pods can be moved, by slot. They count in the room of a node that takes replacements:
    one of the `open_nodes`, which do now, or may once pods have left.
    """
    if domains.single:
        return domains.closed(open_nodes, counts)
    top = max(counts.values(), default=0)
    histogram: Counter[int] = Counter()
    for domain, nodes in domains.nodes.items():
        most, there = counts.get(domain, 0), nodes & open_nodes
        if there.bit_count() < top:
            with_more = most + sum(room.of(slot) - moving.get(slot, 0) for slot in slots_of(there))
            histogram[max(most, with_more)] += 1
    return tuple(sorted(histogram.items()))


def _outside(group: SpreadGroup, domains: DomainMap, pods: Iterable[Pod], placement: Placement) -> int:
    """Return how many pods that the group's selector matches are in none of its domains."""
    matched = frozenset(group.matched)
    if domains.eligible == placement.table.every:
        return 0
    slot_of = placement.table.slot_of
    return sum(
        1
        for pod in pods
        if counts_as_pod(pod)
        and pod.labels in matched
        and pod.namespace == group.key.namespace
        and (slot := slot_of.get(pod.node_name)) is not None
        and domains.of_slot[slot] is None
    )
