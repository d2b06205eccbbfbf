"""What would become of the spread if pods left their nodes and others came: on a fork of the cluster.

Claims and leaving nodes ask it. The search has its own boards, because it tries thousands of positions.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from types import TracebackType
from typing import Final, Self

from respread.cluster.meta import Labels
from respread.cluster.pod import Pod
from respread.planning.placement import Placement
from respread.scheduling.filters.topology_spread import counts_as_pod
from respread.scheduling.prepared_pod import PreparedPod
from respread.scheduling.view.free_resources import POD_SLOTS
from respread.scheduling.view.node_sets import NodeSet, slots_of, union
from respread.spread.counts import Counts
from respread.spread.group import GroupKey, SpreadGroup, domain_map

_MOST_LOOKS: Final = 64
"""So many nodes are compared by their room."""


class Simulation:
    """A cluster in which pods come and go, and the counts of groups follow. It is as it was after the `with` block."""

    __slots__ = ("_counting", "_counts", "_fork", "placement")

    def __init__(self, placement: Placement, groups: Iterable[SpreadGroup]) -> None:
        """Start with the current cluster, and the groups whose counts matter."""
        self.placement = placement
        self._fork = placement.view.fork()
        self._counts: dict[GroupKey, Counter[str]] = {}
        self._counting: dict[tuple[str, Labels], list[SpreadGroup]] = {}
        """The groups that count pods of a namespace with these labels."""
        for group in groups:
            self._counts[group.key] = Counter(group.counts)
            for labels in group.matched:
                self._counting.setdefault((group.key.namespace, labels), []).append(group)

    def __enter__(self) -> Self:
        """Fork the cluster."""
        self._fork.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Revert it."""
        self._fork.__exit__(kind, error, traceback)

    # What happens

    def place(self, pod: Pod, slot: int) -> None:
        """Place a pod like this one on a node."""
        name = self.placement.table.names[slot]
        self.placement.view.place(pod, name)
        self._count(pod, name, 1)

    def evict(self, pod: Pod) -> None:
        """Count a pod no more. It still has its room."""
        if counts_as_pod(pod):
            self._count(pod, pod.node_name, -1)

    def remove(self, pod: Pod) -> None:
        """Remove a pod from its node."""
        self.evict(pod)
        self.placement.view.remove(pod)

    def _count(self, pod: Pod, node: str, by: int) -> None:
        for group in self._counting.get((pod.namespace, pod.labels), ()):
            if (domain := group.domains.of_node.get(node)) is not None:
                self._counts[group.key][domain] += by

    # What there is then

    def levels(self, group: SpreadGroup, gone: frozenset[str] = frozenset()) -> Counts:
        """Return a group's counts, without the domains of which no pod is left, and no node besides some."""
        counts = self._counts[group.key]
        left = {
            domain: counts[domain]
            for domain, nodes in group.domains.nodes.items()
            if counts[domain] or not gone.issuperset(nodes)
        }
        return group.key.counts(left, len(left))

    def count_on(self, group: SpreadGroup, node: str) -> int:
        """Return the pods in the domain of a node."""
        domain = group.domains.of_node.get(node)
        return 0 if domain is None else self._counts[group.key][domain]

    def counts(self, group: SpreadGroup, pod: Pod) -> bool:
        """Return whether a group counts a pod where its domains are."""
        return pod.namespace == group.key.namespace and pod.labels in group.matched

    def beside(self, group: SpreadGroup, pod: Pod) -> int:
        """Return how many pods the domain of a pod has, with itself; 0 if it does not count."""
        return self.count_on(group, pod.node_name) if self.counts(group, pod) else 0

    def emptiest(self, group: SpreadGroup) -> NodeSet:
        """Return the nodes of the domains with the fewest pods."""
        domains, counts = domain_map(self.placement.table, group), self._counts[group.key]
        fewest = min(counts[domain] for domain in group.domains.nodes)
        return union(there for domain, there in domains.nodes.items() if counts[domain] == fewest)

    def roomiest(self, prepared: PreparedPod, nodes: NodeSet) -> int | None:
        """Return the slot of one of some nodes that has room for most pods of a kind; None if there are none."""
        free = self.placement.view.free
        wanted = [(POD_SLOTS, 1), *((name, amount) for name, amount in prepared.pod.spec.requests.items() if amount)]
        best, most = None, -1
        for looks, slot in enumerate(slots_of(nodes)):
            if looks == _MOST_LOOKS:
                break
            room = min(free.of(name).free[slot] // amount for name, amount in wanted)
            if room > most:
                best, most = slot, room
        return best
