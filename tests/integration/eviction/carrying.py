"""Carriers on a real cluster, and two Deployments whose pods they may evict."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from respread.api.reasons import Reason
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.eviction.answers import Answer, EvictionResult
from respread.eviction.carry_out import Carried, Carrier, Flights, MayEvict
from respread.eviction.eviction_api import EvictionApi
from respread.eviction.owners.last_look import Owners
from respread.eviction.refusals import Refusals
from respread.kube.requests import Requests, Response
from respread.planning.plan import Move
from respread_sandbox import Sandbox
from tests.integration.eviction_cluster import with_requests
from tests.integration.snapshots import take_snapshot
from tests.integration.workloads import create_deployment, deployment, wait_for_ready_pods, wait_until


class Counted(Requests):
    """Requests that remember which evictions were sent."""

    def __init__(self, requests: Requests) -> None:
        self._inner = requests
        self.evictions: list[str] = []

    async def send(
        self,
        method: Any,
        path: str,
        names: Mapping[str, str],
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str | None = None,
        accept: str = "application/json",
        timeout_seconds: float,
        last_look: Callable[[], None] = lambda: None,
    ) -> Response:
        def look() -> None:
            last_look()
            if path.endswith("/eviction"):
                self.evictions.append(names["name"])

        return await self._inner.send(
            method,
            path,
            names,
            query=query,
            body=body,
            content_type=content_type,
            accept=accept,
            timeout_seconds=timeout_seconds,
            last_look=look,
        )


def carrier(
    requests: Requests, may_evict: MayEvict = lambda _: None, clock: Callable[[], float] | None = None
) -> Carrier:
    clock = clock or asyncio.get_running_loop().time
    owners, flights, refusals = Owners(requests, clock), Flights(clock), Refusals(clock)
    return Carrier(EvictionApi(requests), owners, flights, refusals, may_evict=may_evict)


def results(carried: tuple[Carried, ...]) -> list[EvictionResult | Reason]:
    return [each.result.result if isinstance(each.result, Answer) else each.result.reason for each in carried]


def own_grace_period(_: Move) -> None:
    return None


Look = Callable[[], tuple[ClusterSnapshot, list[Pod]]]
Scenario = Callable[[Counted], Awaitable[None]]


def two_deployments(sandbox: Sandbox, namespace: str) -> Look:
    """Make web-0 and web-1, of three Ready pods each; call what is returned for how they stand."""
    names = ("web-0", "web-1")
    for name in names:
        create_deployment(sandbox, namespace, deployment(name, replicas=3))
    for name in names:
        wait_for_ready_pods(sandbox, namespace, name, 3)

    def settled(name: str) -> bool:
        status = sandbox.api.get(f"/apis/apps/v1/namespaces/{namespace}/deployments/{name}")["status"]
        return bool(status.get("updatedReplicas") == 3)

    wait_until(lambda: all(map(settled, names)), "the Deployments' statuses")

    def look() -> tuple[ClusterSnapshot, list[Pod]]:
        snapshot = take_snapshot(sandbox)
        found = [each for key, each in snapshot.pods.items() if key.namespace == namespace]
        return snapshot, sorted(found, key=lambda each: each.name)

    return look


def play(sandbox: Sandbox, scenario: Scenario) -> None:
    async def with_counted(requests: Requests) -> None:
        await scenario(Counted(requests))

    with_requests(sandbox.kubeconfig, with_counted)
