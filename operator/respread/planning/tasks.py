"""Tasks: the groups that share pods and need to be restored, and which of these pods may be evicted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from sys import maxsize
from typing import Final, NamedTuple, TypeAlias

import msgspec
from immutables import Map
from msgspec.structs import replace

from respread.api.policy import Policy
from respread.api.reasons import Held, Reason
from respread.cluster.incremental import are_same
from respread.cluster.meta import Labels
from respread.cluster.objects import Workload
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot, PodsByName
from respread.planning.plan import Plan
from respread.planning.victims.budgets import BudgetState
from respread.planning.victims.protection import controller_of, ordinal_of
from respread.planning.victims.selection import Rules, Violated, labels_of, why_protected, why_refused
from respread.scheduling.configuration import SelectingOwner, selecting_owner
from respread.spread.group import GroupKey, SpreadGroup


class FiledPods(msgspec.Struct, frozen=True):
    """Pods by namespace and labels."""

    known: Mapping[str, Mapping[Labels, Sequence[Pod]]]
    """Those whose labels a pod of the snapshot has."""
    vanished: Mapping[str, Mapping[Labels, Sequence[Pod]]]
    """The others."""

    @classmethod
    def of(cls, pods: Iterable[Pod], snapshot: ClusterSnapshot) -> FiledPods:
        """File pods, which may be gone from the snapshot."""
        known: dict[str, dict[Labels, list[Pod]]] = {}
        vanished: dict[str, dict[Labels, list[Pod]]] = {}
        for pod in pods:
            here = pod.labels in snapshot.pods_by_labels.get(pod.namespace, Map())
            (known if here else vanished).setdefault(pod.namespace, {}).setdefault(pod.labels, []).append(pod)
        return cls(known, vanished)

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self.known or self.vanished)

    def __iter__(self) -> Iterator[Pod]:
        """Yield the pods."""
        for each in (self.known, self.vanished):
            for in_namespace in each.values():
                for pods in in_namespace.values():
                    yield from pods


class Task(msgspec.Struct, frozen=True, eq=False):
    """A component of spread groups, some of which are to be restored. It only equals itself."""

    groups: tuple[SpreadGroup, ...]
    cure: Mapping[GroupKey, str]
    """The groups to be restored, with the policy that selects each."""
    pods: tuple[Pod, ...]
    """All unfinished pods that a group counts, or that have one of the constraints; sorted by name."""
    victims: tuple[Pod, ...]
    """The pods that may be evicted."""
    protected: tuple[tuple[Pod, Held], ...]
    """The pods that may not, with the reason."""
    labels: frozenset[Labels]
    """The label sets of its pods."""
    waiting: tuple[Pod, ...]
    """The pods without a node."""
    returning: tuple[Pod, ...]
    """The terminating pods that their controllers create again when they are gone."""

    changes_at: datetime | None
    """When the first of `protected` may be evicted without an event; None: never."""
    owners: frozenset[SelectingOwner] = frozenset()
    """The controllers of those of its pods that a policy governs."""
    coming: tuple[Pod, ...] = ()
    """The replacements of moves in flight that have no node, and the evicted pods of those that don't exist yet."""

    @property
    def namespace(self) -> str:
        """The namespace of the task."""
        return self.groups[0].key.namespace

    @property
    def holder(self) -> str:
        """Who takes room for it, for people."""
        return f"the moves that restore {next(iter(self.cure))}"

    def of(self, pods: FiledPods) -> list[Pod]:
        """Return those of some pods that a group counts, or that have one of the constraints."""
        if not pods:
            return []
        known, vanished = pods.known.get(self.namespace), pods.vanished.get(self.namespace)
        found: list[Pod] = []
        if known:
            labels = self.labels if len(self.labels) < len(known) else known.keys() & self.labels
            found.extend(pod for each in labels for pod in known.get(each, ()))
        if vanished:
            found.extend(
                pod
                for labels, same in vanished.items()
                if any(group.key.selector.matches(labels) for group in self.groups)
                for pod in same
            )
        return sorted(found, key=lambda pod: pod.key)

    def in_motion(self, ours: Collection[str]) -> Held | None:
        """Return what is still to come for it that nobody can foresee, if anything.

        Pods that only terminate are nothing to wait for: neither the scheduler nor the skew counts them. Plans reckon
        with the pods in flight and their replacements, whose UIDs are `ours`.
        """
        for pod in self.waiting:
            if pod.uid not in ours:
                return Held(
                    Reason.IN_MOTION,
                    f"{pod.name}, one of its {len(self.pods)} pods, has no node yet: it is left alone until it has one",
                )
        for pod in self.returning:
            if pod.uid not in ours and pod.controller is not None:
                return Held(
                    Reason.IN_MOTION,
                    f"{pod.name} is being deleted, and {pod.controller.kind} {pod.controller.name} creates it again "
                    "when it is gone: it is left alone until then",
                )
        return None

    def goes_on_from(self, before: Task, moved: Collection[str]) -> bool:
        """Whether all is the same for a solution of an earlier task, except for room, which may have been left.

        Terminating pods may be gone: neither the scheduler nor the skew counts them. Pods may have become Ready, except
        those that the solution moves, whose UIDs are `moved`: pods that are not Ready are preferred to others.
        """
        pods, earlier = (
            [*((pod, None) for pod in task.victims), *(each for each in task.protected if not each[0].terminating)]
            for task in (self, before)
        )
        return (
            are_same(self.groups, before.groups)
            and self.cure == before.cure
            and (self.coming, self.waiting, self.returning) == (before.coming, before.waiting, before.returning)
            and [held for _, held in pods] == [held for _, held in earlier]
            and all(
                pod is was
                or (
                    pod.ready
                    and pod.uid not in moved
                    and pod == replace(was, ready=True, ready_seconds=pod.ready_seconds, phase=pod.phase)
                )
                for (pod, _), (was, _) in zip(pods, earlier, strict=True)
            )
        )


_REPLACING_AT_ONCE: Final = frozenset({"ReplicaSet", "ReplicationController", "CloneSet"})
"""The controllers that replace a pod as soon as it terminates."""
_PODS: Final = 2
"""The number of leading values in the result of `_basis` that describe pods. The others describe what else decides."""
_Basis: TypeAlias = tuple[Policy | None, BudgetState, Mapping[str, tuple[Workload | None, int]]]
"""What is the same for all pods of a label set: the policy, what budgets allow, and their controllers by UID, with the
number of active pods of each, counted as far as the policy needs."""


class _Part(NamedTuple):
    """The pods of one label set, and what is known of them while everything that it was derived from stays the same."""

    names: PodsByName
    samples: tuple[Pod, ...]
    """One pod of each controller."""
    siblings: tuple[PodsByName | None, ...]
    """All pods of the controller of each."""
    basis: _Basis
    pods: tuple[tuple[Pod, Held | None], ...]
    """The unfinished pods, sorted by name, each with the reason why it may not be evicted, except recent refusals."""
    changes_at: datetime | None
    """When any of this changes without an event; None: never."""


class _Known(NamedTuple):
    violated: Violated
    parts: tuple[_Part, ...]
    task: Task
    refused: bool
    """Whether the API server has refused an eviction in the namespace lately."""


class Tasks:
    """The tasks of one snapshot after the other. One is made again only if something that it is made of may differ."""

    def __init__(self) -> None:
        self._namespaces: dict[str, _NamespaceTasks] = {}

    def advance(self, rules: Rules) -> list[Task]:
        """Return the tasks of another snapshot, at the cost of what has changed; sorted by namespace."""
        before, self._namespaces = self._namespaces, {}
        tasks: list[Task] = []
        for name, violated in rules.selection.violated.items():
            namespace = self._namespaces[name] = before.get(name) or _NamespaceTasks(name)
            tasks.extend(namespace.advance(violated, rules))
        return tasks


class _NamespaceTasks:
    def __init__(self, name: str) -> None:
        self._name = name
        self._basis: tuple[object, ...] | None = None
        """The objects from which the tasks were made. While they are the same, so are the tasks. None: it depends on
        more."""
        self._changes_at: datetime | None = None
        self._known: list[_Known] = []
        self._parts: dict[Labels, _Part] = {}
        self._tasks: list[Task] = []

    def advance(self, violated: Sequence[Violated], rules: Rules) -> list[Task]:
        """Return the tasks of the namespace, sorted by the name of their first pod."""
        basis = _basis(violated, rules, self._name)
        known = self._basis
        only_pods = same = False
        if basis is not None and known is not None:
            only_pods = are_same(basis[_PODS:], known[_PODS:])
            same = only_pods and are_same(basis[:_PODS], known[:_PODS])
        if not same or _is_over(self._changes_at, rules.now):
            self._follow(violated, rules, only_pods=only_pods)
            self._changes_at = earliest(part.changes_at for part in self._parts.values())
            self._tasks = sorted((each.task for each in self._known), key=lambda task: task.pods[0].name)
        self._basis = basis
        return self._tasks

    def _follow(self, violated: Sequence[Violated], rules: Rules, *, only_pods: bool) -> None:
        refused = self._name in rules.refused.namespaces
        pods = rules.snapshot.pods_by_labels.get(self._name, Map())
        by_controller = rules.snapshot.pods_by_controller.get(self._name, Map())
        by_identity = {id(known.violated): known for known in self._known}
        parts: dict[Labels, _Part] = {}
        now: list[_Known] = []
        for each in violated:
            former = by_identity.get(id(each))
            label_sets = former.task.labels if former else frozenset[Labels]().union(*map(labels_of, each.groups))
            own = tuple(
                self._part(labels, pods.get(labels, Map()), by_controller, rules, only_pods=only_pods)
                for labels in label_sets
            )
            parts.update(zip(label_sets, own, strict=True))
            if former is None or refused or former.refused or not are_same(own, former.parts):
                former = _Known(each, own, _task(each, label_sets, own, rules), refused=refused)
            now.append(former)
        self._known, self._parts = now, parts

    def _part(
        self, labels: Labels, names: PodsByName, by_controller: Map[str, PodsByName], rules: Rules, *, only_pods: bool
    ) -> _Part:
        """Return what is known of the pods of a label set, and check only those for which something has changed."""
        former = self._parts.get(labels)
        same_names = former is not None and former.names is names
        samples = former.samples if former is not None and same_names else _one_of_each(names)
        siblings = tuple(by_controller.get(_uid(each)) for each in samples)
        policy = rules.selection.policy_of(self._name, labels)
        still = former if same_names and former is not None and not _is_over(former.changes_at, rules.now) else None
        same_siblings = still is not None and are_same(siblings, still.siblings)
        if still is not None and only_pods and same_siblings and policy is still.basis[0]:
            return still
        standing = rules.budgets.standing(self._name, labels)
        least = 0 if policy is None else policy.spec.victims.min_replicas
        controllers = {
            _uid(each): (controller_of(rules.snapshot, each), rules.active_pods.up_to(each, least)) for each in samples
        }
        basis = (policy, standing, controllers)
        known: dict[str, tuple[Pod, Held | None]] = {}
        if former is not None and former.basis == basis:
            if still is not None:
                return still if same_siblings else still._replace(siblings=siblings)
            known = {
                pod.name: (pod, held)
                for pod, held in former.pods
                if held is None or not _is_over(held.until, rules.now)
            }
        pods: list[tuple[Pod, Held | None]] = []
        for name, pod in sorted(names.items()):
            before = known.get(name)
            if before is not None and before[0] is pod:
                pods.append(before)
            elif not pod.finished:
                pods.append((pod, why_protected(pod, policy, rules)))
        changes_at = earliest(None if held is None else held.until for _, held in pods)
        return _Part(names, samples, siblings, basis, tuple(pods), changes_at)


def _one_of_each(names: PodsByName) -> tuple[Pod, ...]:
    return tuple({_uid(pod): pod for pod in names.values() if pod.controller is not None}.values())


def _uid(pod: Pod) -> str:
    return "" if pod.controller is None else pod.controller.uid


def _basis(violated: Sequence[Violated], rules: Rules, namespace: str) -> tuple[object, ...] | None:
    """Return what the tasks of a namespace depend on, except the time; None if moves in flight or refusals do too."""
    if namespace in rules.refused.namespaces or rules.budgets.has_in_flight(namespace):
        return None
    snapshot = rules.snapshot
    return (
        violated,
        snapshot.pods_by_labels.get(namespace),
        snapshot.unread,
        snapshot.disruption_budgets.get(namespace),
        snapshot.replica_sets,
        snapshot.stateful_sets,
        snapshot.replication_controllers,
    )


def _task(violated: Violated, labels: frozenset[Labels], parts: Sequence[_Part], rules: Rules) -> Task:
    judged = sorted((each for part in parts for each in part.pods), key=lambda each: each[0].name)
    victims: list[Pod] = []
    protected: list[tuple[Pod, Held]] = []
    for pod, known in judged:
        if not pod.node_name:
            continue
        held = why_refused(pod, rules) if known is None else known
        if held is None:
            victims.append(pod)
        else:
            protected.append((pod, held))
    pods = tuple(pod for pod, _ in judged)
    groups = tuple(sorted(violated.groups, key=_order))
    return Task(
        groups=groups,
        cure={key: violated.cure[key] for group in groups if (key := group.key) in violated.cure},
        pods=pods,
        victims=tuple(victims),
        protected=tuple(protected),
        labels=labels,
        waiting=tuple(pod for pod in pods if not pod.node_name and not pod.terminating),
        returning=tuple(_returning(pods)),
        owners=frozenset(_owners(parts)),
        changes_at=earliest(held.until for _, held in protected),
    )


def _owners(parts: Iterable[_Part]) -> Iterator[SelectingOwner]:
    for part in parts:
        policy, _, _ = part.basis
        if policy is not None:
            yield from (owner for each in part.samples if (owner := selecting_owner(each)) is not None)


def _order(group: SpreadGroup) -> tuple[str, str, int, int, str, str]:
    key, nodes = group.key, sorted(group.key.eligibility.node_selector.items())  # a Map has another order elsewhere
    others = f"{nodes} {replace(key.eligibility, node_selector=Map())}"
    return key.topology_key, key.when_unsatisfiable, key.max_skew, key.min_domains, str(key.selector), others


def earliest(times: Iterable[datetime | None]) -> datetime | None:
    """Return the earliest of some times, without None."""
    return min((each for each in times if each is not None), default=None)


def _is_over(until: datetime | None, now: datetime) -> bool:
    return until is not None and now >= until


def _returning(pods: Sequence[Pod]) -> Iterator[Pod]:
    """Yield the terminating pods that come back when they are gone.

    A ReplicaSet creates a replacement at once. A StatefulSet takes away its highest ordinals when it is scaled down, so
    another one comes back. Of other controllers, that is not known.
    """
    owned = [(pod, pod.controller) for pod in pods if pod.controller is not None]
    highest: dict[str, int] = {}
    for pod, owner in owned:
        if not pod.terminating:
            highest[owner.uid] = max(ordinal := ordinal_of(pod.name), highest.get(owner.uid, ordinal))
    for pod, owner in owned:
        if not pod.terminating or owner.kind in _REPLACING_AT_ONCE:
            continue
        if owner.kind != "StatefulSet" or ordinal_of(pod.name) <= highest.get(owner.uid, maxsize):
            yield pod


_HeldByPolicy: TypeAlias = Mapping[str, Mapping[Reason, int]]
"""Numbers of pods by the policies' names."""
_Blocked: TypeAlias = tuple[tuple[GroupKey, Reason], ...]


class HeldPods:
    """Counts these pods for one plan after the other, at the cost of what has changed."""

    def __init__(self) -> None:
        self._known: dict[tuple[Task, _Blocked], _HeldByPolicy] = {}

    def count(self, tasks: Iterable[Task], planned: Plan, groups: Mapping[GroupKey, SpreadGroup]) -> _HeldByPolicy:
        """Return the pods that a blocked group counts in a domain with too many, and that no move is planned for.

        A pod that may not be evicted counts for its own reason, any other for that of its group, and each pod once. If
        a domain has no node, the pods in domains with more than maxSkew count for that reason.
        """
        reasons = {each.group: each.reason for each in planned.blocked}
        moved = frozenset(move.pod.uid for move in planned.moves)
        known: dict[tuple[Task, _Blocked], _HeldByPolicy] = {}
        total: dict[str, Counter[Reason]] = {}
        in_tasks: set[GroupKey] = set()
        for task in tasks:
            in_tasks.update(task.cure)
            blocked = tuple((key, reasons[key]) for key in task.cure if key in reasons)
            if not blocked:
                continue
            if planned.counts_after.keys().isdisjoint(task.cure):
                if (held := self._known.get((task, blocked))) is None:
                    held = _held(task, dict(blocked), planned, frozenset())
                known[task, blocked] = held
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


def _held(task: Task, blocked: Mapping[GroupKey, Reason], planned: Plan, moved: frozenset[str]) -> _HeldByPolicy:
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
    return replace(group, counts={domain: count for domain, count in counts.items() if count})
