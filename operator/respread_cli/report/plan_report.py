"""The result of `respread plan` as values. They are the JSON and YAML output, and the tables are made from them.

docs/cli.md describes every field.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import msgspec

from respread.api.policy import WhenUnsatisfiable
from respread.api.reasons import Reason
from respread.cluster.selectors import Selector
from respread.planning.audit.auditor import Auditor
from respread.planning.audit.finding import state_of
from respread.planning.plan import BlockedGroup, Move, Plan
from respread.program.command_line import CommandError
from respread.spread.group import GroupKey, SpreadGroup
from respread.spread.index import Spread
from respread_cli.report.planned import PaceReport, Planned, PolicyReport
from respread_cli.report.skew_report import (
    API_VERSION,
    ClusterReport,
    GroupReport,
    PendingPods,
    group_report,
    has_pods_with,
    pending_pods,
    waiting_pods,
)
from respread_cli.report.target import Target, WorkloadReference


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


class PlanReport(ClusterReport, frozen=True, kw_only=True, rename="camel"):
    """The moves that would restore the spread in their order, and what they leave."""

    kind: Literal["PlanReport"] = "PlanReport"
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

    It shows only what concerns the namespace, pods with labels that the selector matches, and the target; each is None
    for all.
    """
    view, plan, groups = planned.view, planned.plan, planned.spread.groups

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

    findings = Auditor().update(view.snapshot, planned.spread, planned.predictor)
    states = Counter(
        state_of(violated=groups[key].violated, blocked=None, findings=[each.finding for each in found])
        for key, found in findings.items()
        if shown(key)
    )
    violated = [key for key, group in groups.items() if group.violated and shown(key)]
    selected = [key for key in plan.policies if shown(key)]
    moves = list(filter(move_shown, plan.moves))
    touched = sorted((key for key in selected if key in plan.counts_after or groups[key].violated), key=str)
    waiting = waiting_pods(view.snapshot, (group for key, group in groups.items() if shown(key)))
    return PlanReport(
        source=view.source,
        time=view.time,
        notes=view.notes,
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
        workload=WorkloadReference.of(move.workload),
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


class ConstraintState(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A constraint in one of the plans."""

    violated: bool
    skew: int
    max_skew: int
    evictions: int
    """How many moves of the plan help it."""
    skew_after: int
    reason: Reason | None
    """Why it stays violated; null if it does not."""


class ConstraintDifference(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A constraint that the plans treat differently."""

    namespace: str
    workloads: tuple[WorkloadReference, ...]
    topology_key: str
    when_unsatisfiable: WhenUnsatisfiable
    selector: str
    before: ConstraintState | None
    """Null if the old plan says nothing about it: it held, no policy restored it, or it did not exist."""
    after: ConstraintState | None
    """Null if the new plan says nothing about it."""


class PlanDifference(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What differs between two plans."""

    api_version: str = API_VERSION
    kind: Literal["PlanDifference"] = "PlanDifference"
    before: PlanReport
    after: PlanReport
    notes: tuple[str, ...] = ()
    added_policies: tuple[str, ...]
    removed_policies: tuple[str, ...]
    constraints: tuple[ConstraintDifference, ...]
    added_moves: tuple[MoveReport, ...]
    """Of pods that the old plan does not evict."""
    removed_moves: tuple[MoveReport, ...]
    """Of pods that the new plan does not evict."""

    def names(self) -> Iterator[str]:
        """Yield the pods that only the new plan evicts."""
        return (f"pod/{move.pod}" for move in self.added_moves)


class _Identity(NamedTuple):
    namespace: str
    workloads: tuple[WorkloadReference, ...]
    topology_key: str
    when_unsatisfiable: WhenUnsatisfiable
    selector: str


def read_plan(file: str) -> PlanReport:
    """Return the plan that `respread plan -o json` wrote to a file.

    Raises:
        CommandError: it can't be read, or is something else.
    """
    try:
        return msgspec.json.decode(Path(file).read_bytes(), type=PlanReport)
    except OSError as error:
        raise CommandError(f"{file} can't be read: {error.strerror or error}.") from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CommandError(f"{file} is not what `respread plan -o json` writes: {error}.") from error


def plan_difference(before: PlanReport, after: PlanReport) -> PlanDifference:
    """Return what differs between two plans, constraints in the order of the new one."""
    old, new = dict(_constraints(before)), dict(_constraints(after))
    evicted_before = {(move.namespace, move.pod) for move in before.moves}
    evicted = {(move.namespace, move.pod) for move in after.moves}
    old_policies, new_policies = ({policy.name for policy in each.policies} for each in (before, after))
    return PlanDifference(
        before=before,
        after=after,
        notes=after.notes,
        added_policies=tuple(sorted(new_policies - old_policies)),
        removed_policies=tuple(sorted(old_policies - new_policies)),
        constraints=tuple(
            ConstraintDifference(**key._asdict(), before=old.get(key), after=new.get(key))
            for key in dict.fromkeys((*new, *old))
            if old.get(key) != new.get(key)
        ),
        added_moves=tuple(move for move in after.moves if (move.namespace, move.pod) not in evicted_before),
        removed_moves=tuple(move for move in before.moves if (move.namespace, move.pod) not in evicted),
    )


def _constraints(plan: PlanReport) -> Iterator[tuple[_Identity, ConstraintState]]:
    reasons = {_identity(each.group): each.reason for each in plan.blocked}
    evictions = Counter(
        (move.namespace, each.topology_key, each.selector) for move in plan.moves for each in move.constraints
    )
    for planned in plan.groups:
        group = planned.group
        state = ConstraintState(
            violated=group.violated,
            skew=group.skew,
            max_skew=group.max_skew,
            evictions=evictions[group.namespace, group.topology_key, group.selector],
            skew_after=planned.skew_after,
            reason=reasons.get(_identity(group)),
        )
        yield _identity(group), state


def _identity(group: GroupReport) -> _Identity:
    return _Identity(group.namespace, group.workloads, group.topology_key, group.when_unsatisfiable, group.selector)
