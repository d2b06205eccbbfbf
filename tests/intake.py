"""An intake with everything around it, and the API's JSON to feed it with."""

from __future__ import annotations

import json
from typing import Any

import prometheus_client

from respread.handlers.health import WatchHealth
from respread.handlers.informer import Feed
from respread.handlers.informers import Intake
from respread.stores.watched_kinds import watched_kinds
from respread.telemetry.metrics import Metrics


class Parts:
    """An intake, and what it tells."""

    def __init__(self, *, namespaced_policies: bool = True) -> None:
        kinds = watched_kinds(namespaced_policies=namespaced_policies)
        self.registry = prometheus_client.CollectorRegistry()
        self.health = WatchHealth(kind.resource for kind in kinds)
        self.metrics = Metrics.create(self.registry, version="test", kinds=[kind.resource for kind in kinds])
        self.intake = Intake(kinds, health=self.health, metrics=self.metrics)

    def feed(self, resource: str) -> Feed:
        """The feed of a kind."""
        return next(feed for feed in self.intake.feeds if feed.kind.resource == resource)

    def event(self, resource: str, body: dict[str, Any], *, deleted: bool = False) -> None:
        """Send an event of the watch, by the same way as Kopf."""
        feed = self.feed(resource)
        line = json.dumps({"type": "DELETED" if deleted else "MODIFIED", "object": body}).encode()
        feed.take_event(self.light(resource, line)["object"], deleted=deleted)

    def light(self, resource: str, line: bytes) -> dict[str, Any]:
        """Let a line of the watch be read, and return what Kopf gets of it."""
        event = self.feed(resource).read_event(line)
        assert event is not None
        light: dict[str, Any] = json.loads(event.encode())
        return light

    def counted(self, metric: str, resource: str) -> float:
        """The value of a counter that is labelled by kind."""
        return self.registry.get_sample_value(metric, {"kind": resource}) or 0


def pod(name: str, version: int = 1, **status: Any) -> dict[str, Any]:
    """A pod of the namespace shop."""
    return {
        "metadata": {"name": name, "namespace": "shop", "uid": f"uid-{name}", "resourceVersion": str(version)},
        "spec": {"nodeName": "node-1", "containers": [{"name": "web"}]},
        "status": {"phase": "Running", **status},
    }


def broken_pod(name: str, version: int = 1, operator: str = "Perhaps") -> dict[str, Any]:
    """A pod whose node affinity has an operator that nobody knows."""
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
