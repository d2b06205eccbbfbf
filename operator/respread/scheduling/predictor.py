"""All filters together: where the scheduler accepts a pod, what rejects it elsewhere, and what can't be known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from respread.cluster.incremental import are_same
from respread.cluster.meta import Labels, OwnerReference
from respread.cluster.pod import Pod, PodSpec
from respread.cluster.state import ClusterSnapshot
from respread.scheduling.configuration import Profile, SchedulerConfiguration, selector_basis
from respread.scheduling.filters import (
    inter_pod_affinity,
    node_affinity,
    node_name,
    node_ports,
    node_resources_fit,
    node_unschedulable,
    node_volume_limits,
    pod_topology_spread,
    taint_toleration,
    volume_binding,
    volume_restrictions,
    volume_zone,
)
from respread.scheduling.filters.topology_spread import ConstraintsInForce, constraints_in_force
from respread.scheduling.prepared_pod import PreparedPod
from respread.scheduling.verdict import Filter, Plugin, Unknown
from respread.scheduling.view.cluster_view import ClusterView, storage_of
from respread.scheduling.view.pod_affinity_terms import differs_by_quirk
from respread.scheduling.view.volumes import claims_with_names, has_volumes, is_bound_by_scheduler

_Identity: TypeAlias = tuple[str, Labels, int, str, str, str, OwnerReference | None]
_MOST_PREPARED: Final = 32768
_DEFAULT_PROFILE: Final = Profile()


class Predictor:
    """Predicts for pods on a view, by the rules of the cluster's schedulers.

    Data that depends on the pod is prepared once for all pods of a template, and kept until something that it was made
    from changes. Data that depends on other pods is looked up for each answer.
    """

    def __init__(self, view: ClusterView, configuration: SchedulerConfiguration | None = None) -> None:
        """Create a predictor for schedulers that have, by default, the default configuration.

        The view includes the steps made on it.
        """
        self.view = view
        self.configuration = SchedulerConfiguration() if configuration is None else configuration
        self._prepared: dict[_Identity, tuple[PreparedPod, tuple[object, ...]]] = {}

    def prepare(self, pod: Pod) -> PreparedPod:
        """Return the prepared pod for a pod to be placed. It is valid until the view advances.

        It is as it would be created: with a `node_name`, it may only go there. The view's own pods count as in the
        view, including this one if it is among them.
        """
        profile = self.configuration.profiles.get(pod.spec.scheduler_name)
        basis = self._basis(pod, _DEFAULT_PROFILE if profile is None else profile)
        identity = _identity(pod)
        kept = self._prepared.get(identity)
        if kept is not None and are_same(kept[1], basis):
            return kept[0]
        if len(self._prepared) >= _MOST_PREPARED:
            self._prepared.clear()
        prepared = self._prepare(pod, profile)
        self._prepared[identity] = prepared, basis
        return prepared

    def _basis(self, pod: Pod, profile: Profile) -> tuple[object, ...]:
        """Return the objects that a prepared pod is made from. While they are the same, so is the prepared pod."""
        view, snapshot, table = self.view, self.view.snapshot, self.view.table
        basis: tuple[object, ...] = (table, table.state, snapshot.namespaces, snapshot.unread)
        if has_volumes(pod.spec):
            basis += (view.attachments, *storage_of(snapshot))
        if profile.default_constraints and not pod.spec.topology_spread_constraints:
            basis += selector_basis(pod, snapshot)
        return basis

    def _prepare(self, pod: Pod, profile: Profile | None) -> PreparedPod:
        rules = _DEFAULT_PROFILE if profile is None else profile
        snapshot = self.view.snapshot
        in_force = constraints_in_force(pod, rules, snapshot)
        return PreparedPod(
            view=self.view,
            pod=pod,
            unknown=_unknown_of(
                pod, profile, snapshot, in_force, selectors_kept=self.configuration.keeps_namespace_selectors
            ),
            filters=self._filters(pod, rules, in_force),
            constraints=in_force,
        )

    def _filters(self, pod: Pod, profile: Profile, in_force: ConstraintsInForce) -> list[Filter]:
        """Return the filters that apply, in the scheduler's order."""
        view, snapshot, table, spec = self.view, self.view.snapshot, self.view.table, pod.spec
        prepare: dict[Plugin, Callable[[], Filter | None]] = {
            "NodeUnschedulable": lambda: node_unschedulable.prepare(table, spec.tolerations),
            "NodeName": lambda: node_name.prepare(table, pod.node_name),
            "TaintToleration": lambda: taint_toleration.prepare(table, spec.tolerations),
            "NodeAffinity": lambda: node_affinity.prepare(table, pod, profile.added_affinity),
            "NodePorts": lambda: node_ports.prepare(view.ports, spec.host_ports),
            "NodeResourcesFit": lambda: node_resources_fit.prepare(
                table, view.free, spec.requests, profile.ignores_resource
            ),
            "VolumeRestrictions": lambda: volume_restrictions.prepare(view.volumes, snapshot, pod),
            "NodeVolumeLimits": lambda: node_volume_limits.prepare(view.attachments, snapshot, pod),
            "VolumeBinding": lambda: volume_binding.prepare(table, snapshot, pod),
            "VolumeZone": lambda: volume_zone.prepare(table, snapshot, pod),
            "PodTopologySpread": lambda: pod_topology_spread.prepare(table, view.pods, pod, in_force.hard),
            "InterPodAffinity": lambda: inter_pod_affinity.InterPodAffinity(
                table,
                view.pods,
                view.terms,
                pod,
                snapshot.namespaces,
                selector_kept=bool(self.configuration.keeps_namespace_selectors),
            ),
        }
        asked = (made() for plugin, made in prepare.items() if plugin in profile.plugins)
        return [each for each in asked if each is not None]


def _identity(pod: Pod) -> _Identity:
    spec = pod.spec
    own_claims = bool(spec.stateful_claims or spec.ephemeral_volumes)
    return (
        pod.namespace,
        pod.labels,
        id(spec),
        pod.node_name,
        pod.name if own_claims else "",
        pod.uid if own_claims or pod.nominated_node_name else "",
        None if spec.topology_spread_constraints else pod.controller,
    )


_STORAGE: Final = frozenset({"persistentvolumeclaims", "persistentvolumes", "storageclasses", "csinodes"})
_SELECTING: Final = frozenset({"services", "replicasets", "statefulsets", "replicationcontrollers"})


def _unknown_of(  # noqa: PLR0911 - one for each thing that may be in the way
    pod: Pod,
    profile: Profile | None,
    snapshot: ClusterSnapshot,
    in_force: ConstraintsInForce,
    *,
    selectors_kept: bool | None,
) -> Unknown | None:
    """Return the first thing that is unknown, or None.

    There is no `profile` if the configuration has none of that name.
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
    if (unread := _unread(pod, snapshot)) is not None:
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
