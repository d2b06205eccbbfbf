"""What there is to be restored, piece by piece: the groups that share pods, and which of these pods may be evicted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from operator import is_
from typing import NamedTuple, TypeAlias

import msgspec
from immutables import Map

from respread.api.policy import Policy
from respread.api.reasons import Reason
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.planning.budgets import BudgetLedger
from respread.planning.controllers import controller_of
from respread.planning.held import Held
from respread.planning.protection import Protection, why_owner_unknown
from respread.planning.refused import NOTHING_REFUSED, Refused
from respread.planning.selection import NamespaceSelection, Selection, Violated
from respread.spread.group import GroupKey, SpreadGroup


class Task(msgspec.Struct, frozen=True, eq=False):
    """A component of spread groups some of which are to be cured. It is only ever equal to itself."""

    groups: tuple[SpreadGroup, ...]
    cure: Mapping[GroupKey, str]
    """The groups that are to be cured, and the policy that wants each restored."""
    pods: tuple[Pod, ...]
    """All unfinished pods that a group counts, or that carry one of the constraints; sorted by name."""
    victims: tuple[Pod, ...]
    """Those that may be evicted."""
    protected: tuple[tuple[Pod, Held], ...]
    """Those that may not, and why."""
    moving: Held | None
    """Why it is left alone although nothing else speaks against it: pods are on the move."""

    changes_at: datetime | None
    """When the first of `protected` may be evicted by time alone; None: never."""

    @property
    def namespace(self) -> str:
        """The namespace that all of it is in."""
        return self.groups[0].key.namespace

    def is_like(self, other: Task) -> bool:
        """Whether there is no difference to another task."""
        return (
            _same(self.groups, other.groups)
            and _same(self.pods, other.pods)
            and _same(self.victims, other.victims)
            and self.cure == other.cure
            and self.protected == other.protected
        )


class Rules(NamedTuple):
    """What decides which pods may be evicted."""

    selection: Selection
    protections: Mapping[str, Protection]
    """By policy name; one that is missing here may not evict, being wrong somewhere."""
    budgets: BudgetLedger
    in_flight: frozenset[str]
    """The namespaces in which evictions are under way."""
    now: datetime
    """With a time zone."""
    refused: Refused = NOTHING_REFUSED
    snapshot: ClusterSnapshot = ClusterSnapshot()
    """The cluster, for the controllers that are known; those that are not are read before one of their pods is
    evicted."""


class Tasks:
    """The tasks of one snapshot after the other; one that has not changed is the same object as before."""

    __slots__ = ("_namespaces",)

    def __init__(self) -> None:
        """Know of no tasks yet."""
        self._namespaces: dict[str, _NamespaceTasks] = {}

    def advance(self, snapshot: ClusterSnapshot, rules: Rules) -> list[Task]:
        """Return the tasks of another snapshot, at the cost of what has changed; sorted by namespace."""
        before, self._namespaces = self._namespaces, {}
        for name, namespace in rules.selection.namespaces.items():
            if not namespace.violated:
                continue
            basis = (
                namespace,
                snapshot.pods_by_labels.get(name),
                snapshot.disruption_budgets.get(name),
                snapshot.replica_sets,
                snapshot.stateful_sets,
                snapshot.replication_controllers,
            )
            known = before.get(name)
            refused = name in rules.refused.namespaces
            unlike = name in rules.in_flight or refused
            if known is None or unlike or known.is_due(rules.now) or not all(map(is_, known.basis, basis)):
                known = _namespace_tasks(basis, snapshot, rules, () if known is None else known.tasks)
                if refused:
                    known = known._replace(changes_at=rules.now)
            self._namespaces[name] = known
        return [task for each in self._namespaces.values() for task in each.tasks]


_Basis: TypeAlias = tuple[NamespaceSelection, object, object, object, object, object]
"""What a namespace's tasks are made from: while these objects are the same, so are they."""


class _NamespaceTasks(NamedTuple):
    basis: _Basis
    tasks: tuple[Task, ...]
    changes_at: datetime | None
    """When they change by time alone; None: never."""

    def is_due(self, now: datetime) -> bool:
        """Tell whether they have to be made anew although nothing has changed."""
        return self.changes_at is not None and now >= self.changes_at


def _namespace_tasks(
    basis: _Basis,
    snapshot: ClusterSnapshot,
    rules: Rules,
    before: Sequence[Task],
) -> _NamespaceTasks:
    known = {frozenset(task.cure): task for task in before}
    tasks: list[Task] = []
    for violated in basis[0].violated:
        task = _task(violated, snapshot, rules)
        former = known.get(frozenset(task.cure))
        tasks.append(former if former is not None and former.is_like(task) else task)
    tasks.sort(key=lambda task: task.pods[0].name)
    return _NamespaceTasks(basis, tuple(tasks), changes_at=earliest(task.changes_at for task in tasks))


def _task(violated: Violated, snapshot: ClusterSnapshot, rules: Rules) -> Task:
    pods = pods_of(snapshot, violated.groups)
    victims: list[Pod] = []
    protected: list[tuple[Pod, Held]] = []
    for pod in pods:
        if not pod.node_name:
            continue
        held = why_held(pod, rules)
        if held is None:
            victims.append(pod)
        else:
            protected.append((pod, held))
    return Task(
        groups=tuple(sorted(violated.groups, key=_order)),
        cure=violated.cure,
        pods=tuple(pods),
        victims=tuple(victims),
        protected=tuple(protected),
        moving=in_motion(pods),
        changes_at=earliest(held.until for _, held in protected),
    )


def _order(group: SpreadGroup) -> tuple[str, str, int, int, str]:
    key = group.key
    return key.topology_key, key.when_unsatisfiable, key.max_skew, key.min_domains, str(key.selector)


def why_held(pod: Pod, rules: Rules) -> Held | None:
    """Return why a pod may not be evicted, or None if it may."""
    policy = rules.selection.policy_of(pod.namespace, pod.labels)
    if policy is None:
        return Held(Reason.NOT_SELECTED, "no policy selects it")
    if (protection := rules.protections.get(policy.name)) is None:
        return Held(Reason.INVALID_POLICY, f"policy {policy.name} is wrong somewhere, and evicts nothing until right")
    if (held := protection.of_pod(pod, rules.now) or _by_owner(pod, policy, rules.snapshot)) is not None:
        return held
    verdict = rules.budgets.verdict(pod)
    if isinstance(verdict, Held):
        return verdict
    if pod.namespace not in rules.refused.namespaces:
        return None
    return rules.refused.why_not(pod, rules.budgets.budgets_of(pod))


def earliest(times: Iterable[datetime | None]) -> datetime | None:
    """Return the first of some times, those that never come left out."""
    return min((each for each in times if each is not None), default=None)


def _by_owner(pod: Pod, policy: Policy, snapshot: ClusterSnapshot) -> Held | None:
    """Return why what owns a pod's controller holds it, as far as that is known beforehand."""
    controller = controller_of(snapshot, pod)
    if controller is None or pod.controller is None:
        return None
    return why_owner_unknown(pod.controller, controller.controller, policy.spec.victims.trusted_controllers)


def _same(one: Sequence[object], other: Sequence[object]) -> bool:
    return len(one) == len(other) and all(map(is_, one, other))


def pods_of(snapshot: ClusterSnapshot, component: Sequence[SpreadGroup]) -> list[Pod]:
    """Return the unfinished pods that a group of a component counts, or that carry one of its constraints, by name."""
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
