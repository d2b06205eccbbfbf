"""The values of the chart, their comments and their schema are about the same values."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import pytest
import yaml

from tests.chart_values import VALUES, values

ROOT = Path(__file__).parents[3]
SCHEMA = json.loads(VALUES.with_name("values.schema.json").read_text(encoding="utf-8"))
CHART = yaml.safe_load(VALUES.with_name("Chart.yaml").read_text(encoding="utf-8"))


def schema_of(name: str) -> dict[str, Any]:
    found: dict[str, Any] = SCHEMA
    for part in name.split("."):
        found = found["properties"][part]
    return found


def known(schema: dict[str, Any], above: str = "") -> set[str]:
    """Return the names of all values of a schema; those of parts that it leaves open have no names."""
    found = set()
    for name, each in schema["properties"].items():
        if each.get("additionalProperties") is False:
            found |= known(each, f"{above}{name}.")
        else:
            found.add(above + name)
    return found


def test_the_schema_has_exactly_the_documented_values() -> None:
    assert known(SCHEMA) == {each.name for each in values()} | {"global"}


@pytest.mark.parametrize("value", values(), ids=lambda each: each.name)
def test_a_comment_says_what_a_value_does(value: Any) -> None:
    assert value.meaning.endswith((".", "`")), value
    assert schema_of(value.name)


def test_the_icon_of_the_chart_is_in_the_repository() -> None:
    _, _, path = urlparse(CHART["icon"]).path.partition("/main/")
    assert (ROOT / path).read_text(encoding="utf-8").startswith("<svg ")
