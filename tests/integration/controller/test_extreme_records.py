"""The operator continues on a real API server whatever a policy's record contains."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from respread.api.record import MAX_MOVES_IN_FLIGHT
from respread_sandbox import Sandbox
from tests.integration.operator_process import OperatorProcess, evictions, policy
from tests.integration.records import record, write_record
from tests.integration.reused_sandbox import lay_out
from tests.integration.workloads import (
    ZONE,
    constraint,
    create_deployment,
    deployment,
    pods_per_domain,
    wait_for_ready_pods,
    wait_until,
)

_API = "/apis/respread.dev/v1alpha1"
_PATHS = {"shop": f"{_API}/clusterrebalancepolicies/test", "own": f"{_API}/namespaces/own/rebalancepolicies/own"}
_MOMENTS = ("0001-01-01T00:00:00Z", "2026-11-22T03:00:00+23:59", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-12:00")


def extreme(namespace: str) -> dict[str, Any]:
    """Return a record that no operator would write. The API server does not check its text."""
    move = {"namespace": namespace, "node": "gone", "workload": "Deployment/web", "controllerKind": "ReplicaSet"}
    return {
        "backOffs": [
            {"group": f"{number}" * 64, "failures": 2**63 - 1, "until": moment, "situation": "x" * 64}
            for number, moment in enumerate(_MOMENTS)
        ],
        "recentEvictions": [{"minute": moment, "evictions": 3_000_000} for moment in _MOMENTS],
        "movesInFlight": [
            {**move, "uid": f"{number}", "pod": f"pod-{number}", "controllerName": "web", "controllerUid": f"{number}"}
            | {"sent": "0001-01-01T00:00:00Z", "newest": _MOMENTS[number % len(_MOMENTS)]}
            for number in range(MAX_MOVES_IN_FLIGHT + 100)
        ],
    }


@pytest.fixture
def sandbox(installed_sandbox: Sandbox) -> Sandbox:
    """A cluster with Respread installed, and a Deployment for each of two policies, one of which is namespaced."""
    sandbox = lay_out(installed_sandbox, 2)
    for namespace in ("shop", "own"):
        sandbox.create_namespace(namespace)
        body = deployment("web", replicas=4, constraints=[constraint(ZONE, "web")])
        create_deployment(sandbox, namespace, body)
    for namespace in ("shop", "own"):
        wait_for_ready_pods(sandbox, namespace, "web", 4)
    sandbox.apply(json.dumps(policy("test")))
    own = {**policy("own"), "kind": "RebalancePolicy", "metadata": {"name": "own", "namespace": "own"}}
    sandbox.apply(json.dumps(own))
    return sandbox


def test_the_operator_continues_with_extreme_records(sandbox: Sandbox, tmp_path: Path) -> None:
    for namespace, path in _PATHS.items():
        write_record(sandbox, path, extreme(namespace))
    for zone in ("zone-b", "zone-c"):
        sandbox.nodes.add(2, zone=zone)

    def balanced(namespace: str) -> bool:
        counts = pods_per_domain(sandbox, namespace, "web")
        return len(counts) == 3 and max(counts.values()) - min(counts.values()) <= 1

    with OperatorProcess(sandbox, tmp_path) as operator:
        for namespace in ("shop", "own"):
            wait_until(lambda namespace=namespace: balanced(namespace), f"{namespace} to be spread")  # type: ignore[misc]
        for path in _PATHS.values():
            wait_until(
                lambda path=path: not record(sandbox, path)["movesInFlight"],  # type: ignore[misc]
                "the record to be written over",
            )
        assert len(evictions(sandbox)) == 4  # two of each, [4, 0, 0] being taken to [2, 1, 1]
        assert operator.stop() == 0
    assert not any(line["level"] in {"error", "critical"} for line in operator.lines())
