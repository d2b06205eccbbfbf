"""A plan for the cluster that a command reads, and its assumptions."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any, NamedTuple, TypeVar

import click

from respread.api.policy import Policy
from respread.cli.errors import CommandError
from respread.cli.options import ClusterOptions, cluster_options, namespace_options, output_options
from respread.cli.read.cluster_view import ReadCluster
from respread.cli.read.policy_files import DEFAULT_POLICY, read_policies
from respread.cli.read.reading import read_for_plan, spread_with_owners
from respread.cli.read.scheduler_option import scheduler_option
from respread.cli.render.plan_report import PolicyReport, policy_report
from respread.cli.render.skew_report import Origin
from respread.eviction.remembered import moves_under_way
from respread.planning.plan import Plan
from respread.planning.planner import Planner, PolicySetting
from respread.planning.victims.default_constraints import kinds_restored
from respread.planning.victims.protection import threshold_value
from respread.scheduling.configuration import SchedulerConfiguration
from respread.scheduling.predictor import Predictor
from respread.scheduling.version import of_version
from respread.scheduling.view.cluster_view import ClusterView as SchedulerView
from respread.spread.carried import DefaultConstraints
from respread.spread.index import Spread

R = TypeVar("R")


class PlanningOptions(NamedTuple):
    """The policies and options of a plan."""

    filenames: tuple[str, ...]
    """Files with policies that replace those in the cluster; none: the cluster's are used."""
    namespaced_policies: bool
    """Whether RebalancePolicies count."""
    scheduler_configuration: SchedulerConfiguration

    def counts(self, policy: Policy) -> bool:
        """Return whether a policy is used. The plan ignores others, as the operator does."""
        return self.namespaced_policies or policy.is_cluster_policy


class Planned(NamedTuple):
    """A plan, and what it was made from."""

    view: ReadCluster
    setting: PolicySetting
    reports: tuple[PolicyReport, ...]
    """The reports of the policies, in their order."""
    default_policy: bool
    """Whether there is no policy in the cluster, so that a default one is used."""
    spread: Spread
    predictor: Predictor
    """Its view is at the snapshot."""
    plan: Plan
    notes: tuple[str, ...]
    """Other sentences for the user."""

    @property
    def origin(self) -> Origin:
        """What is told of where it comes from."""
        return Origin(self.view.source, self.view.time, self.notes)


def planning_options(command: Callable[..., R]) -> Callable[..., R]:
    """Add `namespace`, `planning`, `cluster` and `output`: everything that a plan and its output depend on."""

    @namespace_options
    @click.option(
        "-f",
        "--filename",
        "filenames",
        metavar="FILE",
        multiple=True,
        help="Plan for the policies in this file instead of those in the cluster; - is standard input.",
    )
    @click.option(
        "--namespaced-policies",
        type=click.Choice(["honor", "ignore"]),
        default="honor",
        show_default=True,
        help="As configured for the operator.",
    )
    @scheduler_option
    @cluster_options
    @output_options
    @wraps(command)
    def with_planning(
        *args: Any,
        filenames: tuple[str, ...],
        namespaced_policies: str,
        scheduler_configuration: SchedulerConfiguration,
        **options: Any,
    ) -> R:
        planning = PlanningOptions(filenames, namespaced_policies == "honor", scheduler_configuration)
        return command(*args, planning=planning, **options)

    return with_planning


def plan_cluster_of(cluster: ClusterOptions, planning: PlanningOptions) -> Planned:
    """Read a cluster and plan for it.

    Raises:
        CommandError: it can't be read, or a policy in a file is invalid.
    """
    if planning.filenames.count("-") + (cluster.snapshot == "-") > 1:
        raise click.UsageError("standard input can be read only once.")
    view = read_for_plan(cluster, with_policies=not planning.filenames)
    given = view.policies
    if planning.filenames:
        given = read_policies(planning.filenames, default_namespace=view.namespace)
    policies = tuple(filter(planning.counts, given or (DEFAULT_POLICY,)))
    reports = tuple(policy_report(policy, _wrong(policy, view)) for policy in policies)
    if planning.filenames:
        _refuse(reports)
    setting = PolicySetting(policies, view.priority_classes)
    configuration = of_version(planning.scheduler_configuration, view.server_version)
    view, spread = spread_with_owners(cluster, view, DefaultConstraints(configuration, kinds_restored(policies)))
    predictor = Predictor(SchedulerView(), configuration)
    under_way = moves_under_way(view.statuses, view.snapshot, view.time).for_planning(view.snapshot)
    plan = Planner(predictor).plan(
        under_way.snapshot,
        spread,
        setting,
        now=view.time,
        in_flight=under_way.in_flight,
        unreplaced=under_way.unreplaced,
    )
    predictor.view.advance(view.snapshot)
    return Planned(
        view=view,
        setting=setting,
        reports=reports,
        default_policy=not given,
        spread=spread,
        predictor=predictor,
        plan=plan,
        notes=(*view.notes, *_notes(reports, default_policy=not given)),
    )


def _wrong(policy: Policy, view: ReadCluster) -> list[str]:
    """Return what is wrong with a policy in this cluster."""
    if policy.problems:
        return []
    try:
        threshold_value(policy.spec.victims.priority_threshold, view.priority_classes)
    except ValueError as error:
        return [str(error)]
    return []


def _refuse(policies: Iterable[PolicyReport]) -> None:
    wrong = [f"{policy.name}: {problem}" for policy in policies for problem in policy.wrong]
    if wrong:
        raise CommandError("; ".join(wrong))


def _notes(policies: Iterable[PolicyReport], *, default_policy: bool) -> list[str]:
    if default_policy:
        return [
            (
                "There is no policy in the cluster; this is the plan for a ClusterRebalancePolicy with an empty spec, "
                "which restores DoNotSchedule constraints in all namespaces but those of Kubernetes itself."
            )
        ]
    notes = [
        f"Policy {policy.name} is invalid and evicts nothing: {'; '.join(policy.wrong)}."
        for policy in policies
        if policy.wrong
    ]
    if dry := [policy.name for policy in policies if policy.mode == "DryRun" and not policy.wrong]:
        those = f"Policy {dry[0]} is" if len(dry) == 1 else f"Policies {', '.join(dry)} are"
        notes.append(f"{those} in mode DryRun: the operator plans this too, and evicts nothing.")
    return notes
