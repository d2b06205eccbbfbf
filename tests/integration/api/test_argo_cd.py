"""Argo CD's health check judges policies by their statuses, run by gopher-lua as in Argo CD."""

from __future__ import annotations

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from respread.api.conditions import PolicyOutcome, next_status
from respread.api.decoding import decode_policy
from respread.api.policy import PLURALS
from respread.api.status import PolicyStatus, Summary, encode_status
from tests.go_programs import PROGRAMS, find_or_build

FILE: Final = Path(__file__).parents[3] / "manifests" / "gitops" / "argocd-cm.yaml"
KEY: Final = "resource.customizations.health.respread.dev_"
NOON: Final = datetime(2026, 5, 4, 12, tzinfo=UTC)

RIGHT: Final = {"metadata": {"name": "p", "generation": 2}, "spec": {"mode": "Enforce"}}
WRONG: Final = {**RIGHT, "spec": {"windows": [{"schedule": "0 2 * * *", "duration": "1h", "timeZone": "Mars"}]}}
BALANCED: Final = PolicyOutcome(summary=Summary(groups=1, pods=2), plan_time=NOON)
VIOLATED: Final = PolicyOutcome(summary=Summary(groups=1, pods=2, violated=1, planned_evictions=1), plan_time=NOON)

pytestmark = pytest.mark.timeout(900)
"""The fixture builds gopher-lua first if it is not in the cache."""


def with_status(manifest: dict[str, Any], outcome: PolicyOutcome | None) -> dict[str, Any]:
    policy = decode_policy("ClusterRebalancePolicy", manifest)
    return manifest | {"status": encode_status(next_status(policy, PolicyStatus(), outcome, now=NOON))}


def lua(value: Any) -> str:
    """Write a JSON value in Lua's syntax."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"[{json.dumps(name)}] = {lua(each)}" for name, each in value.items()) + "}"
    if isinstance(value, list):
        return "{" + ", ".join(map(lua, value)) + "}"
    return "nil" if value is None else json.dumps(value)


def health(manifest: dict[str, Any], script: str, folder: Path) -> tuple[str, str]:
    program = folder / "health.lua"
    program.write_text(
        f"obj = {lua(manifest)}\nlocal function check()\n{script}\nend\nlocal health = check()\n"
        "print(health.status)\nprint(health.message)\n",
        encoding="utf-8",
    )
    done = subprocess.run(
        [find_or_build(PROGRAMS["glua"]), program], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.stderr == ""
    status, _, message = done.stdout.partition("\n")
    return status, message.strip()


@pytest.mark.parametrize("kind", PLURALS)
@pytest.mark.parametrize(
    ("manifest", "status", "message"),
    [
        (RIGHT, "Progressing", "No plan has been made"),
        (with_status(RIGHT, None), "Progressing", "No plan has been made"),
        (with_status(RIGHT, BALANCED), "Healthy", "The policy is valid and in force."),
        (with_status(RIGHT, VIOLATED), "Healthy", "The policy is valid and in force."),
        (with_status(WRONG, None), "Degraded", "spec.windows[0].timeZone"),
        (with_status(WRONG, BALANCED), "Degraded", "spec.windows[0].timeZone"),
        (
            with_status(RIGHT, BALANCED) | {"metadata": {"name": "p", "generation": 3}},
            "Progressing",
            "has not been seen yet",
        ),
    ],
)
def test_argo_cd_shows_the_health_of_a_policy(
    kind: str, manifest: dict[str, Any], status: str, message: str, tmp_path: Path
) -> None:
    script = yaml.safe_load(FILE.read_text(encoding="utf-8"))["data"][f"{KEY}{kind}"]
    found = health(manifest, script, tmp_path)
    assert found[0] == status
    assert message in found[1]
