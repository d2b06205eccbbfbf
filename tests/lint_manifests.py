"""Manifests in which `respread lint` finds nothing, to be spoiled by tests."""

from __future__ import annotations

from typing import Any

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
GOOD: dict[str, Any] = {
    "maxSkew": 1,
    "topologyKey": ZONE,
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "web"}},
    "matchLabelKeys": ["pod-template-hash"],
    "nodeTaintsPolicy": "Honor",
}
SOFT = {**GOOD, "whenUnsatisfiable": "ScheduleAnyway"}
del SOFT["nodeTaintsPolicy"]
BUDGET: dict[str, Any] = {
    "apiVersion": "policy/v1",
    "kind": "PodDisruptionBudget",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}},
}
HPA: dict[str, Any] = {
    "apiVersion": "autoscaling/v2",
    "kind": "HorizontalPodAutoscaler",
    "metadata": {"name": "web", "namespace": "shop"},
    "spec": {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 2,
        "maxReplicas": 40,
    },
}


def pod_spec(*constraints: dict[str, Any], **fields: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "registry.k8s.io/pause:3.10"}]
    return {"containers": containers, "topologySpreadConstraints": list(constraints), **fields}


def deployment(*constraints: dict[str, Any], **fields: Any) -> dict[str, Any]:
    template = {"metadata": {"labels": {"app": "web"}}, "spec": pod_spec(*constraints, **fields)}
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop"},
        "spec": {"replicas": 6, "selector": {"matchLabels": {"app": "web"}}, "template": template},
    }
