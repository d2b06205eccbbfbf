"""The selector of default topology spread constraints, derived from the Services and the owner of a pod.

Mirrors `DefaultSelector` of the scheduler's plugin helper.
"""

from __future__ import annotations

from immutables import Map

from respread.cluster.meta import ObjectKey, OwnerReference
from respread.cluster.objects import Workload
from respread.cluster.pod import Pod
from respread.cluster.selectors import Selector, compile_selector, selector_of_labels
from respread.cluster.state import ClusterSnapshot
from respread.scheduling.verdict import Unknown


def default_selector(pod: Pod, snapshot: ClusterSnapshot, *, workloads_complete: bool) -> Selector | Unknown:
    """Return what the pod's default constraints count: pods like it, as its Services and its owner choose them.

    The selectors of all Services that choose the pod are put together, with the selector of the ReplicaSet, StatefulSet
    or ReplicationController that controls it. It is empty, and there are then no default constraints, where there are
    neither.

    Args:
        pod: whose constraints they are.
        snapshot: of the cluster.
        workloads_complete: whether an owner that is not in the snapshot does not exist. Otherwise its selector is not
            known, and so neither is the answer.
    """
    labels: dict[str, str] = {}
    for service in snapshot.services.get(pod.namespace, Map()).values():
        if service.selector and selector_of_labels(service.selector).matches(pod.labels):
            labels.update(service.selector)
    owner = pod.controller
    workloads = None if owner is None else _workloads(snapshot, owner)
    if owner is None or workloads is None:
        return selector_of_labels(Map(labels))
    workload = workloads.get(ObjectKey(pod.namespace, owner.name))
    if workload is not None:
        return _with_workload(labels, workload, replaces=owner.kind == "ReplicationController")
    if workloads_complete:
        return selector_of_labels(Map(labels))
    return Unknown(
        "PodTopologySpread defaults",
        f"which topology spread constraints the scheduler gives a pod without any depends on the selector of "
        f"{owner.kind} {owner.name}, which is not known",
    )


def _workloads(snapshot: ClusterSnapshot, owner: OwnerReference) -> Map[ObjectKey, Workload] | None:
    """Return the workloads among which an owner is, if it is of a kind whose selector the scheduler looks at."""
    match owner.api_version, owner.kind:
        case "v1", "ReplicationController":
            return snapshot.replication_controllers
        case "apps/v1", "ReplicaSet":
            return snapshot.replica_sets
        case "apps/v1", "StatefulSet":
            return snapshot.stateful_sets
        case _:
            return None


def _with_workload(labels: dict[str, str], workload: Workload, *, replaces: bool) -> Selector:
    """Add the selector of a workload; that of a ReplicationController replaces what Services say of the same labels."""
    if workload.selector is None:
        return selector_of_labels(Map(labels))
    if replaces:
        return selector_of_labels(Map({**labels, **workload.selector.match_labels}))
    return selector_of_labels(Map(labels)).with_requirements(compile_selector(workload.selector).requirements)
