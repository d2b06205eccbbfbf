"""Which spread groups pods belong to, by their own constraints or else by the scheduler's default constraints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple, TypeAlias

import msgspec
from immutables import Map

from respread.api.policy import WhenUnsatisfiable
from respread.cluster.incremental import are_same, changed_keys
from respread.cluster.meta import OwnerReference
from respread.cluster.pod import Pod, PodSpec, TopologySpreadConstraint, WorkloadName, workload_of
from respread.cluster.selectors import Selector
from respread.cluster.state import ClusterSnapshot, PodsByName
from respread.scheduling.configuration import (
    SchedulerConfiguration,
    SelectingOwner,
    default_selector,
    selecting_owner,
    selector_basis,
)
from respread.scheduling.filters.topology_spread import counts_as_pod, effective_selector
from respread.scheduling.verdict import Unknown
from respread.spread.group import Eligibility, GroupKey, Template, eligibility_of, template_of

HARD_DEFAULTS: Final[frozenset[WhenUnsatisfiable]] = frozenset({"DoNotSchedule"})
ALL_DEFAULTS: Final[frozenset[WhenUnsatisfiable]] = frozenset({"DoNotSchedule", "ScheduleAnyway"})


class DefaultConstraints(msgspec.Struct, frozen=True):
    """Which default constraints form spread groups.

    Each costs as much as a constraint of the pods' own, and needs the selector of each pod's owner.
    """

    configuration: SchedulerConfiguration
    kinds: frozenset[WhenUnsatisfiable] = HARD_DEFAULTS
    """Hard ones always matter, because the scheduler places no pod against them. Soft ones matter if a policy restores
    such constraints; every cluster has some (KEP 1258)."""

    @property
    def exist(self) -> bool:
        """Whether a pod may get a constraint of one of those kinds."""
        given = (each for profile in self.configuration.profiles.values() for each in profile.default_constraints)
        return any(each.when_unsatisfiable in self.kinds for each in given)

    def of(self, spec: PodSpec) -> tuple[TopologySpreadConstraint, ...]:
        """Return the default constraints for pods of a spec, without selectors.

        There are none if the pods have constraints of their own.
        """
        if spec.topology_spread_constraints:
            return ()
        profile = self.configuration.profiles.get(spec.scheduler_name)
        if profile is None or "PodTopologySpread" not in profile.plugins:
            return ()
        return tuple(each for each in profile.default_constraints if each.when_unsatisfiable in self.kinds)

    def keys_of(self, pod: Pod, snapshot: ClusterSnapshot) -> tuple[GroupKey, ...]:
        """Return the groups of a pod without constraints of its own; none while the selector is unknown."""
        constraints = self.of(pod.spec)
        if not constraints:
            return ()
        selector = default_selector(pod, snapshot)
        if isinstance(selector, Unknown) or selector.matches_everything:
            return ()
        # Only the built-in ones don't require a node to have the keys of all of them.
        each_alone = self.configuration.profiles[pod.spec.scheduler_name].system_defaults
        return tuple(
            _key(pod.namespace, each, selector, eligibility_of(pod.spec, each, [each] if each_alone else constraints))
            for each in constraints
        )


def own_keys(namespace: str, template: Template) -> tuple[GroupKey, ...]:
    """Return the group of each topology spread constraint of pods of a template, in their order."""
    own = template.spec.topology_spread_constraints
    # A pod may have ten thousand constraints, and each kind of eligibility has the topology keys of all of them.
    shared: dict[tuple[str, str, str], Eligibility] = {}
    keys: list[GroupKey] = []
    for each in own:
        kind = (each.when_unsatisfiable, each.node_affinity_policy, each.node_taints_policy)
        if (eligibility := shared.get(kind)) is None:
            eligibility = shared[kind] = eligibility_of(template.spec, each, own)
        keys.append(_key(namespace, each, effective_selector(each, template.labels), eligibility))
    return tuple(keys)


def _key(
    namespace: str, constraint: TopologySpreadConstraint, selector: Selector, eligibility: Eligibility
) -> GroupKey:
    """Return the group of a constraint."""
    return GroupKey(
        namespace=namespace,
        topology_key=constraint.topology_key,
        when_unsatisfiable=constraint.when_unsatisfiable,
        max_skew=constraint.max_skew,
        min_domains=constraint.min_domains or 1,
        selector=selector,
        eligibility=eligibility,
    )


_FEW: Final = 8
"""Nearly all pods have fewer constraints. Going through these is as fast as a dict, which takes memory."""


class _CarriedGroup(NamedTuple):
    """A spread group that pods of a label set carry."""

    key: GroupKey
    template: Template
    workloads: tuple[WorkloadName, ...]
    """The workloads of these pods, sorted."""

    def is_like(self, other: _CarriedGroup) -> bool:
        """Whether it equals another one."""
        return (
            self.key == other.key
            and self.template.identity == other.template.identity
            and self.workloads == other.workloads
        )


_MemberKey: TypeAlias = tuple[int, OwnerReference | str]
"""The identity of a spec, and the controller, or the name of a pod without one."""


class Difference(NamedTuple):
    """The pods by which two states of a label set differ. A changed pod is in both."""

    came: Sequence[Pod]
    went: Sequence[Pod]


class _Member:
    """The unfinished pods of one spec and controller."""

    __slots__ = ("pods", "sample")

    def __init__(self, sample: Pod) -> None:
        self.sample = sample
        """One of the pods, possibly in an older version. It keeps the spec alive, and so its identity."""
        self.pods = 0


class LabelSet:
    """What is derived from the pods of one label set. Updates cost as much as the pods that change."""

    __slots__ = ("_by_key", "_defaulted", "_defaults", "_members", "_namespace", "carried", "owners", "pods")

    def __init__(self, namespace: str, defaults: DefaultConstraints | None) -> None:
        self._namespace = namespace
        self._defaults = defaults
        self._members: dict[_MemberKey, _Member] = {}
        self._defaulted: tuple[tuple[Pod, tuple[object, ...]], ...] = ()
        """A pod of each template with default constraints, with the basis of their selector."""
        self.pods: PodsByName = Map()
        self._by_key: dict[GroupKey, list[_CarriedGroup]] | None = None
        """The carried groups by their keys, where there are many and some were asked for."""
        self.carried: tuple[_CarriedGroup, ...] = ()
        """The groups that the pods carry. It stays the same object while nothing in it changes."""
        self.owners: frozenset[SelectingOwner] = frozenset()
        """The owners whose selectors the pods' default constraints depend on."""

    def advance(self, pods: PodsByName, snapshot: ClusterSnapshot) -> Difference:
        """Take over the current pods, and return which objects have changed."""
        outdated = self._is_outdated(snapshot)
        difference = _difference(self.pods, pods)
        self.pods = pods
        if self._count(difference) or outdated:
            self._carry(snapshot)
        return difference

    def _is_outdated(self, snapshot: ClusterSnapshot) -> bool:
        """Whether the selector of default constraints may have changed."""
        return any(not are_same(basis, selector_basis(pod, snapshot)) for pod, basis in self._defaulted)

    def _count(self, difference: Difference) -> bool:
        """Count pods in and out, and return whether the carried groups may have changed."""
        members = self._members
        others = False
        for pods, by in ((difference.came, 1), (difference.went, -1)):
            for pod in pods:
                if pod.finished:
                    continue
                key = _member_key(pod)
                if (member := members.get(key)) is None:
                    member = members[key] = _Member(pod)
                    others = True
                member.pods += by
                if not member.pods:
                    del members[key]
                    others = True
        return others

    def _carry(self, snapshot: ClusterSnapshot) -> None:
        templates: dict[tuple[object, ...], tuple[Pod, Template, set[WorkloadName]]] = {}
        for member in self._members.values():
            template = template_of(member.sample)
            _, _, workloads = templates.setdefault(template.identity, (member.sample, template, set()))
            workloads.add(workload_of(member.sample))
        carried: list[_CarriedGroup] = []
        defaulted: list[tuple[Pod, tuple[object, ...]]] = []
        for pod, template, workloads in templates.values():
            keys = own_keys(self._namespace, template)
            if self._defaults is not None and self._defaults.of(pod.spec):
                defaulted.append((pod, selector_basis(pod, snapshot)))
                keys = self._defaults.keys_of(pod, snapshot)
            sorted_workloads = tuple(sorted(workloads))
            carried.extend(_CarriedGroup(key, template, sorted_workloads) for key in keys)
        self._defaulted = tuple(defaulted)
        self.owners = frozenset(owner for pod, _ in defaulted if (owner := selecting_owner(pod)) is not None)
        if len(carried) != len(self.carried) or not all(map(_CarriedGroup.is_like, carried, self.carried)):
            self.carried, self._by_key = tuple(carried), None

    def carried_with(self, key: GroupKey) -> Sequence[_CarriedGroup]:
        """Return the groups that the pods carry with some key: one for each template."""
        if len(self.carried) <= _FEW:
            return [each for each in self.carried if each.key == key]
        if self._by_key is None:
            self._by_key = {}
            for each in self.carried:
                self._by_key.setdefault(each.key, []).append(each)
        return self._by_key.get(key, ())


def nodes_of(pods: Iterable[Pod]) -> list[str]:
    """Return the node of each counted pod."""
    return [pod.node_name for pod in pods if counts_as_pod(pod)]


def _member_key(pod: Pod) -> _MemberKey:
    return id(pod.spec), pod.name if pod.controller is None else pod.controller


def _difference(before: PodsByName, now: PodsByName) -> Difference:
    """Return the pods whose objects have changed, before and after."""
    changed = changed_keys(before, now)
    return Difference(
        [pod for name in changed if (pod := now.get(name)) is not None],
        [pod for name in changed if (pod := before.get(name)) is not None],
    )
