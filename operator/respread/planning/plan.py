"""What planning returns: the moves that restore the spread, what stays violated and why, and how it looks after."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

import msgspec

from respread.api.reasons import Reason
from respread.cluster.pod import Pod
from respread.cluster.workload import WorkloadName
from respread.planning.held import Held
from respread.spread.group import GroupKey


class Move(msgspec.Struct, frozen=True, kw_only=True):
    """One eviction, and where its replacement may land."""

    pod: Pod
    policy: str
    """The name of the policy that asks for it: `namespace/name`, or a cluster policy's name."""
    workload: WorkloadName
    turn: int
    """The moves of turn 0 may be made now and all together. A later turn has to wait until the replacements of the ones
    before it are placed, and is planned anew then."""
    component: int
    """Moves of one component share spread groups, those of different ones don't. Of those of one turn a later one is
    made only if the earlier ones are."""
    step: int = 0
    """Moves of one component and one step are made together or not at all: their replacements fit only if all of the
    pods are evicted."""
    groups: tuple[GroupKey, ...]
    """The violated groups that it helps."""
    from_domains: tuple[str, ...]
    """The pod's domain in each of `groups`."""
    to_domains: tuple[tuple[str, ...], ...]
    """Per group of `groups`, the domains that the replacement may land in, sorted."""
    nodes: int
    """How many nodes the replacement may land on."""
    certain: bool
    """Whether it helps on whichever of these nodes the scheduler picks, or only on those its score is likely to
    pick."""
    why: str = ""
    """Why this pod rather than another, in a few words."""
    waits: Held | None = None
    """What the first step of a component waits for, if it is not of turn 0."""


class BlockedGroup(msgspec.Struct, frozen=True, kw_only=True):
    """A selected group that is violated and stays so after the plan's moves, and why.

    Or one that would be violated if a domain that its policy expects had a node.
    """

    group: GroupKey
    policy: str
    reason: Reason
    message: str


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """The moves in the order they are to be made, and what they leave."""

    moves: tuple[Move, ...] = ()
    blocked: tuple[BlockedGroup, ...] = ()
    policies: Mapping[GroupKey, str] = {}
    """The policy that selects each selected group."""
    counts_before: Mapping[GroupKey, Mapping[str, int]] = {}
    """Matching pods per domain as they are, for every group that the moves change."""
    counts_after: Mapping[GroupKey, Mapping[str, int]] = {}
    """Matching pods per domain after the moves, for every group that they change; a prediction."""
    lower_bound: int = 0
    """No plan that leaves as few violations has fewer moves."""
    changes_at: datetime | None = None
    """When time alone may change the plan, as the protection of a pod ends; None: never."""
