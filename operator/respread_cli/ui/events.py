"""The operator's Events that a view shows."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from respread.api.policy import Policy
from respread_cli.report.planned import Planned
from respread_cli.report.target import Target
from respread_cli.ui.operator_events import EventSubject, OperatorEvent, ReadEvents

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
