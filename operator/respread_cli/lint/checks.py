"""What is wrong with the topology spread constraints and PodDisruptionBudgets of manifests.

Of constraints it is what the audit says, and what manifests show.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from math import ceil
from typing import Final

import msgspec

from respread.cluster.decode.decoder import Decoder
from respread.cluster.objects import PodDisruptionBudget
from respread.cluster.pod import TopologySpreadConstraint
from respread.cluster.selectors import compile_selector
from respread.planning.audit.finding import PatchOperation
from respread.planning.audit.rules import judge, only_value
from respread.planning.audit.subject import KnownNodes, Subject, subjects_of
from respread.scheduling.filters.topology_spread_score import HOSTNAME
from respread.spread.group import template_of
from respread_cli.lint.manifests import Manifest
from respread_cli.lint.rules import LintFinding, pointer
from respread_cli.lint.workloads import CONSTRAINTS, PodTemplate, decoded_by

ZONE_LABELS: Final = ("topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone")
_SEVERAL: Final = 2


class _Constraint(msgspec.Struct, frozen=True, kw_only=True):
    """A constraint, and where it is."""

    template: PodTemplate
    position: int
    value: TopologySpreadConstraint
    subject: Subject

    def finding(self, rule: str, field: str, message: str, cure: str, value: object = None) -> LintFinding:
        """Return a finding in one of its fields.

        The field is empty for the constraint itself. `value` is the value of the field that cures it; None if there is
        a choice.
        """
        path = self.template.constraint_path(self.position)
        path = (*path, field) if field else path
        patch = () if value is None else (PatchOperation("add", pointer(path), value),)  # which replaces what is there
        return LintFinding(rule=rule, field=path, message=message, cure=cure, patch=patch)

    @property
    def hard(self) -> bool:
        """Whether no pod is scheduled against it."""
        return self.value.when_unsatisfiable == "DoNotSchedule"


def check_constraints(
    template: PodTemplate, others: Sequence[PodTemplate], nodes: KnownNodes | None
) -> Iterator[LintFinding]:
    """Yield what is wrong with the constraints of a pod template.

    `others` are all templates of its namespace, itself included, for how many pods a selector matches. Nodes are None
    if not known.
    """
    own = template.pod.spec.topology_spread_constraints
    subjects = subjects_of(template.pod.namespace, template_of(template.pod), nodes, template.pods)
    constraints = [
        _Constraint(template=template, position=position, value=value, subject=_with_others(subject, template, others))
        for position, (value, subject) in enumerate(zip(own, subjects, strict=True))
    ]
    for each in constraints:
        if rejected := list(_rejected(each, constraints)):
            yield from rejected
        elif (found := _audited(each) or _in_one_domain(each)) is not None:
            yield found
        else:
            yield from _hurting(each, constraints)


def _with_others(subject: Subject, template: PodTemplate, others: Sequence[PodTemplate]) -> Subject:
    """Return a constraint with the pods of all workloads that it counts."""
    selector = subject.key.selector
    counted = {each.identity: each.pods for each in others if selector.matches(each.pod.labels)}
    if not counted.keys() - {template.identity}:
        return subject
    numbers = (counted | {template.identity: subject.pods}).values()
    pods = None if None in numbers else sum(each or 0 for each in numbers)
    return msgspec.structs.replace(subject, pods=pods, only_own=False)


def _rejected(constraint: _Constraint, all_of_them: Sequence[_Constraint]) -> Iterator[LintFinding]:
    """Mirrors `validateTopologySpreadConstraints` of pkg/apis/core/validation, beyond what decoding checks."""
    value, reject = constraint.value, partial(constraint.finding, "RejectedConstraint")
    for other in all_of_them[: constraint.position]:
        if (other.value.topology_key, other.value.when_unsatisfiable) == (value.topology_key, value.when_unsatisfiable):
            yield reject(
                "",
                f"The API server rejects it: topologySpreadConstraints[{other.position}] has the same topologyKey and "
                "whenUnsatisfiable.",
                "Remove one of the two.",
            )
    if value.min_domains is not None and not constraint.hard:
        yield reject(
            "minDomains",
            "The API server rejects it: minDomains needs whenUnsatisfiable DoNotSchedule.",
            "Remove minDomains.",
        )
    if (twice := _selected_twice(constraint)) is not None:
        yield reject(
            "matchLabelKeys",
            f"The API server rejects the pods: {twice} is in matchLabelKeys and in labelSelector.",
            "Remove it from one of the two.",
        )
    if value.match_label_keys and value.label_selector is None:
        yield reject(
            "matchLabelKeys",
            "The API server rejects it: matchLabelKeys needs a labelSelector.",
            "Add a labelSelector that matches the pods.",
        )


def _selected_twice(constraint: _Constraint) -> str | None:
    """Return a label that is in matchLabelKeys and in the selector.

    The API server adds a requirement to the selector of each pod for each key, and refuses two. So a pod that it has
    stored has one.
    """
    selector = constraint.value.label_selector
    if selector is None or not constraint.template.path:
        return None
    selected = {*selector.match_labels, *(each.key for each in selector.match_expressions)}
    return next((key for key in constraint.value.match_label_keys if key in selected), None)


def _audited(constraint: _Constraint) -> LintFinding | None:
    """Return what the audit finds."""
    found = judge(constraint.subject)
    if found is None:
        return None
    template = constraint.template
    prefix = pointer(template.spec_path)
    own = f"/{CONSTRAINTS}/{constraint.position}/"
    fields = [each.path.removeprefix(own) for each in found.patch if each.op != "test" and each.path.startswith(own)]
    path = template.constraint_path(constraint.position)
    return LintFinding(
        rule=found.rule.value,
        field=(*path, fields[0]) if fields else path,
        message=_sentence(found.message),
        cure=_sentence(found.cure),
        patch=tuple(msgspec.structs.replace(each, path=prefix + each.path) for each in found.patch),
    )


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}."


def _in_one_domain(constraint: _Constraint) -> LintFinding | None:
    """Return why most pods of a template that names one domain stay Pending, if the nodes are not known."""
    value, subject, pods = constraint.value, constraint.subject, constraint.template.pods
    spec, key = constraint.template.pod.spec, value.topology_key
    domain = spec.node_selector.get(key, only_value(spec.node_affinity, key))
    too_many = pods is None or pods > value.max_skew
    if domain is None or subject.nodes is not None or not constraint.hard or not too_many:
        return None
    where = f"The pods may only run where {value.topology_key} is {domain}"
    then = f"all pods after the first {'' if value.max_skew == 1 else value.max_skew}".rstrip() + " stay Pending."
    if value.node_affinity_policy == "Ignore":
        return constraint.finding(
            "UnavailableDomains",
            "nodeAffinityPolicy",
            f"{where}, and nodeAffinityPolicy: Ignore counts the other domains, which stay empty, so {then}",
            "Remove nodeAffinityPolicy: Ignore.",
            "Honor",
        )
    if (value.min_domains or 1) > 1:
        return constraint.finding(
            "TooFewDomains",
            "minDomains",
            f"{where}, and minDomains is {value.min_domains}, so {then}",
            "Remove minDomains, or let the pods run in more domains.",
        )
    return None


def _hurting(constraint: _Constraint, all_of_them: Sequence[_Constraint]) -> Iterator[LintFinding]:
    """Yield what will hurt in a rollout, or when nodes are cordoned."""
    value, template = constraint.value, constraint.template
    label, pods = template.revision_label, template.pods
    if label is not None and label not in value.match_label_keys and (pods is None or pods >= _SEVERAL):
        yield constraint.finding(
            "MissingMatchLabelKeys",
            "matchLabelKeys",
            "During a rollout it counts the old pods too, so the new ones are uneven when the old ones are gone.",
            f"Add matchLabelKeys: [{', '.join((*value.match_label_keys, label))}].",
            [*value.match_label_keys, label],
        )
    if not constraint.hard:
        return
    if value.node_taints_policy == "Ignore":
        a_domain = "node that is" if value.topology_key == HOSTNAME else "domain whose nodes are all"
        yield constraint.finding(
            "MissingNodeTaintsPolicy",
            "nodeTaintsPolicy",
            f"A {a_domain} cordoned or tainted still counts, as a domain that stays empty, so new pods stay Pending.",
            "Add nodeTaintsPolicy: Honor.",
            "Honor",
        )
    hard_keys = {each.value.topology_key for each in all_of_them if each.hard}
    if value.topology_key == HOSTNAME and hard_keys.intersection(ZONE_LABELS):
        yield constraint.finding(
            "ZoneAndHostname",
            "whenUnsatisfiable",
            "Zones and nodes are both DoNotSchedule: if the nodes of a zone are full, its share of the pods stays "
            "Pending, although other zones have room.",
            f"Set whenUnsatisfiable: ScheduleAnyway for {HOSTNAME}.",
            "ScheduleAnyway",
        )


class Budget(msgspec.Struct, frozen=True):
    """A PodDisruptionBudget, of a manifest or of the cluster."""

    budget: PodDisruptionBudget
    manifest: Manifest | None = None

    def selects(self, template: PodTemplate) -> bool:
        """Return whether it selects the pods of a template."""
        pod = template.pod
        return self.budget.namespace == pod.namespace and compile_selector(self.budget.selector).matches(pod.labels)


def is_budget(manifest: Manifest) -> bool:
    """Return whether a manifest is a PodDisruptionBudget."""
    return (manifest.group, manifest.kind) == ("policy", "PodDisruptionBudget")


def read_budget(manifest: Manifest, decoder: Decoder) -> Budget | LintFinding:
    """Return a manifest's budget, or what the API server would reject in it."""
    wire = {"metadata": {"name": manifest.name, "namespace": manifest.namespace}, "spec": manifest.at(("spec",)) or {}}
    budget = decoded_by(decoder, "poddisruptionbudgets", wire, ())
    if isinstance(budget, LintFinding):
        return budget
    assert isinstance(budget, PodDisruptionBudget)  # noqa: S101 - the decoder of budgets
    return Budget(budget, manifest)


def check_budget(budget: Budget, templates: Sequence[PodTemplate], others: Sequence[Budget]) -> Iterator[LintFinding]:
    """Yield what is wrong with a budget of a manifest. `others` are all budgets, itself included."""
    selected = [each for each in templates if budget.selects(each)]
    if budget.budget.selector is None:
        yield LintFinding(
            rule="BudgetSelectsNothing",
            field=("spec", "selector"),
            message="It has no selector, so it protects no pod.",
            cure="Add a selector that matches the pods, or {} for all pods of the namespace.",
        )
        return
    counts = [each.pods for each in selected]
    pods = None if None in counts or not counts else sum(each or 0 for each in counts)
    if (why := _allows_nothing(budget.budget, pods)) is not None:
        field, message = why
        yield LintFinding(
            rule="BudgetAllowsNothing",
            field=("spec", field),
            message=f"{message}: no pod can be evicted, so drains of nodes wait for ever.",
            cure="Use maxUnavailable: 1.",
        )
    for other in others:
        if other.budget.key == budget.budget.key:
            continue  # Itself, or as another file has it, such as of another environment.
        if (both := next((each for each in selected if other.selects(each)), None)) is not None:
            yield LintFinding(
                rule="SeveralBudgets",
                field=("spec", "selector"),
                message=f"The pods of {both.manifest.kind} {both.manifest.name} also have the PodDisruptionBudget "
                f"{other.budget.name}. The API server refuses to evict pods with two.",
                cure="Keep one of the two, or narrow a selector.",
            )


def _allows_nothing(budget: PodDisruptionBudget, pods: int | None) -> tuple[str, str] | None:
    """Return the field because of which a budget never allows an eviction, and why; None if it may allow one.

    `pods` is how many it selects when all are healthy; None if unknown.
    """
    if (most := budget.max_unavailable) is not None:
        amount = _amount(most, 100 if pods is None else pods)
        return ("maxUnavailable", f"maxUnavailable is {most}") if amount is not None and amount <= 0 else None
    least = 1 if budget.min_available is None else budget.min_available
    amount = _amount(least, 100 if pods is None else pods)
    if amount is None or (pods is None and isinstance(least, int)):
        return None
    if pods is None:
        return ("minAvailable", f"minAvailable is {least}") if amount >= 100 else None  # noqa: PLR2004 - per cent
    if not pods or amount < pods:
        return None
    return "minAvailable", f"minAvailable is {least}, and there {'is 1 pod' if pods == 1 else f'are {pods} pods'}"


def _amount(value: int | str, pods: int) -> int | None:
    """Return a number of pods; a percentage is rounded up, as the disruption controller does. None if it is neither."""
    if isinstance(value, int):
        return value
    number = value.removesuffix("%")
    return ceil(int(number) * pods / 100) if number.isdecimal() and number != value else None


def check_protection(template: PodTemplate, budgets: Sequence[Budget]) -> Iterator[LintFinding]:
    """Yield a finding for pods that are spread over domains, but can all be evicted at once."""
    hard = any(each.when_unsatisfiable == "DoNotSchedule" for each in template.pod.spec.topology_spread_constraints)
    single = template.pods is not None and template.pods < _SEVERAL
    if hard and template.serves and not single and not any(each.selects(template) for each in budgets):
        yield LintFinding(
            rule="NoDisruptionBudget",
            field=template.constraint_path(0)[:-1],
            message="The pods must be spread, but no PodDisruptionBudget selects them: drains and evictions may take "
            "all of them at once.",
            cure="Add a PodDisruptionBudget with maxUnavailable: 1.",
        )
