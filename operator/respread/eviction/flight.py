"""One move that is under way: how far it has come, how long that may take, and how it ended."""

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

LEAVING_SINCE: Final = datetime.fromtimestamp(0, UTC)
"""The deletion timestamp of pods that the watch does not show terminating yet; only that there is one is ever read."""

_NO_PODS: Final[PodsByName] = Map()
_NONE: Final[Map[str, PodsByName]] = Map()


class Patience(msgspec.Struct, frozen=True, kw_only=True):
    """How long a move may take before it is given up on, in seconds."""

    unconfirmed_seconds: float = 75.0
    """From an eviction without an answer until its pod, still there, is taken never to have been evicted. An API server
    carries a request on for at most a minute (`--request-timeout`)."""
    step_seconds: float = 300.0
    """From one step to the next: the pod is seen terminating, is replaced, the replacement has a node."""
    ready_seconds: Map[str, float] = Map()
    """From when a replacement has a node until one is Ready, by the name of the move's policy; `step_seconds` for a
    policy that is not there."""
    termination_seconds: float = 3600.0
    """For a StatefulSet's pod to be gone, since only then is it replaced."""

    @property
    def longest_seconds(self) -> float:
        """How long after it was sent a move may still be under way."""
        return self.unconfirmed_seconds + self.termination_seconds + 3 * self.step_seconds


class Stage(IntEnum):
    """How far a move has come."""

    OWED = 0
    """The eviction was refused although others of its step were made: it is to be asked for again."""
    SENT = 1
    """The eviction was sent; whether it was accepted is not known yet, or never will be."""
    EVICTED = 2
    LEAVING = 3
    """The watch shows the pod terminating or gone."""
    REPLACED = 4
    """The replacement exists."""
    PLACED = 5
    """The replacement has a node."""


class Flight(msgspec.Struct, frozen=True, kw_only=True):
    """One move under way."""

    move: Move
    sent_at: float
    """Seconds on the caller's clock."""
    stage: Stage
    stage_since: float
    known: frozenset[str]
    """UIDs of pods that are not the replacement: its controller had them before, or they replace others."""
    sent_time: float = 0.0
    """The same moment as `sent_at` in seconds since the epoch: for whoever follows the move after us."""
    newest: datetime = LEAVING_SINCE
    """When the newest of the pods that its controller had before was created, by the API server's clock."""
    replacement: Pod | None = None
    placed_at: float | None = None
    """When a replacement, this one or one before it, first had a node: those that fail one after another are not waited
    for longer than one."""
    ours: bool = True
    """Whether it may be asked for again where it is not known to be made: not if another process began it, and by our
    rules it should not have."""
    wanted: bool = True
    """Whether its controller wants a replacement; it does not after a scale-down, or in a rollout."""

    @property
    def uid(self) -> str:
        """The UID of the evicted pod."""
        return self.move.pod.uid


class Ended(msgspec.Struct, frozen=True, kw_only=True):
    """A move that is over."""

    move: Move
    outcome: Outcome
    replacement: Pod | None
    seconds: float
    """From the eviction until it was over."""
    message: str
    """How it ended, in a sentence."""
    unreplaced: bool = False
    """Whether the pod is gone and its controller brought back none, though it wants one."""

    @property
    def failed(self) -> bool:
        """Whether it left things no better, or worse, than they were; a scale-down in between is no failure."""
        return self.unreplaced or self.outcome in FAILURES


def controller_uid_of(move: Move) -> str:
    """Return the UID of a pod's controller, or nothing if it has none."""
    return "" if move.pod.controller is None else move.pod.controller.uid


def pods_of(snapshot: ClusterSnapshot, namespace: str, controller_uid: str) -> PodsByName:
    """Return a controller's pods, by name."""
    return snapshot.pods_by_controller.get(namespace, _NONE).get(controller_uid, _NO_PODS)


def waiting(flight: Flight, patience: Patience) -> tuple[float, float]:
    """Return since when a move waits for what it waits for, on the clock, and how many seconds it may."""
    if flight.placed_at is not None:
        return flight.placed_at, patience.ready_seconds.get(flight.move.policy, patience.step_seconds)
    if flight.stage <= Stage.SENT:
        return flight.stage_since, patience.unconfirmed_seconds
    if flight.stage is Stage.LEAVING and is_stateful(flight):
        return flight.stage_since, patience.termination_seconds
    return flight.stage_since, patience.step_seconds


def still_there(snapshot: ClusterSnapshot, pod: Pod) -> Pod | None:
    """Return a pod as the snapshot shows it, unless it is terminating, finished, gone or another of that name."""
    current = snapshot.pods.get(pod.key)
    return current if current is not None and current.uid == pod.uid and is_active(current) else None


def as_shown(pod: Pod, snapshot: ClusterSnapshot) -> Pod:
    """Return a pod in flight as the watch shows it, one that is gone as terminating: for a `BudgetLedger`."""
    return still_there(snapshot, pod) or msgspec.structs.replace(pod, deletion_timestamp=LEAVING_SINCE)


def is_stateful(flight: Flight) -> bool:
    """Whether the replacement has the evicted pod's name and comes only when that is gone."""
    controller = flight.move.pod.controller
    return controller is not None and controller.kind == "StatefulSet"


def at_stage(flight: Flight, stage: Stage, now: float) -> Flight:
    """Return a flight at another stage, which it has come to now."""
    return msgspec.structs.replace(flight, stage=stage, stage_since=now)
