"""Room that was asked for: how, and since when."""

from __future__ import annotations

from enum import StrEnum
from typing import Final, NamedTuple

from respread.provisioning.rooms import WantedRoom

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
