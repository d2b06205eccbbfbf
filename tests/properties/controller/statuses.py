"""Statuses and records of policies, generated from their schemas, including any future field."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from hypothesis import strategies as st

from respread.api.policy import PolicyKind
from respread.api.record import Recorded
from respread.api.schema import custom_resource_definition, schema_of

_LARGEST = 2**63 - 1
_MOMENTS = (
    "1970-01-01T00:00:00Z",
    "1970-01-01T00:00:00+14:00",
    "2026-11-22T03:00:00.123456789Z",
    "2027-01-15T08:00:00Z",
    "2099-12-31T23:59:59Z",
    "2099-12-31T23:59:59-23:59",
)
_MOMENTS_ONCE = (
    *_MOMENTS,
    "0000-01-01T00:00:00Z",
    "0001-01-01T00:00:00Z",
    "0001-01-01T00:00:00+23:59",
    "2026-02-28T23:59:60Z",
    "9999-12-31T23:59:59Z",
    "9999-12-31T23:59:59.999999999-23:59",
)


def status_schema(kind: PolicyKind) -> dict[str, Any]:
    """Return the schema of a policy's status in the CRD."""
    (version,) = custom_resource_definition(kind)["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["status"]
    return schema


def record_schema() -> dict[str, Any]:
    """Return the schema of the JSON in a record. The API server does not check it."""
    return schema_of(Recorded)


def statuses(schema: Mapping[str, Any], words: Sequence[str], *, unchecked: bool) -> st.SearchStrategy[Any]:
    """Values that a schema allows.

    Args:
        schema: the schema.
        words: strings that have a meaning for the operator, such as names of existing objects.
        unchecked: whether to include numbers and times beyond its bounds, which a later version may allow.
    """
    match schema["type"]:
        case "object":
            required = set(schema.get("required", ()))
            fields = {
                name: statuses(each, words, unchecked=unchecked) for name, each in schema.get("properties", {}).items()
            }
            return st.fixed_dictionaries(
                {name: each for name, each in fields.items() if name in required},
                optional={name: each for name, each in fields.items() if name not in required},
            )
        case "array":
            keys = schema.get("x-kubernetes-list-map-keys")
            return st.lists(
                statuses(schema["items"], words, unchecked=unchecked),
                max_size=min(schema["maxItems"], 4),
                unique_by=None if keys is None else lambda item: tuple(item.get(key) for key in keys),
            )
        case "integer":
            return _numbers(schema.get("minimum", 0), _LARGEST if unchecked else schema.get("maximum", _LARGEST))
        case "string":
            return _strings(schema, words, unchecked=unchecked)
    raise AssertionError(f"no values are known of {schema}")


def _numbers(least: int, most: int) -> st.SearchStrategy[int]:
    return st.sampled_from(sorted({least, least + 1, most - 1, most})) | st.integers(least, most)


def _strings(schema: Mapping[str, Any], words: Sequence[str], *, unchecked: bool) -> st.SearchStrategy[str]:
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema.get("format") == "date-time":
        moments = st.datetimes(datetime(1970, 1, 2), datetime(2099, 12, 30), timezones=st.just(UTC))  # noqa: DTZ001 - hypothesis wants them so
        written = moments.map(lambda moment: moment.isoformat())
        return st.sampled_from(_MOMENTS_ONCE if unchecked else _MOMENTS) | written
    most = schema["maxLength"]
    fitting = [word for word in words if schema.get("minLength", 0) <= len(word) <= most]
    if "pattern" in schema:
        return st.sampled_from(["A", "Ready", "NotPlannedYet", "Blocked"])
    return st.sampled_from([*fitting, "é" * most]) | st.text(st.characters(codec="utf-8"), max_size=min(most, 8))


def largest(schema: Mapping[str, Any], number: int = 0, *, most_items: int) -> Any:
    """Return the largest value that a schema allows.

    Args:
        schema: the schema in the CRD.
        number: the index of the list item, so that no two items are equal.
        most_items: the maximum length of a list if the schema admits more.
    """
    match schema["type"]:
        case "object":
            return {name: largest(each, number, most_items=most_items) for name, each in schema["properties"].items()}
        case "array":
            items = range(min(schema["maxItems"], most_items))
            return [largest(schema["items"], item, most_items=most_items) for item in items]
        case "integer":
            return schema["maximum"]
        case "string" if "enum" in schema:
            return schema["enum"][0]
        case "string" if schema.get("format") == "date-time":
            return f"2099-12-31T23:{number % 60:02}:{number // 60 % 60:02}Z"
        case "string":
            return f"A{number}".ljust(schema["maxLength"], "a")
    raise AssertionError(f"no values are known of {schema}")
