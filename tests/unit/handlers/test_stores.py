"""Policies and priority classes are stored by name, and statuses that Respread writes do not wake the loop."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from tests.informer_parts import Parts
from tests.policy_specs import enforces


def policy(name: str, version: int = 1, *, namespace: str = "", status: Any = None, **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace, "uid": f"uid-{name}", "resourceVersion": str(version)}
    return {"metadata": metadata, "spec": spec, "status": status or {}}


def priority_class(name: str, value: Any, version: int = 1) -> dict[str, Any]:
    return {"metadata": {"name": name, "resourceVersion": str(version)}, "value": value}


def test_policies_of_both_kinds_are_stored_by_name() -> None:
    parts = Parts()
    store = parts.informers.policies
    for resource, body in (
        ("clusterrebalancepolicies", policy("default", mode="Enforce")),
        ("rebalancepolicies", policy("default", namespace="shop")),
    ):
        parts.list(body, resource=resource)
    assert {name: (each.kind, each.spec.mode) for name, each in store.policies.items()} == {
        "default": ("ClusterRebalancePolicy", "Enforce"),
        "shop/default": ("RebalancePolicy", "DryRun"),
    }


def test_a_list_of_one_kind_does_not_affect_the_other() -> None:
    parts = Parts()
    parts.event("clusterrebalancepolicies", policy("default", 1))
    parts.event("rebalancepolicies", policy("default", 2, namespace="shop"))
    parts.list(version=3, resource="rebalancepolicies")
    assert set(parts.informers.policies.policies) == {"default"}
    parts.event("clusterrebalancepolicies", policy("default", 4), deleted=True)
    assert not parts.informers.policies.policies
    assert not parts.informers.policies.statuses


async def test_a_status_is_stored_without_waking_the_loop() -> None:
    parts = Parts()
    parts.event("clusterrebalancepolicies", policy("default", 1))
    assert await parts.informers.changes.wait() == {"clusterrebalancepolicies"}
    parts.event("clusterrebalancepolicies", policy("default", 2, status={"observedGeneration": 3}))
    assert parts.informers.policies.statuses["default"].observed_generation == 3
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(parts.informers.changes.wait(), 0.01)


def test_an_invalid_policy_is_stored_with_its_problems() -> None:
    parts = Parts()
    parts.event("clusterrebalancepolicies", policy("default", mode="Destroy"))
    kept = parts.informers.policies.policies["default"]
    assert [problem.field for problem in kept.problems] == ["spec.mode"]
    assert not enforces(kept)


def test_a_snapshot_of_policies_does_not_change() -> None:
    parts = Parts()
    parts.event("clusterrebalancepolicies", policy("default", 1))
    before = parts.informers.policies.policies
    parts.event("clusterrebalancepolicies", policy("default", 2), deleted=True)
    assert set(before) == {"default"}


def test_priority_classes_are_stored_as_values_by_name() -> None:
    parts = Parts()
    parts.list(priority_class("high", 1000), priority_class("low", -5), version=10, resource="priorityclasses")
    parts.event("priorityclasses", priority_class("middle", 0, 11))
    parts.event("priorityclasses", priority_class("low", -5, 12), deleted=True)
    assert dict(parts.informers.priority_classes.by_name) == {"high": 1000, "middle": 0}


@pytest.mark.parametrize("value", ["1000", None, 1.5])
def test_a_priority_class_without_a_value_is_reported(value: Any) -> None:
    parts = Parts()
    informer = parts.list(priority_class("high", value), priority_class("low", 1), resource="priorityclasses")
    assert dict(parts.informers.priority_classes.by_name) == {"low": 1}
    assert [(error.name, error.path) for error in informer.undecodable.values()] == [("high", "value")]
