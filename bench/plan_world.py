"""A cluster to plan for: workloads whose pods are spread over three zones, with some exceptions."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Final, NamedTuple

from immutables import Map

from respread.api.fields import LabelSelector
from respread.cluster.meta import OwnerReference
from respread.cluster.objects import Namespace, Node, PodDisruptionBudget
from respread.cluster.pod import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodAffinityTerm,
    PodSpec,
    TopologySpreadConstraint,
)
from respread.cluster.state import ClusterState

NOW: Final = datetime(2026, 11, 21, 9, tzinfo=UTC)
ZONES: Final = ("zone-a", "zone-b", "zone-c")
ZONE: Final = "topology.kubernetes.io/zone"
HOSTNAME: Final = "kubernetes.io/hostname"
ARCH: Final = "kubernetes.io/arch"
MOST_ASTRAY: Final = 6
AMD64_ONLY: Final = 2
"""The interval of workloads that run on one architecture only."""
ANTI_AFFINE: Final = 3
"""The interval of workloads with anti-affinity to themselves."""


class Shape(NamedTuple):
    """The properties of a cluster that determine the amount of planning."""

    nodes: int
    workloads: int
    replicas: int
    """The replicas of each workload, a multiple of three."""
    per_namespace: int
    """The number of workloads in a namespace."""

    @classmethod
    def ordinary(cls, nodes: int) -> Shape:
        """Return a workload of 30 pods for each node, 50 of them in a namespace."""
        return cls(nodes, workloads=nodes, replicas=30, per_namespace=50)

    @classmethod
    def one_namespace(cls, workloads: int) -> Shape:
        """Return workloads of 15 pods that are all in one namespace, two for each node."""
        return cls(workloads // 2, workloads=workloads, replicas=15, per_namespace=workloads)

    def namespace(self, workload: int) -> str:
        """Return the namespace of a workload."""
        return f"team-{workload // self.per_namespace}"


def world(shape: Shape, violated: float, *, seed: int = 1) -> ClusterState:
    """Return a cluster.

    Args:
        shape: the size of the cluster.
        violated: the share of workloads with a violated zone constraint.
        seed: the seed of all random choices.
    """
    rng = random.Random(seed)
    state = ClusterState()
    made = [_node(number) for number in range(shape.nodes)]
    by_zone = {
        (zone, arch): [
            node.name for node in made if node.labels[ZONE] == zone and (not arch or node.labels[ARCH] == arch)
        ]
        for zone in ZONES
        for arch in ("", "amd64")
    }
    state.replace("nodes", made)
    workloads = range(shape.workloads)
    namespaces = set(map(shape.namespace, workloads))
    state.replace("namespaces", [Namespace(name=name) for name in sorted(namespaces)])
    state.replace("poddisruptionbudgets", [_budget(shape, number) for number in workloads[::2]])
    state.replace(
        "pods",
        [pod for number in workloads for pod in _workload(shape, number, by_zone, rng, astray=rng.random() < violated)],
    )
    return state


def _node(number: int) -> Node:
    name = f"node-{number:05}"
    return Node(
        name=name,
        labels=Map(
            {
                HOSTNAME: name,
                ZONE: ZONES[number % 3],
                ARCH: "arm64" if number % 4 == 1 else "amd64",
                "kubernetes.io/os": "linux",
            }
        ),
        allocatable=Map(cpu=16_000, memory=64 << 30, pods=110),
    )


def _budget(shape: Shape, number: int) -> PodDisruptionBudget:
    return PodDisruptionBudget(
        namespace=shape.namespace(number),
        name=f"web-{number}",
        selector=LabelSelector(Map(app=f"web-{number}")),
        current_healthy=shape.replicas,
        desired_healthy=shape.replicas - 3,
        expected_pods=shape.replicas,
        disruptions_allowed=3,
    )


def _workload(
    shape: Shape, number: int, nodes: dict[tuple[str, str], list[str]], rng: random.Random, *, astray: bool
) -> Iterator[Pod]:
    own = LabelSelector(Map(app=f"web-{number}"))
    constraints = [TopologySpreadConstraint(1, ZONE, "DoNotSchedule", own)]
    if number % 10 == 0:
        constraints.append(TopologySpreadConstraint(2, HOSTNAME, "DoNotSchedule", own))
    elif number % 2:
        constraints.append(TopologySpreadConstraint(1, HOSTNAME, "ScheduleAnyway", own))
    only_amd64 = number % 5 == AMD64_ONLY
    amd64 = NodeSelector((NodeSelectorTerm((NodeSelectorRequirement(ARCH, "In", ("amd64",)),)),))
    spec = PodSpec(
        requests=Map(cpu=50 * (1 + number % 9), memory=(32 << 20) * (1 + number % 13)),
        node_affinity=amd64 if only_amd64 else None,
        pod_anti_affinity=(PodAffinityTerm(HOSTNAME, own),) if number % 10 == ANTI_AFFINE else (),
        topology_spread_constraints=tuple(constraints),
    )
    labels = Map({"app": f"web-{number}", "pod-template-hash": f"{number:08x}"})
    per_zone = dict.fromkeys(ZONES, shape.replicas // 3)
    if astray:
        short, full = rng.sample(ZONES, 2)
        away = rng.randint(2, min(MOST_ASTRAY, shape.replicas // 3))
        per_zone[short] -= away
        per_zone[full] += away
    placed = [
        node
        for zone, count in per_zone.items()
        for node in rng.sample(nodes[zone, "amd64" if only_amd64 else ""], count)
    ]
    for replica, node in enumerate(placed):
        name = f"web-{number}-{number:08x}-{replica:05x}"
        yield Pod(
            namespace=shape.namespace(number),
            name=name,
            uid=f"uid-{name}",
            spec=spec,
            labels=labels,
            controller=OwnerReference("apps/v1", "ReplicaSet", f"web-{number}-{number:08x}", f"uid-{number}"),
            node_name=node,
            phase="Running",
            ready=True,
            creation_timestamp=NOW - timedelta(days=1),
        )
