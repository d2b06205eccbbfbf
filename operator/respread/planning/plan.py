"""The result of planning: the moves that restore the spread, what stays violated and why, and the predicted counts."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping
from datetime import datetime
from itertools import count, groupby
from typing import TypeAlias, TypeVar

import msgspec
from immutables import Map

from respread.api.reasons import Held, Reason
from respread.cluster.pod import Pod, WorkloadName
from respread.scheduling.configuration import SelectingOwner
from respread.spread.group import GroupKey

T = TypeVar("T")
_Owner = TypeVar("_Owner", bound=Hashable)


def in_turns(items: Iterable[T], owner_of: Callable[[T], _Owner], served: Mapping[_Owner, int] = Map()) -> list[T]:
    """Return items so that each owner, such as a namespace, has its first before any has its second.

    The items are in their order within an owner. `served` has a number for each that grows with the time when it was
    last served: the owner served longest ago is first. Without it, the order of the items decides.
    """
    numbers: defaultdict[_Owner, Iterator[int]] = defaultdict(count)
    owned = [(owner_of(item), item) for item in items]
    ranked = [(next(numbers[owner]), served.get(owner, -1), item) for owner, item in owned]
    return [item for *_, item in sorted(ranked, key=lambda each: each[:2])]


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """One eviction, and where its replacement may land."""

    pod: Pod
    policy: str
    """The name of the policy for which it is made: `namespace/name`, or a cluster policy's name."""
    workload: WorkloadName
    wave: int
    """The moves of wave 0 may be made now, at the same time or one after another, or some of them without the others. A
    later wave waits until the replacements of the earlier ones are placed, and is then planned again."""
    component: int = -1
    """Moves of one component share spread groups; moves of different components don't."""
    step: int = 0
    """Moves of one component and one step are made together or not at all, because their replacements fit only if all
    of the pods are evicted."""
    groups: tuple[GroupKey, ...]
    """The violated groups that it improves."""
    from_domains: tuple[str, ...]
    """The pod's domain in each of `groups`."""
    to_domains: tuple[tuple[str, ...], ...]
    """For each group of `groups`, the domains in which the replacement may land, sorted."""
    nodes: int
    """The number of nodes on which the replacement may land."""
    certain: bool
    """Whether it improves the groups whichever of these nodes the scheduler picks, or only on those that its score
    makes likely."""
    why: str = ""
    """Why this pod and not another, in a few words."""
    waits: Held | None = None
    """What the first step of a component that is not in wave 0 waits for."""


Step: TypeAlias = tuple[Move, ...]
"""Moves that are made together or not at all: usually one. If there are several, the replacements fit only if all of
the pods are evicted."""


def steps_of(moves: Iterable[Move]) -> Iterator[Step]:
    """Yield the steps of moves in the order of a plan."""
    for _, step in groupby(moves, lambda move: (move.wave, move.component, move.step)):
        yield tuple(step)


class BlockedGroup(Held, frozen=True, kw_only=True):
    """Why a selected group stays violated after the plan's moves.

    Or a group that would be violated if a domain that its policy expects had a node.
    """

    group: GroupKey
    policy: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The moves in the order in which they are made, and what they leave."""

    moves: tuple[Move, ...] = ()
    blocked: tuple[BlockedGroup, ...] = ()
    held_pods: Mapping[str, Mapping[Reason, int]] = {}
    """By policy, how many pods stay in domains of blocked groups that have too many, by reason (`HeldPods`)."""
    policies: Mapping[GroupKey, str] = {}
    """The policy that selects each selected group."""
    counts_before: Mapping[GroupKey, Mapping[str, int]] = {}
    """Current matching pods per domain, for every group that the moves change."""
    counts_after: Mapping[GroupKey, Mapping[str, int]] = {}
    """Predicted matching pods per domain after the moves, for every group that they change."""
    lower_bound: int = 0
    """No plan that leaves as few violations has fewer moves."""
    owners: frozenset[SelectingOwner] = frozenset()
    """The controllers of the pods of violated groups. Who controls those in turn decides whether the pods may be
    evicted. The plan is final if the snapshot contains all that exist."""
    awaits_nodes: bool = False
    """Whether moves wait until replacements of others have a node."""
    changes_at: datetime | None = None
    """When the plan may change without an event, for example because the protection of a pod ends; None: never."""
