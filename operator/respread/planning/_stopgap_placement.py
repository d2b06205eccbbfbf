from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.scheduling._stopgap import node_ok, untolerated


class StopgapPlacement:
    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self.snapshot = snapshot
        self.used = {name: Counter() for name in snapshot.nodes}
        for name, pods in snapshot.pods_by_node.items():
            for p in pods.values():
                if name in self.used:
                    self._take(p, name, 1)
        self.stack: list[tuple[Pod, str]] = []

    def _take(self, pod: Pod, node: str, by: int) -> None:
        if node in self.used:
            self.used[node]["pods"] += by
            for k, v in pod.spec.requests.items():
                self.used[node][k] += by * v

    def is_open(self, pod: Pod, node: str) -> bool:
        n = self.snapshot.nodes.get(node)
        if n is None or n.unschedulable or not node_ok(pod.spec.node_selector, pod.spec.node_affinity, n):
            return False
        if untolerated(pod.spec.tolerations, n):
            return False
        used = self.used[node]
        return used["pods"] + 1 <= n.allocatable.get("pods", 0) and all(
            used[k] + v <= n.allocatable.get(k, 0) for k, v in pod.spec.requests.items() if v
        )

    def open_nodes(self, pod: Pod) -> list[str]:
        return [n for n in self.snapshot.nodes if self.is_open(pod, n)]

    def depends_on_pods(self, pod: Pod) -> bool:
        return False

    def fits_beside(self, pod: Pod, node: str, others: Sequence[Pod]) -> bool:
        for o in others:
            self._take(o, node, 1)
        fits = self.is_open(pod, node)
        for o in others:
            self._take(o, node, -1)
        return fits

    def move(self, pod: Pod, node: str) -> None:
        self._take(pod, pod.node_name, -1)
        self._take(pod, node, 1)
        self.stack.append((pod, node))

    def undo(self) -> None:
        pod, node = self.stack.pop()
        self._take(pod, pod.node_name, 1)
        self._take(pod, node, -1)

    def reserve(self, pod: Pod, node: str) -> None:
        self._take(pod, node, 1)
