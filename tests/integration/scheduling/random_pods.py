"""Random pods that use every rule of the scheduler, as a person would write them."""

from __future__ import annotations

import random
from typing import Any

ZONE = "topology.kubernetes.io/zone"
HOSTNAME = "kubernetes.io/hostname"
RACK = "example.com/rack"
APPS = ("web", "api", "db")
NAMESPACES = ("shop", "blog", "infra")
CLAIMS = ("shared-a", "shared-b", "single")


def random_pod(rng: random.Random, name: str, nodes: list[str]) -> dict[str, Any]:
    """Return a manifest with some fields that affect scheduling.

    More than half of the pods require one node, so that the scheduler's answer is yes or no for that node.
    """
    labels = {"app": rng.choice(APPS), "track": rng.choice("ab")}
    container = {"name": "main", "image": "simulated", "resources": {"requests": _requests(rng)}}
    spec: dict[str, Any] = {
        "containers": [container | ({"ports": [_port(rng)]} if rng.random() < 0.2 else {})],
        "terminationGracePeriodSeconds": 3600,
        "affinity": _affinity(rng, labels, nodes),
    }
    sometimes: list[tuple[float, dict[str, Any]]] = [
        (0.2, {"nodeSelector": {ZONE: f"zone-{rng.choice('abc')}"}}),
        (0.4, {"tolerations": [{"key": "dedicated", "operator": "Exists"}, *_cordon_toleration(rng)]}),
        (0.5, {"topologySpreadConstraints": _constraints(rng)}),
        (0.2, {"initContainers": [_init_container(rng)]}),
        (0.1, {"resources": {"requests": {"cpu": "3500m"}}}),
        (0.2, {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": rng.choice(CLAIMS)}}]}),
    ]
    for share, fields in sometimes:
        if rng.random() < share:
            spec |= fields
    annotations = {"sandbox.respread.dev/terminate-after-seconds": "3600"}
    return {"metadata": {"name": name, "labels": labels, "annotations": annotations}, "spec": spec}


def _affinity(rng: random.Random, labels: dict[str, str], nodes: list[str]) -> dict[str, Any]:
    affinity: dict[str, Any] = {}
    if rng.random() < 0.6:
        affinity["nodeAffinity"] = _required({"nodeSelectorTerms": [_only(rng.choice(nodes))]})
    elif rng.random() < 0.3:
        affinity["nodeAffinity"] = _required({"nodeSelectorTerms": [_term(rng) for _ in range(rng.randint(1, 2))]})
    for kind, share in (("podAffinity", 0.2), ("podAntiAffinity", 0.3)):
        if rng.random() < share:
            affinity[kind] = _required([_pod_term(rng, labels) for _ in range(rng.randint(1, 2))])
    return affinity


def _required(what: Any) -> dict[str, Any]:
    return {"requiredDuringSchedulingIgnoredDuringExecution": what}


def _only(node: str) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": "In", "values": [node]}]}


def _term(rng: random.Random) -> dict[str, Any]:
    choices: list[dict[str, Any]] = [
        {"key": RACK, "operator": "In", "values": rng.sample(["r1", "r2", "r3"], 2)},
        {"key": RACK, "operator": "NotIn", "values": ["r1"]},
        {"key": RACK, "operator": "DoesNotExist"},
        {"key": "cores", "operator": "Gt", "values": ["2"]},
        {"key": "cores", "operator": "Lt", "values": ["4"]},
        {"key": ZONE, "operator": "Exists"},
    ]
    return {"matchExpressions": rng.sample(choices, rng.randint(1, 2))}


def _cordon_toleration(rng: random.Random) -> list[dict[str, str]]:
    if rng.random() < 0.5:
        return []
    return [{"key": "node.kubernetes.io/unschedulable", "operator": "Exists", "effect": "NoSchedule"}]


def _selector(rng: random.Random, labels: dict[str, str]) -> dict[str, Any]:
    return rng.choice(
        [
            {"matchLabels": {"app": labels["app"]}},
            {"matchLabels": {"app": rng.choice(APPS)}},
            {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": [rng.choice(APPS)]}]},
            {"matchExpressions": [{"key": "track", "operator": "Exists"}]},
        ]
    )


def _pod_term(rng: random.Random, labels: dict[str, str]) -> dict[str, Any]:
    term: dict[str, Any] = {
        "topologyKey": rng.choice([ZONE, HOSTNAME, HOSTNAME, RACK]),
        "labelSelector": _selector(rng, labels),
    }
    if rng.random() < 0.3:
        term["namespaces"] = rng.sample(NAMESPACES, 2)
    if rng.random() < 0.3:
        term["namespaceSelector"] = rng.choice(
            [
                {},
                {"matchLabels": {"team": "a"}},
                {"matchExpressions": [{"key": "team", "operator": "NotIn", "values": ["a"]}]},
            ]
        )
    if rng.random() < 0.2 and "track" not in str(term["labelSelector"]):
        term["matchLabelKeys"] = ["track"]
    return term


def _constraints(rng: random.Random) -> list[dict[str, Any]]:
    constraints = []
    for key in rng.sample([ZONE, HOSTNAME, RACK], rng.randint(1, 2)):
        hard = rng.random() < 0.8
        constraint: dict[str, Any] = {
            "maxSkew": rng.randint(1, 3),
            "topologyKey": key,
            "whenUnsatisfiable": "DoNotSchedule" if hard else "ScheduleAnyway",
            "labelSelector": {"matchLabels": {"app": rng.choice(APPS)}},
            "nodeAffinityPolicy": rng.choice(["Honor", "Ignore"]),
            "nodeTaintsPolicy": rng.choice(["Honor", "Ignore"]),
        }
        if hard and rng.random() < 0.2:
            constraint["minDomains"] = rng.randint(1, 4)
        if rng.random() < 0.3:
            constraint["matchLabelKeys"] = ["track"]
        constraints.append(constraint)
    return constraints


def _requests(rng: random.Random) -> dict[str, str]:
    return rng.choice([{}, {"cpu": "100m"}, {"cpu": "250m", "memory": "256Mi"}, {"cpu": "1"}, {"memory": "1Gi"}])


def _port(rng: random.Random) -> dict[str, Any]:
    port: dict[str, Any] = {
        "containerPort": 80,
        "hostPort": rng.choice([80, 443]),
        "protocol": rng.choice(["TCP", "UDP"]),
    }
    return port | rng.choice([{}, {"hostIP": "10.0.0.1"}, {"hostIP": "127.0.0.1"}])


def _init_container(rng: random.Random) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": "init",
        "image": "simulated",
        "resources": {"requests": rng.choice([{"cpu": "2"}, {"cpu": "500m", "memory": "2Gi"}])},
    }
    return container | rng.choice([{}, {"restartPolicy": "Always"}])
