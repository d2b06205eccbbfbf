"""What the room loop looks at and knows while this replica leads without interruption, and what follows. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from math import inf
from typing import Final, NamedTuple

from immutables import Map

from respread.api.conditions import RoomMissing, RoomReason
from respread.api.policy import Policy
from respread.cluster.state import ClusterSnapshot
from respread.planning.plan import Plan
from respread.provisioning.room_objects import PLACEHOLDER_LABEL, ROOM_CLASS
from respread.provisioning.rooms import WantedRoom, is_short, moves_into
from respread.spread.index import Spread
from respread.stores.stores import Policies


class RoomView(NamedTuple):
    """The last plan and what it was made for."""

    snapshot: ClusterSnapshot
    spread: Spread
    policies: Policies
    priority_classes: Mapping[str, int]
    plan: Plan

    def may_be_left(self, namespace: str | None) -> bool:
        """Return whether earlier leaders may have left objects: they were allowed to create some, or there are pods.

        Neither CapacityBuffers nor Deployments whose pods are refused have pods. To look for them takes a permission
        that only clusters with the room component have.
        """
        by_labels = self.snapshot.pods_by_labels.get(namespace or "", Map())
        return ROOM_CLASS in self.priority_classes or any(PLACEHOLDER_LABEL in labels for labels in by_labels)

    def ready_placeholders(self, namespace: str) -> Counter[str]:
        """Return how many pods of placeholders are Ready, by the ID of the room."""
        ready: Counter[str] = Counter()
        for labels, pods in self.snapshot.pods_by_labels.get(namespace, Map()).items():
            if (id_ := labels.get(PLACEHOLDER_LABEL)) is not None:
                ready[id_] += sum(pod.ready and not pod.terminating for pod in pods.values())
        return ready


PATIENCE_SECONDS: Final = 900.0
"""How long a node is waited for."""
TAKEN_UP_SECONDS: Final = 60.0
"""How long an autoscaler has to take up a CapacityBuffer. Many clusters have the kind, and an autoscaler that does not
look at it: Cluster Autoscaler and Karpenter 1.15 do so only if a flag says it."""


class Way(StrEnum):
    """How room is asked for: the kind of the object."""

    BUFFER = "CapacityBuffer"
    PLACEHOLDER = "Deployment"


class Asked(NamedTuple):
    """A room that is asked for."""

    way: Way
    uid: str
    since: float
    """On the clock."""
    room: WantedRoom | None
    """None: a leader before asked for it, and it is not known yet what for."""
    taken_up: bool | None = None
    """Whether an autoscaler has taken up the CapacityBuffer; None: it has time until `TAKEN_UP_SECONDS`."""

    @property
    def awaits_taking_up(self) -> bool:
        """Whether it is a CapacityBuffer of which it is not known whether an autoscaler looks at it."""
        return self.way is Way.BUFFER and self.taken_up is None

    def next_look(self) -> float:
        """Return when something is to be done about it if nothing changes, on the clock."""
        return self.since + (TAKEN_UP_SECONDS if self.awaits_taking_up else PATIENCE_SECONDS)


class RoomEnd(StrEnum):
    """Why a room is no longer asked for."""

    READY = "Ready"
    NO_NODE = "NoNode"
    NOT_TAKEN_UP = "NotTakenUp"
    UNNEEDED = "Unneeded"


def why_ended(
    asked: Asked, wanted: WantedRoom | None, view: RoomView, policies: Mapping[str, Policy], *, ready: int, now: float
) -> RoomEnd | None:
    """Return why a room is not to be asked for any more, None if it is.

    Args:
        asked: how it was asked for.
        wanted: the same room as the plan wants it now; None if it does not.
        view: the plan.
        policies: those that ask for room and may evict, by name.
        ready: how many pods of its placeholder are Ready.
        now: the time on the clock.
    """
    room = asked.room
    if wanted is None and (room is None or not is_short(room.key, view.plan, view.spread.groups, policies)):
        return RoomEnd.UNNEEDED
    if room is not None and _has_come(asked.way, room, view, ready):
        return RoomEnd.READY
    if asked.taken_up is False:
        return RoomEnd.NOT_TAKEN_UP
    if now < asked.since + PATIENCE_SECONDS:
        return None
    # Where a buffer brought a node and no pod moves, something else holds the moves, such as a budget.
    return RoomEnd.READY if asked.way is Way.BUFFER and wanted is None else RoomEnd.NO_NODE


def _has_come(way: Way, room: WantedRoom, view: RoomView, ready: int) -> bool:
    """Return whether a room is there: its placeholder's pods are Ready, or the plan moves pods to a node that came.

    A CapacityBuffer does not keep the room from the plan. If it stayed while the first pods move, the autoscaler would
    make as much room again.
    """
    return ready >= room.pods if way is Way.PLACEHOLDER else moves_into(room.key, view.plan)


REST_SECONDS: Final = 900.0
"""For how long the same room is not asked for again after a node came for it, or none did."""
WITHOUT_BUFFERS_SECONDS: Final = 3600.0
"""For how long no CapacityBuffer is created after one could not be, or brought no node."""


class Term:
    """What is known in one term."""

    def __init__(self, number: int) -> None:
        """Know nothing yet. The number differs whenever another replica may have led."""
        self.number = number
        self.needed = False
        """Whether a policy has asked for room since, or something that asks for room may have been left before."""
        self.view: RoomView | None = None
        self.listed = False
        self.asked: dict[str, Asked] = {}
        """The rooms that are asked for, by their ID."""
        self.buffers_rest_until = -inf
        """Until when no CapacityBuffer is created, on the clock."""
        self.wanted_since: dict[str, float] = {}
        """Since when room has been wanted without a break, on the clock, by its ID."""
        self.resting: dict[str, float] = {}
        """Until when room is not asked for again, on the clock, by its ID."""
        self.in_vain: set[str] = set()
        """Room for which no node came the last time."""

    def end(self, id_: str, why: RoomEnd, now: float) -> None:
        """Note that a room is no longer asked for, and how long it, or a CapacityBuffer for any, will not be."""
        asked = self.asked.pop(id_)
        if asked.way is Way.BUFFER and why in {RoomEnd.NO_NODE, RoomEnd.NOT_TAKEN_UP}:
            self.rest_buffers(now)
        if why in {RoomEnd.READY, RoomEnd.NO_NODE}:
            self.resting[id_] = now + REST_SECONDS
        self.in_vain.discard(id_)
        if why is RoomEnd.NO_NODE:
            self.in_vain.add(id_)

    def rest_buffers(self, now: float) -> None:
        """Create no CapacityBuffer for a time."""
        self.buffers_rest_until = now + WITHOUT_BUFFERS_SECONDS


_ORDER: Final = (
    RoomReason.PRIORITY_NOT_NEGATIVE,
    RoomReason.NO_NODE_CAME,
    RoomReason.REQUESTED,
    RoomReason.REQUESTED_LATER,
)
"""What is said of a policy's room, the most important first."""


def room_missing(
    term: Term, wanted: Mapping[str, WantedRoom], refused: Mapping[str, str], priority_classes: Mapping[str, int]
) -> dict[str, RoomMissing]:
    """Return by policy the reason that matters most, and which room it is about.

    Args:
        term: what was asked for.
        wanted: the room that the plan wants, by its ID.
        refused: the API server's message while it refuses what a policy asks for, by policy.
        priority_classes: the values of the cluster's PriorityClasses by name.
    """
    asked = {id_: each.room for id_, each in term.asked.items() if each.room is not None}
    told: dict[tuple[int, str], list[str]] = {}
    for id_, room in {**asked, **wanted}.items():
        if not room.is_lowest(priority_classes):
            reason = RoomReason.PRIORITY_NOT_NEGATIVE
        elif id_ in term.asked:
            reason = RoomReason.REQUESTED
        elif id_ in term.resting:
            reason = RoomReason.NO_NODE_CAME if id_ in term.in_vain else RoomReason.REQUESTED_LATER
        else:
            continue  # its quiet period
        told.setdefault((_ORDER.index(reason), room.key.policy), []).append(str(room))
    missing = {name: RoomMissing(RoomReason.REFUSED, message) for name, message in refused.items()}
    for order, policy in sorted(told):
        missing.setdefault(policy, RoomMissing(_ORDER[order], "; ".join(sorted(told[order, policy]))))
    return missing
