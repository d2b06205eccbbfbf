"""The rules of `respread lint`, and what they find."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final, Literal, TypeAlias

import msgspec

from respread.planning.audit.finding import AuditRule, PatchOperation

LintLevel: TypeAlias = Literal["error", "warning"]
"""`error`: the constraint, policy or file does not do what it says. `warning`: it will hurt in a rollout or outage."""
FieldPath: TypeAlias = tuple[str | int, ...]
"""A field of an object: `("spec", "containers", 0)`."""

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
    cure: str
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


def patch_of(path: FieldPath, value: object) -> tuple[PatchOperation, ...]:
    """Return the patch that sets a field whose parent exists. `add` replaces what is there."""
    return (PatchOperation("add", pointer(path), value),)
