"""What a pod uses of a node's resources, as the scheduler computes it (component-helpers `resource.PodRequests`).

Amounts are summed exactly, in billionths, and rounded up once per pod: to thousandths for cpu, to whole units
otherwise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec
from immutables import Map

from respread.cluster.pod import Resources
from respread.cluster.quantity import NANO_PER_UNIT, round_away_from_zero

NanoAmounts: TypeAlias = Mapping[str, int]
"""Amounts in billionths of a unit, by resource name."""

_NANO_PER_MILLI: Final = 10**6
_POD_LEVEL: Final = frozenset({"cpu", "memory"})
_NODE_LEVEL: Final = frozenset({"cpu", "memory", "ephemeral-storage", "pods"})


class ContainerRequests(msgspec.Struct, frozen=True):
    """What one container requests."""

    name: str
    requests: NanoAmounts
    restartable: bool = False
    """For an init container: whether it runs beside the others, as a sidecar (`restartPolicy: Always`)."""


class PodRequests(msgspec.Struct, frozen=True, kw_only=True):
    """The requests in a pod spec, by part."""

    containers: Sequence[ContainerRequests]
    init_containers: Sequence[ContainerRequests] = ()
    pod_level: NanoAmounts = {}
    overhead: NanoAmounts = {}


class ContainerResize(msgspec.Struct, frozen=True):
    """The kubelet's status of a container's resources: those in effect, and those that it has allocated."""

    name: str
    actuated: NanoAmounts
    allocated: NanoAmounts


class Resize(msgspec.Struct, frozen=True, kw_only=True):
    """The status of a pod that can be resized in place (KEP 1287, and KEP 5419 for the pod level)."""

    containers: Sequence[ContainerResize] = ()
    pod_level: ContainerResize | None = None
    infeasible: bool = False
    """Whether the node can never satisfy the spec (`PodResizePending` with reason `Infeasible`)."""


def requests_of_spec(pod: PodRequests) -> Resources:
    """Return what a pod without a node needs."""
    return _rounded(_total(pod, None))


def total_requests(pod: PodRequests) -> NanoAmounts:
    """Return the same exactly, for all resources, as quotas count it."""
    return _total(pod, None)


def requests_held(pod: PodRequests, resize: Resize) -> Resources:
    """Return what a pod uses of its node: for each container the largest of requested and allocated resources.

    While a resize is infeasible, its request does not count.
    """
    return _rounded(_total(pod, resize))


def allocatable(amounts: NanoAmounts) -> Resources:
    """Return the allocatable amounts of a node, for the resources that the scheduler uses."""
    return _rounded(amounts)


def is_schedulable_resource(name: str) -> bool:
    """Return whether the scheduler uses a resource of this name.

    These are cpu, memory, ephemeral-storage, pods, huge pages, attachable volumes and everything with a prefix, except
    the names that quotas use (`requests.…`).
    """
    if "/" not in name:
        return name in _NODE_LEVEL or name.startswith(("hugepages-", "attachable-volumes-"))
    return "kubernetes.io/" in name or not name.startswith("requests.")


def _total(pod: PodRequests, resize: Resize | None) -> dict[str, int]:
    total = _containers_total(pod, resize)
    if any(map(_is_pod_level, pod.pod_level)):
        in_force = None if resize is None or resize.pod_level is None else resize.pod_level
        for name, amount in pod.pod_level.items():
            if _is_pod_level(name):
                total[name] = amount if in_force is None else _effective(pod.pod_level, in_force, resize).get(name, 0)
    _add(total, pod.overhead)
    return total


def _containers_total(pod: PodRequests, resize: Resize | None) -> dict[str, int]:
    """Sum what runs at the same time, or use the peak of the init containers if that is more (KEP 753)."""
    resizes = {} if resize is None else {each.name: each for each in resize.containers}
    total: dict[str, int] = {}
    for container in pod.containers:
        _add(total, _effective(container.requests, resizes.get(container.name), resize))

    sidecars: dict[str, int] = {}
    peak: dict[str, int] = {}
    for container in pod.init_containers:
        if container.restartable:
            requests = _effective(container.requests, resizes.get(container.name), resize)
            _add(total, requests)
            _add(sidecars, requests)
        else:
            meanwhile = dict(sidecars)
            _add(meanwhile, container.requests)
            _raise_to(peak, meanwhile)
    _raise_to(total, peak)
    return total


def _effective(requests: NanoAmounts, in_force: ContainerResize | None, resize: Resize | None) -> NanoAmounts:
    if in_force is None or resize is None:
        return requests
    largest = {} if resize.infeasible else dict(requests)
    _raise_to(largest, in_force.actuated)
    _raise_to(largest, in_force.allocated)
    return largest


def _is_pod_level(name: str) -> bool:
    return name in _POD_LEVEL or name.startswith("hugepages-")


def _add(total: dict[str, int], amounts: NanoAmounts) -> None:
    for name, amount in amounts.items():
        total[name] = total.get(name, 0) + amount


def _raise_to(total: dict[str, int], amounts: NanoAmounts) -> None:
    for name, amount in amounts.items():
        if name not in total or amount > total[name]:
            total[name] = amount


def _rounded(amounts: NanoAmounts) -> Resources:
    return Map(_rounded_items(amounts.items()))


def _rounded_items(items: Iterable[tuple[str, int]]) -> Iterable[tuple[str, int]]:
    for name, nano in sorted(items):
        if is_schedulable_resource(name):
            yield name, round_away_from_zero(nano, _NANO_PER_MILLI if name == "cpu" else NANO_PER_UNIT)
