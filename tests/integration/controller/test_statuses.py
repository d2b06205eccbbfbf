"""The operator continues on a real API server whatever a policy's status contains."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import yaml

from respread.api.recorded import MAX_MOVES_IN_FLIGHT
from respread_sandbox import Sandbox
from respread_sandbox.api import ApiError
from tests.integration.operator_process import REPOSITORY, OperatorProcess, evictions, policy
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
_PATHS = {
    "shop": f"{_API}/clusterrebalancepolicies/test",
    "own": f"{_API}/namespaces/own/rebalancepolicies/own",
}
_BOUNDS = ("maximum", "pattern", "maxItems", "maxLength")
_MOMENTS = ("0001-01-01T00:00:00Z", "2026-11-22T03:00:00+23:59", "9999-12-31T23:59:59Z", "9999-12-31T23:59:59-12:00")


def extreme(namespace: str) -> dict[str, Any]:
    """Return values that schemas without bounds accepted."""
    move = {"namespace": namespace, "node": "gone", "workload": "Deployment/web", "controllerKind": "ReplicaSet"}
    return {
        "observedGeneration": 2**63 - 1,
        "summary": {"evicted": 2**63 - 1, "inFlight": 2**63 - 1},
        "conditions": [
            {"type": f"Other{number}", "status": "True", "reason": "Other", "lastTransitionTime": moment}
            for number, moment in enumerate(_MOMENTS * 5)
        ],
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
        "lastPlanTime": "9999-12-31T23:59:59Z",
        "lastEvictionTime": "0001-01-01T00:00:00Z",
    }


def without_bounds(schema: Any) -> Any:
    if isinstance(schema, dict):
        kept = {name: without_bounds(each) for name, each in schema.items() if name not in _BOUNDS}
        return {**kept, "format": "int64"} if kept.get("type") == "integer" else kept
    return [without_bounds(each) for each in schema] if isinstance(schema, list) else schema


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


def write_extreme_statuses(sandbox: Sandbox) -> None:
    """Write statuses while the CRDs have no bounds for them, like earlier CRDs."""
    for file in (REPOSITORY / "crds").glob("*policies.respread.dev.yaml"):
        definition = yaml.safe_load(file.read_text(encoding="utf-8"))
        (version,) = definition["spec"]["versions"]
        properties = version["schema"]["openAPIV3Schema"]["properties"]
        properties["status"] = without_bounds(properties["status"])
        sandbox.apply(json.dumps(definition))
    for namespace, path in _PATHS.items():
        wait_until(
            lambda namespace=namespace, path=path: _is_taken(sandbox, path, extreme(namespace)),  # type: ignore[misc]
            "the CRD without bounds to be in force",
        )
    sandbox.apply(REPOSITORY / "crds")
    numbers = count(2**40)
    for path in _PATHS.values():
        # another number each time, because unchanged fields are not validated again
        wait_until(
            lambda path=path: not _is_taken(sandbox, path, {"summary": {"pods": next(numbers)}}),  # type: ignore[misc]
            "the CRD with bounds to be in force",
        )


def _is_taken(sandbox: Sandbox, path: str, status: Mapping[str, Any]) -> bool:
    try:
        sandbox.api.request("PATCH", f"{path}/status", {"status": status})
    except ApiError as error:
        assert error.status == 422, error  # noqa: PT017 - any other answer is an error of the test's
        return False
    return True


def test_the_operator_continues_with_extreme_statuses(sandbox: Sandbox, tmp_path: Path) -> None:
    write_extreme_statuses(sandbox)
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
                lambda path=path: "movesInFlight" not in sandbox.api.get(path)["status"],  # type: ignore[misc]
                "the status to be written over",
            )
        assert len(evictions(sandbox)) == 4  # two of each, [4, 0, 0] being taken to [2, 1, 1]
        assert operator.stop() == 0
    assert not any(line["level"] in {"error", "critical"} for line in operator.lines())
