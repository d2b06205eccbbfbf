"""The pods that share one label set: on which nodes they count, and which spread groups they carry."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from operator import is_
from typing import NamedTuple, TypeAlias

from immutables import Map

from respread.cluster.meta import OwnerReference
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot, PodsByName
from respread.cluster.workload import WorkloadName, workload_of
from respread.scheduling.default_selector import SelectingOwner, selecting_owner, selector_basis
from respread.scheduling.filters.topology_spread import counts_as_pod
from respread.spread.carried import DefaultConstraints, own_keys
from respread.spread.group import GroupKey, Template, template_of


class Carried(NamedTuple):
    """A group that pods of a label set carry."""

    key: GroupKey
    template: Template
    workloads: tuple[WorkloadName, ...]
    """Whose pods they are, sorted."""

    def is_like(self, other: Carried) -> bool:
        """Whether there is no difference to another one."""
        return (
            self.key == other.key
            and self.template.identity == other.template.identity
            and self.workloads == other.workloads
        )


_MemberKey: TypeAlias = tuple[int, OwnerReference | None]


class _Member(NamedTuple):
    """The unfinished pods of one template."""

    sample: Pod
    workloads: Counter[WorkloadName]


class LabelSet:
    """What is worked out from the pods of one label set, at the cost of those that change."""

    __slots__ = ("_defaulted", "_defaults", "_members", "_namespace", "carried", "node_counts", "pods")

    def __init__(self, namespace: str, defaults: DefaultConstraints | None) -> None:
        """Begin without pods.

        Args:
            namespace: of the pods.
            defaults: which default constraints form groups.
        """
        self._namespace = namespace
        self._defaults = defaults
        self._members: dict[_MemberKey, _Member] = {}
        self._defaulted: tuple[tuple[Pod, tuple[object, ...]], ...] = ()
        """A pod of each template with default constraints, with what their selector is made from."""
        self.pods: PodsByName = Map()
        self.node_counts: Counter[str] = Counter()
        """The pods that count, by the name of their node."""
        self.carried: tuple[Carried, ...] = ()
        """The groups that pods carry; as long as nothing of it changes, the same object."""

    def owners(self) -> Iterator[SelectingOwner]:
        """Yield the owners that the selectors of default constraints depend on."""
        for pod, _ in self._defaulted:
            if (owner := selecting_owner(pod)) is not None:
                yield owner

    def advance(self, pods: PodsByName, snapshot: ClusterSnapshot) -> Mapping[str, int]:
        """Take over the pods as they are now, and return by how many more of them each node counts."""
        moved: Counter[str] = Counter()
        other_members = self._is_outdated(snapshot)
        for before, now in () if pods is self.pods else _differences(self.pods, pods):
            if now is not None:
                moved[now.node_name] += counts_as_pod(now)
                other_members |= not now.finished and self._join(now)
            if before is not None:
                moved[before.node_name] -= counts_as_pod(before)
                other_members |= not before.finished and self._leave(before)
        self.pods = pods
        _add(self.node_counts, moved)
        if other_members:
            self._carry(snapshot)
        return moved

    def _is_outdated(self, snapshot: ClusterSnapshot) -> bool:
        """Whether the selector of default constraints may be another one now."""
        return any(not all(map(is_, basis, selector_basis(pod, snapshot))) for pod, basis in self._defaulted)

    def _join(self, pod: Pod) -> bool:
        """Count a pod in, and return whether what is carried may be different by it."""
        member = self._members.setdefault(_member_key(pod), _Member(pod, Counter()))
        workload = workload_of(pod)
        member.workloads[workload] += 1
        return member.workloads[workload] == 1

    def _leave(self, pod: Pod) -> bool:
        """Count a pod out, and return whether what is carried may be different by it."""
        key, workload = _member_key(pod), workload_of(pod)
        workloads = self._members[key].workloads
        workloads[workload] -= 1
        if workloads[workload]:
            return False
        del workloads[workload]
        if not workloads:
            del self._members[key]
        return True

    def _carry(self, snapshot: ClusterSnapshot) -> None:
        carried: list[Carried] = []
        defaulted: list[tuple[Pod, tuple[object, ...]]] = []
        for pod, counted in self._members.values():
            template, workloads = template_of(pod), tuple(sorted(counted))
            keys = own_keys(self._namespace, template)
            if self._defaults is not None and self._defaults.of(pod.spec):
                defaulted.append((pod, selector_basis(pod, snapshot)))
                keys = self._defaults.keys_of(pod, snapshot)
            carried.extend(Carried(key, template, workloads) for key in keys)
        self._defaulted = tuple(defaulted)
        if len(carried) != len(self.carried) or not all(map(Carried.is_like, carried, self.carried)):
            self.carried = tuple(carried)


def _member_key(pod: Pod) -> _MemberKey:
    return id(pod.spec), None if pod.spec.topology_spread_constraints else pod.controller


def _differences(before: PodsByName, now: PodsByName) -> Iterator[tuple[Pod | None, Pod | None]]:
    """Yield the pods that are not the same objects any more, as they were and as they are."""
    known = 0
    for name, pod in now.items():
        old = before.get(name)
        known += old is not None
        if old is not pod:
            yield old, pod
    if known < len(before):
        yield from ((pod, None) for name, pod in before.items() if name not in now)


def _add(counts: Counter[str], more: Mapping[str, int]) -> None:
    """Add to counts, and keep none that is zero."""
    for node, by in more.items():
        counts[node] += by
        if not counts[node]:
            del counts[node]
