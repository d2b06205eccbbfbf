"""A ReplicaSet and its constraints as plain data: which pods its controller deletes, and the resulting skew.

Written from Kubernetes' source (`ActivePodsWithRanks` in pkg/controller/controller_utils.go, `getPodsToDelete` in
pkg/controller/replicaset) and from the meaning of constraints, independently of the product.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import NamedTuple

Violation = tuple[int, int]
"""The pods above the allowed number in hard and in soft constraints."""


class ModelNode(NamedTuple):
    """A node, by its labels."""

    name: str
    labels: dict[str, str]


class ModelRule(NamedTuple):
    """A topology spread constraint that counts the ReplicaSet's own pods."""

    key: str
    max_skew: int = 1
    hard: bool = True
    min_domains: int = 1


class ModelPod(NamedTuple):
    """A pod of the ReplicaSet."""

    name: str
    node: int
    cost: int = 0
    ready: bool = True
    phase: str = "Running"
    ready_seconds: int = 0
    restarts: int = 0
    age_seconds: int = 0


class Model(NamedTuple):
    """The surroundings of a ReplicaSet."""

    nodes: tuple[ModelNode, ...]
    rules: tuple[ModelRule, ...]
    others: tuple[int, ...] = ()
    """The node of each pod that the constraints count and a scale-down does not delete."""

    def violation(self, places: Iterable[int]) -> Violation:
        """Return the violations with the ReplicaSet's pods on these nodes."""
        placed = [*places, *self.others]
        hard = soft = 0
        for rule in self.rules:
            keys = {other.key for other in self.rules if other.hard == rule.hard}
            eligible = [keys <= node.labels.keys() for node in self.nodes]
            counts = Counter(
                {node.labels[rule.key]: 0 for node, counted in zip(self.nodes, eligible, strict=True) if counted}
            )
            for at in placed:
                if eligible[at]:
                    counts[self.nodes[at].labels[rule.key]] += 1
            minimum = min(counts.values(), default=0) if len(counts) >= rule.min_domains else 0
            excess = sum(max(0, count - minimum - rule.max_skew) for count in counts.values())
            if rule.hard:
                hard += excess
            else:
                soft += excess
        return hard, soft

    def best(self, deletable: Sequence[int], staying: Sequence[int] = ()) -> Violation:
        """Return the least violations of any order of deletion, summed over all numbers of remaining pods.

        Examines every subset of the pods, by the number of pods that are left on each node.

        Args:
            deletable: the node of each pod that the order deletes.
            staying: the node of each pod that stays.
        """
        nodes = sorted(set(deletable))
        full = tuple(deletable.count(node) for node in nodes)
        layer: dict[tuple[int, ...], Violation] = {full: (0, 0)}
        for _ in deletable:
            below: dict[tuple[int, ...], Violation] = {}
            for left, (hard, soft) in layer.items():
                for at, count in enumerate(left):
                    if count:
                        after = (*left[:at], count - 1, *left[at + 1 :])
                        below[after] = min(below.get(after, (hard, soft)), (hard, soft))
            layer = {}
            for left, (hard, soft) in below.items():
                places = [node for node, count in zip(nodes, left, strict=True) for _ in range(count)]
                now_hard, now_soft = self.violation([*places, *staying])
                layer[left] = hard + now_hard, soft + now_soft
        (total,) = layer.values()
        return total

    def total(self, order: Sequence[ModelPod]) -> Violation:
        """Return the violations of an order of deletion, summed over all numbers of remaining pods."""
        hard = soft = 0
        for deleted in range(1, len(order) + 1):
            now_hard, now_soft = self.violation(pod.node for pod in order[deleted:])
            hard, soft = hard + now_hard, soft + now_soft
        return hard, soft

    def least(self, deletable: Sequence[int], left: int) -> Violation:
        """Return the least violations with this many of the existing pods."""
        return min(self.violation(chosen) for chosen in set(combinations(sorted(deletable), left)))


def deletion_order(pods: Sequence[ModelPod]) -> list[ModelPod]:
    """Return the order in which the ReplicaSet controller deletes pods."""
    on_node = Counter(pod.node for pod in pods)
    phases = {"Pending": 0, "Unknown": 1, "Running": 2}
    return sorted(
        pods,
        key=lambda pod: (
            phases[pod.phase],
            pod.ready,
            pod.cost,
            -on_node[pod.node],
            pod.ready_seconds if pod.ready else 0,
            -pod.restarts,
            pod.age_seconds,
            pod.name,
        ),
    )
