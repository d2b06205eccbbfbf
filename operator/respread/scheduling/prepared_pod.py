"""A pod to be placed, and all questions about where it may go."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from typing import Final

from immutables import Map

from respread.cluster.meta import Labels
from respread.cluster.pod import Pod
from respread.scheduling.filters.inter_pod_affinity import InterPodAffinity
from respread.scheduling.filters.node_resources_fit import NodeResourcesFit
from respread.scheduling.filters.node_volume_limits import NodeVolumeLimits
from respread.scheduling.filters.pod_topology_spread import HardConstraint, PodTopologySpread
from respread.scheduling.filters.topology_spread import ConstraintsInForce
from respread.scheduling.filters.topology_spread_score import MAX_NODE_SCORE, SpreadScores, spread_scores
from respread.scheduling.filters.volume_binding import VolumeBinding
from respread.scheduling.verdict import PLUGINS, Filter, Plugin, Rejection, Unknown
from respread.scheduling.view.cluster_view import ClusterView
from respread.scheduling.view.free_resources import FreeAmounts
from respread.scheduling.view.node_table import NodeSet, members, node_set, slots_of

_STATIC: Final[frozenset[Plugin]] = frozenset(
    {"NodeUnschedulable", "NodeName", "TaintToleration", "NodeAffinity", "VolumeZone"}
)
"""Filters whose answers don't change with the steps of a plan."""
_COSTLY: Final[tuple[Plugin, ...]] = ("VolumeRestrictions", "NodeVolumeLimits", "VolumeBinding")
"""Filters that check nodes one by one, and so run only on the remaining nodes."""

_SPREAD: Final[frozenset[Plugin]] = frozenset({"PodTopologySpread"})
_TERMS: Final[frozenset[Plugin]] = frozenset({"InterPodAffinity"})

_FEW_DOMAINS: Final = 64
"""Up to so many domains, it is quicker to look at each domain than at each node."""


class PreparedPod:
    """Where a pod may go on the current view. It can be asked again after every step on the view."""

    __slots__ = ("_changing", "_fallible", "_filters", "_view", "constraints", "pod", "statically_feasible", "unknown")

    def __init__(
        self,
        *,
        view: ClusterView,
        pod: Pod,
        unknown: Unknown | None,
        filters: Sequence[Filter],
        constraints: ConstraintsInForce,
    ) -> None:
        """Create one; `Predictor.prepare` does this.

        The filters are those that apply, in the scheduler's order. If something is unknown, nothing can be predicted.
        """
        self._view = view
        self.pod = pod
        self.unknown = unknown
        """Why it can't be predicted where the pod may go; None if it can."""
        self._filters = tuple(filters)
        self.constraints = constraints
        """The effective topology spread constraints."""
        self._fallible = [each for each in self._filters if isinstance(each, (NodeVolumeLimits, VolumeBinding))]
        self.statically_feasible = view.table.every
        """The nodes that pass the filters which no step of a plan changes, such as affinity, taints and cordons."""
        for each in self._filters:
            if each.plugin in _STATIC:
                self.statically_feasible = each.admit(self.statically_feasible)
        changing = [each for each in self._filters if each.plugin not in _STATIC]
        self._changing = sorted(changing, key=lambda each: each.plugin in _COSTLY)  # the quick ones first

    # Which nodes

    def admitted(self, *, spread: bool = True, terms: bool = True, certainly: bool = True) -> NodeSet:
        """Return the nodes that all filters accept, even if something about the pod is unknown.

        If the scheduler has nominated a node for pods of the same or a higher priority, the pod must fit beside them.
        `spread` includes PodTopologySpread, and `terms` InterPodAffinity. `certainly` excludes nodes with objects that
        can't be decoded.
        """
        nodes = self.statically_feasible & ~self._view.uncertain if certainly else self.statically_feasible
        left_out = _left_out(spread=spread, terms=terms)
        for each in self._changing:
            if not nodes:
                return 0
            if each.plugin not in left_out:
                nodes = each.admit(nodes)
        if any(each.failing() for each in self._fallible) and self._is_given_up():
            return 0
        for slot, pods in self._view.nominated.items():
            if nodes >> slot & 1 and not self._fits_beside(slot, pods, left_out):
                nodes &= ~(1 << slot)
        return nodes

    def admitted_by_spread(self) -> NodeSet:
        """Return the nodes that would accept the pod if they had room: by the static filters and PodTopologySpread."""
        nodes = self.statically_feasible
        for each in self._changing:
            if each.plugin == "PodTopologySpread":
                nodes = each.admit(nodes)
        return nodes

    def feasible_nodes(self) -> list[str]:
        """Return the names of the nodes that certainly accept the pod; none if something is unknown."""
        if self.unknown is not None:
            return []
        return members(self.admitted(), self._view.table.names)

    def _passes(self, slot: int, left_out: Collection[Plugin]) -> bool:
        return all(each.reject(slot) is None for each in self._changing if each.plugin not in left_out)

    def _fits_beside(self, slot: int, nominated: Sequence[Pod], left_out: Collection[Plugin]) -> bool:
        """Return whether the pod fits a node beside the nominated pods that it could not preempt."""
        view, own = self._view, self.pod
        mark = view.mark()
        for other in nominated:
            if other.spec.priority >= own.spec.priority and (other.uid != own.uid or not own.uid):
                view.place(other, view.table.names[slot])
        fits = self._passes(slot, left_out)
        view.revert(mark)
        return fits

    def _is_given_up(self) -> bool:
        """Return whether the scheduler fails on a node that it examines, and so gives up the pod for now."""
        nodes = self._view.table.every
        for each in self._filters:
            if isinstance(each, (NodeVolumeLimits, VolumeBinding)) and each.failing() & nodes:
                return True
            nodes = each.admit(nodes)
        return False

    # Why not others

    def first_rejection(self, node: str) -> Rejection | None:
        """Return the answer of the first filter that rejects a node, as the scheduler reports it; None if none does.

        Raises:
            KeyError: there is no such node.
        """
        slot = self._view.table.slot_of[node]
        return next((no for each in self._filters if (no := each.reject(slot)) is not None), None)

    def rejections(self, node: str) -> tuple[Rejection, ...]:
        """Return the answer of every filter that rejects a node, in the scheduler's order.

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
        """The effective DoNotSchedule constraints, with their current counts."""
        return next((each.constraints for each in self._filters if isinstance(each, PodTopologySpread)), ())

    @property
    def needs(self) -> Sequence[tuple[str, FreeAmounts, int]]:
        """What must be free on a node: name, free amounts on all nodes, and needed amount.

        The place for a pod is first.
        """
        return next((each.needs for each in self._filters if isinstance(each, NodeResourcesFit)), ())

    @property
    def has_pod_terms(self) -> bool:
        """Whether the pod itself has required affinity or anti-affinity terms for other pods."""
        return bool(self.pod.spec.pod_affinity or self.pod.spec.pod_anti_affinity)

    def speaks_of(self, namespace: str, labels: Labels) -> bool:
        """Return whether the pod's own affinity or anti-affinity matches pods with these labels."""
        return self.is_drawn_by(namespace, labels) or bool(self.keys_apart_from(namespace, labels))

    @property
    def affinity_keys(self) -> Sequence[str]:
        """The topology keys of the pod's required affinity."""
        return [term.topology_key for each in self._terms() for term in each.affinity_terms]

    @property
    def is_first_of_its_set(self) -> bool:
        """Whether the pod has affinity to pods like itself, and none of them is on a node: it may go anywhere."""
        return any(each.is_first_of_its_set for each in self._terms())

    def is_drawn_by(self, namespace: str, labels: Labels) -> bool:
        """Return whether the pod's own affinity matches pods with these labels."""
        return any(term.matches(namespace, labels) for each in self._terms() for term in each.affinity_terms)

    def keys_apart_from(self, namespace: str, labels: Labels) -> Sequence[str]:
        """Return the topology keys of the pod's own anti-affinity that matches pods with these labels."""
        terms = (term for each in self._terms() for term in each.anti_affinity_terms)
        return [term.topology_key for term in terms if term.matches(namespace, labels)]

    def _terms(self) -> Iterator[InterPodAffinity]:
        return (each for each in self._filters if isinstance(each, InterPodAffinity))

    @property
    def wants_volume_alone(self) -> bool:
        """Whether the pod has a volume that it can't share with every other pod."""
        return any(each.plugin == "VolumeRestrictions" for each in self._filters)

    @property
    def needs_only_amounts(self) -> bool:
        """Whether other pods affect this pod only by resource amounts, and not by ports or volumes."""
        return not any(each.plugin in {"NodePorts", *_COSTLY} for each in self._filters)

    @property
    def needs_only_room(self) -> bool:
        """Whether nothing but resource amounts and PodTopologySpread lets other pods affect this pod."""
        return self.needs_only_amounts and not any(each.has_terms for each in self._terms())

    def lets_on(self, slot: int) -> bool:
        """Return whether a node accepts the pod on the current view, ignoring spread and nominated pods."""
        return bool(self.statically_feasible >> slot & 1) and self._passes(slot, _SPREAD)

    # Which of them is wanted most

    def scores(self, nodes: NodeSet) -> SpreadScores | None:
        """Return PodTopologySpread's scores, if only these nodes are feasible; None if there is nothing to score."""
        view = self._view
        return spread_scores(view.table, view.pods, self.pod, self.constraints, nodes)

    def best_nodes(self, nodes: NodeSet) -> NodeSet:
        """Return the nodes among these with the highest score of PodTopologySpread; all, if it gives none.

        Other scores may outweigh it, and with more than 100 nodes the scheduler examines only some. So the result is
        likely, not certain.
        """
        scores = self.scores(nodes)
        if scores is None:
            return nodes
        scored = zip(scores.slots, scores.normalized, strict=True)
        return node_set([slot for slot, points in scored if points == MAX_NODE_SCORE]) or nodes

    def names(self, nodes: NodeSet) -> list[str]:
        """Return the names of a set of nodes."""
        return members(nodes, self._view.table.names)

    def domains(self, nodes: NodeSet, key: str) -> frozenset[str]:
        """Return the topology domains of nodes for a key. Nodes without the key are in none."""
        column = self._view.table.column(key)
        if len(column.nodes_with) <= _FEW_DOMAINS:
            return frozenset(value for value, there in column.nodes_with.items() if there & nodes)
        values = column.values
        return frozenset(value for slot in slots_of(nodes) if (value := values[slot]) is not None)


def _left_out(*, spread: bool, terms: bool) -> frozenset[Plugin]:
    if spread:
        return frozenset() if terms else _TERMS
    return _SPREAD if terms else _SPREAD | _TERMS


def why_uncertain(view: ClusterView, slot: int) -> str | None:
    """Return what can't be decoded on a node, so that no fit can be proven; None if everything can."""
    if not view.uncertain >> slot & 1:
        return None
    name = view.table.names[slot]
    unread = view.snapshot.unread
    faults = [each.fault for key, each in unread.get("nodes", Map()).items() if key.name == name]
    faults += [each.fault for each in unread.get("pods", Map()).values() if each.node_name in {name, None}]
    return f"can't be proven to have room, because not all objects there can be read ({min(faults)})"
