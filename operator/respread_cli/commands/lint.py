"""`respread lint`: what is wrong with manifests, before they are in a cluster."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
import msgspec

from respread import __version__
from respread.api.reasons import number_of
from respread.program.command_line import CommandError, CommandWithExamples, Example, files
from respread_cli.lint.rules import RULES, LintLevel
from respread_cli.options import policy_files_option

if TYPE_CHECKING:
    from respread.cluster.state import ClusterSnapshot
    from respread_cli.lint.linting import LintFindingReport, LintReport

_FINDINGS: Final = 1
"""The exit code if there are findings."""
_HOMEPAGE: Final = "https://github.com/respread/respread"
_SARIF_SCHEMA: Final = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
EXAMPLES: Final = (
    Example("The manifests in a folder", "lint manifests/"),
    Example("What Helm would install", "lint - < rendered.yaml"),
    Example("With the nodes and budgets of the cluster", "lint --snapshot cluster.json.gz deploy.yaml"),
    Example("Fail on warnings too", "lint --fail-on warning deploy.yaml"),
    Example("For GitHub's code scanning", "lint -o sarif manifests/ > respread.sarif"),
)


@click.command(cls=CommandWithExamples, examples=EXAMPLES, context_settings={"max_content_width": 100})
@click.argument("places", metavar="[FILE]...", nargs=-1, shell_complete=files)
@policy_files_option(help="The same as FILE, as kubectl has it.")
@click.option(
    "-n",
    "--namespace",
    metavar="NAME",
    default="default",
    show_default=True,
    help="The namespace of objects without one.",
)
@click.option(
    "--snapshot",
    metavar="FILE",
    shell_complete=files,
    help="The cluster, from `respread snapshot`: its topology keys, zones and PodDisruptionBudgets.",
)
@click.option(
    "--fail-on",
    type=click.Choice(["error", "warning"]),
    default="error",
    show_default=True,
    help="The least level for exit code 1.",
)
@click.option(
    "--config",
    metavar="FILE",
    shell_complete=files,
    help="Levels of rules, and ignored objects.  [default: .respread-lint.yaml]",
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["text", "json", "sarif", "junit"]),
    default="text",
    show_default=True,
    help="docs/cli.md describes the fields of json.",
)
@click.option("--rules", "list_rules", is_flag=True, help="List the rules.")
@click.pass_context
def lint(
    ctx: click.Context,
    *,
    places: tuple[str, ...],
    filenames: tuple[str, ...],
    namespace: str,
    snapshot: str | None,
    fail_on: LintLevel,
    config: str | None,
    output: str,
    list_rules: bool,
) -> None:
    """Check manifests and policies in files, without a cluster.

    FILE is a YAML or JSON file, a folder, or - for standard input, such as the output of `helm template`. Objects other
    than workloads, PodDisruptionBudgets and policies are skipped.

    Exit code: 0 if nothing is found, 1 for findings of the level --fail-on, 2 if it can't be run.
    """
    if list_rules:
        for rule in RULES.values():
            click.echo(f"{rule.name:<24}{rule.level:<9}{rule.summary}")
        return
    if not (wanted := (*places, *filenames)):
        raise click.UsageError("name a file, a folder, or - for standard input.")
    if (*wanted, snapshot).count("-") > 1:
        raise click.UsageError("standard input can be read only once.")
    from respread_cli.lint.linting import lint_manifests  # noqa: PLC0415 - not for --rules and --help
    from respread_cli.lint.manifests import read_manifests  # noqa: PLC0415 - as above
    from respread_cli.lint.rules import read_settings  # noqa: PLC0415 - as above

    settings = read_settings(config)
    cluster = None if snapshot is None else _cluster(snapshot)
    manifests = read_manifests(wanted, default_namespace=namespace)
    report = lint_manifests(manifests, settings, default_namespace=namespace, cluster=cluster)
    _show(report, output, fail_on)
    if report.missing:
        raise CommandError("\n  ".join(["not everything can be checked:", *report.missing]))
    ctx.exit(_FINDINGS if report.errors or (fail_on == "warning" and report.warnings) else 0)


def _cluster(file: str) -> ClusterSnapshot:
    from respread_cli.read.snapshot_file import read_snapshot  # noqa: PLC0415 - rarely needed

    view = read_snapshot(file)
    for note in view.notes:
        click.echo(f"Note: {note}", err=True)
    return view.snapshot


def _show(report: LintReport, output: str, fail_on: LintLevel) -> None:
    if output == "text":
        for line in _text(report):
            click.echo(line)
    elif output == "junit":
        click.echo(_junit(report, fail_on))
    else:
        shown = report if output == "json" else _sarif(report)
        click.echo(msgspec.json.format(msgspec.json.encode(shown)).decode())
    for note in report.notes:
        click.echo(f"Note: {note}", err=True)
    click.echo(_summary(report), err=True)


def _text(report: LintReport) -> Iterator[str]:
    """Yield the findings for people and editors."""
    for each in _counted(report):
        color = "red" if each.level == "error" else "yellow"
        parts = [_object(each), each.field, each.message]
        text = ": ".join(part for part in parts if part)
        yield f"{each.file}:{each.line}: {click.style(each.level, fg=color, bold=True)}: {text} [{each.rule}]"
        if each.cure:
            yield f"    {each.cure}"


def _summary(report: LintReport) -> str:
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


def _sarif(report: LintReport) -> dict[str, Any]:
    """Return the findings in SARIF 2.1.0, those that are switched off as suppressed results."""
    rules = list(RULES.values())
    positions = {rule.name: position for position, rule in enumerate(rules)}
    driver = {
        "name": "respread lint",
        "version": __version__,
        "informationUri": _HOMEPAGE,
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
    return {
        "$schema": _SARIF_SCHEMA,
        "version": "2.1.0",
        "runs": [{"tool": {"driver": driver}, "columnKind": "utf16CodeUnits", "results": results}],
    }


def _sarif_result(each: LintFindingReport, position: int) -> dict[str, Any]:
    name = f"{each.kind}/{each.namespace}/{each.name}"
    place: dict[str, Any] = {
        "physicalLocation": {"artifactLocation": {"uri": _uri(each.file)}, "region": {"startLine": each.line}}
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
    if file == "standard input":
        return "stdin"
    path = Path(file)
    return path.as_uri() if path.is_absolute() else path.as_posix().replace("%", "%25").replace(" ", "%20")


def _junit(report: LintReport, fail_on: LintLevel) -> str:
    """Return the findings as a JUnit report: one test case per object with findings, and one for all that have none.

    Warnings are failures too with `--fail-on warning`, else they are in the case's output.
    """
    from xml.etree import ElementTree as Xml  # noqa: PLC0415 - rarely needed

    by_object: dict[tuple[str, str], list[LintFindingReport]] = {}
    for each in _counted(report):
        by_object.setdefault((each.file, _object(each) or each.file), []).append(each)
    cases: list[Xml.Element] = []
    for (file, name), findings in by_object.items():
        case = Xml.Element("testcase", classname=file, name=name, file=file, line=str(findings[0].line), time="0")
        failures = [each for each in findings if fail_on == "warning" or each.level == "error"]
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
