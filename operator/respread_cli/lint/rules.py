"""The rules of `respread lint`, what they find, and which are off: by a file for all, by an annotation for one."""

from __future__ import annotations

import re
from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path as File
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

import msgspec
import yaml

from respread.api.structures import suggestion
from respread.planning.audit.finding import AuditRule, PatchOperation
from respread.program.command_line import CommandError
from respread_cli.lint.manifests import Manifest
from respread_cli.read.yaml_documents import FieldPath

LintLevel: TypeAlias = Literal["error", "warning"]
"""`error`: the constraint, policy or file does not do what it says. `warning`: it will hurt in a rollout or outage."""

_PART: Final = re.compile(r"\[([^\]]*)\]|([^.\[]+)")
ANNOTATION: Final = "respread.dev/lint-off"
"""Rules that are switched off for an object, separated by commas; `*` is all."""
SETTINGS_FILE: Final = ".respread-lint.yaml"
"""Read from the current folder if it is there."""
ALL: Final = "*"
RuleSetting: TypeAlias = Literal["error", "warning", "off"] | bool
"""A level, or `off`, which YAML reads as false."""
SPREAD: Final = "https://kubernetes.io/docs/concepts/scheduling-eviction/topology-spread-constraints/"
BUDGET: Final = "https://kubernetes.io/docs/tasks/run-application/configure-pdb/"
DISRUPTIONS: Final = "https://kubernetes.io/docs/concepts/workloads/pods/disruptions/"
OBJECTS: Final = "https://kubernetes.io/docs/concepts/overview/working-with-objects/"


class LintRule(msgspec.Struct, frozen=True):
    """What is looked for."""

    name: str
    level: LintLevel
    summary: str
    """What is wrong where the rule finds something, as a sentence."""
    docs: str
    """The page of the Kubernetes docs."""


class LintFinding(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that a rule found in an object."""

    rule: str
    field: FieldPath
    message: str
    """What is wrong, as sentences."""
    cure: str = ""
    """What to do, as a sentence; empty if the message says it."""
    patch: tuple[PatchOperation, ...] = ()
    """The smallest change of the object that cures it; empty if there is a choice, or no such change."""


_AUDIT: Final[Mapping[AuditRule, str]] = {
    AuditRule.CONTRADICTION: "No placement of the pods meets the constraint and another one, or their affinity.",
    AuditRule.DUPLICATE: "Another constraint of the pods, or their anti-affinity, already does what this one does.",
    AuditRule.KEY_PER_POD: "A label in matchLabelKeys differs between the pods, so each counts only itself.",
    AuditRule.MIN_DOMAINS_IGNORED: "minDomains has no effect with ScheduleAnyway.",
    AuditRule.NO_ELIGIBLE_NODE: "No node counts for the constraint.",
    AuditRule.ONE_DOMAIN: "The pods can only run in one domain, so there is nothing to spread over.",
    AuditRule.SELECTOR_MATCHES_NOTHING: "The constraint counts no pod, so it spreads none.",
    AuditRule.SELECTOR_MISSES_OWN_PODS: "The labelSelector matches none of the pods that have the constraint.",
    AuditRule.SKEW_UNREACHABLE: "maxSkew is at least the number of pods, so the constraint is never violated.",
    AuditRule.TOO_FEW_DOMAINS: "There are fewer domains than minDomains, so pods stay Pending.",
    AuditRule.UNAVAILABLE_DOMAINS: "Domains that can't take the pods count, so pods stay Pending.",
    AuditRule.UNKNOWN_TOPOLOGY_KEY: "No node of the cluster has the topologyKey.",
}
"""The rules of the audit that apply to manifests: constraints that are ineffective or unsatisfiable."""
_RULES: Final = (
    LintRule(
        "Unreadable", "error", "The file is not YAML, or an object has a field that the API server rejects.", OBJECTS
    ),
    LintRule("InvalidPolicy", "error", "A RebalancePolicy or ClusterRebalancePolicy has a mistake.", OBJECTS),
    LintRule(
        "RejectedConstraint",
        "error",
        "The API server rejects the topology spread constraint.",
        f"{SPREAD}#topologyspreadconstraints-field",
    ),
    *(LintRule(rule.value, "error", summary, rule.docs) for rule, summary in _AUDIT.items()),
    LintRule(
        "MissingMatchLabelKeys",
        "warning",
        "During a rollout the constraint counts the old pods too, so the new ones are spread unevenly.",
        f"{SPREAD}#topologyspreadconstraints-field",
    ),
    LintRule(
        "MissingNodeTaintsPolicy",
        "warning",
        "A domain whose nodes are all cordoned or tainted still counts, so pods stay Pending.",
        f"{SPREAD}#topologyspreadconstraints-field",
    ),
    LintRule(
        "ZoneAndHostname",
        "warning",
        "DoNotSchedule for zones and for nodes at once leaves pods Pending when the nodes of a zone are full.",
        f"{SPREAD}#example-multiple-topologyspreadconstraints",
    ),
    LintRule(
        "NoDisruptionBudget",
        "warning",
        "No PodDisruptionBudget limits how many of the pods are evicted at once.",
        DISRUPTIONS,
    ),
    LintRule(
        "BudgetAllowsNothing",
        "warning",
        "The PodDisruptionBudget never allows an eviction, so nodes can't be drained.",
        BUDGET,
    ),
    LintRule(
        "BudgetSelectsNothing",
        "warning",
        "The PodDisruptionBudget has no selector, or an invalid one, and protects no pod.",
        BUDGET,
    ),
    LintRule(
        "SeveralBudgets",
        "warning",
        "Two PodDisruptionBudgets select the same pods. The API server refuses to evict such pods.",
        BUDGET,
    ),
    LintRule("UnknownRule", "warning", "An annotation switches off a rule that does not exist.", OBJECTS),
)

RULES: Final[Mapping[str, LintRule]] = MappingProxyType({rule.name: rule for rule in _RULES})
"""By name, errors first."""


def parse_path(text: str) -> FieldPath:
    """Return a field as a path: `spec.containers[0].resources.requests[cpu]`."""
    parts: list[str | int] = []
    for inner, outer in _PART.findall(text):
        parts.append(int(inner) if inner.isdecimal() else inner or outer)
    return tuple(parts)


def path_text(path: FieldPath) -> str:
    """Return a field as kubectl writes it: `spec.template.spec.containers[0].name`."""
    text = ""
    for part in path:
        if isinstance(part, int) or "." in part or "/" in part:
            text += f"[{part}]"
        else:
            text += f".{part}" if text else part
    return text


def pointer(path: FieldPath) -> str:
    """Return a field as a JSON pointer (RFC 6901): `/spec/template/metadata/labels/example.com~1tier`."""
    return "".join(f"/{str(part).replace('~', '~0').replace('/', '~1')}" for part in path)


class Ignored(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Objects for which rules are switched off. Empty fields select all."""

    rules: tuple[str, ...]
    reason: str = ""
    """For readers of the file and of the SARIF log."""
    kind: str = ""
    namespace: str = ""
    name: str = ""
    file: str = ""

    def covers(self, rule: str, manifest: Manifest) -> bool:
        """Return whether it switches off a rule for an object. Patterns are as in a shell: `legacy-*`."""
        return (ALL in self.rules or rule in self.rules) and all(
            not pattern or fnmatchcase(value, pattern)
            for pattern, value in (
                (self.kind, manifest.kind),
                (self.namespace, manifest.namespace),
                (self.name, manifest.name),
                (self.file, manifest.file),
            )
        )


class Settings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The content of a settings file."""

    rules: dict[str, RuleSetting] = {}
    ignore: tuple[Ignored, ...] = ()

    def level(self, rule: str) -> LintLevel | None:
        """Return the level of a rule, None if it is off."""
        setting = self.rules.get(rule, RULES[rule].level)
        if isinstance(setting, bool):
            return RULES[rule].level if setting else None
        return None if setting == "off" else setting

    def ignored(self, rule: str, manifest: Manifest) -> Ignored | None:
        """Return why a rule is switched off for an object; None if it is not."""
        return next((each for each in self.ignore if each.covers(rule, manifest)), None)


def read_settings(file: str | None) -> Settings:
    """Return the settings of a file. None is `.respread-lint.yaml` in the current folder, if it is there.

    Raises:
        CommandError: it can't be read, or names a rule that does not exist.
    """
    if file is None and not File(SETTINGS_FILE).exists():
        return Settings()
    path = file or SETTINGS_FILE
    try:
        content = yaml.safe_load(File(path).read_text(encoding="utf-8"))
        settings = msgspec.convert({} if content is None else content, Settings)
    except (OSError, UnicodeDecodeError) as error:
        raise CommandError(f"{path} can't be read: {error}.") from error
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise CommandError(f"{path} holds no settings of respread lint: {error}.") from error
    named = (*settings.rules, *(rule for each in settings.ignore for rule in each.rules if rule != ALL))
    for rule in named:
        if rule not in RULES:
            raise CommandError(f"{path}: {unknown_rule(rule)}")
    return settings


def unknown_rule(rule: str) -> str:
    """Return a sentence that says that a rule does not exist."""
    return f"there is no rule {rule}{suggestion(rule, RULES)}. `respread lint --rules` lists them."


def switched_off(manifest: Manifest) -> tuple[frozenset[str], list[LintFinding]]:
    """Return the rules that an object's annotation switches off, and its mistakes.

    The annotation may also be on the pod template.
    """
    rules: set[str] = set()
    findings: list[LintFinding] = []
    for metadata in (("metadata",), ("spec", "template", "metadata")):
        annotations = manifest.at((*metadata, "annotations"))
        value = annotations.get(ANNOTATION) if isinstance(annotations, Mapping) else None
        for rule in str(value or "").replace(",", " ").split():
            if rule in RULES or rule == ALL:
                rules.add(rule)
            else:
                message = f"It switches off a rule that does not exist: {unknown_rule(rule)}"
                field = (*metadata, "annotations", ANNOTATION)
                findings.append(LintFinding(rule="UnknownRule", field=field, message=message))
    return frozenset(RULES) if ALL in rules else frozenset(rules), findings
