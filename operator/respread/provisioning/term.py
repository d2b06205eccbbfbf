"""What the room loop knows while this replica leads without interruption."""

from __future__ import annotations

from math import inf
from typing import Final

from respread.provisioning.asked import Asked, Way
from respread.provisioning.ends import RoomEnd
from respread.provisioning.room_view import RoomView

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
