"""The result of `respread plan` as values. They are the JSON and YAML output, and the tables are made from them.

docs/cli.md describes every field.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from typing import Literal

import msgspec

from respread.api.policy import WhenUnsatisfiable
from respread.api.reasons import Reason
from respread.cluster.selectors import Selector
from respread.planning.audit.auditor import Auditor
from respread.planning.audit.finding import state_of
from respread.planning.plan import BlockedGroup, Move, Plan
from respread.spread.group import GroupKey, SpreadGroup
from respread.spread.index import Spread
from respread_cli.report.pending_pods import pending_pods, waiting_pods
from respread_cli.report.planned import PaceReport, Planned, PolicyReport
from respread_cli.report.skew_report import (
    API_VERSION,
    GroupReport,
    PendingPods,
    WorkloadReference,
    group_report,
    has_pods_with,
)
from respread_cli.report.target import Target


class HelpedConstraint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A violated constraint that a move helps."""

    topology_key: str
    when_unsatisfiable: WhenUnsatisfiable
    max_skew: int
    selector: str
    skew: int
    """Before any of the moves."""
    from_domain: str
    to_domains: tuple[str, ...]
    """Where the replacement may land, sorted."""


class MoveReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One eviction."""

    wave: int
    """The moves of wave 1 can be made now, at the same time. Later ones wait until earlier replacements are placed."""
    namespace: str
    pod: str
    workload: WorkloadReference
    node: str
    policy: str
    constraints: tuple[HelpedConstraint, ...]
    feasible_nodes: int
    """The number of nodes on which the replacement may land."""
    certain: bool
    """Whether it helps whichever of these nodes the scheduler picks, or only on those that its score makes likely."""
    waits_for: str | None
    """Why the first move of a constraint is not in wave 1: pods that need room too, budgets, limits."""


class PlannedGroup(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A selected group that is violated or that the moves change, and its prediction."""

    group: GroupReport
    policy: str
    skew_after: int
    violated_after: bool
    counts_after: dict[str, int]
    """As `group.counts`, a prediction."""


class BlockedReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A selected group that stays violated, and why."""

    group: GroupReport
    policy: str
    reason: Reason
    message: str


class PlanReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The moves that would restore the spread in their order, and what they leave."""

    api_version: str = API_VERSION
    kind: Literal["PlanReport"] = "PlanReport"
    source: str
    time: datetime
    notes: tuple[str, ...] = ()
    policies: tuple[PolicyReport, ...]
    default_policy: bool
    """Whether there is no policy in the cluster, so that a default one is used."""
    selected: int
    """How many groups the policies restore."""
    violated: int
    """How many of them are violated now."""
    violated_unselected: int
    """The number of violated groups that no policy restores."""
    evictions: int
    lower_bound: int | None
    """No plan that leaves as few violations has fewer moves; null if only a part of the plan is shown."""
    pace: PaceReport
    """How long the evictions that are shown take."""
    moves: tuple[MoveReport, ...]
    groups: tuple[PlannedGroup, ...]
    blocked: tuple[BlockedReport, ...]
    pending: tuple[PendingPods, ...] = ()
    """Pods that have the constraint of a group and no node, which no eviction helps."""
    unsatisfiable: int = 0
    """The number of groups that keep pods Pending, now or at the next rollout or scale-up, whoever restores them."""
    ineffective: int = 0
    """The number of groups that can't change where pods go."""

    def names(self) -> Iterator[str]:
        """Yield the pods that are evicted, in their order."""
        return (f"pod/{move.pod}" for move in self.moves)


def plan_report(
    planned: Planned, *, namespace: str | None, selector: Selector | None, target: Target | None
) -> PlanReport:
    """Return a plan for the output.

    Args:
        planned: the plan, and what it was made from.
        namespace: show only what concerns this one; None for all.
        selector: show only what concerns pods with such labels; None for all.
        target: show only what concerns these; None for all.
    """
    plan, groups, origin = planned.plan, planned.spread.groups, planned.origin

    def shown(key: GroupKey) -> bool:
        return (
            namespace in {None, key.namespace}
            and has_pods_with(groups[key], selector)
            and (target is None or target.concerns(groups[key], plan))
        )

    def move_shown(move: Move) -> bool:
        return (
            namespace in {None, move.pod.namespace}
            and (selector is None or selector.matches(move.pod.labels))
            and (target is None or target.has_moved(move))
        )

    findings = Auditor().update(planned.view.snapshot, planned.spread, planned.predictor)
    states = Counter(
        state_of(violated=groups[key].violated, blocked=None, findings=[each.finding for each in found])
        for key, found in findings.items()
        if shown(key)
    )
    violated = [key for key, group in groups.items() if group.violated and shown(key)]
    selected = [key for key in plan.policies if shown(key)]
    moves = list(filter(move_shown, plan.moves))
    touched = sorted((key for key in selected if key in plan.counts_after or groups[key].violated), key=str)
    waiting = waiting_pods(planned.view.snapshot, (group for key, group in groups.items() if shown(key)))
    return PlanReport(
        source=origin.source,
        time=origin.time,
        notes=origin.notes,
        policies=planned.reports,
        default_policy=planned.default_policy,
        selected=len(selected),
        violated=sum(key in plan.policies for key in violated),
        violated_unselected=sum(key not in plan.policies for key in violated),
        evictions=len(moves),
        lower_bound=plan.lower_bound if namespace is None and selector is None and target is None else None,
        pace=planned.pace(moves),
        moves=tuple(move_report(move, planned.spread) for move in moves),
        groups=tuple(_planned(groups[key], plan) for key in touched),
        blocked=tuple(_blocked(each, groups[each.group]) for each in plan.blocked if shown(each.group)),
        pending=pending_pods(waiting, planned.predictor),
        unsatisfiable=states["Unsatisfiable"],
        ineffective=states["Ineffective"],
    )


def _blocked(blocked: BlockedGroup, group: SpreadGroup) -> BlockedReport:
    return BlockedReport(
        group=group_report(group), policy=blocked.policy, reason=blocked.reason, message=blocked.message
    )


def move_report(move: Move, spread: Spread) -> MoveReport:
    """Return the report of a move of a plan for these spread groups."""
    return MoveReport(
        wave=move.wave + 1,
        namespace=move.pod.namespace,
        pod=move.pod.name,
        workload=WorkloadReference(move.workload.kind, move.workload.name),
        node=move.pod.node_name,
        policy=move.policy,
        constraints=tuple(
            HelpedConstraint(
                topology_key=key.topology_key,
                when_unsatisfiable=key.when_unsatisfiable,
                max_skew=key.max_skew,
                selector=str(key.selector),
                skew=spread.groups[key].skew,
                from_domain=source,
                to_domains=targets,
            )
            for key, source, targets in zip(move.groups, move.from_domains, move.to_domains, strict=True)
        ),
        feasible_nodes=move.nodes,
        certain=move.certain,
        waits_for=None if move.waits is None else move.waits.message,
    )


def _planned(group: SpreadGroup, plan: Plan) -> PlannedGroup:
    after = group_after(group, plan)
    return PlannedGroup(
        group=group_report(group),
        policy=plan.policies[group.key],
        skew_after=after.skew,
        violated_after=after.violated,
        counts_after=after.counts,
    )


def group_after(group: SpreadGroup, plan: Plan) -> GroupReport:
    """Return how a group is spread after a plan's moves, a prediction: with all domains that are shown before it."""
    counts: Mapping[str, int] = plan.counts_after.get(group.key, group.counts)
    occupied = {domain: count for domain, count in counts.items() if count}
    after = group_report(msgspec.structs.replace(group, counts=occupied))
    domains = group_report(group).counts.keys() | occupied.keys()
    return msgspec.structs.replace(after, counts={domain: counts.get(domain, 0) for domain in sorted(domains)})
