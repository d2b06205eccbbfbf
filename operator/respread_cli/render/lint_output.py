"""The result of `respread lint` for people, and in the formats that CI systems read."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final
from xml.etree import ElementTree as Xml

import click
import msgspec

from respread import __version__
from respread.api.words import number_of
from respread_cli.lint.linting import LintFindingReport, LintReport
from respread_cli.lint.rules import RULES, LintLevel

HOMEPAGE: Final = "https://github.com/respread/respread"
SARIF_SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_STANDARD_INPUT: Final = "standard input"


def lint_text(report: LintReport) -> Iterator[str]:
    """Yield the findings for people and editors: file, line, level, object, field, what is wrong, and what to do."""
    for each in _counted(report):
        color = "red" if each.level == "error" else "yellow"
        parts = [_object(each), each.field, each.message]
        text = ": ".join(part for part in parts if part)
        yield f"{each.file}:{each.line}: {click.style(each.level, fg=color, bold=True)}: {text} [{each.rule}]"
        if each.cure:
            yield f"    {each.cure}"


def lint_summary(report: LintReport) -> str:
    """Return one line with numbers."""
    parts = [
        f"{number_of(report.checked, 'object')} checked",
        number_of(report.errors, "error"),
        number_of(report.warnings, "warning"),
    ]
    if report.switched_off:
        parts.append(f"{number_of(report.switched_off, 'finding')} switched off")
    if report.skipped:
        parts.append(f"{number_of(report.skipped, 'object')} of other kinds skipped")
    return f"{', '.join(parts)}."


def lint_json(report: LintReport) -> str:
    """Return the report as JSON."""
    return msgspec.json.format(msgspec.json.encode(report)).decode()


def lint_sarif(report: LintReport) -> str:
    """Return the findings in SARIF 2.1.0, those that are switched off as suppressed results."""
    rules = list(RULES.values())
    positions = {rule.name: position for position, rule in enumerate(rules)}
    driver = {
        "name": "respread lint",
        "version": __version__,
        "informationUri": HOMEPAGE,
        "rules": [
            {
                "id": rule.name,
                "shortDescription": {"text": rule.summary},
                "helpUri": rule.docs,
                "defaultConfiguration": {"level": rule.level},
            }
            for rule in rules
        ],
    }
    results = [_sarif_result(each, positions[each.rule]) for each in report.findings]
    log = {
        "$schema": SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "columnKind": "utf16CodeUnits", "results": results}],
    }
    return msgspec.json.format(msgspec.json.encode(log)).decode()


def _sarif_result(each: LintFindingReport, position: int) -> dict[str, Any]:
    name = f"{each.kind}/{each.namespace}/{each.name}"
    place: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": {"uri": _uri(each.file)},
            "region": {"startLine": each.line},
        }
    }
    if each.kind:
        place["logicalLocations"] = [{"name": each.name, "fullyQualifiedName": name, "kind": "resource"}]
    identity = "\n".join((each.file, name, each.rule, each.field))
    result: dict[str, Any] = {
        "ruleId": each.rule,
        "ruleIndex": position,
        "level": each.level,
        "message": {"text": " ".join(part for part in (_object(each, ": "), each.message, each.cure) if part)},
        "locations": [place],
        "partialFingerprints": {"respreadFinding/v1": blake2b(identity.encode(), digest_size=16).hexdigest()},
    }
    if each.switched_off_by is not None:
        kind = "inSource" if each.switched_off_by == "annotation" else "external"
        result["suppressions"] = [{"kind": kind, **({"justification": each.reason} if each.reason else {})}]
    return result


def _uri(file: str) -> str:
    if file == _STANDARD_INPUT:
        return "stdin"
    path = Path(file)
    return path.as_uri() if path.is_absolute() else path.as_posix().replace("%", "%25").replace(" ", "%20")


def lint_junit(report: LintReport, fail_on: LintLevel) -> str:
    """Return the findings as a JUnit report: one test case per object with findings, and one for all that have none.

    Args:
        report: the findings.
        fail_on: warnings are failures too if it is `warning`, else they are in the case's output.
    """
    by_object: dict[tuple[str, str], list[LintFindingReport]] = {}
    for each in _counted(report):
        by_object.setdefault((each.file, _object(each) or each.file), []).append(each)
    cases: list[Xml.Element] = []
    for (file, name), findings in by_object.items():
        case = Xml.Element("testcase", classname=file, name=name, file=file, line=str(findings[0].line), time="0")
        failures = [each for each in findings if fails(each.level, fail_on)]
        if failures:
            first = Xml.SubElement(case, "failure", message=failures[0].message, type=failures[0].rule)
            first.text = _lines(failures)
        if rest := [each for each in findings if each not in failures]:
            Xml.SubElement(case, "system-out").text = _lines(rest)
        cases.append(case)
    clean = max(0, report.checked - sum(bool(each[0].kind) for each in by_object.values()))
    if clean or not cases:
        cases.append(Xml.Element("testcase", classname="respread", name=f"{clean} without findings", time="0"))
    counts = {
        "tests": str(len(cases)),
        "failures": str(sum(case.find("failure") is not None for case in cases)),
        "errors": "0",
        "skipped": "0",
        "time": "0",
    }
    suites = Xml.Element("testsuites", counts)
    suite = Xml.SubElement(suites, "testsuite", {"name": "respread lint", **counts})
    suite.extend(cases)
    Xml.indent(suites)
    return Xml.tostring(suites, encoding="unicode", xml_declaration=True)


def fails(level: LintLevel, fail_on: LintLevel) -> bool:
    """Return whether a finding of a level makes the command fail."""
    return level == "error" or fail_on == "warning"


def _lines(findings: Sequence[LintFindingReport]) -> str:
    return "\n".join(
        f"{each.file}:{each.line}: {each.field}: {' '.join((each.message, each.cure)).rstrip()} [{each.rule}]"
        for each in findings
    )


def _counted(report: LintReport) -> list[LintFindingReport]:
    return [each for each in report.findings if each.switched_off_by is None]


def _object(each: LintFindingReport, end: str = "") -> str:
    if not each.kind:
        return ""
    namespaced = each.kind != "ClusterRebalancePolicy"
    return f"{each.kind} {f'{each.namespace}/' if namespaced else ''}{each.name}{end}".rstrip(" ")
