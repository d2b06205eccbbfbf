"""The operator's Events: read on request with the user's own permissions, and those that a view shows."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from http import HTTPStatus
from typing import Final, NamedTuple

import msgspec

from respread.api.policy import Policy
from respread.kube.events import REPORTING_CONTROLLER
from respread.program.command_line import CommandError
from respread_cli.read.connection import Connection
from respread_cli.report.planned import Planned
from respread_cli.report.target import Target

MOST_SHOWN: Final = 100
MOST_NAMESPACES: Final = 10
"""The most namespaces that are searched for Events at once."""
OF_CLUSTER_OBJECTS: Final = "default"
"""The namespace of Events on cluster-scoped objects."""


class EventsQuestion(NamedTuple):
    """A question about Events."""

    namespaces: tuple[str, ...]
    """The namespaces to search."""
    about: frozenset[EventSubject]
    policies: frozenset[EventSubject]
    """Their Events are shown if they concern no pod, or one of `about`; all of them if `about` is empty."""

    def wants(self, event: OperatorEvent) -> bool:
        """Return whether an Event is shown."""
        if event.regarding in self.about or event.related in self.about:
            return True
        return event.regarding in self.policies and (not self.about or not event.related.kind)


def events_of_workload(planned: Planned, target: Target) -> EventsQuestion:
    """Request the Events on a workload and its pods, and those on its policies that concern no pod."""
    namespaces = {each.namespace for each in target.workloads}
    concerned = {
        planned.plan.policies.get(key)
        for namespace in namespaces
        for key, group in planned.spread.by_namespace.get(namespace, {}).items()
        if target.concerns(group, planned.plan)
    }
    policies = [each for each in planned.view.policies if each.name in concerned or each in target.policies]
    owners = {
        EventSubject(owner.kind, pod.namespace, owner.name)
        for pod in target.pods
        if (owner := pod.controller) is not None
    }
    pods = {EventSubject("Pod", pod.namespace, pod.name) for pod in target.pods}
    workloads = {EventSubject(each.kind, each.namespace, each.name) for each in target.workloads}
    return _question(namespaces, frozenset({*workloads, *owners, *pods}), policies)


def events_of_policies(planned: Planned) -> EventsQuestion:
    """Request the Events on all policies, where the operator reports everything that it does."""
    return _question(set(), frozenset(), list(planned.view.policies))


def _question(namespaces: set[str], about: frozenset[EventSubject], policies: Iterable[Policy]) -> EventsQuestion:
    subjects = {EventSubject(policy.kind, policy.namespace, policy.object_name) for policy in policies}
    places = {*namespaces, *(each.namespace or OF_CLUSTER_OBJECTS for each in subjects)}
    return EventsQuestion(tuple(sorted(places)[:MOST_NAMESPACES]), about, frozenset(subjects))


def chosen(read: ReadEvents, question: EventsQuestion) -> ReadEvents:
    """Return the requested Events. One that was written on several objects is returned once."""
    once = {(event.reason, event.note): event for event in reversed(read.events) if question.wants(event)}
    newest = sorted(once.values(), key=lambda event: event.time, reverse=True)
    return ReadEvents(tuple(newest[:MOST_SHOWN]), read.unreadable)


MOST_EVENTS: Final = 2_000
"""The most Events of one namespace. Events are not listed by time, and an API server keeps them for an hour by default.
"""
_EVENTS: Final = "/apis/events.k8s.io/v1/namespaces/{namespace}/events"


class EventSubject(msgspec.Struct, frozen=True):
    """An object that an Event concerns."""

    kind: str = ""
    namespace: str = ""
    name: str = ""


class OperatorEvent(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An Event of the operator."""

    time: datetime
    """When it was last seen."""
    warning: bool
    reason: str
    note: str
    count: int
    """How often it was seen."""
    regarding: EventSubject
    related: EventSubject


class ReadEvents(msgspec.Struct, frozen=True):
    """The Events that were read."""

    events: tuple[OperatorEvent, ...] = ()
    """Newest first."""
    unreadable: str | None = None
    """Why not all could be read, as a sentence; None if all were."""


def read_operator_events(connection: Connection, namespaces: Iterable[str]) -> ReadEvents:
    """Return the operator's Events in some namespaces. Those on cluster-scoped objects are in `default`."""
    events: list[OperatorEvent] = []
    unreadable: list[str] = []
    for namespace in namespaces:
        try:
            events += _read(connection, namespace)
        except CommandError as error:
            unreadable.append(error.message)
    events.sort(key=lambda event: event.time, reverse=True)
    return ReadEvents(tuple(events), " ".join(unreadable) or None)


def _read(connection: Connection, namespace: str) -> Iterable[OperatorEvent]:
    selector = f"reportingController={REPORTING_CONTROLLER}"
    response = connection.get(_EVENTS.format(namespace=namespace), {"fieldSelector": selector, "limit": MOST_EVENTS})
    if response.status_code == HTTPStatus.FORBIDDEN:
        raise CommandError(f"You are not allowed to list Events in namespace {namespace}, so they are not shown.")
    if not response.ok:
        raise CommandError(f"Events in namespace {namespace} can't be read: {response.status_code} {response.reason}.")
    try:
        items = msgspec.json.decode(response.content, type=_Events).items or ()
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise CommandError(f"Events in namespace {namespace} can't be read: {error}.") from error
    return [_event(item, time) for item in items if (time := item.last_time) is not None]


class _Series(msgspec.Struct, rename="camel"):
    count: int = 1
    last_observed_time: datetime | None = None


class _Metadata(msgspec.Struct, rename="camel"):
    creation_timestamp: datetime | None = None


class _Event(msgspec.Struct, rename="camel"):
    metadata: _Metadata = msgspec.field(default_factory=_Metadata)
    event_time: datetime | None = None
    series: _Series | None = None
    type: str = ""
    reason: str = ""
    note: str = ""
    regarding: EventSubject | None = None
    related: EventSubject | None = None

    @property
    def last_time(self) -> datetime | None:
        """Return when it was last seen; None if it has no time."""
        observed = None if self.series is None else self.series.last_observed_time
        return observed or self.event_time or self.metadata.creation_timestamp


class _Events(msgspec.Struct):
    items: list[_Event] | None = None


def _event(item: _Event, time: datetime) -> OperatorEvent:
    return OperatorEvent(
        time=time,
        warning=item.type == "Warning",
        reason=item.reason,
        note=item.note,
        count=1 if item.series is None else item.series.count,
        regarding=item.regarding or EventSubject(),
        related=item.related or EventSubject(),
    )
