"""The records of policies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from respread_sandbox import Sandbox
from respread_sandbox.api import ApiError

EMPTY: dict[str, Any] = {
    "backOffs": [],
    "recentEvictions": [],
    "groupEvictions": [],
    "failuresInARow": {},
    "movesInFlight": [],
    "contestedCosts": [],
}


def record(sandbox: Sandbox, policy: str) -> dict[str, Any]:
    """Return the content of the record of the policy at a path. Missing parts are empty."""
    uid = sandbox.api.get(policy)["metadata"]["uid"]
    records = policy.rpartition("/")[0].replace("policies", "policyrecords")
    try:
        text = sandbox.api.get(f"{records}/{uid}")["record"]
    except ApiError as error:
        if error.status != 404:
            raise
        text = "{}"
    return EMPTY | dict(json.loads(text))


def write_record(sandbox: Sandbox, policy: str, content: Mapping[str, Any]) -> None:
    """Create the record of the policy at a path, or replace what is in it."""
    found = sandbox.api.get(policy)
    name, namespace = found["metadata"]["uid"], found["metadata"].get("namespace")
    records, text = policy.rpartition("/")[0].replace("policies", "policyrecords"), json.dumps(content)
    if sandbox.api.exists(f"{records}/{name}"):
        sandbox.api.request("PATCH", f"{records}/{name}", {"record": text})
        return
    body = {
        "apiVersion": found["apiVersion"],
        "kind": f"{found['kind']}Record",
        "metadata": {"name": name} | ({"namespace": namespace} if namespace else {}),
        "policy": found["metadata"]["name"],
        "record": text,
    }
    sandbox.api.request("POST", records, body)


def status_and_record(sandbox: Sandbox, policy: str) -> dict[str, Any]:
    """Return the status of a policy together with the content of its record."""
    return {**sandbox.api.get(policy).get("status", {}), **record(sandbox, policy)}
