"""`respread lint`: the formats that CI systems read."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import fastjsonschema
import pytest
import yaml
from click.testing import CliRunner

from respread_cli.lint.rules import RULES
from respread_cli.main import respread
from tests.lint_manifests import BUDGET, GOOD, deployment


def lint(output: str, *more: str) -> str:
    bad = deployment(
        {**GOOD, "maxSkew": 6}, {**GOOD, "topologyKey": "kubernetes.io/hostname", "nodeTaintsPolicy": "Ignore"}
    )
    off = deployment({**GOOD, "maxSkew": 6})
    off["metadata"] = {"name": "off", "namespace": "pay", "annotations": {"respread.dev/lint-off": "*"}}
    text = yaml.safe_dump_all([bad, BUDGET, off], sort_keys=False)
    return CliRunner().invoke(respread, ["lint", "-", "-o", output, *more], input=text).stdout


def test_json_counts_and_marks_what_is_switched_off() -> None:
    report: dict[str, Any] = json.loads(lint("json"))
    assert {key: report[key] for key in ("checked", "skipped", "errors", "warnings", "switchedOff")} == {
        "checked": 3,
        "skipped": 0,
        "errors": 1,
        "warnings": 2,
        "switchedOff": 2,
    }
    first = report["findings"][0]
    assert first["patch"][-1] == {
        "op": "add",
        "path": "/spec/template/spec/topologySpreadConstraints/0/maxSkew",
        "value": 1,
    }
    assert [each["switchedOffBy"] for each in report["findings"]] == [None, None, None, "annotation", "annotation"]


def test_sarif_is_as_its_schema_says() -> None:
    schema = json.loads((Path(__file__).parents[2] / "golden" / "sarif-2.1.0.schema.json").read_text())
    conforms = fastjsonschema.compile(schema)
    log = json.loads(lint("sarif"))
    assert conforms(log) == log
    with pytest.raises(fastjsonschema.JsonSchemaException):
        conforms(log | {"version": "2.0.0"})


def test_sarif_names_rules_places_and_suppressions() -> None:
    log = json.loads(lint("sarif"))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == list(RULES)
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["locations"][0]["physicalLocation"]["region"]["startLine"] > 1
        assert result["message"]["text"]
    assert [len(each.get("suppressions", [])) for each in run["results"]] == [0, 0, 0, 1, 1]
    assert len({each["partialFingerprints"]["respreadFinding/v1"] for each in run["results"]}) == len(run["results"])


def test_junit_has_a_case_for_each_object_and_fails_what_the_command_fails() -> None:
    suites = Xml.fromstring(lint("junit"))  # noqa: S314 - our own output
    (case, clean) = suites.iter("testcase")
    assert (case.get("name"), clean.get("name")) == ("Deployment shop/web", "2 without findings")
    failures = case.findall("failure")
    assert [each.get("type") for each in failures] == ["SkewUnreachable"]
    assert "ZoneAndHostname" in (case.findtext("system-out") or "")
    assert suites.get("failures") == "1"
    strict = Xml.fromstring(lint("junit", "--fail-on", "warning"))  # noqa: S314 - our own output
    assert "ZoneAndHostname" in (strict.findtext(".//failure") or "")
    assert strict.find(".//system-out") is None
