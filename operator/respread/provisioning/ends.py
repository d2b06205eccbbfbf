"""When room is not asked for any longer, and why. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum

from respread.api.policy import Policy
from respread.provisioning.asked import PATIENCE_SECONDS, Asked, Way
from respread.provisioning.room_view import RoomView
from respread.provisioning.rooms import WantedRoom, is_short, moves_into


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
