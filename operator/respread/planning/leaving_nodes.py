"""Nodes that will lose their pods without us: because of a taint, or since they are being drained.

Their pods are the first to go where others would do as well, and where their going restores the spread, nothing is
evicted for it as long as it goes on.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from immutables import Map

from respread.api.reasons import Held, Reason
from respread.cluster.objects import Node, Taint
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.planning.placement import Placement
from respread.planning.room.book import Simulation, simulated
from respread.planning.room.demand import Demand
from respread.planning.tasks import Task
from respread.scheduling.filters.taint_toleration import toleration_of
from respread.scheduling.filters.topology_spread import counts_as_pod
from respread.scheduling.view.node_table import node_set
from respread.spread.group import template_of

_TO_BE_DELETED: Final = "ToBeDeletedByClusterAutoscaler"
"""Cluster-autoscaler evicts pods from such a node whether they tolerate the taint or not."""
_OF_GOING_NODES: Final = frozenset({"karpenter.sh/disrupted", _TO_BE_DELETED})
"""Taints of nodes that are deleted as soon as they are empty."""
EMPTYING_TAINTS: Final = _OF_GOING_NODES | {"node.kubernetes.io/out-of-service"}
"""Taints, whatever their effect, whose node is emptied by the component that set them; every one with the effect
NoExecute empties its node too, of pods that don't tolerate it, or only for a time."""


class MarkedNodes:
    """The nodes that are cordoned, and those with taints that empty them; looked for again only if a node changed."""

    def __init__(self) -> None:
        self._nodes: Map[str, Node] = Map()
        self.cordoned: frozenset[str] = frozenset()
        self.tainted: Mapping[str, tuple[Taint, ...]] = {}

    def advance(self, snapshot: ClusterSnapshot) -> None:
        """Look at another snapshot."""
        if snapshot.nodes is not self._nodes:
            self._nodes = snapshot.nodes
            self.tainted = {name: taints for name, node in snapshot.nodes.items() if (taints := _emptying_taints(node))}
            self.cordoned = frozenset(name for name, node in snapshot.nodes.items() if node.unschedulable)

    def drained(self, snapshot: ClusterSnapshot, ours: Iterable[Pod], lately: Iterable[str]) -> frozenset[str]:
        """Return the cordoned nodes that pods are leaving which somebody else has evicted or deleted.

        The snapshot is the last one looked at. `ours` are the pods that we have evicted. Nodes that were being drained
        lately count while they are cordoned.
        """
        own = {pod.uid for pod in ours}
        return self.cordoned.intersection(lately).union(
            pod.node_name
            for pod in snapshot.leaving_pods.values()
            if pod.node_name in self.cordoned and pod.uid not in own
        )


class LeavingNodes:
    """The nodes of one snapshot after the other that are losing their pods."""

    def __init__(self) -> None:
        self._marked = MarkedNodes()
        self._tainted: Mapping[str, tuple[Taint, ...]] = {}
        """The nodes with taints that empty them, and these."""
        self._drained: frozenset[str] = frozenset()
        """Those that are cordoned, and that pods are leaving which we did not evict."""
        self.names: frozenset[str] = frozenset()
        """All of them, pods that tolerate what empties them aside."""

    def advance(self, snapshot: ClusterSnapshot, ours: Iterable[Pod], drained: Collection[str] = ()) -> bool:
        """Look at another snapshot, and return whether other nodes are leaving.

        `ours` are the pods that we have evicted. Nodes that were being drained lately count if they still are cordoned.
        """
        self._marked.advance(snapshot)
        before = self._tainted, self._drained
        self._tainted, self._drained = self._marked.tainted, self._marked.drained(snapshot, ours, drained)
        self.names = self._drained | self._tainted.keys()
        return (self._tainted, self._drained) != before

    @property
    def going(self) -> frozenset[str]:
        """Return the names of the nodes that are deleted as soon as they are empty."""
        return frozenset(
            name for name, taints in self._tainted.items() if any(taint.key in _OF_GOING_NODES for taint in taints)
        )

    def why(self, pod: Pod, within: timedelta = timedelta.max) -> str | None:
        """Return why a pod is about to lose its node; None if that is not known, or if it may stay for longer."""
        for taint in self._tainted.get(pod.node_name, ()):
            toleration = None if taint.key == _TO_BE_DELETED else toleration_of(pod.spec.tolerations, taint)
            if toleration is None:
                return f"it has the taint {taint.key}"
            seconds = toleration.toleration_seconds
            if seconds is not None and seconds <= within.total_seconds():
                return f"it has the taint {taint.key}, which they tolerate for {seconds} s"
        return "it is cordoned and being drained" if pod.node_name in self._drained else None


def _emptying_taints(node: Node) -> tuple[Taint, ...]:
    """Return the taints of a node for which pods have to leave it."""
    if not node.taints:
        return ()
    return tuple(taint for taint in node.taints if taint.key in EMPTYING_TAINTS or taint.effect == "NoExecute")


def loses_its_pods(node: Node) -> bool:
    """Return whether there is a reason in a node to evict its pods: it is cordoned, or has a taint that empties it."""
    return node.unschedulable or bool(_emptying_taints(node))


class Drained(NamedTuple):
    """What says that the spread of a component is restored as nodes lose their pods."""

    held: Held
    going: tuple[Pod, ...]
    """Its pods that lose their nodes."""


def waits_for_drain(
    task: Task,
    leaving: LeavingNodes,
    placement: Placement,
    since: Mapping[str, datetime],
    patience: timedelta,
    now: datetime,
) -> Drained | None:
    """Return what says that the spread is restored as nodes lose their pods; None if it is not, or takes too long.

    A node is waited for as long as the patience says since it lost a pod last, or began to be one that loses them; one
    that is missing in `since` did just now.
    """
    going = [
        pod
        for pod in task.pods
        if counts_as_pod(pod)
        and leaving.why(pod, patience) is not None
        and now < since.get(pod.node_name, now) + patience
    ]
    if not going or not _restored_without(going, task, leaving, placement):
        return None
    last = min(since.get(pod.node_name, now) for pod in going)
    pod = min(going, key=lambda pod: (since.get(pod.node_name, now), pod.node_name))
    others = len({each.node_name for each in going}) - 1
    held = Held(
        Reason.NODE_LEAVING,
        f"node {pod.node_name}{f' and {others} more' if others else ''} will lose its pods ({leaving.why(pod)}), and "
        f"with the replacements of {len(going)} of them, such as {pod.name}, it holds again: nothing is evicted for it "
        f"unless that takes longer than the policy's leavingNodePatience, {patience.total_seconds():.0f} s from one "
        "pod to the next",
        until=last + patience,
    )
    return Drained(held, tuple(going))


def demands_of_drained(going: Iterable[Pod], leaving: LeavingNodes, placement: Placement) -> Iterator[Demand]:
    """Yield the replacements of pods that lose their nodes, which need others."""
    gone = node_set([slot for name in leaving.names if (slot := placement.table.slot_of.get(name)) is not None])
    number = Counter(template_of(pod).identity for pod in going)
    for pod in {template_of(pod).identity: pod for pod in going}.values():
        prepared = placement.prepare(pod)
        nodes = 0 if prepared.unknown is not None else prepared.admitted(spread=False) & ~gone
        if nodes:
            of_it = number[template_of(pod).identity]
            yield Demand(pod, prepared, nodes, nodes, nodes, number=of_it, is_replacement=True)


def _restored_without(going: list[Pod], task: Task, leaving: LeavingNodes, placement: Placement) -> bool:
    """Whether the groups to be cured hold once some pods are replaced, on the worst of the likely nodes each."""
    with simulated(placement, task.groups) as simulation:
        replacing = _Replacing(task, leaving.names, leaving.going, simulation)
        for pod in going:
            simulation.remove(pod)
        return all(map(replacing.replace, (*task.coming, *going))) and replacing.is_cured


class _Replacing:
    """What becomes of groups while pods of leaving nodes are replaced."""

    def __init__(self, task: Task, leaving: frozenset[str], going: frozenset[str], simulation: Simulation) -> None:
        self._groups = task.groups
        self._cured = [group for group in task.groups if group.key in task.cure]
        self._leaving = leaving
        self._going = going
        """The nodes among these that are gone in the end."""
        self._simulation = simulation

    def replace(self, pod: Pod) -> bool:
        """Place a replacement on the worst of the likely nodes, and return whether there is one."""
        placement = self._simulation.placement
        prepared = placement.prepare(pod)
        if prepared.unknown is not None:
            return False
        best = prepared.names(placement.likely_nodes(prepared, prepared.admitted()))
        names = [name for name in best if name not in self._leaving]
        if not names and self._going:
            names = self._open_then(pod, prepared.names(prepared.admitted(spread=False)))
        if not names:
            return False
        worst = max(names, key=lambda name: [self._simulation.count_on(group, name) for group in self._cured])
        self._simulation.place(pod, placement.table.slot_of[worst])
        return True

    def _open_then(self, pod: Pod, names: Iterable[str]) -> list[str]:
        """Return the nodes among some that the spread leaves open once those that go are no domains any more."""
        identity, simulation = template_of(pod).identity, self._simulation
        own = [
            (group, simulation.levels(group, self._going).limit, pod.labels in group.matched)
            for group in self._groups
            if group.key.when_unsatisfiable == "DoNotSchedule"
            and any(template.identity == identity for template in group.carriers)
        ]
        return [
            name
            for name in names
            if name not in self._leaving
            and all(
                name in group.domains.of_node and simulation.count_on(group, name) + counts_itself <= limit
                for group, limit, counts_itself in own
            )
        ]

    @property
    def is_cured(self) -> bool:
        """Whether the groups hold, leaving nodes aside that have no pods of them any more."""
        levels = (self._simulation.levels(group, self._leaving) for group in self._cured)
        return all(each.skew <= each.max_skew for each in levels)
