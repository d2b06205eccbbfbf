"""What-if: the effect of hypothetical changes on a copy of the cluster."""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator
from typing import Final

import msgspec

from respread.scheduling.predictor import Predictor
from respread.scheduling.view.cluster_view import ClusterView
from respread_cli.report.planned import Planned
from respread_cli.report.simulate_changes import Typed
from respread_cli.report.simulate_report import OutcomeReport, SimulatedGroup, SimulationReport, Simulator
from respread_cli.report.what_if import Cancellation

MOST_GROUPS: Final = 30
"""So many groups are sent of each outcome, those that are worst first."""
MOST_PODS: Final = 100
"""So many pods are sent of each list."""
_OUTCOMES: Final = ("as_it_is", "with_costs", "without_costs")


class WhatIfRequest(Typed, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Hypothetical changes, with the arguments of `respread simulate`."""

    def command(self, arguments: Iterable[str]) -> str:
        """Return the command line that says the same.

        The arguments are the options that select the cluster and policies.
        """
        words = [
            word
            for field, values in msgspec.structs.asdict(self).items()
            for value in values
            for word in (f"--{field.replace('_', '-')}", value)
        ]
        return shlex.join(["respread", "simulate", *words, *arguments])


class PodNumbers(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The lengths of the lists of an `OutcomeReport`."""

    deleted: int
    placed: int
    unplaced: int
    pending_before: int
    """Those of `unplaced` that had no node before either."""
    lost: int


class Totals(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How much a simulation reports, of which the page receives the first."""

    groups: int
    violated: int
    """Groups that are violated before the changes."""
    as_it_is: PodNumbers
    with_costs: PodNumbers | None = None
    without_costs: PodNumbers | None = None


class WhatIfAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The effect of hypothetical changes, and the command with the same result."""

    report: SimulationReport
    """Without the groups and pods above `MOST_GROUPS` and `MOST_PODS`."""
    totals: Totals
    command: str


class WhatIfs:
    """Answers one request after another.

    It has indices of its own, so that it can be used in another thread than the rest. A request costs what differs from
    the last one: its changes, and what the cluster has changed meanwhile.
    """

    def __init__(self, arguments: tuple[str, ...]) -> None:
        """Start without a cluster.

        The arguments are the options that select the cluster and policies, for command lines that say the same.
        """
        self._arguments = arguments
        self._simulator = Simulator(Predictor(ClusterView()))
        self._is_prepared = False

    def prepare(self, planned: Planned) -> None:
        """Take over a cluster for the first request, which would take longest; do nothing after it."""
        if not self._is_prepared:
            self._simulator.prepare(planned)
            self._is_prepared = True

    def answer(self, planned: Planned, request: WhatIfRequest, cancellation: Cancellation) -> WhatIfAnswer:
        """Return the effect of changes.

        Raises:
            CommandError: the changes name something that does not exist, or their effect can't be known.
        """
        self._is_prepared = True
        report = self._simulator.simulate(planned, request, None, cancellation)
        return WhatIfAnswer(report=_shortened(report), totals=_totals(report), command=request.command(self._arguments))


def _shortened(report: SimulationReport) -> SimulationReport:
    """Return the part of a simulation that the page shows."""
    outcomes = {name: _first_pods(outcome) for name, outcome in _outcomes(report)}
    return msgspec.structs.replace(report, groups=_worst(report.groups), losses=report.losses[:MOST_PODS], **outcomes)


def _outcomes(report: SimulationReport) -> Iterator[tuple[str, OutcomeReport]]:
    """Yield the outcomes that there are, by the names of their fields."""
    found = ((name, getattr(report, name)) for name in _OUTCOMES)
    return ((name, outcome) for name, outcome in found if outcome is not None)


def _worst(groups: tuple[SimulatedGroup, ...]) -> tuple[SimulatedGroup, ...]:
    """Return the groups that are worst in some outcome, in their order."""
    if len(groups) <= MOST_GROUPS:
        return groups
    chosen: set[int] = set()
    for outcome in _OUTCOMES:

        def place(at: int, outcome: str = outcome) -> tuple[bool, int, bool]:
            after = getattr(groups[at], outcome) or groups[at].as_it_is
            return not after.violated, -after.skew, not groups[at].group.violated

        chosen.update(sorted(range(len(groups)), key=place)[:MOST_GROUPS])
    return tuple(groups[at] for at in sorted(chosen))


def _first_pods(outcome: OutcomeReport) -> OutcomeReport:
    return msgspec.structs.replace(
        outcome,
        deleted=outcome.deleted[:MOST_PODS],
        placed=outcome.placed[:MOST_PODS],
        unplaced=outcome.unplaced[:MOST_PODS],
        lost=outcome.lost[:MOST_PODS],
    )


def _totals(report: SimulationReport) -> Totals:
    return Totals(
        groups=len(report.groups),
        violated=sum(each.group.violated for each in report.groups),
        **{name: _numbers(outcome) for name, outcome in _outcomes(report)},
    )


def _numbers(outcome: OutcomeReport) -> PodNumbers:
    return PodNumbers(
        deleted=len(outcome.deleted),
        placed=len(outcome.placed),
        unplaced=len(outcome.unplaced),
        pending_before=sum(pod.was_pending for pod in outcome.unplaced),
        lost=len(outcome.lost),
    )
