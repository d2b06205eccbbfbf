"""Manifests of small clusters and snapshot files of them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

ZONE: Final = "topology.kubernetes.io/zone"
HOSTNAME: Final = "kubernetes.io/hostname"
LONG_AGO: Final = "2020-01-01T00:00:00Z"

ENTRIES: Final[list[dict[str, Any]]] = [
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default", "labels": {}}},
    {"apiVersion": "v1", "kind": "Service", "metadata": {"name": "web", "namespace": "default"}, "spec": {}},
    {
        "apiVersion": "v1",
        "kind": "ReplicationController",
        "metadata": {"name": "old", "namespace": "default"},
        "spec": {"selector": {"app": "old"}},
    },
    {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data", "namespace": "default"}},
    {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": "data"}},
    {"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": "web-1", "namespace": "default"}},
    {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": {"name": "db", "namespace": "default"}},
    {"apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": {"name": "fast"}, "provisioner": "x.y/z"},
    {"apiVersion": "storage.k8s.io/v1", "kind": "CSINode", "metadata": {"name": "node-a"}},
    {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "cart", "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": "cart"}}},
    },
    {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "important"}, "value": 1000},
    {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "unread", "namespace": "default"}, "data": {"a": 1}},
]
"""One object of each kind, as kubectl gets them, and one of an unwatched kind."""


def manifest_of_node(name: str, zone: str, **fields: Any) -> dict[str, Any]:
    """Return a Ready node with room for pods."""
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOSTNAME: name, ZONE: zone}},
        "status": {
            "allocatable": {"cpu": "8", "memory": "32Gi", "pods": "110"},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
        **fields,
    }


def manifest_of_pod(name: str, node: str, app: str, spec: Mapping[str, Any], **metadata: Any) -> dict[str, Any]:
    """Return a Ready pod of ReplicaSet `<app>-1` of a Deployment."""
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": f"{app}-1", "uid": f"rs-{app}", "controller": True}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{name}",
            "labels": {"app": app, "pod-template-hash": "1"},
            "creationTimestamp": LONG_AGO,
            "ownerReferences": [owner],
            **metadata,
        },
        "spec": {"containers": [{"name": "main", "image": "app"}], **({"nodeName": node} if node else {}), **spec},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


def deployment_pods(
    app: str,
    placed: Mapping[str, int],
    *,
    when: str = "DoNotSchedule",
    namespace: str = "default",
    metadata: Mapping[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Return a Deployment's pods, with the number for each node, and a zone constraint of maxSkew 1."""
    constraint = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": when,
        "labelSelector": {"matchLabels": {"app": app}},
    }
    spec = {"topologySpreadConstraints": [constraint]}
    return [
        manifest_of_pod(f"{app}-{node}-{number}", node, app, spec, namespace=namespace, **(metadata or {}))
        for node, count in placed.items()
        for number in range(count)
    ]


def list_of(items: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return a List as kubectl writes it."""
    return {"apiVersion": "v1", "kind": "List", "metadata": {"resourceVersion": ""}, "items": list(items)}


def snapshot_of(directory: Path, items: Sequence[Mapping[str, Any]], name: str = "cluster.json") -> Path:
    """Write a snapshot file."""
    file = directory / name
    file.write_text(json.dumps(list_of(items)), encoding="utf-8")
    return file
