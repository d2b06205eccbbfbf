"""Policies of earlier versions keep their meaning, and neither an upgrade nor a downgrade loses a checkpoint."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from datetime import datetime
from typing import Any

import pytest

from respread.api.decoding import decode_manifest, decode_status
from respread.api.fields import DURATION_PATTERN, parse_duration
from respread.api.policy import PLURALS, PolicyKind
from respread.api.record import decode_record, encode_record
from respread.api.schema import custom_resource_definition
from respread.api.status import PolicyStatus, encode_status
from respread.api.structures import write_value
from tests.kept_versions import OLDEST, KeptVersion, kept_versions, pruned, schema_of

VERSIONS = kept_versions()
POLICIES = [
    pytest.param(version, policy, id=f"{version.name}-{policy['metadata']['name']}")
    for version in VERSIONS
    for policy in version.policies
]
REPORTED = {"violations"}
"""The fields that the next plan replaces."""


def today(kind: PolicyKind, part: str) -> dict[str, Any]:
    return schema_of(custom_resource_definition(kind), part)


def normal(value: Any) -> Any:
    """Return JSON values with times and durations in a canonical form."""
    match value:
        case dict():
            return {name: normal(each) for name, each in value.items()}
        case list():
            return [normal(each) for each in value]
        case str() if len(value) >= len("2026-11-22T14:00:00Z") and value[4:5] == value[7:8] == "-":
            return datetime.fromisoformat(value)
        case str() if re.fullmatch(DURATION_PATTERN, value):
            return parse_duration(value)
        case _:
            return value


def missing(before: Any, after: Any, path: str) -> Iterator[str]:
    """Yield the values of the earlier object that the later one lacks."""
    match before, after:
        case dict(), dict():
            for name, each in before.items():
                yield from missing(each, after.get(name), f"{path}.{name}")
        case list(), list() if len(before) == len(after):
            for index, (each, other) in enumerate(zip(before, after, strict=True)):
                yield from missing(each, other, f"{path}[{index}]")
        case _:
            if before != after and not (before in ({}, []) and after is None):
                yield f"{path}: {before!r} became {after!r}"


def merged(target: Any, patch: Any) -> Any:
    """Apply a JSON merge patch like the API server (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    found = dict(target) if isinstance(target, dict) else {}
    for name, value in patch.items():
        if value is None:
            found.pop(name, None)
        else:
            found[name] = merged(found.get(name), value)
    return found


def memory(status: PolicyStatus) -> dict[str, Any]:
    """Return the checkpoint in a status, without the results of the plan."""
    return {name: each for name, each in encode_status(status, with_record=True).items() if name not in REPORTED}


def paths_with_default(schema: dict[str, Any], path: str) -> Iterator[str]:
    for name, each in schema.get("properties", {}).items():
        if "default" in each:
            yield f"{path}.{name}"
        yield from paths_with_default(each, f"{path}.{name}")


def paths(schema: dict[str, Any], path: str) -> Iterator[str]:
    for name, each in schema.get("properties", {}).items():
        yield f"{path}.{name}"
        yield from paths(each, f"{path}.{name}")


def test_the_recorded_policies_have_moves_evictions_and_violations() -> None:
    for version in VERSIONS:
        status = [decode_status(each) for each in version.policies]
        checkpoints = [*status, *(decode_record(each["record"]) for each in version.records)]
        assert any(each.moves_in_flight for each in checkpoints)
        assert any(each.recent_evictions for each in checkpoints)
        assert any(each.violations for each in status)


@pytest.mark.parametrize(("version", "policy"), POLICIES)
def test_a_policy_of_an_earlier_version_is_valid_and_means_the_same(
    version: KeptVersion, policy: dict[str, Any]
) -> None:
    found = decode_manifest(policy)
    assert found.problems == (), version.name
    assert list(missing(normal(policy["spec"]), normal(write_value(found.spec)), "spec")) == []


@pytest.mark.parametrize(("version", "policy"), POLICIES)
def test_the_checkpoint_in_a_status_of_an_earlier_version_is_read(version: KeptVersion, policy: dict[str, Any]) -> None:
    del version
    before = {name: each for name, each in policy["status"].items() if name not in REPORTED}
    assert list(missing(normal(before), normal(encode_status(decode_status(policy), with_record=True)), "status")) == []


def test_the_records_of_earlier_versions_are_read() -> None:
    for record in (each["record"] for version in VERSIONS for each in version.records):
        after = json.loads(encode_record(decode_record(record)))
        assert list(missing(normal(json.loads(record)), normal(after), "record")) == []


def lacking(value: Any, schema: dict[str, Any], path: str) -> Iterator[str]:
    """Yield the fields that a schema requires and a value lacks."""
    match value:
        case dict():
            yield from (f"{path}.{name}" for name in schema.get("required", ()) if name not in value)
            for name, each in schema.get("properties", {}).items():
                if name in value:
                    yield from lacking(value[name], each, f"{path}.{name}")
        case list():
            for each in value:
                yield from lacking(each, schema["items"], f"{path}[]")


@pytest.mark.parametrize(("_version", "policy"), POLICIES)
@pytest.mark.parametrize("earlier", VERSIONS, ids=[version.name for version in VERSIONS])
def test_crds_of_earlier_versions_accept_the_current_status(
    earlier: KeptVersion, _version: KeptVersion, policy: dict[str, Any]
) -> None:
    """If only the operator is upgraded, as by Helm, it still writes statuses and evicts."""
    status = encode_status(decode_status(policy), with_record=True)
    refused = set(lacking(status, earlier.schema(policy["kind"], "status"), "status"))
    assert refused <= ({"status.violations[].workload"} if earlier.name == OLDEST else set()), (
        "an earlier definition would make the API server refuse the status, without which nothing is evicted"
    )


@pytest.mark.parametrize("version", VERSIONS, ids=[version.name for version in VERSIONS])
@pytest.mark.parametrize("kind", PLURALS)
def test_the_api_server_defaults_no_field_that_an_earlier_operator_does_not_know(
    version: KeptVersion, kind: PolicyKind
) -> None:
    known = set(paths(version.schema(kind, "spec"), "spec"))
    assert set(paths_with_default(today(kind, "spec"), "spec")) <= known, (
        "such a default would make every policy invalid for the earlier operator: add the field to schema.py's _LATER"
    )


@pytest.mark.parametrize(("_version", "policy"), POLICIES)
@pytest.mark.parametrize("earlier", VERSIONS, ids=[version.name for version in VERSIONS])
def test_a_status_written_by_an_earlier_operator_loses_no_field(
    earlier: KeptVersion, _version: KeptVersion, policy: dict[str, Any]
) -> None:
    """The earlier operator reads the fields that it knows, writes them back, and changes no other."""
    ours = {"status": encode_status(decode_status(policy), with_record=True)}
    patch = {"status": pruned(ours["status"], earlier.schema(policy["kind"], "status"))}
    assert memory(decode_status(merged(ours, patch))) == memory(decode_status(ours))
