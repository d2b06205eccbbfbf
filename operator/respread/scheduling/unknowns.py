"""What makes a prediction impossible, because the scheduler decides by something that Respread does not know."""

from __future__ import annotations

from typing import Final

from respread.cluster.pod import Pod, PodSpec
from respread.cluster.state import ClusterSnapshot
from respread.scheduling.configuration import Profile
from respread.scheduling.filters.topology_spread import ConstraintsInForce
from respread.scheduling.verdict import Unknown
from respread.scheduling.view.pod_affinity_terms import differs_by_quirk
from respread.scheduling.view.volumes import claims_with_names, has_volumes, is_bound_by_scheduler

_STORAGE: Final = frozenset({"persistentvolumeclaims", "persistentvolumes", "storageclasses", "csinodes"})
_SELECTING: Final = frozenset({"services", "replicasets", "statefulsets", "replicationcontrollers"})


def unknown_of(  # noqa: PLR0911 - one for each thing that may be in the way
    pod: Pod,
    profile: Profile | None,
    snapshot: ClusterSnapshot,
    in_force: ConstraintsInForce,
    *,
    selectors_kept: bool | None,
) -> Unknown | None:
    """Return the first thing that is unknown, or None.

    Args:
        pod: the pod to be placed.
        profile: the profile of its scheduler; None if the configuration has no profile of that name.
        snapshot: the cluster.
        in_force: the pod's topology spread constraints.
        selectors_kept: `SchedulerConfiguration.keeps_namespace_selectors`.
    """
    spec = pod.spec
    if profile is None:
        return Unknown("schedulerName", f"the rules of the pod's scheduler, {spec.scheduler_name}, are not known")
    if profile.unknown:
        foreign = ", ".join(profile.unknown)
        return Unknown("scheduler configuration", f"{spec.scheduler_name} has {foreign}, which may refuse any node")
    if spec.has_scheduling_gates:
        return Unknown("schedulingGates", "the pod is not scheduled until its scheduling gates are removed")
    if spec.is_in_scheduling_group:
        return Unknown("schedulingGroup", "the pod is placed together with others of its group, and where is not known")
    if spec.has_resource_claims:
        return Unknown("resourceClaims", "the pod has dynamic resources, and where they can be allocated is not known")
    if spec.needs_declared_features:
        return Unknown(
            "declaredFeatures", "the pod needs a feature of its node, and which nodes declare it is not known"
        )
    if spec.pinned_to_node and not pod.node_name:
        return Unknown("DaemonSet", "the pod belongs on one node, and which one is not known")
    if snapshot.unread and (unread := _unread(pod, snapshot)) is not None:
        return Unknown("UnreadObject", f"what it depends on can't be read: {unread}")
    unknown_selector = _unknown_selector(spec) if selectors_kept is None else None
    return unknown_selector or in_force.hard_unknown or _unknown_volume(pod, snapshot)


def _unread(pod: Pod, snapshot: ClusterSnapshot) -> str | None:
    """Return an object that can't be decoded and that the scheduler may use.

    Pods and nodes are not among them, because they only take room.
    """
    spec, namespace = pod.spec, pod.namespace
    terms = (*spec.pod_affinity, *spec.pod_anti_affinity)
    reaches_others = any(term.namespaces or term.namespace_selector is not None for term in terms)
    for resource, objects in snapshot.unread.items():
        if resource == "pods" and not terms:
            continue
        for key, each in objects.items():
            here = key.namespace in {namespace, ""}
            if (
                (resource in _STORAGE and has_volumes(spec))
                or (resource == "namespaces" and (key.name == namespace or reaches_others))
                or (resource == "pods" and not each.labels_read and (here or reaches_others))
                or (resource in _SELECTING and here and not spec.topology_spread_constraints)
            ):
                return each.fault
    return None


def _unknown_selector(spec: PodSpec) -> Unknown | None:
    if any(map(differs_by_quirk, (*spec.pod_affinity, *spec.pod_anti_affinity))):
        return Unknown(
            "InterPodAffinity",
            "schedulers of some versions take a namespaceSelector of only NotIn and DoesNotExist for every namespace "
            "(kubernetes#141526), and whether the cluster's does is not known",
        )
    return None


def _unknown_volume(pod: Pod, snapshot: ClusterSnapshot) -> Unknown | None:
    spec = pod.spec
    if (spec.stateful_claims or spec.ephemeral_volumes) and not pod.name:
        return Unknown("PersistentVolumeClaim", "the new pod gets claims of its own, which do not exist yet")
    found: Unknown | None = None
    for name, _, claim in claims_with_names(snapshot, pod):
        if claim is None:
            return Unknown("PersistentVolumeClaim", f"the claim {name} does not exist, or is not known")
        if not claim.bound and (found is None or found.filters_answer):
            message = f"claim {name} has no volume, and where it may get one is not known"
            late = is_bound_by_scheduler(snapshot, claim)
            found = Unknown("PersistentVolumeClaim", message, filters_answer=late)
    return found
