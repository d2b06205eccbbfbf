"""A pod to be placed, and all that can be asked of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from immutables import Map

from respread.cluster.meta import Labels
from respread.cluster.pod import Pod
from respread.scheduling.filters.filter import Filter
from respread.scheduling.filters.inter_pod_affinity import InterPodAffinity
from respread.scheduling.filters.node_resources_fit import NodeResourcesFit
from respread.scheduling.filters.node_volume_limits import NodeVolumeLimits
from respread.scheduling.filters.pod_topology_spread import HardConstraint, PodTopologySpread
from respread.scheduling.filters.topology_spread_constraints import ConstraintsInForce
from respread.scheduling.filters.topology_spread_score import SpreadScores, spread_scores
from respread.scheduling.filters.volume_binding import VolumeBinding
from respread.scheduling.verdict import PLUGINS, Plugin, Rejection, Unknown
from respread.scheduling.view.cluster_view import ClusterView
from respread.scheduling.view.free_resources import FreeAmounts
from respread.scheduling.view.node_sets import NodeSet, members, slots_of

_SETTLED: Final[frozenset[Plugin]] = frozenset(
    {"NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "VolumeZone"}
)
"""Filters whose answers no step of a plan changes."""
_COSTLY: Final[tuple[Plugin, ...]] = ("VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding")
"""Filters that look at nodes one by one, and so are asked about those that are left."""


class PreparedPod:
    """Where a pod may go as the view stands: it may be asked again after every step of the view."""

    __slots__ = ("_changing", "_fallible", "_filters", "_settled", "_view", "constraints", "pod", "unknown")

    def __init__(
        self,
        *,
        view: ClusterView,
        pod: Pod,
        unknown: Unknown | None,
        filters: Sequence[Filter],
        constraints: ConstraintsInForce,
    ) -> None:
        """Make one; `Predictor.prepare` does.

        Args:
            view: the cluster.
            pod: any of those that all this holds for.
            unknown: why nothing can be proven.
            filters: that have something to say, in the scheduler's order.
            constraints: the pod's topology spread constraints in force.
        """
        self._view = view
        self.pod = pod
        self.unknown = unknown
        """Why it can't be said where the pod may go; None if it can."""
        self._filters = tuple(filters)
        self.constraints = constraints
        """The topology spread constraints in force."""
        self._fallible = [each for each in self._filters if isinstance(each, (NodeVolumeLimits, VolumeBinding))]
        self._settled = view.table.every
        for each in self._filters:
            if each.plugin in _SETTLED:
                self._settled = each.admit(self._settled)
        quick = [each for each in self._filters if each.plugin not in _SETTLED and each.plugin not in _COSTLY]
        self._changing = (*quick, *(each for each in self._filters if each.plugin in _COSTLY))

    # Which nodes

    @property
    def settled(self) -> NodeSet:
        """The nodes that no filter refuses whatever steps a plan makes: affinity, taints and cordons let the pod on."""
        return self._settled

    def admitted(self, *, spread: bool = True, certainly: bool = True) -> NodeSet:
        """Return the nodes that all filters let the pod onto, even if something is unknown of the pod.

        Where the scheduler is making room for pods of the same or a higher priority, the pod must fit beside them too.

        Args:
            spread: whether PodTopologySpread is among them.
            certainly: whether nodes are left out that hold what can't be read.
        """
        nodes = self._settled & ~self._view.uncertain if certainly else self._settled
        for each in self._changing:
            if not nodes:
                return 0
            if spread or each.plugin != "PodTopologySpread":
                nodes = each.admit(nodes)
        if self._fallible and self._is_given_up():
            return 0
        for slot, pods in self._view.nominated.items():
            if nodes >> slot & 1 and not self._fits_beside(slot, pods, spread=spread):
                nodes &= ~(1 << slot)
        return nodes

    def feasible_nodes(self, *, spread: bool = True) -> list[str]:
        """Return the names of the nodes that the pod certainly may go to: none if something is unknown.

        Args:
            spread: whether PodTopologySpread is asked.
        """
        if self.unknown is not None:
            return []
        return members(self.admitted(spread=spread), self._view.table.names)

    def fits(self, node: str, *, spread: bool = True) -> bool:
        """Tell whether the pod certainly may go to a node.

        Args:
            node: its name; one that doesn't exist is none to go to.
            spread: whether PodTopologySpread is asked.
        """
        slot = self._view.table.slot_of.get(node)
        if slot is None or self.unknown is not None or not (self._settled & ~self._view.uncertain) >> slot & 1:
            return False
        if not self._passes(slot, spread=spread) or (self._fallible and self._is_given_up()):
            return False
        nominated = self._view.nominated.get(slot)
        return nominated is None or self._fits_beside(slot, nominated, spread=spread)

    def _passes(self, slot: int, *, spread: bool) -> bool:
        return all(each.reject(slot) is None for each in self._changing if spread or each.plugin != "PodTopologySpread")

    def _fits_beside(self, slot: int, nominated: Sequence[Pod], *, spread: bool) -> bool:
        """Tell whether the pod fits a node with those of the pods placed there that it could not displace."""
        view, own = self._view, self.pod
        mark = view.mark()
        for other in nominated:
            if other.spec.priority >= own.spec.priority and (other.uid != own.uid or not own.uid):
                view.place(other, view.table.names[slot])
        fits = self._passes(slot, spread=spread)
        view.revert(mark)
        return fits

    def _is_given_up(self) -> bool:
        """Tell whether the scheduler fails on some node that it gets to ask about, and so gives the pod up."""
        if not any(each.failing() for each in self._fallible):
            return False
        nodes = self._view.table.every
        for each in self._filters:
            if isinstance(each, (NodeVolumeLimits, VolumeBinding)) and each.failing() & nodes:
                return True
            nodes = each.admit(nodes)
        return False

    # Why not others

    def first_rejection(self, node: str) -> Rejection | None:
        """Return what the first filter that refuses a node says, as the scheduler would; None if none does.

        Raises:
            KeyError: there is no such node.
        """
        slot = self._view.table.slot_of[node]
        return next((no for each in self._filters if (no := each.reject(slot)) is not None), None)

    def rejections(self, node: str) -> tuple[Rejection, ...]:
        """Return what every filter that refuses a node says, in the scheduler's order.

        Raises:
            KeyError: there is no such node.
        """
        slot = self._view.table.slot_of[node]
        found = [no for each in self._filters if (no := each.reject(slot)) is not None]
        if (unread := why_uncertain(self._view, slot)) is not None:
            found.insert(0, Rejection("NodeResourcesFit", unread))
        return tuple(sorted(found, key=lambda rejection: PLUGINS.index(rejection.plugin)))

    # What the answers depend on

    @property
    def hard_constraints(self) -> Sequence[HardConstraint]:
        """The DoNotSchedule constraints in force, with their live counts."""
        return next((each.constraints for each in self._filters if isinstance(each, PodTopologySpread)), ())

    @property
    def needs(self) -> Sequence[tuple[str, FreeAmounts, int]]:
        """What must be free on a node: its name, what is free on all nodes, how much; a place for the pod first."""
        return next((each.needs for each in self._filters if isinstance(each, NodeResourcesFit)), ())

    @property
    def has_pod_terms(self) -> bool:
        """Whether the pod itself asks for other pods in its domain, or against them."""
        return bool(self.pod.spec.pod_affinity or self.pod.spec.pod_anti_affinity)

    def speaks_of(self, namespace: str, labels: Labels) -> bool:
        """Tell whether the pod's own affinity or anti-affinity speaks of pods with these labels."""
        return any(
            term.matches(namespace, labels)
            for each in self._filters
            if isinstance(each, InterPodAffinity)
            for term in each.own_terms
        )

    @property
    def wants_volume_alone(self) -> bool:
        """Whether some volume of the pod can't be shared with every other pod."""
        return any(each.plugin == "VolumeRestrictions" for each in self._filters)

    @property
    def needs_only_amounts(self) -> bool:
        """Whether what other pods take of a node matters to the pod only by its amount: not ports, nor volumes."""
        return not any(each.plugin in {"NodePorts", *_COSTLY} for each in self._filters)

    def lets_on(self, slot: int) -> bool:
        """Tell whether a node lets the pod on as the view stands, spread and nominated pods aside."""
        return bool(self._settled >> slot & 1) and self._passes(slot, spread=False)

    # Which of them is wanted most

    def scores(self, nodes: NodeSet) -> SpreadScores | None:
        """Return PodTopologySpread's scores, all other nodes being infeasible; None where there is nothing to score."""
        view = self._view
        return spread_scores(view.table, view.pods, self.pod, self.constraints, nodes)

    def best_nodes(self, nodes: NodeSet) -> NodeSet:
        """Return those of the nodes to which PodTopologySpread gives the most points: all, where it gives none.

        Other scores may outweigh it, and above 100 nodes the scheduler looks only at some: these are likely, not sure.
        """
        scores = self.scores(nodes)
        if scores is None or not scores.slots:
            return nodes
        most = max(scores.normalized)
        best = 0
        for slot, points in zip(scores.slots, scores.normalized, strict=True):
            if points == most:
                best |= 1 << slot
        return best if most > 0 else nodes

    def names(self, nodes: NodeSet) -> list[str]:
        """Return the names of a set of nodes."""
        return members(nodes, self._view.table.names)

    def domains(self, nodes: NodeSet, key: str) -> frozenset[str]:
        """Return the topology domains that nodes are in, for a key; those without it are in none."""
        values = self._view.table.column(key).values
        return frozenset(value for slot in slots_of(nodes) if (value := values[slot]) is not None)


def why_uncertain(view: ClusterView, slot: int) -> str | None:
    """Return what of a node can't be read, so that nothing is proven to fit; None where all can be."""
    if not view.uncertain >> slot & 1:
        return None
    name = view.table.names[slot]
    unread = view.snapshot.unread
    faults = [each.fault for key, each in unread.get("nodes", Map()).items() if key.name == name]
    faults += [each.fault for each in unread.get("pods", Map()).values() if each.node_name in {name, None}]
    return f"can't be proven to have room, since not all that is there can be read ({min(faults)})"
