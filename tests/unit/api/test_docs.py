"""docs/policy.md documents existing fields of the status and their bounds, and docs/troubleshooting.md the reasons."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from respread.api.conditions import PASSING_REASONS
from respread.api.decoding import decode_manifest
from respread.api.fields import MAX_COUNT
from respread.api.policy import ClusterPolicySpec
from respread.api.reasons import Reason
from respread.api.schema import custom_resource_definition
from respread.api.status import MAX_GENERATION
from tests.policy_specs import enforces

DOCS = Path(__file__).parents[3] / "docs"
TEXT = (DOCS / "policy.md").read_text(encoding="utf-8")
REASONS = (DOCS / "troubleshooting.md").read_text(encoding="utf-8").partition("\n## The reasons\n")[2]


def rows(heading: str, text: str = TEXT) -> dict[str, str]:
    """Return the words in backticks in the first column, and the rest, of the table under a heading."""
    _, _, section = text.partition(f"\n{heading}\n")
    table = re.search(r"(?:^\|.*\n)+", section, re.MULTILINE)
    assert table is not None, f"there is no table under {heading}"
    cells = [line.strip("|").split(" | ", 1) for line in table[0].splitlines()[2:]]
    return {name.strip().strip("`"): rest for name, rest in cells}


def sections(text: str) -> list[tuple[str, str]]:
    """Return the heading of each section of the third level, and its text."""
    return re.findall(r"^### (\w[^\n]*)\n(.*?)(?=^##|\Z)", text, re.MULTILINE | re.DOTALL)


def fields(node: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any], bool]]:
    """Yield the path of every field, its schema, and whether it is required."""
    for name, each in node.get("properties", {}).items():
        at = f"{path}.{name}".removeprefix(".")
        yield at, each, name in node.get("required", ())
        yield from fields(each, at)
        if each.get("type") == "array":
            yield from fields(each["items"], f"{at}[]")


def schema_of(part: str) -> dict[str, Any]:
    (version,) = custom_resource_definition("ClusterRebalancePolicy")["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"][part]
    return found


def test_the_documented_fields_of_the_status_exist() -> None:
    documented = rows("## status")
    assert len(documented) > 5
    assert documented.keys() <= {path for path, _, _ in fields(schema_of("status"))}


def test_documented_enums_and_bounds_of_the_status_match_the_schema() -> None:
    documented = rows("## status")
    for path, node, _ in fields(schema_of("status")):
        if path not in documented:
            continue
        kind = documented[path].split(" | ")[0]
        items = node.get("items", {})
        for choice in (*node.get("enum", ()), *items.get("enum", ())):
            assert f"`{choice}`" in kind, path
        if "maximum" in node and node["maximum"] not in {MAX_COUNT, MAX_GENERATION}:
            assert f"{node['minimum']} to {node['maximum']}" in kind, path


def test_every_reason_is_explained_once_and_marked_if_it_is_temporary() -> None:
    explained = {title: text for title, text in sections(REASONS) if title in set(Reason)}
    passing = rows("### Reasons that end by themselves", REASONS)
    documented = [*explained, *rows("### Pods that are never evicted", REASONS), *passing]
    assert sorted(documented) == sorted(Reason)
    assert {*passing, *(title for title, text in explained.items() if "(Passing" in text)} == set(PASSING_REASONS)


@pytest.mark.parametrize(("title", "text"), [each for each in sections(REASONS) if each[0] in set(Reason)])
def test_a_reason_has_three_commands_and_a_fix(title: str, text: str) -> None:
    (block,) = re.findall(r"```sh\n(.*?)```", text, re.DOTALL)
    assert len(block.splitlines()) == 3, title
    assert re.search(r"^Fix: ", text, re.MULTILINE), title


def test_every_reason_of_a_condition_is_documented() -> None:
    source = (Path(__file__).parents[3] / "operator/respread/api/conditions.py").read_text(encoding="utf-8")
    words = set(re.findall(r'_Verdict\(\s*"\w+", "(\w+)"', source)) | {"ConstraintsViolated", "SeveralReasons"}
    assert words >= {"Valid", "Overridden", "NotPlannedYet", "ConstraintsHold", "NothingToDo", "NotBlocked"}
    _, _, section = TEXT.partition("### Conditions")
    assert {word for word in words if f"`{word}`" not in section} == set()


def test_examples_are_valid_and_the_full_example_shows_the_defaults() -> None:
    blocks = re.findall(r"```yaml\n(.*?)```", TEXT, re.DOTALL)
    policies = {policy.object_name: policy for policy in map(decode_manifest, map(yaml.safe_load, blocks))}
    assert all(policy.problems == () for policy in policies.values())
    assert enforces(policies["default"])
    assert policies["all-defaults"].spec == ClusterPolicySpec()
    full = yaml.safe_load(next(block for block in blocks if "all-defaults" in block))["spec"]
    assert {path for path, _, _ in fields(schema_of("spec")) if "." not in path} == set(full)
