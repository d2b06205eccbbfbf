"""Which policy governs a pod.

A RebalancePolicy of the pod's namespace has precedence over every ClusterRebalancePolicy. Among those of one kind that
select the pod, the one with the highest priority governs it, then the oldest. An invalid policy still governs what it
selects, and nothing is evicted there. If it were ignored, a typo in the policy that protects a namespace would hand its
pods to the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cached_property
from typing import Final, NamedTuple

import msgspec
from immutables import Map

from respread.api.policy import NAMESPACE_NAME_LABEL, ClusterPolicySpec, Policy, WhenUnsatisfiable
from respread.cluster.meta import Labels
from respread.cluster.objects import Namespace
from respread.cluster.selectors import Selector, compile_selector
from respread.cluster.state import ClusterSnapshot
from respread.planning.victims.protection import SYSTEM_PRIORITY_CLASSES, Protection
from respread.spread.carried import ALL_DEFAULTS, HARD_DEFAULTS


def kinds_restored(policies: Iterable[Policy]) -> frozenset[WhenUnsatisfiable]:
    """Return the kinds of default constraints that matter to some policies."""
    soft = any("ScheduleAnyway" in policy.spec.constraints.when_unsatisfiable for policy in policies)
    return ALL_DEFAULTS if soft else HARD_DEFAULTS


_LAST: Final = datetime.max.replace(tzinfo=UTC)
_MOST_LABEL_SETS: Final = 4096
"""The number of answers kept per namespace. Every rollout brings new labels, and the old ones are not needed again."""


class Governance(NamedTuple):
    """Which policy governs a pod, and which others select it."""

    policy: Policy | None
    """None: no policy selects the pod, and nothing is done with it."""
    overridden: tuple[Policy, ...] = ()
    """Policies of the same kind that also select the pod. A cluster policy that gives way to a policy of the namespace
    is not included, because this is normal."""


class _Candidate(NamedTuple):
    policy: Policy
    pods: Selector


class NamespacePolicies:
    """The policies that can govern pods of one namespace, in order of precedence."""

    __slots__ = ("_answers", "_cluster", "_own")

    def __init__(self, own: Sequence[_Candidate], cluster: Sequence[_Candidate]) -> None:
        self._own = own
        self._cluster = cluster
        self._answers: dict[Labels, Governance] = {}

    @property
    def is_empty(self) -> bool:
        """Whether no pod of the namespace can be governed by any policy."""
        return not self._own and not self._cluster

    def governance(self, labels: Labels) -> Governance:
        """Return the governance of a pod with these labels. Asking again for equal labels costs a look-up."""
        found = self._answers.get(labels)
        if found is None:
            if len(self._answers) >= _MOST_LABEL_SETS:
                self._answers.clear()
            found = self._answers[labels] = self._decide(labels)
        return found

    def _decide(self, labels: Labels) -> Governance:
        for scope in (self._own, self._cluster):
            selecting = [each.policy for each in scope if each.pods.matches(labels)]
            if selecting:
                return Governance(selecting[0], tuple(selecting[1:]))
        return Governance(None)


class PolicyIndex:
    """All policies, prepared for questions about many pods. It is created again when a policy changes."""

    def __init__(self, policies: Iterable[Policy]) -> None:
        """Prepare for the policies in use, of both kinds, in any order."""
        self._cluster: list[tuple[Selector, _Candidate]] = []
        self._own: dict[str, list[_Candidate]] = {}
        self._namespaces: dict[str, tuple[Namespace | None, NamespacePolicies]] = {}
        for policy in sorted(policies, key=_precedence):
            candidate = _Candidate(policy, compile_selector(policy.spec.pod_selector))
            if isinstance(policy.spec, ClusterPolicySpec):
                self._cluster.append((compile_selector(policy.spec.namespace_selector), candidate))
            else:
                self._own.setdefault(policy.namespace, []).append(candidate)

    def in_namespace(self, name: str, namespaces: Mapping[str, Namespace]) -> NamespacePolicies:
        """Return the policies that can govern pods of a namespace. Unless it is known, no cluster policy does.

        None does while it is being deleted: nothing would replace an evicted pod. Its name counts as its label
        `kubernetes.io/metadata.name` even if that is missing.
        """
        namespace = namespaces.get(name)
        known = self._namespaces.get(name)
        if known is not None and known[0] == namespace:
            return known[1]
        cluster: list[_Candidate] = []
        if namespace is not None:
            named = namespace.labels.set(NAMESPACE_NAME_LABEL, name)
            cluster = [candidate for namespaces, candidate in self._cluster if namespaces.matches(named)]
        prepared = NamespacePolicies(self._own.get(name, ()), cluster)
        if namespace is not None and namespace.terminating:
            prepared = NamespacePolicies((), ())
        self._namespaces[name] = (namespace, prepared)
        return prepared


class PolicyReach(NamedTuple):
    """How many pods the policies govern, by the policies' names."""

    pods: Map[str, int]
    """The number of pods that each policy governs. A policy that governs none is absent."""
    overridden_by: Map[str, tuple[str, ...]]
    """For each policy that selects pods of others, the policies that govern these pods, sorted."""


def reach(index: PolicyIndex, snapshot: ClusterSnapshot) -> PolicyReach:
    """Return which policies govern how many pods, and which lose pods to which others."""
    pods: dict[str, int] = {}
    winners: dict[str, set[str]] = {}
    for namespace, label_sets in snapshot.pods_by_labels.items():
        policies = index.in_namespace(namespace, snapshot.namespaces)
        if policies.is_empty:
            continue
        for labels, named in label_sets.items():
            governing, overridden = policies.governance(labels)
            if governing is None:
                continue
            pods[governing.name] = pods.get(governing.name, 0) + len(named)
            for loser in overridden:
                winners.setdefault(loser.name, set()).add(governing.name)
    return PolicyReach(Map(pods), Map({loser: tuple(sorted(names)) for loser, names in winners.items()}))


def _precedence(policy: Policy) -> tuple[int, datetime, str]:
    """Return the sort key of the policies of one kind. A policy that was never created is the youngest."""
    created = policy.creation_timestamp
    return -policy.spec.priority, _LAST if created is None else created, policy.object_name


class PolicySetting(msgspec.Struct, frozen=True, dict=True):
    """The policies, and the objects that they refer to, compiled once for all who ask about them."""

    policies: tuple[Policy, ...]
    """The policies in use, of both kinds."""
    priority_classes: Mapping[str, int] = msgspec.field(default_factory=lambda: SYSTEM_PRIORITY_CLASSES)
    """The values of the cluster's PriorityClasses by name."""

    @cached_property
    def index(self) -> PolicyIndex:
        """Which policies govern which pods."""
        return PolicyIndex(self.policies)

    @cached_property
    def protections(self) -> Mapping[str, Protection]:
        """The rules for victims of every valid policy, by the policies' names."""
        protections: dict[str, Protection] = {}
        for policy in self.policies:
            if policy.problems:
                continue
            try:
                protections[policy.name] = Protection.of(policy.spec.victims, self.priority_classes)
            except ValueError:
                continue  # Its PriorityClass does not exist. Until it does, the policy evicts nothing.
        return protections

    @cached_property
    def ranks(self) -> Mapping[str, int]:
        """By name how important policies are where room is not enough for all, the most important first.

        Their `priority` decides, and those that only plan come last: what they would take is there for others.
        """
        importance = {policy.name: (policy.spec.mode == "DryRun", -policy.spec.priority) for policy in self.policies}
        order = sorted(set(importance.values()))
        return {name: order.index(each) for name, each in importance.items()}
