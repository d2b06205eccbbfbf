"""Small clusters in a short notation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from immutables import Map

from respread.api.fields import LabelSelector
from respread.api.policy import WhenUnsatisfiable
from respread.cluster.meta import Labels, OwnerReference
from respread.cluster.objects import Namespace, Node, Taint
from respread.cluster.pod import Pod, PodSpec, TopologySpreadConstraint
from respread.cluster.state import ClusterSnapshot, ClusterState

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)


def node(
    name: str, zone: str | None = None, *, pods: int = 110, labels: Mapping[str, str] = Map(), **fields: Any
) -> Node:
    """Return a node with its hostname and zone as labels and room for a number of pods."""
    named = {HOSTNAME: name, **({ZONE: zone} if zone is not None else {}), **labels}
    return Node(name=name, labels=Map(named), allocatable=Map(pods=pods, cpu=64_000, memory=1 << 38), **fields)


def taint(key: str = "dedicated", effect: Any = "NoSchedule", value: str = "") -> Taint:
    """Return a taint."""
    return Taint(key=key, effect=effect, value=value)


def constraint(
    topology_key: str = ZONE,
    max_skew: int = 1,
    when: WhenUnsatisfiable = "DoNotSchedule",
    selector: Mapping[str, str] | LabelSelector | None = Map(app="web"),
    **fields: Any,
) -> TopologySpreadConstraint:
    """Return a constraint over the pods with label `app=web`."""
    if selector is not None and not isinstance(selector, LabelSelector):
        selector = LabelSelector(match_labels=Map(selector))
    return TopologySpreadConstraint(
        max_skew=max_skew, topology_key=topology_key, when_unsatisfiable=when, label_selector=selector, **fields
    )


def spec(*constraints: TopologySpreadConstraint, **fields: Any) -> PodSpec:
    """Return a pod spec. Pods share a template if and only if they share this object."""
    return PodSpec(topology_spread_constraints=constraints, **{"requests": Map(cpu=100), **fields})


def pod(
    name: str, on: str, of: PodSpec, *, labels: Labels = Map(app="web"), namespace: str = "default", **fields: Any
) -> Pod:
    """Return a Ready pod of ReplicaSet `web` on a node, an hour old."""
    given: dict[str, Any] = {
        "controller": OwnerReference("apps/v1", "ReplicaSet", "web", "uid-web"),
        "phase": "Running" if on else "Pending",
        "ready": bool(on),
        "creation_timestamp": NOW - timedelta(hours=1),
        **fields,
    }
    return Pod(
        namespace=namespace, name=name, uid=f"uid-{namespace}-{name}", spec=of, labels=labels, node_name=on, **given
    )


def pods(counts: Mapping[str, int], of: PodSpec, **fields: Any) -> list[Pod]:
    """Return pods, with the number for each node."""
    prefix = fields.pop("prefix", "web")
    return [pod(f"{prefix}-{on}-{number}", on, of, **fields) for on, count in counts.items() for number in range(count)]


def cluster(nodes: Iterable[Node], pods: Iterable[Pod], **others: Iterable[Any]) -> ClusterSnapshot:
    """Return a snapshot of nodes, pods and, by resource, other objects, with the namespaces of the pods."""
    state = ClusterState()
    placed = list(pods)
    state.replace("nodes", nodes)
    state.replace("pods", placed)
    names = sorted({each.namespace for each in placed})
    state.replace("namespaces", others.pop("namespaces", [Namespace(name=name) for name in names]))
    for resource, objects in others.items():
        state.replace(resource, objects)
    return state.snapshot
