"""Applies all rules to manifests."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from respread.api.decoding import NotAPolicyError, decode_manifest
from respread.api.policy import GROUP, PLURALS
from respread.cluster.decode.decoder import Decoder
from respread.cluster.state import ClusterSnapshot
from respread.planning.audit.finding import PatchOperation
from respread.planning.audit.subject import KnownNodes
from respread_cli.lint.checks import Budget, check_budget, check_constraints, check_protection, is_budget, read_budget
from respread_cli.lint.manifests import Manifest, Manifests
from respread_cli.lint.rules import RULES, LintFinding, LintLevel, Settings, parse_path, path_text, switched_off
from respread_cli.lint.workloads import PodTemplate, scaling_of, templates_of

API_VERSION: Final = "cli.respread.dev/v1"


class _Found(msgspec.Struct):
    """What manifests contain, and what is wrong with each."""

    templates: list[PodTemplate] = []
    budgets: list[Budget] = []
    policies: dict[tuple[str, str], Manifest] = {}
    findings: list[tuple[Manifest, LintFinding]] = []
    checked: set[int] = set()


def lint_manifests(
    manifests: Manifests, settings: Settings, *, default_namespace: str, cluster: ClusterSnapshot | None = None
) -> LintReport:
    """Return what is wrong with manifests.

    RebalancePolicies without a namespace are in the default one. They will be applied in the cluster, if that is known.
    """
    found = _Found()
    decoder = Decoder()
    scaling = scaling_of(manifests.objects)
    for manifest in manifests.objects:
        _read(manifest, found, default_namespace)
        for each in templates_of(manifest, scaling, decoder):
            found.checked.add(id(manifest))
            found.templates.append(each) if isinstance(each, PodTemplate) else found.findings.append((manifest, each))
        if is_budget(manifest):
            found.checked.add(id(manifest))
            budget = read_budget(manifest, decoder)
            found.budgets.append(budget) if isinstance(budget, Budget) else found.findings.append((manifest, budget))
    if cluster is not None:
        _add_budgets_of(cluster, found)
    _check(found, None if cluster is None else KnownNodes(cluster.nodes))
    reports = [*_unreadable(manifests, settings), *_reports(manifests.objects, found.findings, settings)]
    return _report(manifests, reports, len(found.checked))


def _read(manifest: Manifest, found: _Found, default_namespace: str) -> None:
    """Check a manifest if it is a policy, or one with a wrong apiVersion or kind."""
    if manifest.group != GROUP and manifest.kind not in PLURALS:
        return
    found.checked.add(id(manifest))
    try:
        policy = decode_manifest(manifest.content, default_namespace=default_namespace)
    except NotAPolicyError as error:
        found.findings.append((manifest, _policy_finding("", str(error))))
        return
    found.findings += [(manifest, _policy_finding(each.field, each.message)) for each in policy.problems]
    if (policy.kind, policy.name) in found.policies:
        found.findings.append((manifest, _policy_finding("", f"there is a {policy.kind} {policy.name} already")))
    found.policies[policy.kind, policy.name] = manifest


def _policy_finding(field: str, message: str) -> LintFinding:
    return LintFinding(rule="InvalidPolicy", field=parse_path(field), message=f"{message}.")


def _add_budgets_of(cluster: ClusterSnapshot, found: _Found) -> None:
    """Add the budgets of the cluster that the manifests do not replace."""
    given = {each.budget.key for each in found.budgets}
    for budgets in cluster.disruption_budgets.values():
        found.budgets += [Budget(each) for each in budgets.values() if each.key not in given]


def _check(found: _Found, nodes: KnownNodes | None) -> None:
    by_namespace: dict[str, list[PodTemplate]] = {}
    for template in found.templates:
        by_namespace.setdefault(template.pod.namespace, []).append(template)
    for template in found.templates:
        checks = (
            check_constraints(template, by_namespace[template.pod.namespace], nodes),
            check_protection(template, found.budgets),
        )
        found.findings += [(template.manifest, finding) for each in checks for finding in each]
    for budget in found.budgets:
        if budget.manifest is not None:
            checked = check_budget(budget, by_namespace.get(budget.budget.namespace, ()), found.budgets)
            found.findings += [(budget.manifest, finding) for finding in checked]


def _unreadable(manifests: Manifests, settings: Settings) -> Iterator[LintFindingReport]:
    level = settings.level("Unreadable")
    for each in manifests.unreadable:
        if level is not None:
            yield LintFindingReport(
                rule="Unreadable",
                level=level,
                file=each.file,
                line=each.line,
                message=each.message,
                docs=RULES["Unreadable"].docs,
            )


def _reports(
    objects: Sequence[Manifest], findings: Sequence[tuple[Manifest, LintFinding]], settings: Settings
) -> Iterator[LintFindingReport]:
    off: Mapping[int, frozenset[str]]
    off, mistakes = {}, []
    for manifest in objects:
        off[id(manifest)], unknown = switched_off(manifest)
        mistakes += [(manifest, each) for each in unknown]
    for manifest, finding in (*findings, *mistakes):
        level = settings.level(finding.rule)
        if level is None:
            continue
        ignored = settings.ignored(finding.rule, manifest)
        by_annotation = finding.rule in off[id(manifest)]
        yield LintFindingReport(
            rule=finding.rule,
            level=level,
            file=manifest.file,
            line=manifest.document.line(finding.field),
            kind=manifest.kind,
            namespace=manifest.namespace,
            name=manifest.name,
            field=path_text(finding.field),
            message=finding.message,
            cure=finding.cure,
            patch=finding.patch,
            docs=RULES[finding.rule].docs,
            switched_off_by="annotation" if by_annotation else "settings" if ignored is not None else None,
            reason=ignored.reason if ignored is not None else "",
        )


def _report(manifests: Manifests, reports: list[LintFindingReport], checked: int) -> LintReport:
    counted = [each for each in reports if each.switched_off_by is None]
    places = {each.file: number for number, each in reversed(list(enumerate(manifests.objects)))}
    return LintReport(
        notes=tuple(manifests.notes),
        checked=checked,
        skipped=len(manifests.objects) - checked,
        errors=sum(each.level == "error" for each in counted),
        warnings=sum(each.level == "warning" for each in counted),
        switched_off=len(reports) - len(counted),
        findings=tuple(sorted(reports, key=lambda each: (places.get(each.file, -1), each.file, each.line))),
        missing=tuple(manifests.missing),
    )


class LintFindingReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One thing that is wrong in an object."""

    rule: str
    level: LintLevel
    file: str
    """As given, or `standard input`."""
    line: int
    kind: str = ""
    """Of the object; empty if the document holds none."""
    namespace: str = ""
    name: str = ""
    field: str = ""
    """Empty for the object itself."""
    message: str
    cure: str = ""
    patch: tuple[PatchOperation, ...] = ()
    """A JSON patch of the object, empty if there is a choice."""
    docs: str
    switched_off_by: Literal["annotation", "settings"] | None = None
    """None unless the rule is switched off for the object; then the finding does not count."""
    reason: str = ""
    """Why, as the settings say."""


class LintReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What was found in all files."""

    api_version: str = API_VERSION
    kind: Literal["LintReport"] = "LintReport"
    notes: tuple[str, ...] = ()
    checked: int
    """How many objects a rule looked at."""
    skipped: int
    """How many objects are of kinds without rules."""
    errors: int
    warnings: int
    switched_off: int
    """How many of the findings are switched off."""
    findings: tuple[LintFindingReport, ...]
    """By file and line."""
    missing: tuple[str, ...] = ()
    """What could not be read at all, a sentence each."""
