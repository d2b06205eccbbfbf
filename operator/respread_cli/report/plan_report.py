"""The result of `respread plan` as values. They are the JSON and YAML output, and the tables are made from them.

docs/cli.md describes every field.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Literal

import msgspec

from respread.api.policy import Mode, Policy, WhenUnsatisfiable
from respread.api.reasons import Reason
from respread.cluster.selectors import Selector
from respread.cluster.state import ClusterSnapshot
from respread.eviction.limits.limiter import Limiter
from respread.eviction.limits.remaining import PresentLimits, about, in_words, lots_of
from respread.eviction.limits.standing import Trust
from respread.planning.plan import Move, Plan
from respread.planning.victims.budget_index import BudgetIndex
from respread.scheduling.predictor import Predictor
from respread.spread.group import GroupKey, SpreadGroup
from respread.spread.index import Spread
from respread_cli.report.pending_pods import pending_pods, waiting_pods
from respread_cli.report.skew_report import (
    API_VERSION,
    GroupReport,
    Origin,
    PendingPods,
    WorkloadReference,
    group_report,
    has_pods_with,
)
from respread_cli.report.target import Target


class PolicyReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A policy of the plan."""

    name: str
    """`namespace/name`, or a cluster policy's name."""
    mode: Mode
    wrong: tuple[str, ...] = ()
    """What is wrong with it. Such a policy evicts nothing."""


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
    pace: PaceReport | None = None
    """How long the evictions that are shown take; null in the output of earlier versions."""
    moves: tuple[MoveReport, ...]
    groups: tuple[PlannedGroup, ...]
    blocked: tuple[BlockedReport, ...]
    pending: tuple[PendingPods, ...] = ()
    """Pods that have the constraint of a group and no node, which no eviction helps."""

    def names(self) -> Iterator[str]:
        """Yield the pods that are evicted, in their order."""
        return (f"pod/{move.pod}" for move in self.moves)


def plan_report(
    plan: Plan,
    spread: Spread,
    policies: Iterable[PolicyReport],
    predictor: Predictor,
    *,
    default_policy: bool,
    namespace: str | None,
    origin: Origin,
    pace: Callable[[Sequence[Move]], PaceReport],
    selector: Selector | None = None,
    target: Target | None = None,
) -> PlanReport:
    """Return a plan for the output.

    Args:
        plan: the plan.
        spread: the groups that it was made from.
        policies: the policies that it was made for.
        predictor: of the schedulers, whose view is at the cluster of the groups.
        default_policy: whether that is a policy that is not in the cluster.
        namespace: show only what concerns this one.
        origin: what it was made from.
        pace: returns how long evictions take.
        selector: show only what concerns pods with such labels; None for all.
        target: show only what concerns these; None for all.
    """

    def shown(key: GroupKey) -> bool:
        return (
            namespace in {None, key.namespace}
            and has_pods_with(spread.groups[key], selector)
            and (target is None or target.concerns(spread.groups[key], plan))
        )

    def move_shown(move: Move) -> bool:
        return (
            namespace in {None, move.pod.namespace}
            and (selector is None or selector.matches(move.pod.labels))
            and (target is None or target.has_moved(move))
        )

    violated = [key for key, group in spread.groups.items() if group.violated and shown(key)]
    selected = [key for key in plan.policies if shown(key)]
    moves = list(filter(move_shown, plan.moves))
    touched = sorted((key for key in selected if key in plan.counts_after or spread.groups[key].violated), key=str)
    return PlanReport(
        source=origin.source,
        time=origin.time,
        notes=origin.notes,
        policies=tuple(policies),
        default_policy=default_policy,
        selected=len(selected),
        violated=sum(key in plan.policies for key in violated),
        violated_unselected=sum(key not in plan.policies for key in violated),
        evictions=len(moves),
        lower_bound=plan.lower_bound if namespace is None and selector is None and target is None else None,
        pace=pace(moves),
        moves=tuple(move_report(move, spread) for move in moves),
        groups=tuple(_planned(spread.groups[key], plan) for key in touched),
        blocked=tuple(
            BlockedReport(
                group=group_report(spread.groups[each.group]),
                policy=each.policy,
                reason=each.reason,
                message=each.message,
            )
            for each in plan.blocked
            if shown(each.group)
        ),
        pending=pending_pods(
            waiting_pods(predictor.view.snapshot, (group for key, group in spread.groups.items() if shown(key))),
            predictor,
        ),
    )


def policy_report(policy: Policy, wrong: Iterable[str] = ()) -> PolicyReport:
    """Return the report of a policy; `wrong` are problems found besides its own."""
    return PolicyReport(
        name=policy.name, mode=policy.spec.mode, wrong=(*(str(problem) for problem in policy.problems), *wrong)
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


class PaceReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An estimate of how long evictions take at the policies' limits."""

    seconds: int | None
    """Until the last replacement is Ready; null if no pod shows how long that takes."""
    bound_by: str | None
    """The limit that bounds it, with its value; null without evictions, and if the time is unknown."""


def pace_report(
    snapshot: ClusterSnapshot,
    policies: Iterable[Policy],
    moves: Iterable[Move],
    in_flight: Iterable[Move] = (),
    after: timedelta = timedelta(),
) -> PaceReport:
    """Return how long evictions take.

    Args:
        snapshot: the cluster.
        policies: all policies.
        moves: the evictions.
        in_flight: those that are already made, and whose replacement is not Ready yet.
        after: the time until the first one.
    """
    limits = PresentLimits(snapshot=snapshot, limiters=tuple(map(Limiter.of, policies)), now=0.0, trust=Trust())
    found = limits.remaining(lots_of(snapshot, BudgetIndex(), moves, in_flight)).values()
    if any(each.seconds is None for each in found):
        return PaceReport(seconds=None, bound_by=None)
    bounds = [each.bound for each in found if each.bound is not None]
    if not bounds:
        return PaceReport(seconds=0, bound_by=None)
    longest = max(bounds, key=lambda bound: bound.seconds)
    return PaceReport(seconds=about(longest.seconds + after.total_seconds()), bound_by=str(longest))


def pace_in_words(pace: PaceReport) -> str:
    """Return a clause such as `about 41 min: inFlightPerWorkload 1`."""
    if pace.seconds is None:
        return "an unknown time: no pod shows how long it takes to become Ready"
    return f"about {in_words(pace.seconds)}: {pace.bound_by}"
