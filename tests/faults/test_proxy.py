"""The proxy injects the faults that it describes; the other tests depend on it."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http.client import HTTPException, IncompleteRead
from typing import Any

import pytest
import yaml

from respread_sandbox import Sandbox
from tests.faults.proxy import FAULTS, STATUS_FAULTS, Asked, Dice, Fault, FaultProxy


def token(sandbox: Sandbox) -> str:
    (user,) = yaml.safe_load(sandbox.kubeconfig.read_text())["users"]
    found: str = user["user"]["token"]
    return found


def ask(sandbox: Sandbox, proxy: FaultProxy, path: str, method: str = "GET", body: Any = None) -> tuple[int, Any]:
    headers = {"Authorization": f"Bearer {token(sandbox)}", "Content-Type": "application/json"}
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(proxy.address + path, data=data, headers=headers, method=method)
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


def config_map(name: str) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}}


MAPS = "/api/v1/namespaces/default/configmaps"
PATIENCE_SECONDS = 6
"""The time after which an answer counts as hanging, many times longer than the API server needs."""


def test_requests_without_a_fault_pass(api_sandbox: Sandbox) -> None:
    with FaultProxy(api_sandbox) as proxy:
        assert ask(api_sandbox, proxy, MAPS, "POST", config_map("passes"))[0] == 201
        assert ask(api_sandbox, proxy, f"{MAPS}/passes")[1]["metadata"]["name"] == "passes"
        assert ask(api_sandbox, proxy, f"{MAPS}/absent")[0] == 404
        proxy.valid_token = "another"  # noqa: S105  # no secret
        assert ask(api_sandbox, proxy, MAPS)[0] == 401
        assert proxy.counts == {"401": 1}


@pytest.mark.parametrize("kind", FAULTS)
def test_each_fault_has_its_described_effect(api_sandbox: Sandbox, kind: str) -> None:
    name = f"fault-{kind.replace(' ', '-')}"
    carried_out = kind in {"delay", "lose", "truncate", "late 504"}
    with FaultProxy(
        api_sandbox, lambda asked: Fault(kind, 60 if kind == "hang" else 0.2) if asked.method == "POST" else None
    ) as proxy:
        if kind in STATUS_FAULTS or kind == "late 504":
            assert ask(api_sandbox, proxy, MAPS, "POST", config_map(name))[0] == int(kind.removeprefix("late "))
        elif kind == "delay":
            assert ask(api_sandbox, proxy, MAPS, "POST", config_map(name))[0] == 201
        else:
            with pytest.raises((OSError, HTTPException, IncompleteRead)):
                ask(api_sandbox, proxy, MAPS, "POST", config_map(name))
        assert proxy.counts == {kind: 1}
    assert api_sandbox.api.exists(f"{MAPS}/{name}") == carried_out


def watched(sandbox: Sandbox, fault: Fault) -> list[str]:
    """Return what a watch delivers while three ConfigMaps are created, by type and name."""
    version = sandbox.api.get(MAPS)["metadata"]["resourceVersion"]
    for number in range(3):
        sandbox.api.request("POST", MAPS, config_map(f"watched-{number}"))
    seen = []
    with FaultProxy(sandbox, lambda asked: fault if asked.is_watch else None) as proxy:
        path = f"{MAPS}?watch=true&resourceVersion={version}&timeoutSeconds=1"
        request = urllib.request.Request(proxy.address + path, headers={"Authorization": f"Bearer {token(sandbox)}"})
        try:
            with urllib.request.urlopen(request, timeout=PATIENCE_SECONDS) as answer:
                for line in answer:
                    event = json.loads(line)
                    seen.append(f"{event['type']} {event['object'].get('metadata', {}).get('name', '')}")
        except (OSError, HTTPException, json.JSONDecodeError) as error:
            seen.append(type(error).__name__)
    for number in range(3):
        sandbox.api.request("DELETE", f"{MAPS}/watched-{number}")
    return seen


def test_each_watch_fault_has_its_described_effect(api_sandbox: Sandbox) -> None:
    first, second, third = (f"ADDED watched-{number}" for number in range(3))
    assert watched(api_sandbox, Fault("replay", after_lines=2)) == [first, second, first, second, third]
    assert watched(api_sandbox, Fault("error 410", after_lines=1))[:2] == [first, "ERROR "]
    assert watched(api_sandbox, Fault("cut", after_lines=1)) in (
        [first, "IncompleteRead"],
        [first, "JSONDecodeError"],
        [first, "ConnectionResetError"],
    )
    assert watched(api_sandbox, Fault("stall", 0.5, after_lines=2))[:2] == [first, second]


def test_the_same_seed_causes_the_same_faults() -> None:
    asked = [Asked("GET", "/api/v1/pods", {"watch": "true"} if number % 2 else {}, number) for number in range(1000)]
    one, again, other = Dice(1), Dice(1), Dice(2)
    fell = [one(each) for each in asked]
    assert fell == [again(each) for each in asked]
    assert fell != [other(each) for each in asked]
    assert 30 <= sum(each is not None for each in fell[::2]) <= 80
    assert {each.kind for each in fell[1::2] if each is not None} >= {"stall", "error 410", "410"}
