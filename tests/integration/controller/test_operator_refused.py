"""If an admission policy or the last look denies some evictions, the operator makes others."""

from __future__ import annotations

import json
import time
from collections.abc import Collection
from datetime import datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from respread_sandbox import ApiError, Sandbox
from tests.integration.operator_process import OperatorProcess, evictions, policy, requests, status_of
from tests.integration.reused_sandbox import lay_out
from tests.integration.workloads import (
    ZONE,
    constraint,
    create_deployment,
    deployment,
    pods,
    pods_per_domain,
    resize,
    wait_for_ready_pods,
    wait_until,
)

NAMESPACE = "shop"
REPLICAS = 6
DENIED_FOR = timedelta(seconds=59)
"""A denied eviction is requested again after a minute at the earliest."""


@pytest.fixture
def skewed(installed_sandbox: Sandbox) -> Sandbox:
    """Six pods in the only zone that existed before two more were added."""
    sandbox = lay_out(installed_sandbox, 4)
    sandbox.create_namespace(NAMESPACE)
    create_deployment(sandbox, NAMESPACE, deployment("web", replicas=REPLICAS, constraints=[constraint(ZONE, "web")]))
    wait_for_ready_pods(sandbox, NAMESPACE, "web", REPLICAS)
    for zone in ("zone-b", "zone-c"):
        sandbox.nodes.add(4, zone=zone)
    return sandbox


def deny(sandbox: Sandbox, names: Collection[str]) -> None:
    """Deny the eviction of some pods by an admission policy, and wait until it is effective."""
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods/eviction"]}
    message = "the shop's admission policy keeps this pod"
    documents = [
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicy",
            "metadata": {"name": "keep"},
            "spec": {
                "failurePolicy": "Fail",
                "matchConstraints": {"resourceRules": [rule]},
                "validations": [{"expression": f"!(request.name in {sorted(names)})", "message": message}],
            },
        },
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": {"name": "keep"},
            "spec": {"policyName": "keep", "validationActions": ["Deny"]},
        },
    ]
    for each in documents:
        sandbox.apply(json.dumps(each))
    name = min(names)
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": NAMESPACE},
        "deleteOptions": {"dryRun": ["All"]},
    }

    def denied() -> bool:
        try:
            sandbox.api.request("POST", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction?dryRun=All", body)
        except ApiError as error:
            return message in str(error)
        return False

    wait_until(denied, "the admission policy to be in force")


def names_of(sandbox: Sandbox) -> list[str]:
    return sorted(pod["metadata"]["name"] for pod in pods(sandbox, NAMESPACE, "web"))


def denials(sandbox: Sandbox) -> dict[str, list[datetime]]:
    """Return when the eviction of each pod was requested and denied."""
    found: dict[str, list[datetime]] = {}
    for entry in requests(sandbox):
        if entry.get("objectRef", {}).get("subresource") == "eviction" and entry["responseStatus"]["code"] >= 400:
            at = datetime.fromisoformat(entry["requestReceivedTimestamp"])
            found.setdefault(entry["objectRef"]["name"], []).append(at)
    return found


def requested_again_too_soon(sandbox: Sandbox) -> list[str]:
    """Return the pods whose eviction was requested again before the denial had expired."""
    return [
        name
        for name, times in denials(sandbox).items()
        if any(later - earlier < DENIED_FOR for earlier, later in pairwise(sorted(times)))
    ]


def reported(sandbox: Sandbox) -> str:
    """Return the violations in the policy's status."""
    violations = status_of(sandbox).get("violations", ())
    return " ".join(f"{each['reason']}: {each['message']}" for each in violations)


def test_other_pods_are_evicted_instead_of_refused_ones(skewed: Sandbox, tmp_path: Path) -> None:
    kept = names_of(skewed)[:2]
    deny(skewed, kept)
    skewed.apply(json.dumps(policy()))
    with OperatorProcess(skewed, tmp_path):
        wait_until(lambda: set(pods_per_domain(skewed, NAMESPACE, "web").values()) == {2}, "web to be spread")
    assert len(evictions(skewed)) == 4
    assert set(kept) <= set(names_of(skewed))
    assert requested_again_too_soon(skewed) == []


def test_if_all_evictions_are_refused_each_is_requested_once_and_the_reason_reported(
    skewed: Sandbox, tmp_path: Path
) -> None:
    deny(skewed, names_of(skewed))
    skewed.apply(json.dumps(policy()))
    with OperatorProcess(skewed, tmp_path) as operator:
        wait_until(lambda: reported(skewed).startswith("EvictionRefused: "), "the reason to be reported")
        assert "the shop's admission policy keeps this pod" in reported(skewed)
        wait_until(lambda: len(denials(skewed)) >= REPLICAS, "each pod to be asked for")
        time.sleep(2)
        assert sorted(denials(skewed)) == names_of(skewed)
        assert requested_again_too_soon(skewed) == []

        def ours() -> list[dict[str, Any]]:
            events = skewed.api.get(f"/apis/events.k8s.io/v1/namespaces/{NAMESPACE}/events")["items"]
            return [event for event in events if event.get("reportingController") == "respread.dev/respread"]

        def asked() -> float:
            return sum(
                operator.metric(f'respread_evictions_total{{namespace="{NAMESPACE}",policy="test",result="{result}"}}')
                for result in ("Forbidden", "Invalid")
            )

        wait_until(lambda: asked() == sum(map(len, denials(skewed).values())), "each answer to be counted once")
        message = "the shop's admission policy keeps this pod"
        wait_until(lambda: any(message in event["note"] for event in ours()), "an Event with the message")
        assert {event["reason"] for event in ours()} <= {"Forbidden", "Invalid"}
    assert evictions(skewed) == []


def test_other_pods_are_evicted_instead_of_resized_ones(skewed: Sandbox, tmp_path: Path) -> None:
    kept = names_of(skewed)[:2]
    for name in kept:
        resize(skewed, NAMESPACE, name, "10m")
    skewed.apply(json.dumps(policy()))
    with OperatorProcess(skewed, tmp_path):
        wait_until(lambda: set(pods_per_domain(skewed, NAMESPACE, "web").values()) == {2}, "web to be spread")
    assert len(evictions(skewed)) == 4
    assert set(kept) <= set(names_of(skewed))


def test_if_all_pods_were_resized_the_reason_is_reported(skewed: Sandbox, tmp_path: Path) -> None:
    for name in names_of(skewed):
        resize(skewed, NAMESPACE, name, "10m")
    skewed.apply(json.dumps(policy()))
    with OperatorProcess(skewed, tmp_path):
        wait_until(lambda: reported(skewed).startswith("TemplateDiffers: "), "the reason to be reported")
        assert "the request for cpu is 10m, in the template 100m" in reported(skewed)
    assert evictions(skewed) == []
