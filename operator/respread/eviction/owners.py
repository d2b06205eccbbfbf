"""The last look at a pod's controller before the pod is evicted."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

import msgspec

from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.eviction.owner_reading import OwnerReading, read_owner
from respread.eviction.owner_rules import why_not_at_rest
from respread.eviction.requests import Requests
from respread.planning.controllers import siblings_of
from respread.planning.held import Held
from respread.planning.protection import why_not_replaced

FRESH_SECONDS: Final = 2.0
"""How long one reading of a controller serves for several pods of it that are evicted together."""


class _Kept(msgspec.Struct, frozen=True):
    reading: OwnerReading
    read_at: float


class Owners:
    """Reads controllers and says whether they are at rest."""

    __slots__ = ("_clock", "_fresh_seconds", "_kept", "_requests")

    def __init__(self, requests: Requests, clock: Callable[[], float], fresh_seconds: float = FRESH_SECONDS) -> None:
        """Look at controllers through the API server.

        Args:
            requests: how to ask it.
            clock: seconds that never go back, such as `time.monotonic`.
            fresh_seconds: how long a reading serves. What we evict meanwhile is taken into account; what others do in
                that time is not seen.
        """
        self._requests = requests
        self._clock = clock
        self._fresh_seconds = fresh_seconds
        self._kept: dict[str, _Kept] = {}

    def forget(self) -> None:
        """Forget all readings: what follows is another wave, and whatever was read is from before the last one."""
        self._kept.clear()

    async def why_not_at_rest(
        self, pod: Pod, snapshot: ClusterSnapshot, leaving: Collection[str] = (), unreplaced: int = 0
    ) -> Held | None:
        """Return why a pod must not be evicted for its controller's sake, or None if nothing speaks against it.

        Args:
            pod: the pod that is to be evicted.
            snapshot: the cluster that the plan was made from; it has to agree with what the API server says now.
            leaving: UIDs of pods that we evicted ourselves and whose moves are still in flight.
            unreplaced: how many moves in flight of this controller have no replacement yet.
        """
        controller = pod.controller
        if (held := why_not_replaced(pod)) is not None or controller is None:
            return held
        now = self._clock()
        self._kept = {uid: kept for uid, kept in self._kept.items() if now - kept.read_at < self._fresh_seconds}
        known = list(siblings_of(snapshot, pod))
        kept = self._kept.get(controller.uid)
        if kept is not None and why_not_at_rest(kept.reading, pod, known, leaving, unreplaced) is None:
            return None
        # What was read a moment ago speaks against it, perhaps only because more has been watched since.
        reading = await read_owner(self._requests, pod.namespace, controller)
        if isinstance(reading, Held):
            return reading
        self._kept[controller.uid] = _Kept(reading, now)
        return why_not_at_rest(reading, pod, known, leaving, unreplaced)
