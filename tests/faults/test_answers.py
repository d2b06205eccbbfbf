"""Answers to evictions that only a failing server gives are counted and reported, and the moves are followed up."""

from __future__ import annotations

import random
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from respread_sandbox import Sandbox
from tests.faults.operators import Replica
from tests.faults.proxy import Asked, Fault, FaultProxy
from tests.faults.rounds import Workload, balanced, close_zones, create, enforce, wait_for
from tests.faults.watcher import PodWatcher
from tests.integration.operator_process import matching
from tests.integration.reused_sandbox import lay_out

RESULTS: Final = {
    "429": "Throttled",
    "409": "Changed",
    "500": "ServerError",
    "503": "ServerError",
    "late 504": "ServerError",
    "drop": "Unknown",
    "lose": "Unknown",
    "truncate": "Unknown",
}
"""The fault of an eviction, and the result that it counts as."""


def counted(replica: Replica, namespace: str) -> dict[str, float]:
    """Return how many evictions of a namespace had each result."""
    (address,) = [line["address"] for line in replica.lines() if line["event"].startswith("Serving")]
    with urllib.request.urlopen(f"http://{address}/metrics", timeout=30) as response:
        metrics = response.read().decode()
    series = f'respread_evictions_total{{namespace="{namespace}",policy="faults"}}'
    return {each.labels["result"]: each.value for each in matching(series, metrics)}


def reasons(sandbox: Sandbox, namespace: str) -> set[str]:
    """Return the reasons of the Events on workloads of a namespace."""
    events = sandbox.api.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events")["items"]
    return {each["reason"] for each in events if each.get("reportingController") == "respread.dev/respread"}


class SpoilFirst:
    """Applies to the first eviction of each namespace the fault of that namespace."""

    def __init__(self, kinds: Mapping[str, str]) -> None:
        self.left = dict(kinds)

    def __call__(self, asked: Asked) -> Fault | None:
        if not asked.is_eviction:
            return None
        kind = self.left.pop(asked.path.split("/")[4], None)
        return None if kind is None else Fault(kind)


def test_evictions_survive_server_errors_timeouts_and_malformed_answers(
    installed_sandbox: Sandbox, tmp_path: Path
) -> None:
    sandbox = lay_out(installed_sandbox, 3, 3, 3)
    namespaces = {f"answer-{kind.replace(' ', '-')}": kind for kind in RESULTS}
    workloads = [Workload(namespace, "web", 3, 1) for namespace in namespaces]
    with PodWatcher(sandbox) as watcher, FaultProxy(sandbox) as proxy:
        close_zones(sandbox, closed=True)
        create(sandbox, watcher, workloads, random.Random(1), ready_after_seconds=(0,))
        close_zones(sandbox, closed=False)
        enforce(sandbox)
        spoil = SpoilFirst(namespaces)
        proxy.choose = spoil
        with Replica(sandbox, proxy, tmp_path, "one", "--no-leader-election") as replica:
            wait_for(lambda: balanced(sandbox, workloads), "the spread to be restored")
            assert spoil.left == {}
            for namespace, kind in namespaces.items():
                wait_for(lambda n=namespace, k=kind: counted(replica, n).get(RESULTS[k]) == 1, f"{kind} to be counted")  # type: ignore[misc]  # no types for defaults
                wait_for(lambda n=namespace, k=kind: RESULTS[k] in reasons(sandbox, n), f"the Event of {kind}")  # type: ignore[misc]  # no types for defaults
        evicted = watcher.evicted_by_now()
        # Whatever the first answer was, no eviction was unnecessary, and no other pod was evicted in place of one whose
        # eviction was uncertain.
        assert {each.namespace: evicted[each.namespace, "web"] for each in workloads} == {
            each.namespace: each.fewest_evictions for each in workloads
        }
        assert watcher.breaches == []
