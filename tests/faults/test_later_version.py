"""Definitions of a later version of Respread, as after a downgrade of the operator."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from respread.api.policy import PLURALS
from respread.api.schema import custom_resource_definition
from respread_sandbox import Sandbox
from tests.faults.rounds import POLICY, enforce, wait_for
from tests.integration.operator_process import REPOSITORY, OperatorProcess

HURRIED = ("--lease-seconds", "3")
POLICY_PATH = f"/apis/respread.dev/v1alpha1/clusterrebalancepolicies/{POLICY}"


def ready(cluster: Sandbox) -> dict[str, Any]:
    conditions = cluster.api.get(POLICY_PATH).get("status", {}).get("conditions", ())
    return next((each for each in conditions if each["type"] == "Ready"), {})


@pytest.fixture
def with_later_crds(installed_sandbox: Sandbox) -> Iterator[Sandbox]:
    """A cluster whose definitions have fields that this version does not know."""
    for kind in PLURALS:
        definition = custom_resource_definition(kind)
        (version,) = definition["spec"]["versions"]
        for part in ("spec", "status"):
            fields = version["schema"]["openAPIV3Schema"]["properties"][part]["properties"]
            fields["later"] = {"type": "string", "maxLength": 10}
        installed_sandbox.apply(json.dumps(definition))
    yield installed_sandbox
    installed_sandbox.apply(REPOSITORY / "crds")


def test_fields_of_a_later_version_are_neither_erased_nor_ignored(with_later_crds: Sandbox, tmp_path: Path) -> None:
    """An unknown field of the status is kept, and an unknown field of the spec makes the policy invalid."""
    cluster = with_later_crds
    enforce(cluster)

    def is_kept() -> bool:
        return bool(cluster.api.get(POLICY_PATH).get("status", {}).get("later") == "kept")

    def written() -> bool:
        cluster.api.request("PATCH", f"{POLICY_PATH}/status", {"status": {"later": "kept"}})
        return is_kept()

    wait_for(written, "the API server to know the fields of the later version")
    with OperatorProcess(cluster, tmp_path, *HURRIED) as operator:
        wait_for(lambda: ready(cluster).get("status") == "True", "the policy to be in force")
        assert is_kept()
        cluster.api.request("PATCH", POLICY_PATH, {"spec": {"later": "set"}})
        wait_for(lambda: ready(cluster).get("reason") == "InvalidPolicy", "the unknown field to be reported")
        assert "spec.later" in ready(cluster)["message"]
        assert is_kept()
        cluster.api.request("PATCH", POLICY_PATH, {"spec": {"later": None}})
        wait_for(lambda: ready(cluster).get("status") == "True", "the policy to be in force again")
        assert is_kept()
        assert operator.stop() == 0
