"""The kind CapacityBuffer on a control plane. Tests play the role of the autoscaler."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from respread_sandbox import Sandbox
from respread_sandbox.api import ApiError
from tests.processes import wait_until

GROUP: Final = "autoscaling.x-k8s.io"
VERSION: Final = "v1beta1"
NAME: Final = f"capacitybuffers.{GROUP}"


@contextmanager
def capacity_buffers(sandbox: Sandbox) -> Iterator[None]:
    """Serve CapacityBuffers with the fields that request pods of a template, while the context lasts."""
    strings = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}
    spec = {
        "provisioningStrategy": {"type": "string"},
        "podTemplateRef": strings,
        "replicas": {"type": "integer", "format": "int32", "minimum": 0},
    }
    properties = {
        "spec": {"type": "object", "properties": spec},
        "status": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
    }
    version = {
        "name": VERSION,
        "served": True,
        "storage": True,
        "subresources": {"status": {}},
        "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}},
    }
    names = {"kind": "CapacityBuffer", "plural": "capacitybuffers", "singular": "capacitybuffer"}
    definition = {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": NAME},
        "spec": {"group": GROUP, "scope": "Namespaced", "names": names, "versions": [version]},
    }
    sandbox.apply(json.dumps(definition))
    sandbox.wait_for_definitions(NAME)
    wait_until(lambda: _are_served(sandbox), "CapacityBuffers to be served")
    try:
        yield
    finally:
        sandbox.kubectl("delete", "customresourcedefinition", NAME)


def _are_served(sandbox: Sandbox) -> bool:
    """Return whether CapacityBuffers can be listed. Just after their definition, the API server answers 429."""
    try:
        buffers(sandbox, "default")
    except ApiError:
        return False
    return True


def buffers(sandbox: Sandbox, namespace: str) -> list[dict[str, Any]]:
    """Return the CapacityBuffers of a namespace."""
    found: list[dict[str, Any]] = sandbox.api.get(f"{path(namespace)}")["items"]
    return found


def take_up(sandbox: Sandbox, namespace: str, name: str) -> None:
    """Report in the status of a CapacityBuffer that its template was read, as autoscalers do."""
    condition = {
        "type": "ReadyForProvisioning",
        "status": "True",
        "reason": "Resolved",
        "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }
    sandbox.api.request("PATCH", f"{path(namespace)}/{name}/status", {"status": {"conditions": [condition]}})


def path(namespace: str) -> str:
    """Return the API path of the CapacityBuffers of a namespace."""
    return f"/apis/{GROUP}/{VERSION}/namespaces/{namespace}/capacitybuffers"
