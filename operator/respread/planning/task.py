"""What there is to be restored, piece by piece: the groups that share pods, and which of these pods may be evicted."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime

import msgspec
from immutables import Map

from respread.api.reasons import Reason
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.planning.budgets import BudgetLedger
from respread.planning.held import Held
from respread.planning.protection import Protection
from respread.planning.selection import Selection
from respread.spread.group import GroupKey, SpreadGroup


class Task(msgspec.Struct, frozen=True):
    """A component of spread groups some of which are to be cured."""

    groups: tuple[SpreadGroup, ...]
    cure: frozenset[GroupKey]
    pods: tuple[Pod, ...]
    """All unfinished pods that a group counts, or that carry one of the constraints."""
    victims: tuple[Pod, ...]
    """Those that may be evicted."""
    protected: tuple[tuple[Pod, Held], ...]
    """Those that may not, and why."""

    @property
    def keys(self) -> list[GroupKey]:
        """The groups that are to be cured, in an order that is always the same."""
        return [group.key for group in self.groups if group.key in self.cure]


class Victims:
    """Tells which pods may be evicted."""

    __slots__ = ("_budgets", "_now", "_protections", "_selection")

    def __init__(
        self, selection: Selection, protections: Mapping[str, Protection], budgets: BudgetLedger, now: datetime
    ) -> None:
        """Prepare.

        Args:
            selection: which policy governs which pods.
            protections: by policy name; one that is missing here may not evict, being wrong somewhere.
            budgets: of the cluster.
            now: the time, with a time zone.
        """
        self._selection = selection
        self._protections = protections
        self._budgets = budgets
        self._now = now

    def task(self, groups: Sequence[SpreadGroup], cure: Collection[GroupKey], pods: Iterable[Pod]) -> Task:
        """Return the task of curing groups of a component."""
        victims: list[Pod] = []
        protected: list[tuple[Pod, Held]] = []
        listed = tuple(pods)
        for pod in listed:
            held = self._held(pod)
            if held is None:
                victims.append(pod)
            else:
                protected.append((pod, held))
        return Task(tuple(groups), frozenset(cure), listed, tuple(victims), tuple(protected))

    def _held(self, pod: Pod) -> Held | None:
        policy = self._selection.policy_of(pod.namespace, pod.labels)
        if policy is None:
            return Held(Reason.NOT_SELECTED, "no policy selects it")
        if (protection := self._protections.get(policy.name)) is None:
            return Held(
                Reason.INVALID_POLICY, f"policy {policy.name} is wrong somewhere, and evicts nothing until right"
            )
        if (held := protection.of_pod(pod, self._now)) is not None:
            return held
        verdict = self._budgets.verdict(pod)
        return verdict if isinstance(verdict, Held) else None


def pods_of(snapshot: ClusterSnapshot, component: Sequence[SpreadGroup]) -> list[Pod]:
    """Return the unfinished pods that a group of a component counts, or that carry one of its constraints."""
    by_labels = snapshot.pods_by_labels[component[0].key.namespace]
    belonging = {labels for group in component for labels in group.matched}
    belonging.update(template.labels for group in component for template in group.carriers)
    pods = (pod for labels in belonging for pod in by_labels.get(labels, Map()).values() if not pod.finished)
    return sorted(pods, key=lambda pod: pod.name)


def in_motion(pods: Sequence[Pod]) -> Held | None:
    """Return what is still moving among pods, if anything: the spread it ends in is not known yet."""
    terminating = sum(pod.terminating for pod in pods)
    waiting = [pod for pod in pods if not pod.node_name and not pod.terminating]
    if not terminating and not waiting:
        return None
    parts = [f"{terminating} terminating"] * bool(terminating) + [f"{len(waiting)} without a node"] * bool(waiting)
    example = waiting[0] if waiting else next(pod for pod in pods if pod.terminating)
    return Held(
        Reason.IN_MOTION,
        f"of its {len(pods)} pods there are {' and '.join(parts)} (such as {example.name}): it is left alone until "
        "they are gone or placed",
    )
