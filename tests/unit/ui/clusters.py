"""Engines for small clusters that tests change like a watch."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import partial
from typing import Any

from respread.scheduling.configuration import SchedulerConfiguration
from respread_cli.read.cluster_view import READ_KINDS, Gathering, ReadCluster
from respread_cli.read.following import Lost
from respread_cli.report.planned import Planning, PlanningOptions
from respread_cli.ui.engine import Engine, Source
from respread_cli.ui.events import ReadEvents
from tests.unit.cli.snapshots import deployment_pods, manifest_of_node

OPTIONS = PlanningOptions((), True, SchedulerConfiguration())
NOW = datetime(2026, 1, 1, tzinfo=UTC)
NAMESPACE = {
    "apiVersion": "v1",
    "kind": "Namespace",
    "metadata": {"name": "default", "labels": {"kubernetes.io/metadata.name": "default"}},
}
_KINDS = {(kind.api_version, kind.kind): kind for kind in READ_KINDS}


class ChangingSource:
    """A cluster of manifests."""

    def __init__(self, manifests: Iterable[Mapping[str, Any]]) -> None:
        self._gathering = Gathering()
        self.lost: Lost | None = None
        self.name = "a test"
        self.read_events = ReadEvents()
        self.put([NAMESPACE, *manifests])

    def put(self, manifests: Iterable[Mapping[str, Any]]) -> None:
        for manifest in manifests:
            kind = _KINDS[manifest["apiVersion"], manifest["kind"]]
            store = self._gathering.by_kind[kind]
            store.apply([store.decode_object(json.dumps(manifest).encode())])

    def delete(self, manifests: Iterable[Mapping[str, Any]]) -> None:
        for manifest in manifests:
            kind = _KINDS[manifest["apiVersion"], manifest["kind"]]
            store = self._gathering.by_kind[kind]
            key, _ = store.decode_object(json.dumps(manifest).encode())
            store.apply([(key, None)])

    def source(self) -> Source:
        return Source(
            live=True,
            take=self.take,
            lost=lambda: self.lost,
            read_owners=lambda: False,
            events=lambda _: self.read_events,
        )

    def take(self) -> ReadCluster:
        return self._gathering.view(time=NOW, source=self.name, namespace="default", notes=())


def engine_for(source: ChangingSource, *arguments: str, kind: type[Engine] = Engine) -> Engine:
    """Return an engine that has read the cluster."""
    engine = kind(source.source(), partial(Planning, OPTIONS), arguments)
    assert engine.refresh() is None
    assert engine.ready
    return engine


def zones(*names: str, **fields: Any) -> list[dict[str, Any]]:
    return [manifest_of_node(f"node-{name}", f"zone-{name}", **fields) for name in names]


def web(*counts: int, name: str = "web", **fields: Any) -> list[dict[str, Any]]:
    """Return pods of a Deployment with a zone constraint, with the numbers for node-a, node-b and so on."""
    placed = {f"node-{zone}": count for zone, count in zip("abcdef", counts, strict=False)}
    return deployment_pods(name, placed, **fields)


def pending_pods(name: str, number: int, **spec: Any) -> list[dict[str, Any]]:
    """Return pods of a Deployment with a zone constraint and without a node."""
    pods = deployment_pods(name, {"nowhere": number})
    for position, pod in enumerate(pods):
        pod["metadata"] |= {"name": f"{name}-pending-{position}", "uid": f"{name}-pending-{position}"}
        pod["spec"] = {key: value for key, value in pod["spec"].items() if key != "nodeName"} | spec
        pod["status"] = {"phase": "Pending"}
    return pods
