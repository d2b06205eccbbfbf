"""Answers to an eviction that only a server in distress gives: how they are counted and told, and what follows."""

from __future__ import annotations

import random
import re
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from respread.sandbox import Binaries, Sandbox, SandboxOptions
from tests.faults.operators import Replica
from tests.faults.proxy import Asked, Fault, FaultProxy, no_fault
from tests.faults.rounds import Workload, balanced, close_zones, create, enforce, remove, wait_for
from tests.faults.watcher import PodWatcher
from tests.integration.operator_process import install


@pytest.fixture(scope="module")
def cluster(binaries: Binaries) -> Iterator[Sandbox]:
    with Sandbox.start(SandboxOptions(nodes_per_zone=(3, 3, 3)), binaries=binaries) as sandbox:
        install(sandbox)
        enforce(sandbox)
        yield sandbox


def counted(replica: Replica, namespace: str) -> dict[str, float]:
    """Return how many evictions of a namespace had which result."""
    (address,) = [line["address"] for line in replica.lines() if line["event"].startswith("Serving")]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=5) as response:
        found = re.findall(
            rf'^respread_evictions_total{{namespace="{namespace}",policy="faults",result="(\w+)"}} (\S+)$',
            response.read().decode(),
            re.MULTILINE,
        )
    return {result: float(number) for result, number in found}


def told(sandbox: Sandbox, namespace: str) -> set[str]:
    """Return the reasons of the Events on workloads of a namespace."""
    events = sandbox.api.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]
    return {each["reason"] for each in events if each.get("reportingController") == "respread.dev/respread"}


@pytest.mark.parametrize(
    ("kind", "result"),
    [
        ("429", "Throttled"),
        ("409", "Changed"),
        ("500", "ServerError"),
        ("503", "ServerError"),
        ("late 504", "ServerError"),
        ("drop", "Unknown"),
        ("lose", "Unknown"),
        ("truncate", "Unknown"),
    ],
)
def test_an_answer_in_distress(cluster: Sandbox, tmp_path: Path, kind: str, result: str) -> None:
    namespace = f"answer-{kind.replace(' ', '-')}"
    workloads = [Workload(namespace, "web", 3, 1)]
    with PodWatcher(cluster) as watcher, FaultProxy(cluster) as proxy:
        close_zones(cluster, closed=True)
        create(cluster, watcher, workloads, random.Random(1), ready_after_seconds=(0,))
        spoiled: list[Asked] = []

        def spoil_the_first(asked: Asked) -> Fault | None:
            if not asked.is_eviction or spoiled:
                return None
            spoiled.append(asked)
            return Fault(kind)

        proxy.choose = spoil_the_first
        with Replica(cluster, proxy, tmp_path, "one", "--no-leader-election") as replica:
            replica.wait_until_ready()
            close_zones(cluster, closed=False)
            wait_for(lambda: balanced(cluster, workloads), "the spread to be restored", 60)
            proxy.choose = no_fault
            assert spoiled
            assert counted(replica, namespace).get(result) == 1
            wait_for(lambda: result in told(cluster, namespace), "the Event", 20)
            # However it was answered: once, or a second time for the same pod.
            assert watcher.evicted()[namespace, "web"] == workloads[0].fewest_evictions
        assert watcher.breaches == []
        remove(cluster, watcher, workloads)
