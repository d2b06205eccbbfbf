"""A valid policy stays valid, and a record readable: crdify compares the CRDs with those that users rely on."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from respread.api.schema import custom_resource_definition, manifests
from tests.go_programs import PROGRAMS, find_or_build

ROOT: Final = Path(__file__).parents[3]
GOLDEN: Final = ROOT / "tests" / "golden" / "crds"

pytestmark = pytest.mark.timeout(900)
"""The fixture builds crdify first if it is not in the cache."""


POLICIES: Final = "rebalancepolicies.respread.dev.yaml"
RECORDS: Final = "rebalancepolicyrecords.respread.dev.yaml"


def incompatible(name: str, new: Path) -> str:
    """Return crdify's complaints about a file that replaces the golden one of a name; empty if there are none."""
    done = subprocess.run(
        [
            find_or_build(PROGRAMS["crdify"]),
            f"--config={GOLDEN / 'crdify.yaml'}",
            f"file://{GOLDEN / name}",
            f"file://{new}",
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    found = "\n".join(line for line in done.stdout.splitlines() if "ERROR" in line)
    assert (done.returncode == 0) == (not found), done.stdout + done.stderr
    return found


@pytest.mark.parametrize("name", manifests())
def test_the_crds_stay_compatible(name: str) -> None:
    found = incompatible(name, ROOT / "crds" / name)
    assert found == "", f"tests/golden/crds/README.md says what to do if this is meant:\n{found}"


def properties_of(definition: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]
    return found


def spec_of(definition: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = properties_of(definition)["spec"]
    return found


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda spec: spec["properties"].pop("priority"), "spec.priority"),
        (lambda spec: spec["properties"]["mode"]["enum"].remove("Enforce"), "spec.mode"),
        (lambda spec: spec["properties"]["limits"]["properties"]["inFlight"].update(maximum=10), "inFlight"),
        (lambda spec: spec["properties"]["mode"].update(default="Enforce"), "spec.mode"),
        (lambda spec: spec.update(required=["mode"]), "mode"),
    ],
)
def test_an_incompatible_change_is_detected(
    change: Callable[[dict[str, Any]], object], named: str, tmp_path: Path
) -> None:
    definition = yaml.safe_load((GOLDEN / POLICIES).read_text(encoding="utf-8"))
    change(spec_of(definition))
    (tmp_path / "changed.yaml").write_text(yaml.safe_dump(definition), encoding="utf-8")
    assert named in incompatible(POLICIES, tmp_path / "changed.yaml")


@pytest.mark.parametrize(
    ("change", "named"),
    [
        (lambda definition: properties_of(definition).pop("record"), "record"),
        (lambda definition: properties_of(definition)["record"].update(maxLength=1000), "record"),
        (lambda definition: definition["spec"].update(scope="Cluster"), "scope"),
    ],
)
def test_an_incompatible_change_of_records_is_detected(
    change: Callable[[dict[str, Any]], object], named: str, tmp_path: Path
) -> None:
    definition = yaml.safe_load((GOLDEN / RECORDS).read_text(encoding="utf-8"))
    change(definition)
    (tmp_path / "changed.yaml").write_text(yaml.safe_dump(definition), encoding="utf-8")
    assert named in incompatible(RECORDS, tmp_path / "changed.yaml")


def test_a_new_field_or_description_is_compatible(tmp_path: Path) -> None:
    definition = custom_resource_definition("RebalancePolicy")
    spec = spec_of(definition)
    spec["properties"]["new"] = {"type": "string", "description": "New.", "maxLength": 10}
    spec["description"] = "Said in other words."
    (tmp_path / "changed.yaml").write_text(yaml.safe_dump(definition), encoding="utf-8")
    assert incompatible(POLICIES, tmp_path / "changed.yaml") == ""
