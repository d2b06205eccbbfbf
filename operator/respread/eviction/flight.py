"""One move in flight: its stage, how long it may take, and how it ended."""

from __future__ import annotations

from datetime import UTC, datetime
from enum import IntEnum
from typing import Final

import msgspec
from immutables import Map

from respread.cluster.grouped_pods import PodsByName
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.eviction.outcomes import FAILURES, Outcome
from respread.planning.plan import Move
from respread.planning.victims.controllers import is_active

PLACED_SECONDS: Final = 15.0
"""How long it takes at most until a replacement exists, and then until it has a node, if nothing is wrong."""
LEAVING_SINCE: Final = datetime.fromtimestamp(0, UTC)
"""The deletion timestamp of pods that the watch does not show as terminating yet. Only its presence is used."""

_NO_PODS: Final[PodsByName] = Map()
_NONE: Final[Map[str, PodsByName]] = Map()


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long a move may take before Respread gives up on it, in seconds."""

    unconfirmed_seconds: float = 75.0
    """After an eviction without an answer, a pod that still exists counts as not evicted after this time. An API server
    works on a request for at most a minute (`--request-timeout`)."""
    step_seconds: float = 300.0
    """For each stage: the pod is terminating, is replaced, the replacement has a node."""
    ready_seconds: Map[str, float] = Map()
    """From when a replacement has a node until one is Ready, by policy name; `step_seconds` for an unknown policy."""
    termination_seconds: float = 3600.0
    """For a StatefulSet's pod to be gone, because it is replaced only then."""

    @property
    def longest_seconds(self) -> float:
        """How long after it was sent a move may still be in flight."""
        return self.unconfirmed_seconds + self.termination_seconds + 3 * self.step_seconds


class Stage(IntEnum):
    """The stage of a move."""

    OWED = 0
    """The eviction was refused although others of its step were made. It will be sent again."""
    SENT = 1
    """The eviction was sent. It is not known (yet) whether it was accepted."""
    EVICTED = 2
    LEAVING = 3
    """The watch shows the pod as terminating or gone."""
    REPLACED = 4
    """The replacement exists."""
    PLACED = 5
    """The replacement has a node."""


class Flight(msgspec.Struct, frozen=True, kw_only=True):
    """One move in flight."""

    move: Move
    sent_at: float
    """Seconds on the caller's clock."""
    stage: Stage
    stage_since: float
    known: frozenset[str]
    """UIDs of pods that are not the replacement: its controller had them before, or they replace others."""
    sent_time: float = 0.0
    """The same time as `sent_at` in seconds since the epoch, for the next leader."""
    newest: datetime = LEAVING_SINCE
    """When the newest of its controller's earlier pods was created, by the API server's clock."""
    replacement: Pod | None = None
    placed_at: float | None = None
    """When a replacement, this one or an earlier one, first had a node. Several that fail one after another get no more
    time than one."""
    ours: bool = True
    """Whether it may be sent again if it is not known to be made. Not if another process started it and our rules now
    forbid it."""
    wanted: bool = True
    """Whether its controller wants a replacement. It does not after a scale-down or in a rollout."""

    @property
    def uid(self) -> str:
        """The UID of the evicted pod."""
        return self.move.pod.uid

    @property
    def time_sent(self) -> datetime:
        """When the eviction was sent, with a time zone."""
        return datetime.fromtimestamp(self.sent_time, UTC)


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """A finished move."""

    move: Move
    outcome: Outcome
    replacement: Pod | None
    seconds: float
    """From the eviction to the end."""
    message: str
    """How it ended, in a sentence."""
    unreplaced: bool = False
    """Whether the pod is gone and its controller created no replacement although it wants one."""
    unmade: bool = False
    """Whether the pod is still there, so that the move may not have been made."""

    @property
    def failed(self) -> bool:
        """Whether it improved nothing. A scale-down in between is not a failure."""
        return self.unreplaced or self.outcome in FAILURES


def controller_uid_of(move: Move) -> str:
    """Return the UID of a pod's controller, or an empty string."""
    return "" if move.pod.controller is None else move.pod.controller.uid


def pods_of(snapshot: ClusterSnapshot, namespace: str, controller_uid: str) -> PodsByName:
    """Return a controller's pods, by name."""
    return snapshot.pods_by_controller.get(namespace, _NONE).get(controller_uid, _NO_PODS)


def waiting(flight: Flight, patience: Patience) -> tuple[float, float]:
    """Return since when a move waits in its stage, on the clock, and how many seconds it may."""
    if flight.placed_at is not None:
        return flight.placed_at, patience.ready_seconds.get(flight.move.policy, patience.step_seconds)
    if flight.stage <= Stage.SENT:
        return flight.stage_since, patience.unconfirmed_seconds
    if flight.stage is Stage.LEAVING and is_stateful(flight):
        return flight.stage_since, patience.termination_seconds
    return flight.stage_since, patience.step_seconds


def still_there(snapshot: ClusterSnapshot, pod: Pod) -> Pod | None:
    """Return a pod from the snapshot, unless it is terminating, finished, gone or another pod of that name."""
    current = snapshot.pods.get(pod.key)
    return current if current is not None and current.uid == pod.uid and is_active(current) else None


def as_shown(pod: Pod, snapshot: ClusterSnapshot) -> Pod:
    """Return a pod in flight as the watch shows it, one that is gone as terminating: for a `BudgetLedger`."""
    return still_there(snapshot, pod) or msgspec.structs.replace(pod, deletion_timestamp=LEAVING_SINCE)


def is_stateful(flight: Flight) -> bool:
    """Whether the replacement has the evicted pod's name and is created only after that is gone."""
    controller = flight.move.pod.controller
    return controller is not None and controller.kind == "StatefulSet"


def is_late(flight: Flight, now: float) -> bool:
    """Whether a replacement should exist, or have a node, by now: something prevents it that no plan knows of."""
    if flight.stage is Stage.LEAVING:
        return flight.wanted and not is_stateful(flight) and now - flight.stage_since >= PLACED_SECONDS
    replacement = flight.replacement
    if flight.stage is not Stage.REPLACED or replacement is None or replacement.spec.has_scheduling_gates:
        return False
    return now - flight.stage_since >= PLACED_SECONDS


def will_need_a_node(flight: Flight) -> bool:
    """Whether the replacement does not look for a node yet and will: it is to come, or has scheduling gates."""
    if (replacement := flight.replacement) is None:
        return flight.wanted
    return not replacement.node_name and replacement.spec.has_scheduling_gates


def at_stage(flight: Flight, stage: Stage, now: float) -> Flight:
    """Return a flight at another stage, which starts now."""
    return msgspec.structs.replace(flight, stage=stage, stage_since=now)
