"""All filters together: where the scheduler accepts a pod, and what rejects it elsewhere."""

from __future__ import annotations

from collections.abc import Callable
from operator import is_
from typing import Final, TypeAlias

from respread.cluster.meta import Labels, OwnerReference
from respread.cluster.pod import Pod
from respread.scheduling.configuration import Profile, SchedulerConfiguration
from respread.scheduling.default_selector import selector_basis
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
from respread.scheduling.filters.filter import Filter
from respread.scheduling.filters.topology_spread import ConstraintsInForce, constraints_in_force
from respread.scheduling.prepared_pod import PreparedPod
from respread.scheduling.unknowns import unknown_of
from respread.scheduling.verdict import Plugin
from respread.scheduling.view.cluster_view import ClusterView, storage_of
from respread.scheduling.view.volumes import has_volumes

_Identity: TypeAlias = tuple[str, Labels, int, str, str, str, OwnerReference | None]
_MOST_PREPARED: Final = 32768
_DEFAULT_PROFILE: Final = Profile()


class Predictor:
    """Predicts for pods on a view, by the rules of the cluster's schedulers.

    Data that depends on the pod is prepared once for all pods of a template, and kept until something that it was made
    from changes. Data that depends on other pods is looked up for each answer.
    """

    __slots__ = ("_prepared", "configuration", "view")

    def __init__(self, view: ClusterView, configuration: SchedulerConfiguration | None = None) -> None:
        """Create a predictor.

        Args:
            view: the cluster, including the steps made on it.
            configuration: of the cluster's schedulers; by default, the default configuration.
        """
        self.view = view
        self.configuration = SchedulerConfiguration() if configuration is None else configuration
        self._prepared: dict[_Identity, tuple[PreparedPod, tuple[object, ...]]] = {}

    def prepare(self, pod: Pod) -> PreparedPod:
        """Return the prepared pod for a pod to be placed. It is valid until the view advances.

        Args:
            pod: the pod as it would be created. One with a `node_name` may only go there. The view's own pods count as
                in the view, including this one if it is among them.
        """
        profile = self.configuration.profiles.get(pod.spec.scheduler_name)
        basis = self._basis(pod, _DEFAULT_PROFILE if profile is None else profile)
        identity = _identity(pod)
        kept = self._prepared.get(identity)
        if kept is not None and len(kept[1]) == len(basis) and all(map(is_, kept[1], basis)):
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
            unknown=unknown_of(
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
            "InterPodAffinity": lambda: inter_pod_affinity.prepare(
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
    own_claims = bool(spec.shared_claims or spec.stateful_claims or spec.ephemeral_volumes)
    return (
        pod.namespace,
        pod.labels,
        id(spec),
        pod.node_name,
        pod.name if own_claims else "",
        pod.uid if own_claims or pod.nominated_node_name else "",
        None if spec.topology_spread_constraints else pod.controller,
    )
