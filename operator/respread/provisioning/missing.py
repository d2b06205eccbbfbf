"""What the status of a policy says of the room that it misses. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from respread.api.conditions import RoomMissing, RoomReason
from respread.provisioning.rooms import WantedRoom
from respread.provisioning.term import Term

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
