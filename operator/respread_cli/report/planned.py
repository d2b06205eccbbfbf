"""A plan for the cluster that a command reads, and its assumptions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import timedelta
from itertools import chain
from typing import Final, NamedTuple

import click
import msgspec

from respread.api.decoding import NotAPolicyError, decode_manifest
from respread.api.policy import ClusterPolicySpec, Mode, Policy
from respread.cluster.state import ClusterSnapshot
from respread.eviction.limiter import Limiter
from respread.eviction.remaining import PresentLimits, about, in_words, lots_of
from respread.eviction.standing import Trust
from respread.moves.codec import moves_under_way
from respread.planning.plan import Move, Plan
from respread.planning.planner import PlanningModel
from respread.planning.victims.budgets import BudgetIndex
from respread.planning.victims.policies import PolicyIndex, PolicySetting
from respread.planning.victims.protection import threshold_value
from respread.program.command_line import CommandError
from respread.scheduling.configuration import SchedulerConfiguration, is_known, of_version
from respread.scheduling.predictor import Predictor
from respread.spread.index import Spread
from respread_cli.read.cluster_view import NOT_INSTALLED, ClusterOptions, ReadCluster
from respread_cli.read.reading import read_for_plan, with_owners
from respread_cli.read.yaml_documents import read_documents
from respread_cli.report.quota_refusals import move_refusals

DEFAULT_POLICY: Final = Policy(kind="ClusterRebalancePolicy", object_name="default", spec=ClusterPolicySpec())
"""The policy for a plan if there is none: an empty spec."""


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


class PolicyReport(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A policy of the plan."""

    name: str
    """`namespace/name`, or a cluster policy's name."""
    mode: Mode
    wrong: tuple[str, ...] = ()
    """What is wrong with it. Such a policy evicts nothing."""


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

    The moves in flight are those already made whose replacement is not Ready yet. The first eviction is made `after` so
    long.
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


class Planned(NamedTuple):
    """A plan, and what it was made from."""

    view: ReadCluster
    """With notes about the plan too."""
    setting: PolicySetting
    reports: tuple[PolicyReport, ...]
    """The reports of the policies, in their order."""
    default_policy: bool
    """Whether there is no policy in the cluster, so that a default one is used."""
    spread: Spread
    predictor: Predictor
    """Its view is at the snapshot."""
    plan: Plan
    in_flight: tuple[Move, ...]
    """The moves that the operator reports and whose replacement is not Ready yet."""

    @property
    def governing(self) -> PolicyIndex:
        """Which of the user's policies govern which pods. The default one only plans."""
        return PolicyIndex(()) if self.default_policy else self.setting.index

    @property
    def needs_owners(self) -> bool:
        """Whether the groups or the plan depend on controllers of pods that were not read."""
        owners = (*self.plan.owners, *chain.from_iterable(self.spread.owners.values()))
        return not all(is_known(owner, self.view.snapshot) for owner in owners)

    def pace(self, moves: Sequence[Move]) -> PaceReport:
        """Return how long some of its moves take beside those in flight."""
        return pace_report(self.view.snapshot, self.setting.policies, moves, self.in_flight if moves else ())


def plan_cluster_of(
    cluster: ClusterOptions, options: PlanningOptions, namespace: str | None = None, *, all_owners: bool = False
) -> Planned:
    """Read a cluster and plan for it.

    If a namespace is named and the user may not read the whole cluster, the plan is for what may be read. `all_owners`
    reads the controllers of all pods, for plans after changes.

    Raises:
        CommandError: it can't be read, or a policy in a file is invalid.
    """
    check_standard_input(cluster, options)
    view = read_for_plan(cluster, namespace, with_policies=not options.filenames)
    if all_owners:
        view = with_owners(cluster, view)
    planning = Planning(options, view.namespace)
    return planning.plan_with_owners(view, lambda complete: with_owners(cluster, complete))


def check_standard_input(cluster: ClusterOptions, options: PlanningOptions) -> None:
    """Refuse to read standard input twice."""
    if options.filenames.count("-") + (cluster.snapshot == "-") > 1:
        raise click.UsageError("standard input can be read only once.")


class Planning:
    """Plans for one state of a cluster after another. A later plan costs only what has changed since."""

    def __init__(self, options: PlanningOptions, default_namespace: str) -> None:
        """Read the policies in files. Those that don't name a namespace are in the default one.

        Raises:
            CommandError: a file can't be read.
        """
        self._options = options
        self._given: tuple[Policy, ...] = ()
        if options.filenames:
            self._given = read_policies(options.filenames, default_namespace=default_namespace)
        self._model = PlanningModel()

    def plan_with_owners(self, view: ReadCluster, read_owners: Callable[[ReadCluster], ReadCluster]) -> Planned:
        """Return a plan for a cluster, after reading the pods' controllers if it depends on them.

        `read_owners` returns the cluster with them.

        Raises:
            CommandError: a policy in a file is invalid.
        """
        planned = self.plan(view)
        if not planned.needs_owners:
            return planned
        complete = read_owners(view)
        if complete is view:
            return planned
        self._model = PlanningModel(planned.predictor)  # Its planner would order moves by when it planned them first.
        return self.plan(complete)

    def plan(self, view: ReadCluster) -> Planned:
        """Return a plan for a cluster.

        Raises:
            CommandError: a policy in a file is invalid.
        """
        policies = self._policies(view)
        reports = tuple(
            PolicyReport(name=policy.name, mode=policy.spec.mode, wrong=_wrong(policy, view)) for policy in policies
        )
        if self._given:
            _refuse(reports)
        setting, model = PolicySetting(policies, view.priority_classes), self._model
        model.assume(of_version(self._options.scheduler_configuration, view.server_version), policies)
        spread = model.index.update(view.snapshot)
        in_flight = moves_under_way(view.records, view.snapshot, view.time)
        snapshot = in_flight.overlay(view.snapshot)
        plan = model.planner.plan(
            snapshot,
            model.index.update(snapshot),
            setting,
            now=view.time,
            under_way=in_flight.for_planning(view.snapshot),
        )
        model.predictor.view.advance(view.snapshot)
        default_policy = not (self._given or view.policies)
        notes = (
            *(note for note in view.notes if not default_policy or note != NOT_INSTALLED),
            *_notes(reports, default_policy=default_policy),
            *move_refusals(view.snapshot, plan.moves),
        )
        return Planned(
            view=msgspec.structs.replace(view, notes=notes),
            setting=setting,
            reports=reports,
            default_policy=default_policy,
            spread=spread,
            predictor=model.predictor,
            plan=plan,
            in_flight=in_flight.moves,
        )

    def _policies(self, view: ReadCluster) -> tuple[Policy, ...]:
        return tuple(filter(self._options.counts, self._given or view.policies or (DEFAULT_POLICY,)))


def _wrong(policy: Policy, view: ReadCluster) -> tuple[str, ...]:
    """Return what is wrong with a policy, by itself or in this cluster."""
    if policy.problems:
        return tuple(map(str, policy.problems))
    try:
        threshold_value(policy.spec.victims.priority_threshold, view.priority_classes)
    except ValueError as error:
        return (str(error),)
    return ()


def _refuse(policies: Iterable[PolicyReport]) -> None:
    wrong = [f"{policy.name}: {problem}" for policy in policies for problem in policy.wrong]
    if wrong:
        raise CommandError("; ".join(wrong))


def _notes(policies: Iterable[PolicyReport], *, default_policy: bool) -> list[str]:
    if default_policy:
        return ["The cluster has no policy. This is the plan for a ClusterRebalancePolicy with an empty spec."]
    notes = [
        f"Policy {policy.name} is invalid and evicts nothing: {'; '.join(policy.wrong)}."
        for policy in policies
        if policy.wrong
    ]
    if dry := [policy.name for policy in policies if policy.mode == "DryRun" and not policy.wrong]:
        those = f"Policy {dry[0]} is" if len(dry) == 1 else f"Policies {', '.join(dry)} are"
        notes.append(f"{those} in mode DryRun: the operator plans this too, and evicts nothing.")
    return notes


def read_policies(files: Iterable[str], *, default_namespace: str) -> tuple[Policy, ...]:
    """Read the policies of YAML or JSON files with several documents or a List.

    `-` is standard input. RebalancePolicies without a namespace are in the default one.

    Raises:
        CommandError: a file can't be read, or a policy is invalid. The message contains all problems, each with its
            file, document and field.
    """
    policies: dict[tuple[str, str], Policy] = {}
    mistakes: list[str] = []
    for file in files:
        try:
            documents = read_documents(file)
        except CommandError as error:
            mistakes.append(error.message)
            continue
        for where, document in documents:
            try:
                policy = decode_manifest(document, default_namespace=default_namespace)
            except NotAPolicyError as error:
                mistakes.append(f"{where}: {error}")
                continue
            mistakes += [f"{where} ({policy.kind} {policy.name}): {problem}" for problem in policy.problems]
            if (policy.kind, policy.name) in policies:
                mistakes.append(f"{where}: there is a {policy.kind} {policy.name} already")
            policies[policy.kind, policy.name] = policy
    if mistakes:
        raise CommandError("\n  ".join([f"{len(mistakes)} mistakes:", *mistakes]) if len(mistakes) > 1 else mistakes[0])
    if not policies:
        raise CommandError(f"{', '.join(files)} holds no policy.")
    return tuple(policies.values())
