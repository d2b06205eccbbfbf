"""No budget is violated at any moment, as an independent watcher of Ready pods sees them."""

from __future__ import annotations

import random
import time
from pathlib import Path

import pytest

from respread_sandbox import Sandbox
from tests.faults.operators import Replica
from tests.faults.proxy import FaultProxy
from tests.faults.rounds import Workload, balanced, close_zones, create, enforce, wait_for
from tests.faults.watcher import Breach, PodWatcher
from tests.integration.reused_sandbox import lay_out
from tests.integration.workloads import pods

NAMESPACE = "budgets"
READY_SECONDS = 2


@pytest.fixture
def cluster(installed_sandbox: Sandbox) -> Sandbox:
    return lay_out(installed_sandbox, 3, 3, 3)


def test_no_budget_is_violated_and_the_spread_is_restored(cluster: Sandbox, tmp_path: Path) -> None:
    """Every workload has maxUnavailable 1, pods take 2 s to become Ready, and evictions are not limited."""
    workloads = [Workload(NAMESPACE, f"web-{number}", 3 + number, 1) for number in range(5)]
    wide = {"inFlight": 100, "inFlightPerNamespace": 100, "inFlightPerNode": 100, "inFlightPerWorkload": "100%"}
    with PodWatcher(cluster) as watcher, FaultProxy(cluster) as proxy:
        close_zones(cluster, closed=True)
        create(cluster, watcher, workloads, random.Random(1), ready_after_seconds=(READY_SECONDS,))
        close_zones(cluster, closed=False)
        enforce(cluster, limits=wide)
        with Replica(cluster, proxy, tmp_path, "one", "--no-leader-election"):
            started = time.monotonic()
            wait_for(lambda: balanced(cluster, workloads), "the spread to be restored")
            took = time.monotonic() - started
        assert watcher.breaches == []
        evicted = watcher.evicted_by_now()
        assert {each.name: evicted[NAMESPACE, each.name] for each in workloads} == {
            each.name: each.fewest_evictions for each in workloads
        }
        # The test is meaningful only if the pods of each workload took 2 s, one after another.
        assert took >= READY_SECONDS * (max(each.fewest_evictions for each in workloads) - 1)


def test_the_watcher_detects_a_violated_budget(cluster: Sandbox) -> None:
    """The test deletes pods, which no budget prevents."""
    workload = Workload(NAMESPACE, "web", 4, 1)
    with PodWatcher(cluster) as watcher:
        create(cluster, watcher, [workload], random.Random(1), ready_after_seconds=(READY_SECONDS,))
        names = [pod["metadata"]["name"] for pod in pods(cluster, NAMESPACE, "web")]
        for name in names[:2]:
            cluster.api.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}")
        wait_for(lambda: bool(watcher.breaches), "the watcher to see it")
        assert watcher.breaches == [Breach((NAMESPACE, "web"), 2, 3)]
        assert watcher.evicted_by_now().total() == 0
