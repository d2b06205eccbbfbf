"""The result of `respread explain` as values. They are the JSON and YAML output, and the text is made from them.

docs/cli.md describes every field.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import Final, Literal

import msgspec

from respread.api.policy import Policy
from respread.api.reasons import Reason
from respread.api.status import MAX_WORKLOADS, AffectedWorkload, ConditionStatus, ConditionType, Violation
from respread.cluster.meta import Labels
from respread.cluster.pod import Pod, workload_of
from respread.planning.audit.auditor import Auditor, WorkloadFinding
from respread.spread.group import SpreadGroup, ineligible_nodes
from respread_cli.read.cluster_view import ReadCluster
from respread_cli.report.explaining import DomainReport, Explainer, Fate, remedy_of
from respread_cli.report.plan_report import MoveReport, group_after, move_report
from respread_cli.report.planned import Planned, PolicyReport
from respread_cli.report.scale_downs import ScaleDownReport, scale_down_reports
from respread_cli.report.skew_report import MOST_EMPTY_DOMAINS, ClusterReport, GroupReport, group_report
from respread_cli.report.target import Target, WorkloadReference

_NODES_NAMED: Final = 3


class ExplainedPolicy(PolicyReport, frozen=True, kw_only=True, rename="camel"):
    """A policy, and what the operator reports about it."""

    conditions: tuple[ConditionReport, ...]
    """None if the operator has not seen the current generation, or does not run."""


class IneligibleReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Nodes that the scheduler does not count for a constraint."""

    domain: str | None
    """Their value of the topology key; null without the label."""
    why: str
    nodes: int
    examples: tuple[str, ...]
    """Some of their names."""


class ConstraintReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One constraint, and the effect of the plan."""

    group: GroupReport
    policy: str | None
    """The policy that restores it."""
    counts_own_pods: bool
    """Whether its selector matches the pods that have it. If not, it does not spread them."""
    evictions: int
    """How many moves of the plan help it."""
    skew_after: int
    violated_after: bool
    counts_after: dict[str, int]
    """As `group.counts`, a prediction."""
    reason: Reason | None
    """Why it is not, or not fully, restored; null if it is."""
    message: str | None
    remedy: str | None
    """What a user can do about it, in a few words; null if it is restored."""
    operator: OperatorWord | None
    """What the operator reports; null if nothing."""
    domains: tuple[DomainReport, ...]
    """By name; without empty ones if `group.counts` omits them."""
    ineligible: tuple[IneligibleReport, ...]


class CandidateReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A pod that a constraint counts, or that has one, and why it moves or stays."""

    namespace: str
    pod: str
    workload: WorkloadReference
    node: str | None
    policy: str | None
    """The policy that governs it."""
    too_full_domains: tuple[str, ...]
    """Its domains with too many pods of a violated constraint."""
    fate: Fate
    reason: Reason | None
    message: str
    move: MoveReport | None


class ExplainReport(ClusterReport, frozen=True, kw_only=True, rename="camel"):
    """The result for everything that was requested."""

    kind: Literal["ExplainReport"] = "ExplainReport"
    subjects: tuple[str, ...]
    """What is explained, such as `deploy/web in shop`."""
    policies: tuple[ExplainedPolicy, ...]
    """The policies that govern the pods, or were requested."""
    default_policy: bool
    """Whether there is no policy in the cluster, so that a default one is used."""
    violated: int
    """The number of violated constraints."""
    constraints: tuple[ConstraintReport, ...]
    others_that_hold: int
    """How many more constraints of the policy hold and are not listed."""
    pods: tuple[CandidateReport, ...]
    """First those that move, in the plan's order, then those that stay in a domain that is too full."""
    scale_downs: tuple[ScaleDownReport, ...]

    def names(self) -> Iterator[str]:
        """Yield the pods that are explained."""
        return (f"pod/{pod.pod}" for pod in self.pods)


def explain_report(planned: Planned, target: Target) -> ExplainReport:
    """Return what a plan does with the requested objects."""
    view, spread = planned.view, planned.spread
    explainer = Explainer(planned)
    groups = _groups_of(planned, target)
    findings = Auditor().update(view.snapshot, spread, planned.predictor)
    shown = groups
    if not target.pods:
        shown = [each for each in groups if each.violated or each.key in findings or explainer.why_not_restored(each)]
    pods = _pods_of(planned, target, shown)
    workloads = target.workloads or sorted({name for group in shown for name in group.workloads})
    governing = {policy.name for pod in pods if (policy := explainer.policy_of(pod)) is not None}
    names = governing | {policy.name for policy in target.policies}
    return ExplainReport(
        source=view.source,
        time=view.time,
        notes=view.notes,
        subjects=tuple(_subjects(target)),
        policies=tuple(
            ExplainedPolicy(**msgspec.structs.asdict(report), conditions=conditions_of(policy, view))
            for policy, report in zip(planned.setting.policies, planned.reports, strict=True)
            if report.name in names
        ),
        default_policy=planned.default_policy,
        violated=sum(group.violated for group in shown),
        constraints=tuple(_constraint(planned, explainer, group, findings.get(group.key, ())) for group in shown),
        others_that_hold=len(groups) - len(shown),
        pods=tuple(_candidates(planned, explainer, pods, shown)),
        scale_downs=scale_down_reports(view, spread, planned.governing, workloads),
    )


def _subjects(target: Target) -> Iterable[str]:
    if target.policies:
        return (f"policy {policy.name}" for policy in target.policies)
    if target.whole_workloads:
        return (f"{WorkloadReference.of(name)} in {name.namespace}" for name in target.workloads)
    return (f"pod/{pod.name} in {pod.namespace}" for pod in target.pods)


def _groups_of(planned: Planned, target: Target) -> list[SpreadGroup]:
    """Return the groups that the requested pods have or that count them, or that the requested policies restore."""
    found = (group for group in planned.spread.groups.values() if target.concerns(group, planned.plan))
    return sorted(found, key=lambda group: (not group.violated, str(group.key)))


def _pods_of(planned: Planned, target: Target, groups: Iterable[SpreadGroup]) -> list[Pod]:
    """Return the pods to show: the requested ones, and all that the groups count."""
    found = {pod.key: pod for pod in target.pods}
    if target.whole_workloads:
        for group in groups:
            for pods in _pods_with(planned, group, group.matched):
                found.update({pod.key: pod for pod in pods if not pod.finished})
    return [found[key] for key in sorted(found)]


def _pods_with(planned: Planned, group: SpreadGroup, label_sets: Iterable[Labels]) -> Iterator[Iterable[Pod]]:
    """Yield the pods of a group's namespace that have each of some label sets."""
    if (by_labels := planned.view.snapshot.pods_by_labels.get(group.key.namespace)) is not None:
        yield from (by_labels[labels].values() for labels in label_sets if labels in by_labels)


def _constraint(
    planned: Planned, explainer: Explainer, group: SpreadGroup, findings: Sequence[WorkloadFinding]
) -> ConstraintReport:
    plan, view = planned.plan, planned.view
    after = group_after(group, plan)
    why = explainer.why_not_restored(group)
    many = len(group.domains.nodes) > MOST_EMPTY_DOMAINS
    domains = explainer.domains(group, _carriers(planned, group))
    return ConstraintReport(
        group=group_report(group, findings, blocked=why is not None),
        policy=plan.policies.get(group.key),
        counts_own_pods=any(template.labels in group.matched for template in group.carriers),
        evictions=sum(group.key in move.groups for move in plan.moves),
        skew_after=after.skew,
        violated_after=after.violated,
        counts_after=after.counts,
        reason=None if why is None else why.reason,
        message=None if why is None else why.message,
        remedy=None if why is None else remedy_of(why),
        operator=word_on(group, plan.policies.get(group.key), view),
        domains=tuple(each for each in domains if each.pods or not many),
        ineligible=tuple(
            IneligibleReport(
                domain=each.domain, why=each.why, nodes=len(each.nodes), examples=each.nodes[:_NODES_NAMED]
            )
            for each in ineligible_nodes(group, view.snapshot.nodes.values())
        ),
    )


def _carriers(planned: Planned, group: SpreadGroup) -> list[Pod]:
    """Return one pod of each template that has the constraint and is counted by it."""
    specs = {id(template.spec) for template in group.carriers if template.labels in group.matched}
    found: dict[int, Pod] = {}
    for pods in _pods_with(planned, group, [each.labels for each in group.carriers]):
        for pod in pods:
            if id(pod.spec) in specs:
                found.setdefault(id(pod.spec), pod)
    return list(found.values())


def _candidates(
    planned: Planned, explainer: Explainer, pods: Sequence[Pod], groups: Sequence[SpreadGroup]
) -> list[CandidateReport]:
    order = {move.pod.key: number for number, move in enumerate(planned.plan.moves)}
    counting: dict[tuple[str, Labels], list[SpreadGroup]] = {}
    for group in groups:
        for labels in group.matched:
            counting.setdefault((group.key.namespace, labels), []).append(group)
    found = []
    for pod in pods:
        report = _candidate(planned, explainer, pod, counting.get((pod.namespace, pod.labels), ()))
        found.append((order.get(pod.key, len(order)), report))
    found.sort(key=lambda each: (each[0], not each[1].too_full_domains, each[1].namespace, each[1].pod))
    return [report for _, report in found]


def _candidate(planned: Planned, explainer: Explainer, pod: Pod, counting: Sequence[SpreadGroup]) -> CandidateReport:
    (fate, why), policy, move = explainer.fate_of(pod, counting), explainer.policy_of(pod), explainer.move_of(pod)
    return CandidateReport(
        namespace=pod.namespace,
        pod=pod.name,
        workload=WorkloadReference.of(workload_of(pod)),
        node=pod.node_name or None,
        policy=None if policy is None else policy.name,
        too_full_domains=tuple(domain for group in counting if (domain := group.too_full(pod.node_name)) is not None),
        fate=fate,
        reason=None if isinstance(why, str) else why.reason,
        message=why if isinstance(why, str) else why.message,
        move=None if move is None else move_report(move, planned.spread),
    )


class ConditionReport(msgspec.Struct, frozen=True, kw_only=True):
    """A condition of a policy."""

    type: ConditionType | str
    status: ConditionStatus
    reason: str
    message: str


class OperatorWord(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Why the operator does not, or not fully, restore a constraint."""

    time: datetime | None
    """The time of the plan that it describes."""
    reason: str
    message: str


def conditions_of(policy: Policy, view: ReadCluster) -> tuple[ConditionReport, ...]:
    """Return the conditions of a policy for its current generation; none if the operator has not seen it yet."""
    status = view.statuses.get(policy.name)
    if status is None or policy not in view.policies or status.observed_generation != policy.generation:
        return ()
    return tuple(
        ConditionReport(type=each.type, status=each.status, reason=each.reason, message=each.message)
        for each in status.conditions
    )


def word_on(group: SpreadGroup, policy: str | None, view: ReadCluster) -> OperatorWord | None:
    """Return what the operator reports about a group, if it has a reason. A status contains only the worst 20."""
    status = None if policy is None else view.statuses.get(policy)
    if status is None:
        return None
    found = next((each for each in status.violations if each.reason and _is_about(each, group)), None)
    if found is None:
        return None
    return OperatorWord(time=status.last_plan_time, reason=found.reason, message=found.message)


def _is_about(violation: Violation, group: SpreadGroup) -> bool:
    key, constraint = group.key, violation.constraint
    named = tuple(AffectedWorkload(each.kind, each.name) for each in group.workloads[:MAX_WORKLOADS])
    return (violation.namespace, violation.workloads) == (key.namespace, named) and (
        constraint.topology_key,
        constraint.when_unsatisfiable,
        constraint.max_skew,
    ) == (key.topology_key, key.when_unsatisfiable, key.max_skew)
