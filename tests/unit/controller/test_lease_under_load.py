"""The Lease is renewed and probes are answered during plans from scratch and 2,000 events per second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from aiohttp import web
from immutables import Map
from prometheus_client import CollectorRegistry

from respread.api.policy import ClusterPolicySpec, Policy
from respread.cluster.meta import ObjectKey, OwnerReference
from respread.cluster.state import ClusterSnapshot
from respread.controller import lease
from respread.controller.lease import leadership_of, own_namespace
from respread.controller.options import LeaseOptions
from respread.kube.access import ClusterAccess, Renewal, load_access
from respread.kube.credentials import Endpoint, FixedIdentity
from respread.kube.leadership import Elector, LeaseTimes
from respread.kube.requests import CONNECTIONS, Response, open_requests
from respread.telemetry.health import HealthReport
from respread.telemetry.server import ListenAddress, serve_telemetry
from tests.informer_parts import Parts, page, pod
from tests.integration.stub_api_server import served
from tests.plans import plan_cluster
from tests.unit.kube.test_access import write_kubeconfig
from tests.unit.kube.test_leadership import LeaseServer, Line
from tests.virtual_time import until
from tests.worlds import NOW, cluster, constraint, node, pods, spec

LOAD_SECONDS = 8.0
EVENTS_PER_SECOND = 2_000
TIMES = LeaseTimes()
PROBE_SECONDS = 5.0
"""`timeoutSeconds` of the probes in manifests/base/deployment.yaml."""


class Noting(LeaseServer):
    """Records when the Lease was written."""

    def __init__(self) -> None:
        super().__init__()
        self.renewed: list[float] = []

    def handle(self, method: str, body: Mapping[str, Any] | None) -> Response:
        if method == "PUT":
            self.renewed.append(time.monotonic())
        return super().handle(method, body)


def skewed_cluster() -> ClusterSnapshot:
    nodes = [node(f"{zone}{number}", zone, pods=1000) for zone in "abc" for number in range(10)]
    workloads = [
        each
        for number in range(200)
        for labels in [Map(app=f"app-{number}")]
        for each in pods(
            {"a1": 20, "b1": 10, "c1": 5},
            spec(constraint(selector=labels)),
            prefix=f"app-{number}",
            namespace=f"team-{number % 10}",
            labels=labels,
            controller=OwnerReference("apps/v1", "ReplicaSet", f"app-{number}", f"uid-{number}"),
        )
    ]
    return cluster(nodes, workloads)


async def keep_planning(thread: ThreadPoolExecutor, plans: list[int], planned: asyncio.Event) -> None:
    snapshot = skewed_cluster()
    policies = [Policy(kind="ClusterRebalancePolicy", object_name="default", spec=ClusterPolicySpec())]
    while True:
        work = thread.submit(lambda: plan_cluster(snapshot, policies, now=NOW))
        plans.append(len((await asyncio.wrap_future(work)).moves))
        planned.set()


async def bring_events() -> None:
    parts = Parts()
    for informer in parts.informers.all:
        informer.take_page(page())
    begun, brought = time.monotonic(), 0
    while True:
        while brought < (time.monotonic() - begun) * EVENTS_PER_SECOND:
            brought += 1
            parts.event("pods", pod(f"pod-{brought % 5000}", 1000 + brought))
            if brought % 10 == 0:
                await asyncio.sleep(0)
        await asyncio.sleep(0.005)


async def probe(address: ListenAddress, seconds: list[float]) -> None:
    async with aiohttp.ClientSession(f"http://{address}") as client:
        while True:
            started = time.monotonic()
            async with client.get("/livez") as response:
                assert response.status == 200
            seconds.append(time.monotonic() - started)
            await asyncio.sleep(0.2)


async def test_renewals_and_probes_are_in_time_under_load() -> None:
    server = Noting()
    line = Line(server)
    plans: list[int] = []
    changes: list[bool] = []
    probes: list[float] = []
    planned = asyncio.Event()
    passed = lambda: HealthReport("livez", ())  # noqa: E731 - a report is a function
    elector = Elector(
        line, ObjectKey("respread", "respread"), "me", times=TIMES, on_change=changes.append, is_first=lambda: True
    )
    local, registry = ListenAddress("127.0.0.1", 0), CollectorRegistry()
    with ThreadPoolExecutor(1) as thread:
        async with serve_telemetry(local, registry=registry, live=passed, ready=passed) as address:
            works = (elector.run(), keep_planning(thread, plans, planned), bring_events(), probe(address, probes))
            tasks = [asyncio.create_task(work) for work in works]
            await asyncio.sleep(LOAD_SECONDS)
            async with asyncio.timeout(120):  # for the first plan on a slow machine
                await planned.wait()
            assert changes == [True]  # acquired and never lost
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
    assert sum(plans) > 0
    intervals = [later - earlier for earlier, later in pairwise(server.renewed)]
    assert max(intervals) < TIMES.renew_deadline_seconds / 2
    assert max(probes) < PROBE_SECONDS


async def test_the_lease_is_taken_at_once_if_nobody_has_ever_led(monkeypatch: pytest.MonkeyPatch) -> None:
    told: list[Callable[[], bool]] = []

    class Told(Elector):
        def __init__(self, *args: Any, is_first: Callable[[], bool], **options: Any) -> None:
            super().__init__(*args, is_first=is_first, **options)
            told.append(is_first)

    monkeypatch.setattr(lease, "Elector", Told)
    parts, access = Parts(), ClusterAccess(Endpoint(server="http://127.0.0.1:1"), FixedIdentity())
    renewal = Renewal(access, lambda: access, time.monotonic)
    of = ("test", access, renewal, parts.metrics, parts.informers)
    one, two = ({"metadata": {"name": name, "uid": name}, "spec": {}} for name in ("one", "two"))
    async with leadership_of(LeaseOptions(True, "respread", "respread", LeaseTimes()), *of, may_give_up=lambda: True):
        await until(lambda: told)
        is_first = [told[0]()]
        for resource, *policies in (
            ("rebalancepolicies",),
            ("clusterrebalancepolicies",),
            ("clusterrebalancepolicies", one, two),
            ("clusterrebalancepolicies", one, {**two, "status": {"summary": {"evicted": 1}}}),
        ):
            parts.list(*policies, resource=resource)
            is_first.append(told[0]())
    assert is_first == [False, False, True, True, False]
    async with leadership_of(LeaseOptions(False, "", None, LeaseTimes()), *of, may_give_up=lambda: True) as leadership:
        assert leadership.leading.leads()
        assert parts.registry.get_sample_value("respread_leader") == 1


async def test_the_lease_does_not_wait_for_connections_that_other_requests_use(tmp_path: Path) -> None:
    """As where an API server answers slowly, and hundreds of controllers are read before evictions."""
    server_of_lease = LeaseServer()

    async def answer(request: web.Request) -> web.StreamResponse:
        if "/leases" not in request.path:
            await asyncio.Event().wait()
        return await server_of_lease.answer(request)

    async with served(answer) as server:
        config = write_kubeconfig(tmp_path / "config", {"token": "t"}, server=server)
        find = partial(load_access, kubeconfig=str(config))
        access = await asyncio.to_thread(find)
        renewal = Renewal(access, find, time.monotonic)
        options = LeaseOptions(True, "respread", "respread", LeaseTimes(3))
        parts = Parts()
        async with open_requests(access, renewal) as requests:
            path = "/api/v1/namespaces/{namespace}/pods"
            reading = [
                asyncio.create_task(requests.send("GET", path, {"namespace": "shop"}, timeout_seconds=600.0))
                for _ in range(2 * CONNECTIONS)
            ]
            await asyncio.sleep(0.5)
            async with leadership_of(
                options, "test", access, renewal, parts.metrics, parts.informers, may_give_up=lambda: True
            ) as leadership:
                assert parts.registry.get_sample_value("respread_leader") == 0
                both = (options, options._replace(namespace=None))
                places = [own_namespace(each, access, parts.informers)() for each in both]
                assert places == ["respread", None], "nothing is listed yet"
                async with asyncio.timeout(60):
                    assert await parts.informers.changes.wait() == {"leases"}
                assert leadership.leading.leads()
                assert parts.registry.get_sample_value("respread_leader") == 1
            for each in reading:
                each.cancel()
            await asyncio.gather(*reading, return_exceptions=True)
