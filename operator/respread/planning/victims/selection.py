"""Which policy governs which pods, which spread groups are restored for it, and which pods may be evicted for them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import cached_property
from typing import Final, NamedTuple, TypeAlias

import msgspec

from respread.api.policy import Policy
from respread.api.reasons import Held, Reason, number_of
from respread.cluster.meta import Labels
from respread.cluster.objects import Namespace, PodDisruptionBudget
from respread.cluster.pod import Pod
from respread.cluster.selectors import Filed, file, under, unfile
from respread.cluster.state import ClusterSnapshot
from respread.planning.victims.budgets import BudgetBook, why_no_budget
from respread.planning.victims.policies import NamespacePolicies, PolicyIndex
from respread.planning.victims.protection import ActivePods, Protection, controller_of, why_owner_unknown
from respread.spread.group import GroupKey, SpreadGroup
from respread.spread.index import Spread

Component: TypeAlias = frozenset[GroupKey]


class Components:
    """The groups of one namespace in the smallest sets such that no pod belongs to groups of two sets.

    A pod belongs to a group if the group's selector matches it, or if it has the group's constraint. A component is
    computed when it is requested, and kept until groups come, go, or get other pods.
    """

    __slots__ = ("_groups", "_known", "_with_labels")

    def __init__(self) -> None:
        self._groups: dict[GroupKey, SpreadGroup] = {}
        self._with_labels: Filed[Labels, GroupKey] = {}
        self._known: dict[GroupKey, Component] = {}

    def advance(self, changed: Mapping[GroupKey, SpreadGroup | None]) -> None:
        """Take over the current groups, with None for those that are gone."""
        joined: set[Labels] = set()
        for key, group in changed.items():
            before = self._groups.get(key)
            if (
                before is not None
                and group is not None
                and before.matched is group.matched
                and before.carriers is group.carriers
            ):
                self._groups[key] = group
                continue
            if before is not None:
                self._forget(key)
                for labels in labels_of(before):
                    unfile(self._with_labels, labels, key)
                del self._groups[key]
            if group is not None:
                self._groups[key] = group
                for labels in labels_of(group):
                    file(self._with_labels, labels, key)
                    joined.add(labels)
        for labels in joined:
            for other in under(self._with_labels, labels):
                self._forget(other)

    def of(self, key: GroupKey) -> Component:
        """Return the component of a group. It stays the same object while it does not change."""
        if (found := self._known.get(key)) is None:
            found = frozenset(self._reached_from(key))
            self._known.update(dict.fromkeys(found, found))
        return found

    def _forget(self, key: GroupKey) -> None:
        for each in self._known.get(key, ()):
            del self._known[each]

    def _reached_from(self, key: GroupKey) -> set[GroupKey]:
        found, left = {key}, [key]
        seen: set[Labels] = set()
        while left:
            labels = labels_of(self._groups[left.pop()]) - seen
            seen |= labels
            new = {other for each in labels for other in under(self._with_labels, each)} - found
            found |= new
            left.extend(new)
        return found


def labels_of(group: SpreadGroup) -> set[Labels]:
    """Return the label sets of the pods that belong to a group."""
    labels = set(group.matched)
    labels.update(template.labels for template in group.carriers)
    return labels


class Violated(NamedTuple):
    """A component of spread groups, some of which are violated and selected."""

    groups: tuple[SpreadGroup, ...]
    cure: Mapping[GroupKey, str]
    """These groups, with the name of the policy that selects each."""


class Selection:
    """The policies as applied to one snapshot after the other."""

    def __init__(self, policies: PolicyIndex) -> None:
        """Prepare for policies, which stay the same."""
        self._policies = policies
        self._snapshot = ClusterSnapshot()
        self._namespaces: dict[str, _Namespace] = {}
        self.selected: dict[GroupKey, str] = {}
        """The groups that policies restore in the last snapshot, each with the name of its policy."""

    @property
    def violated(self) -> Mapping[str, Sequence[Violated]]:
        """What is to be restored, by namespace. An unchanged component stays the same object."""
        return {name: each.violated for name, each in self._namespaces.items() if each.violated}

    def advance(self, snapshot: ClusterSnapshot, spread: Spread) -> None:
        """Advance to another snapshot, at the cost of what has changed."""
        self._snapshot = snapshot
        before, self._namespaces = self._namespaces, {}
        namespaces: dict[str, _Namespace] = {}
        changed = before.keys() != spread.by_namespace.keys()
        for name in sorted(spread.by_namespace):
            groups, namespace = spread.by_namespace[name], snapshot.namespaces.get(name)
            known = before.get(name)
            if known is None or known.namespace is not namespace:
                known = _Namespace(namespace, self._policies.in_namespace(name, snapshot.namespaces))
                changed = True
            if known.groups is not groups:
                changed |= known.advance(groups)
            namespaces[name] = known
        self._namespaces = namespaces
        if changed:
            self.selected = {key: policy for each in namespaces.values() for key, policy in each.selected.items()}

    def policy_of(self, namespace: str, labels: Labels) -> Policy | None:
        """Return the policy that governs pods of a namespace with these labels."""
        return self._policies.in_namespace(namespace, self._snapshot.namespaces).governance(labels).policy


class _Namespace:
    """What the policies select in one namespace. It must not be used any more after `advance` has failed."""

    __slots__ = ("_components", "_known", "_policies", "_violated", "groups", "namespace", "selected", "violated")

    def __init__(self, namespace: Namespace | None, policies: NamespacePolicies) -> None:
        self.namespace = namespace
        self._policies = policies
        self._components = Components()
        self._known: dict[Component, Violated] = {}
        self._violated: dict[GroupKey, None] = {}
        self.groups: Mapping[GroupKey, SpreadGroup] = {}
        self.selected: dict[GroupKey, str] = {}
        """The groups that are restored, with the policy that selects each."""
        self.violated: tuple[Violated, ...] = ()

    def advance(self, groups: Mapping[GroupKey, SpreadGroup]) -> bool:
        """Take over the current groups, and return whether the selected ones have changed."""
        before, self.groups = self.groups, groups
        changed: dict[GroupKey, SpreadGroup | None] = {
            key: group for key, group in groups.items() if before.get(key) is not group
        }
        changed.update((key, None) for key in before if key not in groups)
        selected = False
        for key, group in changed.items():
            selected |= self._select(key, group, before.get(key))
            if group is not None and key in self.selected and group.violated:
                self._violated[key] = None
            else:
                self._violated.pop(key, None)
        self._components.advance(changed)
        self._know(changed)
        return selected

    def _select(self, key: GroupKey, group: SpreadGroup | None, before: SpreadGroup | None) -> bool:
        """Find the policy that restores a group, and return whether it has changed."""
        if group is not None and before is not None and group.carriers is before.carriers:
            return False
        policy = None if group is None else self._selecting(key, group)
        if policy == self.selected.get(key):
            return False
        if policy is None:
            del self.selected[key]
        else:
            self.selected[key] = policy
        return True

    def _selecting(self, key: GroupKey, group: SpreadGroup) -> str | None:
        """Return the policy that governs pods with the group's constraint and selects such constraints."""
        for policy in self._governing({template.labels for template in group.carriers}):
            if policy.spec.constraints.include(key.when_unsatisfiable, key.topology_key):
                return policy.name
        return None

    def _governing(self, label_sets: Iterable[Labels]) -> list[Policy]:
        """Return the policies that govern pods with any of some label sets, in order of precedence, then by name."""
        found = {
            policy.name: policy
            for labels in label_sets
            if (policy := self._policies.governance(labels).policy) is not None
        }
        return sorted(
            found.values(), key=lambda policy: (policy.kind != "RebalancePolicy", -policy.spec.priority, policy.name)
        )

    def _know(self, changed: Collection[GroupKey]) -> None:
        """Collect what is violated. Components without a changed group stay the same."""
        dirty = {self._components.of(key) for key in changed if key in self.groups} if self._known else set()
        known: dict[Component, Violated] = {}
        for key in self._violated:
            component = self._components.of(key)
            if component not in known:
                former = None if component in dirty else self._known.get(component)
                known[component] = self._together(component) if former is None else former
        self._known = known
        self.violated = tuple(known.values())

    def _together(self, component: Component) -> Violated:
        return Violated(
            tuple(self.groups[key] for key in component),
            {key: self.selected[key] for key in component if key in self._violated},
        )


def why_too_few(controller: str, replicas: int, min_replicas: int) -> Held | None:
    """Return why the pods of a workload are left alone because it is too small, or None if it is not.

    `replicas` is how many pods it wants, or how many it has, if only that is known.
    """
    if replicas >= min_replicas:
        return None
    return Held(
        Reason.TOO_FEW_REPLICAS,
        f"{controller} has {number_of(replicas, 'replica')}, fewer than the policy's victims.minReplicas of "
        f"{min_replicas}; more replicas, or a lower victims.minReplicas, would allow it",
    )


class Refused(NamedTuple):
    """Refusals that are still valid."""

    why_not: Callable[[Pod, tuple[PodDisruptionBudget, ...]], Held | None]
    """Takes a pod and the budgets that select it, and returns why its eviction would be refused again; None if it would
    not."""
    namespaces: frozenset[str] = frozenset()
    """The namespaces with such refusals."""


NOTHING_REFUSED: Final = Refused(lambda _pod, _budgets: None)


class Rules(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What decides which pods may be evicted."""

    snapshot: ClusterSnapshot
    """The cluster, for the controllers that are known. Others are read before one of their pods is evicted."""
    selection: Selection
    """Advanced to the snapshot."""
    protections: Mapping[str, Protection]
    """By policy name. An invalid policy is absent, and may not evict."""
    budgets: BudgetBook
    now: datetime
    """With a time zone."""
    refused: Refused = NOTHING_REFUSED

    @cached_property
    def active_pods(self) -> ActivePods:
        """The number of active pods of the controllers."""
        return ActivePods(self.snapshot)


def why_held(pod: Pod, rules: Rules) -> Held | None:
    """Return why a pod may not be evicted, or None if it may."""
    return why_protected(pod, rules.selection.policy_of(pod.namespace, pod.labels), rules) or why_refused(pod, rules)


def why_protected(pod: Pod, policy: Policy | None, rules: Rules) -> Held | None:
    """Return why a pod that a policy governs may not be evicted, except recent refusals."""
    if policy is None:
        return Held(Reason.NOT_SELECTED, "no policy selects it")
    if (protection := rules.protections.get(policy.name)) is None:
        return Held(Reason.INVALID_POLICY, f"policy {policy.name} is invalid and evicts nothing until it is fixed")
    held = protection.of_pod(pod, rules.now) or _by_owner(pod, policy, rules.snapshot)
    if held is None:
        held = _of_a_small_workload(pod, rules.active_pods, protection.rules.min_replicas)
    if held is not None:
        return held
    verdict = rules.budgets.verdict(pod)
    if isinstance(verdict, Held):
        return verdict
    return why_no_budget(protection.rules, rules.budgets.budgets_of(pod))


def why_refused(pod: Pod, rules: Rules) -> Held | None:
    """Return what the API server refused lately that keeps a pod, or None if nothing does."""
    if pod.namespace not in rules.refused.namespaces:
        return None
    return rules.refused.why_not(pod, rules.budgets.budgets_of(pod))


def _of_a_small_workload(pod: Pod, active_pods: ActivePods, least: int) -> Held | None:
    """Return a reason if the workload has too few pods. What its controller wants is only known at the last look."""
    if pod.controller is None:
        return None
    named = f"{pod.controller.kind} {pod.controller.name}"
    return why_too_few(named, active_pods.up_to(pod, least), least)


def _by_owner(pod: Pod, policy: Policy, snapshot: ClusterSnapshot) -> Held | None:
    """Return why the owner of a pod's controller holds it, if that is already known."""
    controller = controller_of(snapshot, pod)
    if controller is None or pod.controller is None:
        return None
    return why_owner_unknown(pod.controller, controller.controller, policy.spec.victims.trusted_controllers)
