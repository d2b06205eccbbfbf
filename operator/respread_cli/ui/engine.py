"""Plans for the newest state of a cluster, of which the page shows one at a time, and answers requests about it.

One thread at a time may use it, unless a method says otherwise.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from datetime import datetime
from functools import partial
from typing import NamedTuple

import msgspec

from respread.program.command_line import CommandError
from respread_cli.read.cluster_view import OWNERS, ClusterOptions, ReadCluster, WantedKind
from respread_cli.read.connection import connect
from respread_cli.read.following import FollowedCluster, Lost
from respread_cli.read.reading import wanted_for_plan
from respread_cli.read.snapshot_file import read_snapshot
from respread_cli.report.explain_report import explain_report
from respread_cli.report.planned import Planned, Planning
from respread_cli.report.skew_report import PendingPods, pending_pods
from respread_cli.report.target import Target, find_target
from respread_cli.report.what_if import Cancellation
from respread_cli.report.workload_view import NodeState, WorkloadView, node_states, workload_view
from respread_cli.ui.events import (
    EventsQuestion,
    ReadEvents,
    chosen,
    events_of_policies,
    events_of_workload,
    read_operator_events,
)
from respread_cli.ui.history import (
    OverviewChange,
    PageHistory,
    PastPoint,
    Timeline,
    TimelineChange,
    change_between,
    happenings,
    history_of,
)
from respread_cli.ui.overview import Overview, Overviews
from respread_cli.ui.what_if import WhatIfAnswer, WhatIfRequest, WhatIfs


def _of_kubectl(arguments: tuple[str, ...]) -> str:
    """Return those options that kubectl has too, after a blank."""
    pairs = zip(arguments[::2], arguments[1::2], strict=True)
    return "".join(f" {shlex.join(pair)}" for pair in pairs if pair[0] in {"--kubeconfig", "--context"})


class Source(NamedTuple):
    """The source of the cluster: an API server or a file."""

    live: bool
    """Whether the cluster may change."""
    take: Callable[[], ReadCluster | None]
    """Returns the newest state; None until it is complete."""
    lost: Callable[[], Lost | None]
    """Returns the start of the outage; None if there is a connection."""
    read_owners: Callable[[], bool]
    """Reads the pods' owners from now on, on which plans depend. Returns whether they were not read before."""
    events: Callable[[tuple[str, ...]], ReadEvents]
    """Returns the operator's Events in some namespaces. Any thread may call it."""


class Update(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The data that the page receives after a change."""

    change: OverviewChange | None = None
    timeline: TimelineChange | None = None
    lost: Lost | None = None
    time: datetime


class PageContent(msgspec.Struct, frozen=True, kw_only=True):
    """The data that the page receives at first."""

    version: int
    live: bool
    overview: Overview
    timeline: TimelineChange
    lost: Lost | None
    kubectl: str
    """The options with which kubectl reaches the same cluster, such as ` --context prod`; empty for the current one."""


class Engine:
    """Follows one cluster."""

    def __init__(
        self,
        source: Source,
        make_planning: Callable[[str], Planning],
        arguments: tuple[str, ...],
        read_past: Callable[[datetime], tuple[PastPoint, ...]] = lambda _: (),
    ) -> None:
        """Create it.

        `make_planning` takes the current namespace and returns the planning of the command's options. The arguments are
        the options that select the cluster and policies, for command lines that say the same. `read_past` returns what
        a Prometheus knows of the hours before a time.
        """
        self._read_past = read_past
        self._source = source
        self._make_planning = make_planning
        self._kubectl = _of_kubectl(arguments)
        self._planning: Planning | None = None
        self._planned: Planned | None = None
        self._overview: Overview | None = None
        self._what_ifs = WhatIfs(arguments)
        self._overviews = Overviews()
        self._timeline = Timeline()
        self._lost: Lost | None = None
        self.version = 0
        """The version, which increases with every change."""

    @property
    def ready(self) -> bool:
        """Whether the cluster has been read."""
        return self._overview is not None

    def refresh(self) -> Update | None:
        """Take over the data that has arrived. Return the changes; None if there are none, or not everything was read.

        Raises:
            CommandError: the cluster can't be read.
        """
        view = self._source.take()
        if view is None:
            return None
        if self._planning is None:
            self._planning = self._make_planning(view.namespace)
        before, seen = self._overview, self._planned
        planned = self._planning.plan(view)
        if planned.needs_owners and self._source.read_owners():
            return None
        self._planned = planned
        overview = self._overviews.overview(planned)
        lost, self._lost = self._lost, self._source.lost()
        if before is None or seen is None:
            self._overview = overview
            self.version = 1
            self._timeline.record(overview, ())
            return None
        change = change_between(before, overview, self.version + 1)
        if change is None:
            return None if lost == self._lost else Update(lost=self._lost, time=view.time)
        self._overview = overview
        self.version += 1
        known = {move.pod.uid for move in seen.in_flight}
        began = tuple(move for move in planned.in_flight if move.pod.uid not in known)
        timeline = self._timeline.record(overview, happenings(before, overview, began))
        return Update(change=change, timeline=timeline, lost=self._lost, time=view.time)

    def page(self) -> PageContent:
        """Return the data that the page receives at first."""
        overview = self._overview
        if overview is None:
            raise CommandError("the cluster is still being read.")
        return PageContent(
            version=self.version,
            live=self._source.live,
            overview=overview,
            timeline=self._timeline.everything(),
            lost=self._lost,
            kubectl=self._kubectl,
        )

    def workload(self, namespace: str, workload: str) -> WorkloadView:
        """Return the view of a workload.

        Raises:
            CommandError: there is no such workload.
        """
        planned, target = self._target(namespace, workload)
        return workload_view(planned, target, explain_report(planned, target))

    def events_question(self, namespace: str, workload: str) -> EventsQuestion:
        """Return which Events concern a workload.

        Raises:
            CommandError: there is no such workload.
        """
        return events_of_workload(*self._target(namespace, workload))

    def events(self, question: EventsQuestion) -> ReadEvents:
        """Return the requested Events. Any thread may call it: it waits for the API server."""
        return chosen(self._source.events(question.namespaces), question)

    def history(self) -> PageHistory:
        """Return what happened before. Any thread may call it: it waits for the API server, and for the Prometheus.

        Raises:
            CommandError: the cluster is still being read.
        """
        planned = self._current()
        read = self.events(events_of_policies(planned))
        points: tuple[PastPoint, ...] = ()
        unreadable = None
        try:
            points = self._read_past(planned.view.time)
        except CommandError as error:
            unreadable = error.message
        return history_of(read, planned.view, points, unreadable)

    def nodes(self) -> tuple[NodeState, ...]:
        """Return all nodes, which can be drained, cordoned or copied in a simulation, sorted by name."""
        planned = self._current()
        keys = sorted({group.key.topology_key for group in planned.spread.groups.values()})
        return node_states(planned.view.snapshot, sorted(planned.view.snapshot.nodes), keys)

    def pending(self) -> tuple[PendingPods, ...]:
        """Return why pods have no node, by workload and reason."""
        planned = self._current()
        return pending_pods(planned.view.snapshot.waiting_pods.values(), planned.predictor)

    def prepare_simulations(self) -> None:
        """Do what the first simulation would take longest for. Another thread may call it, the one of `simulate`.

        Raises:
            CommandError: the cluster is still being read.
        """
        self._what_ifs.prepare(self._current())

    def simulate(self, request: WhatIfRequest, cancellation: Cancellation) -> WhatIfAnswer:
        """Return the effect of changes. Another thread may call it, but no two at once.

        Raises:
            CommandError: the changes name something that does not exist, or their effect can't be known.
        """
        return self._what_ifs.answer(self._current(), request, cancellation)

    def _target(self, namespace: str, workload: str) -> tuple[Planned, Target]:
        planned = self._current()
        return planned, find_target(workload, planned.view.snapshot, planned.setting.policies, namespace or None)

    def _current(self) -> Planned:
        if self._planned is None:
            raise CommandError("the cluster is still being read.")
        return self._planned


class Contexts:
    """Opens clusters, and closes them."""

    def __init__(
        self, names: tuple[str, ...], open_engine: Callable[[str | None], AbstractContextManager[Engine]]
    ) -> None:
        """Create it.

        There are no names if the cluster can't be changed. `open_engine` opens the cluster of a context; None: that of
        the command's options.
        """
        self.names = names
        self._open_engine = open_engine
        self._opened: list[tuple[Engine, ExitStack]] = []

    def open(self, name: str | None = None) -> Engine:
        """Return an engine, which reads the cluster from now on. Any thread may call it: it may run a plugin.

        Raises:
            CommandError: the cluster can't be reached.
        """
        with ExitStack() as stack:
            engine = stack.enter_context(self._open_engine(name))
            self._opened.append((engine, stack.pop_all()))
        return engine

    def close_all_but(self, shown: Engine) -> None:
        """End the reading of all other clusters."""
        for engine, stack in tuple(self._opened):
            if engine is not shown:
                self._opened.remove((engine, stack))
                stack.close()

    def close(self) -> None:
        """End the reading of every cluster."""
        while self._opened:
            self._opened.pop()[1].close()


@contextmanager
def open_source(options: ClusterOptions, *, with_policies: bool, changed: Callable[[], None]) -> Iterator[Source]:
    """Open the cluster that options select. `changed` is called when something has arrived, in any thread.

    Raises:
        CommandError: it can't be read.
    """
    if options.snapshot is not None:
        view = read_snapshot(options.snapshot)
        yield Source(
            live=False,
            take=lambda: view,
            lost=lambda: None,
            read_owners=lambda: False,  # The file contains them, or they are unknown.
            events=lambda _: ReadEvents(unreadable="A snapshot contains no Events."),
        )
        return

    wanted = wanted_for_plan(with_policies=with_policies)
    connection = connect(options)
    cluster = FollowedCluster(connection, changed)
    try:
        cluster.start(wanted)
        yield Source(
            live=True,
            take=cluster.take,
            lost=lambda: cluster.lost,
            read_owners=lambda: cluster.add(WantedKind(kind, required=False) for kind in OWNERS),
            events=partial(read_operator_events, connection),
        )
    finally:
        cluster.close()
        connection.close()
