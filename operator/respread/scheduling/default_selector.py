"""The selector of default topology spread constraints, derived from the Services and the owner of a pod.

Mirrors `DefaultSelector` of the scheduler's plugin helper.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from immutables import Map

from respread.cluster.meta import ObjectKey
from respread.cluster.objects import Workload
from respread.cluster.pod import Pod
from respread.cluster.selectors import Selector, compile_selector, selector_of_labels
from respread.cluster.state import ClusterSnapshot
from respread.scheduling.verdict import Unknown

_RESOURCES: Final = {
    ("v1", "ReplicationController"): "replicationcontrollers",
    ("apps/v1", "ReplicaSet"): "replicasets",
    ("apps/v1", "StatefulSet"): "statefulsets",
}
"""The owners whose selectors the scheduler uses, by apiVersion and kind."""


class SelectingOwner(NamedTuple):
    """The owner of pods whose selector is a part of the selector of their default constraints."""

    resource: str
    """Its plural name."""
    kind: str
    key: ObjectKey
    uid: str
    """The UID in the pods' owner reference. The scheduler only uses the name."""


def selecting_owner(pod: Pod) -> SelectingOwner | None:
    """Return the owner whose selector a pod's default constraints use, if the pod has one of such a kind."""
    owner = pod.controller
    resource = None if owner is None else _RESOURCES.get((owner.api_version, owner.kind))
    if owner is None or resource is None:
        return None
    return SelectingOwner(resource, owner.kind, ObjectKey(pod.namespace, owner.name), owner.uid)


def default_selector(pod: Pod, snapshot: ClusterSnapshot) -> Selector | Unknown:
    """Return the selector of a pod's default constraints, from its Services and its owner.

    It combines the selectors of all Services that select the pod with the selector of the ReplicaSet, StatefulSet or
    ReplicationController that controls it. If there are none, it is empty, and the pod has no default constraints.
    The selector of an owner that is not in the snapshot is unknown, and so is the result.
    """
    labels: dict[str, str] = {}
    for service in snapshot.services.get(pod.namespace, Map()).values():
        if service.selector and selector_of_labels(service.selector).matches(pod.labels):
            labels.update(service.selector)
    owner = selecting_owner(pod)
    if owner is None:
        return selector_of_labels(Map(labels))
    workload = _workload(owner, snapshot)
    if workload is not None:
        return _with_workload(labels, workload, replaces=owner.kind == "ReplicationController")
    return Unknown(
        "PodTopologySpread defaults",
        f"which topology spread constraints the scheduler gives a pod without any depends on the selector of "
        f"{owner.kind} {owner.key.name}, which is not known",
    )


def is_known(owner: SelectingOwner, snapshot: ClusterSnapshot) -> bool:
    """Whether a snapshot contains an owner of pods."""
    return _workload(owner, snapshot) is not None


def selector_basis(pod: Pod, snapshot: ClusterSnapshot) -> tuple[object, object]:
    """Return the objects from which a pod's default selector is derived.

    While they are the same, so is the selector.
    """
    owner = selecting_owner(pod)
    return snapshot.services.get(pod.namespace), None if owner is None else _workload(owner, snapshot)


def _workload(owner: SelectingOwner, snapshot: ClusterSnapshot) -> Workload | None:
    match owner.resource:
        case "replicasets":
            return snapshot.replica_sets.get(owner.key)
        case "statefulsets":
            return snapshot.stateful_sets.get(owner.key)
        case _:
            return snapshot.replication_controllers.get(owner.key)


def _with_workload(labels: dict[str, str], workload: Workload, *, replaces: bool) -> Selector:
    """Add the selector of a workload.

    The selector of a ReplicationController replaces Services' values for the same labels.
    """
    if workload.selector is None:
        return selector_of_labels(Map(labels))
    if replaces:
        return selector_of_labels(Map({**labels, **workload.selector.match_labels}))
    return selector_of_labels(Map(labels)).with_requirements(compile_selector(workload.selector).requirements)
