"""API Priority and Fairness gives the operator a single seat, so that most requests are answered with 429."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from respread_sandbox import Sandbox
from tests.faults.operators import NAMESPACE, Replica
from tests.faults.proxy import FaultProxy
from tests.faults.rounds import Workload, balanced, close_zones, create, enforce, wait_for
from tests.faults.watcher import PodWatcher
from tests.integration.operator_process import requests
from tests.integration.reused_sandbox import lay_out

FLOW_CONTROL = "flowcontrol.apiserver.k8s.io/v1"
NO_SHARES: dict[str, Any] = {"nominalConcurrencyShares": 0, "lendablePercent": 0, "borrowingLimitPercent": 0}
EVERYTHING: dict[str, Any] = {
    "subjects": [{"kind": "ServiceAccount", "serviceAccount": {"name": "respread", "namespace": NAMESPACE}}],
    "resourceRules": [
        {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "clusterScope": True, "namespaces": ["*"]}
    ],
    "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
}


@pytest.fixture
def starved(installed_sandbox: Sandbox) -> Iterator[Sandbox]:
    """A cluster that serves one request of the operator at a time, and rejects others."""
    kinds: tuple[tuple[str, dict[str, Any]], ...] = (
        (
            "PriorityLevelConfiguration",
            {"type": "Limited", "limited": {**NO_SHARES, "limitResponse": {"type": "Reject"}}},
        ),
        (
            "FlowSchema",
            {"priorityLevelConfiguration": {"name": "starved"}, "matchingPrecedence": 2, "rules": [EVERYTHING]},
        ),
    )
    for kind, spec in kinds:
        body = {"apiVersion": FLOW_CONTROL, "kind": kind, "metadata": {"name": "starved"}, "spec": spec}
        installed_sandbox.apply(json.dumps(body))
    yield lay_out(installed_sandbox, 3, 3, 3)
    for kind, _ in reversed(kinds):
        installed_sandbox.kubectl("delete", kind, "starved")


@pytest.mark.long
def test_a_single_seat_delays_the_operator_and_causes_no_unnecessary_eviction(starved: Sandbox, tmp_path: Path) -> None:
    workloads = [Workload("starved", "web", 5, 1)]
    with PodWatcher(starved) as watcher, FaultProxy(starved) as proxy:
        close_zones(starved, closed=True)
        create(starved, watcher, workloads, random.Random(1))
        close_zones(starved, closed=False)
        enforce(starved)
        with Replica(starved, proxy, tmp_path, "one", "--leader-election") as replica:
            wait_for(lambda: balanced(starved, workloads), "the spread to be restored")
            assert replica.runs
        evicted = watcher.evicted_by_now()
        assert sum(evicted.values()) == workloads[0].fewest_evictions
        assert watcher.breaches == []
    assert any(each["responseStatus"]["code"] == 429 for each in requests(starved))
