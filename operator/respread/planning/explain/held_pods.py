"""How many pods a plan leaves in domains that have too many, by why it does not move them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import TypeAlias

import msgspec

from respread.api.reasons import Reason
from respread.planning.plan import Plan
from respread.planning.tasks import Task
from respread.spread.group import GroupKey, SpreadGroup

HeldByPolicy: TypeAlias = Mapping[str, Mapping[Reason, int]]
"""Numbers of pods by the policies' names."""
_Blocked: TypeAlias = tuple[tuple[GroupKey, Reason], ...]


class HeldPods:
    """Counts these pods for one plan after the other, at the cost of what has changed."""

    __slots__ = ("_known",)

    def __init__(self) -> None:
        self._known: dict[Task, tuple[_Blocked, HeldByPolicy]] = {}

    def count(self, tasks: Iterable[Task], planned: Plan, groups: Mapping[GroupKey, SpreadGroup]) -> HeldByPolicy:
        """Return the pods that a blocked group counts in a domain with too many, and that no move is planned for.

        A pod that may not be evicted counts for its own reason, any other for that of its group, and each pod once. If
        a domain has no node, the pods in domains with more than maxSkew count for that reason.

        Args:
            tasks: all tasks of the plan.
            planned: the plan.
            groups: all groups.
        """
        reasons = {each.group: each.reason for each in planned.blocked}
        moved = frozenset(move.pod.uid for move in planned.moves)
        known: dict[Task, tuple[_Blocked, HeldByPolicy]] = {}
        total: dict[str, Counter[Reason]] = {}
        in_tasks: set[GroupKey] = set()
        for task in tasks:
            in_tasks.update(task.cure)
            blocked = tuple((key, reasons[key]) for key in task.cure if key in reasons)
            if not blocked:
                continue
            if planned.counts_after.keys().isdisjoint(task.cure):
                found = self._known.get(task)
                if found is None or found[0] != blocked:
                    found = blocked, _held(task, dict(blocked), planned, frozenset())
                known[task] = found
                held = found[1]
            else:
                held = _held(task, dict(blocked), planned, moved)
            for policy, counts in held.items():
                total.setdefault(policy, Counter()).update(counts)
        self._known = known
        for each in planned.blocked:
            if each.reason is Reason.DOMAIN_HAS_NO_NODE and each.group not in in_tasks:
                in_domains = groups[each.group].counts.values()
                pods = sum(count for count in in_domains if count > each.group.max_skew)
                total.setdefault(each.policy, Counter())[each.reason] += pods
        return total


def _held(task: Task, blocked: Mapping[GroupKey, Reason], planned: Plan, moved: frozenset[str]) -> HeldByPolicy:
    protected = {pod.uid: held.reason for pod, held in task.protected}
    left = [
        (_after(group, planned.counts_after), frozenset(group.matched)) for group in task.groups if group.key in blocked
    ]
    found: dict[str, Counter[Reason]] = {}
    for pod in task.pods:
        if pod.uid in moved or not pod.node_name:
            continue
        for group, matched in left:
            if pod.labels in matched and group.too_full(pod.node_name) is not None:
                counts = found.setdefault(task.cure[group.key], Counter())
                counts[protected.get(pod.uid, blocked[group.key])] += 1
                break
    return found


def _after(group: SpreadGroup, counts_after: Mapping[GroupKey, Mapping[str, int]]) -> SpreadGroup:
    """Return a group as it is after the moves."""
    if (counts := counts_after.get(group.key)) is None:
        return group
    return msgspec.structs.replace(group, counts={domain: count for domain, count in counts.items() if count})
