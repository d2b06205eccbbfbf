"""A cluster for predictions: nodes of several kinds, and workloads that use every filter in plausible shares."""

from __future__ import annotations

import random
from typing import Final, NamedTuple

from immutables import Map

from respread.api.fields import LabelSelector
from respread.cluster.meta import Labels, OwnerReference
from respread.cluster.objects import CSINode, Namespace, Node, PersistentVolume, PersistentVolumeClaim, Taint
from respread.cluster.pod import (
    HostPort,
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodAffinityTerm,
    PodSpec,
    Toleration,
    TopologySpreadConstraint,
)
from respread.cluster.state import ClusterState

PODS_PER_NODE: Final = 30
REPLICAS: Final = 30
ZONE: Final = "topology.kubernetes.io/zone"
HOSTNAME: Final = "kubernetes.io/hostname"
DRIVER: Final = "csi.example.com"


class Workload(NamedTuple):
    """The pods of one template, and a replacement of one of them."""

    namespace: str
    labels: Labels
    spec: PodSpec
    replacement: Pod


class World(NamedTuple):
    """A filled cluster."""

    state: ClusterState
    workloads: list[Workload]


def world(nodes: int, *, seed: int = 1) -> World:
    """Return a cluster of this number of nodes with 30 pods each and 30 pods of each workload."""
    rng = random.Random(seed)
    state = ClusterState()
    made = [_node(number, rng) for number in range(nodes)]
    state.replace("nodes", made)
    state.replace("csinodes", [CSINode(name=node.name, volume_limits=Map({DRIVER: 25})) for node in made])
    workloads = [_workload(number) for number in range(nodes * PODS_PER_NODE // REPLICAS)]
    state.replace("namespaces", [Namespace(name=name) for name in sorted({each.namespace for each in workloads})])
    pods: list[Pod] = []
    claims: list[PersistentVolumeClaim] = []
    volumes: list[PersistentVolume] = []
    for number, workload in enumerate(workloads):
        for replica in range(REPLICAS):
            on = made[rng.randrange(nodes)]
            pods.append(_pod(workload, f"w{number}-{replica}", on.name))
        for name in workload.spec.shared_claims:
            claim, volume = _claim(workload.namespace, name, f"zone-{number % 3}")
            claims.append(claim)
            volumes.append(volume)
    state.replace("persistentvolumeclaims", claims)
    state.replace("persistentvolumes", volumes)
    state.replace("pods", pods)
    return World(state, workloads)


def _one_in(share: int, number: int, *, of: int = 1) -> bool:
    """Return whether a number belongs to this share of all numbers; `of` selects another subset."""
    return number % share == of


def _node(number: int, rng: random.Random) -> Node:
    name = f"node-{number:05}"
    arch = "arm64" if _one_in(4, number) else "amd64"
    taints = (Taint("dedicated", "NoSchedule", "batch"),) if _one_in(50, number) else ()
    return Node(
        name=name,
        labels=Map(
            {
                HOSTNAME: name,
                ZONE: f"zone-{number % 3}",
                "example.com/rack": f"rack-{number % 40}",
                "kubernetes.io/arch": arch,
                "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": rng.choice(["m5.large", "m5.xlarge", "c6.large"]),
            }
        ),
        taints=taints,
        unschedulable=_one_in(100, number, of=7),
        allocatable=Map(cpu=16_000, memory=64 << 30, pods=110),
    )


def _workload(number: int) -> Workload:
    labels = Map({"app": f"w{number}", "pod-template-hash": f"{number:x}", "tier": f"t{number % 5}"})
    own = LabelSelector(Map(app=f"w{number}"))
    constraints = [TopologySpreadConstraint(1, ZONE, "DoNotSchedule", own)]
    if _one_in(10, number, of=0):
        constraints.append(TopologySpreadConstraint(2, HOSTNAME, "DoNotSchedule", own))
    elif number % 2:
        constraints.append(TopologySpreadConstraint(1, HOSTNAME, "ScheduleAnyway", own))
    apart = (PodAffinityTerm(HOSTNAME, own),)
    amd64 = NodeSelector((NodeSelectorTerm((NodeSelectorRequirement("kubernetes.io/arch", "In", ("amd64",)),)),))
    spec = PodSpec(
        requests=Map(cpu=50 * (1 + number % 9), memory=(32 << 20) * (1 + number % 13)),
        host_ports=(HostPort("TCP", 20_000 + number % 10_000),) if _one_in(50, number) else (),
        node_affinity=amd64 if _one_in(5, number, of=2) else None,
        pod_anti_affinity=apart if _one_in(10, number, of=3) else (),
        tolerations=(Toleration("dedicated", "Exists"),) if _one_in(20, number, of=4) else (),
        topology_spread_constraints=tuple(constraints),
        shared_claims=(f"data-{number}",) if _one_in(20, number, of=6) else (),
    )
    namespace = f"team-{number % 100}"
    replacement = Pod(namespace=namespace, name="", uid="", spec=spec, labels=labels)
    return Workload(namespace, labels, spec, replacement)


def _pod(workload: Workload, name: str, node: str) -> Pod:
    return Pod(
        namespace=workload.namespace,
        name=name,
        uid=f"uid-{name}",
        spec=workload.spec,
        labels=workload.labels,
        controller=OwnerReference("apps/v1", "ReplicaSet", name.rpartition("-")[0], f"uid-{workload.labels['app']}"),
        node_name=node,
        phase="Running",
        ready=True,
    )


def _claim(namespace: str, name: str, zone: str) -> tuple[PersistentVolumeClaim, PersistentVolume]:
    where = NodeSelector((NodeSelectorTerm((NodeSelectorRequirement(ZONE, "In", (zone,)),)),))
    volume = PersistentVolume(
        name=f"pv-{namespace}-{name}",
        node_affinity=where,
        csi_driver=DRIVER,
        csi_volume_handle=f"{namespace}/{name}",
        phase="Bound",
    )
    claim = PersistentVolumeClaim(
        namespace=namespace, name=name, volume_name=volume.name, bind_completed=True, access_modes=("ReadWriteMany",)
    )
    return claim, volume
