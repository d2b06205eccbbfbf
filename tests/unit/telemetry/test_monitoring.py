"""Alerts and dashboard use metrics that exist, with labels that they have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import promql_parser
import pytest
import yaml

ROOT = Path(__file__).parents[3]
MONITORING = ROOT / "manifests" / "components" / "monitoring"
TARGET_LABELS = {"cluster", "pod", "instance", "job", "namespace"}
"""Labels added by the ServiceMonitor's targets, and by users with several clusters."""


def documented() -> dict[str, set[str]]:
    """Return every series name with its labels; another test compares docs/metrics.md with the code."""
    text = "".join((ROOT / "docs" / page).read_text(encoding="utf-8") for page in ("metrics.md", "operator-metrics.md"))
    series: dict[str, set[str]] = {}
    for name, kind, labels in re.findall(r"^\| `(\w+)` \| (\w+) \| ([\w, ]*)\|", text, re.MULTILINE):
        names = set(re.findall(r"\w+", labels))
        if kind == "histogram":
            series[f"{name}_bucket"] = names | {"le"}
            series[f"{name}_count"] = series[f"{name}_sum"] = names
        else:
            series[name] = names
    return series


def rules(kind: str) -> dict[str, dict[str, Any]]:
    """Return the rules of a type (`alert` or `record`) by name."""
    rule = yaml.safe_load((MONITORING / "prometheus-rule.yaml").read_text(encoding="utf-8"))
    return {each[kind]: each for group in rule["spec"]["groups"] for each in group["rules"] if kind in each}


def alerts() -> dict[str, dict[str, Any]]:
    return rules("alert")


def recorded() -> dict[str, set[str]]:
    """Return every series that a rule records, with its labels."""
    return {name: grouped_by(rule["expr"]) for name, rule in rules("record").items()}


def panels() -> dict[str, dict[str, Any]]:
    dashboard = json.loads((MONITORING / "dashboard.json").read_text(encoding="utf-8"))
    return {panel["title"]: panel for panel in dashboard["panels"]}


def expressions() -> Iterator[tuple[str, str]]:
    for name, alert in alerts().items():
        yield name, alert["expr"]
    for name, rule in rules("record").items():
        yield name, rule["expr"]
    for title, panel in panels().items():
        for target in panel.get("targets", ()):
            yield title, target["expr"].replace("$__rate_interval", "5m")


def parts(expression: object) -> Iterator[object]:
    """Yield the expression and all its subexpressions."""
    yield expression
    for name in ("expr", "lhs", "rhs", "vector_selector", "param"):
        inner = getattr(expression, name, None)
        if inner is not None:
            yield from parts(inner)
    for argument in getattr(expression, "args", ()):
        yield from parts(argument)


def selectors(expression: str) -> list[promql_parser.VectorSelector]:
    found = [part for part in parts(promql_parser.parse(expression)) if isinstance(part, promql_parser.VectorSelector)]
    assert found
    return found


def grouped_by(expression: str) -> set[str]:
    return {
        label for group in re.findall(r"\b(?:by|on) \(([^)]*)\)", expression) for label in re.findall(r"\w+", group)
    }


@pytest.mark.parametrize(("name", "expression"), list(expressions()))
def test_an_expression_uses_existing_metrics_and_labels(name: str, expression: str) -> None:
    known = documented() | recorded()
    for selector in selectors(expression):
        assert selector.name in known, f"{name} asks for {selector.name}, which docs/metrics.md does not list"
        for matcher in selector.matchers.matchers:
            assert matcher.name in known[selector.name] | TARGET_LABELS, (
                f"{name}: {selector.name} has no label {matcher.name}"
            )


@pytest.mark.parametrize(("name", "expression"), list(expressions()))
def test_an_expression_groups_by_labels_that_its_metrics_have(name: str, expression: str) -> None:
    known = documented() | recorded()
    available = set.intersection(*(known[str(selector.name)] for selector in selectors(expression))) | TARGET_LABELS
    assert grouped_by(expression) <= available, name


def test_alert_texts_use_labels_that_the_expression_keeps() -> None:
    for name, alert in alerts().items():
        used = set(re.findall(r"\$labels\.(\w+)", " ".join(alert["annotations"].values())))
        kept = set[str]().union(*(recorded().get(str(each.name), ()) for each in selectors(alert["expr"])))
        assert used <= grouped_by(alert["expr"]) | kept, name


def test_every_alert_has_a_summary_and_a_description() -> None:
    assert len(alerts()) >= 5
    for name, alert in alerts().items():
        assert name.startswith("Respread")
        assert alert["labels"]["severity"] in {"info", "warning", "critical"}
        assert set(alert["annotations"]) == {"summary", "description", "runbook_url"}


def test_the_panels_do_not_overlap() -> None:
    taken: dict[tuple[int, int], str] = {}
    for title, panel in panels().items():
        place = panel["gridPos"]
        for x in range(place["x"], place["x"] + place["w"]):
            for y in range(place["y"], place["y"] + place["h"]):
                assert x < 24
                assert taken.setdefault((x, y), title) == title
