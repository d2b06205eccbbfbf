"""The pods with the same labels, and the spread groups of their constraints."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from operator import is_
from typing import Final, NamedTuple, TypeAlias

from immutables import Map

from respread.cluster.grouped_pods import PodsByName
from respread.cluster.incremental import changed_keys
from respread.cluster.meta import OwnerReference
from respread.cluster.pod import Pod, WorkloadName, workload_of
from respread.cluster.state import ClusterSnapshot
from respread.scheduling.default_selector import SelectingOwner, selecting_owner, selector_basis
from respread.scheduling.filters.topology_spread import counts_as_pod
from respread.spread.carried import DefaultConstraints, own_keys
from respread.spread.group import GroupKey, Template, template_of

_FEW: Final = 8
"""Nearly all pods have fewer constraints. Going through these is as fast as a dict, which takes memory."""
_NO_OWNERS: Final[frozenset[SelectingOwner]] = frozenset()


class CarriedGroup(NamedTuple):
    """A spread group that pods of a label set carry."""

    key: GroupKey
    template: Template
    workloads: tuple[WorkloadName, ...]
    """The workloads of these pods, sorted."""

    def is_like(self, other: CarriedGroup) -> bool:
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
        """Start without pods.

        Args:
            namespace: the namespace of the pods.
            defaults: which default constraints form groups.
        """
        self._namespace = namespace
        self._defaults = defaults
        self._members: dict[_MemberKey, _Member] = {}
        self._defaulted: tuple[tuple[Pod, tuple[object, ...]], ...] = ()
        """A pod of each template with default constraints, with the basis of their selector."""
        self.pods: PodsByName = Map()
        self._by_key: dict[GroupKey, list[CarriedGroup]] | None = None
        """The carried groups by their keys, where there are many and some were asked for."""
        self.carried: tuple[CarriedGroup, ...] = ()
        """The groups that the pods carry. It stays the same object while nothing in it changes."""
        self.owners = _NO_OWNERS
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
        return any(not all(map(is_, basis, selector_basis(pod, snapshot))) for pod, basis in self._defaulted)

    def _count(self, difference: Difference) -> bool:
        """Count pods in and out, and return whether the carried groups may have changed."""
        members = self._members
        others = False
        for pod in difference.came:
            if not pod.finished:
                key = _member_key(pod)
                if (member := members.get(key)) is None:
                    member = members[key] = _Member(pod)
                    others = True
                member.pods += 1
        for pod in difference.went:
            if not pod.finished:
                key = _member_key(pod)
                member = members[key]
                member.pods -= 1
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
        carried: list[CarriedGroup] = []
        defaulted: list[tuple[Pod, tuple[object, ...]]] = []
        for pod, template, workloads in templates.values():
            keys = own_keys(self._namespace, template)
            if self._defaults is not None and self._defaults.of(pod.spec):
                defaulted.append((pod, selector_basis(pod, snapshot)))
                keys = self._defaults.keys_of(pod, snapshot)
            sorted_workloads = tuple(sorted(workloads))
            carried.extend(CarriedGroup(key, template, sorted_workloads) for key in keys)
        self._defaulted = tuple(defaulted)
        if owners := [owner for pod, _ in defaulted if (owner := selecting_owner(pod)) is not None]:
            self.owners = frozenset(owners)
        else:
            self.owners = _NO_OWNERS
        if len(carried) != len(self.carried) or not all(map(CarriedGroup.is_like, carried, self.carried)):
            self.carried, self._by_key = tuple(carried), None

    def carried_with(self, key: GroupKey) -> Sequence[CarriedGroup]:
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
    if not before:
        return Difference(list(now.values()), ())
    changed = changed_keys(before, now)
    return Difference(
        [pod for name in changed if (pod := now.get(name)) is not None],
        [pod for name in changed if (pod := before.get(name)) is not None],
    )
