"""Informers with everything that they need, and lists and events in the JSON of the API."""

from __future__ import annotations

import json
from typing import Any

import prometheus_client

from respread.cluster.stores import watched_kinds
from respread.handlers.informer import Informer, Informers
from respread.telemetry.health import WatchHealth
from respread.telemetry.metrics import Metrics


class Parts:
    """Informers, and their health and metrics."""

    def __init__(self, *, namespaced_policies: bool = True) -> None:
        kinds = watched_kinds(namespaced_policies=namespaced_policies)
        self.registry = prometheus_client.CollectorRegistry()
        self.health = WatchHealth(kind.resource for kind in kinds)
        self.metrics = Metrics(self.registry, version="test", kinds=[kind.resource for kind in kinds])
        self.informers = Informers(kinds, health=self.health, metrics=self.metrics)

    def informer(self, resource: str) -> Informer:
        """Return the informer of a kind."""
        return next(informer for informer in self.informers.all if informer.kind.resource == resource)

    def list(self, *items: dict[str, Any], version: int = 100, resource: str = "pods") -> Informer:
        """Apply a list of a single page, and return its informer."""
        informer = self.informer(resource)
        informer.begin_list()
        informer.take_page(page(*items, version=version))
        return informer

    def event(self, resource: str, body: dict[str, Any], *, deleted: bool = False) -> None:
        """Apply a watch event in the same way as Kopf."""
        informer = self.informer(resource)
        line = json.dumps({"type": "DELETED" if deleted else "MODIFIED", "object": body}).encode()
        informer.take_event(self.light(resource, line)["object"], deleted=deleted)

    def light(self, resource: str, line: bytes) -> dict[str, Any]:
        """Read a line of the watch, and return what Kopf receives."""
        event = self.informer(resource).read_event(line)
        assert event is not None
        light: dict[str, Any] = json.loads(event.encode())
        return light

    def counted(self, metric: str, resource: str) -> float:
        """Return the value of a counter for a kind."""
        return self.registry.get_sample_value(metric, {"kind": resource}) or 0


def pod(name: str, version: int = 1, **status: Any) -> dict[str, Any]:
    """A pod of the namespace shop."""
    return {
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}", "resourceVersion": str(version)},
        "spec": {"nodeName": "node-1", "containers": [{"name": "web"}]},
        "status": {"phase": "Running", **status},
    }


def broken_pod(name: str, version: int = 1, operator: str = "Perhaps") -> dict[str, Any]:
    """A pod whose node affinity has an unknown operator."""
    body = pod(name, version)
    body["spec"]["affinity"] = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": operator}]}]
            }
        }
    }
    return body


def page(*items: dict[str, Any], version: int = 100, rest: str = "") -> bytes:
    """A page of a LIST; `rest` is the continue token."""
    metadata = {"resourceVersion": str(version), **({"continue": rest} if rest else {})}
    return json.dumps({"kind": "List", "apiVersion": "v1", "metadata": metadata, "items": items}).encode()
