"""What pod deletion costs saved in a scale-down that is complete."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from respread.prevention.replica_set import ReplicaSetPods
from respread.prevention.scale_down import deletion_order, evictions_needed, groups_without, without_ours
from respread.prevention.selection import CostSelection


class Avoided(NamedTuple):
    """A scale-down that followed our costs."""

    replica_set: ReplicaSetPods
    """The ReplicaSet before it."""
    policy: str
    deleted: int
    evictions: int
    """An estimate of the additional evictions that would have been needed without costs."""


def avoided_between(
    before: ReplicaSetPods | None, after: ReplicaSetPods, selection: CostSelection, time: datetime
) -> Avoided | None:
    """Return what costs saved between two rests of a ReplicaSet; None if nothing was scaled down by them.

    Args:
        before: the earlier rest; None if there was none.
        after: the later one.
        selection: the policy that asks for the costs.
        time: the time, with a time zone.
    """
    if before is None:
        return None
    left = {pod.uid for pod in after.pods}
    deleted = [pod for pod in before.pods if pod.uid not in left]
    if not deleted or len(before.pods) - len(deleted) != len(left):
        return None
    in_order = deletion_order(before, time)
    if {pod.uid for pod in deleted} != {pod.uid for pod in in_order[: len(deleted)]}:
        return None  # Something other than a scale-down removed them.
    without_costs = deletion_order(before, time, without_ours)[: len(deleted)]
    needed = [
        evictions_needed(group for group in groups_without(before.groups, gone) if group.key in selection.restored)
        for gone in (without_costs, deleted)
    ]
    return Avoided(before, selection.policy, len(deleted), max(0, needed[0] - needed[1]))
