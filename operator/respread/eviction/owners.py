"""The last look at controllers before a pod is evicted, and at that of a pod whose replacement is late."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final, Generic, TypeVar

import msgspec

from respread.api.reasons import Reason
from respread.cluster.meta import Labels
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.eviction.in_flight import InFlight
from respread.eviction.owner_reading import ControllerObject, OwnerReading, read_controller, read_owner
from respread.eviction.owner_rules import wants_replacement, why_incomplete, why_not_at_rest
from respread.eviction.requests import Requests
from respread.planning.controllers import is_active, siblings_of
from respread.planning.held import Held
from respread.planning.plan import Move
from respread.planning.protection import why_not_replaced

FRESH_SECONDS: Final = 2.0
"""How long one reading of a controller serves for several pods that are evicted together."""

_T = TypeVar("_T")


class _Kept(msgspec.Struct, Generic[_T], frozen=True):
    what: _T
    read_at: float


class Owners:
    """Reads controllers and says whether they are at rest."""

    __slots__ = ("_clock", "_controllers", "_fresh_seconds", "_readings", "_requests")

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
        self._readings: dict[str, _Kept[OwnerReading]] = {}
        self._controllers: dict[str, _Kept[ControllerObject]] = {}

    def forget(self) -> None:
        """Forget all readings: what follows is another wave, and whatever was read is from before the last one."""
        self._readings.clear()
        self._controllers.clear()

    async def why_not_at_rest(self, move: Move, snapshot: ClusterSnapshot, in_flight: InFlight) -> Held | None:
        """Return why a move must not be made for its controllers' sake, or None if nothing speaks against it.

        The pod's own controller has to be at rest. The others whose pods its spread groups count need only have all
        the pods they want: one that has not brings back a pod that may cure the group by itself.

        Args:
            move: the move that is to be made.
            snapshot: the cluster that the plan was made from; it has to agree with what the API server says now.
            in_flight: the moves under way.
        """
        return await self._of_own(move.pod, snapshot, in_flight) or await self._of_others(move, snapshot, in_flight)

    async def wants_replacement(self, pod: Pod, snapshot: ClusterSnapshot) -> bool:
        """Tell whether the controller of a pod that is gone or going wants another in its place.

        As long as that can't be told, it does.
        """
        if pod.controller is None or why_not_replaced(pod) is not None:
            return False
        found = await read_controller(self._requests, pod.namespace, pod.controller)
        if isinstance(found, Held):
            return found.reason is not Reason.UNKNOWN_REPLACEMENT
        active = sum(is_active(each) and each.uid != pod.uid for each in siblings_of(snapshot, pod))
        return wants_replacement(pod.controller.kind, found, pod.name, active)

    async def _of_own(self, pod: Pod, snapshot: ClusterSnapshot, in_flight: InFlight) -> Held | None:
        if (held := why_not_replaced(pod)) is not None or pod.controller is None:
            return held
        uid, now = pod.controller.uid, self._clock()
        if (reading := self._fresh(self._readings, uid, now)) is None:
            found = await read_owner(self._requests, pod.namespace, pod.controller)
            if isinstance(found, Held):
                return found
            reading = found
            self._readings[uid] = _Kept(reading, now)
        leaving, unreplaced = in_flight.leaving(uid), in_flight.unreplaced(uid)
        return why_not_at_rest(reading, pod, siblings_of(snapshot, pod), leaving, unreplaced)

    async def _of_others(self, move: Move, snapshot: ClusterSnapshot, in_flight: InFlight) -> Held | None:
        for pod in _pods_of_other_controllers(move, snapshot):
            if pod.controller is None:
                continue
            uid, now = pod.controller.uid, self._clock()
            if (controller := self._fresh(self._controllers, uid, now)) is None:
                found = await read_controller(self._requests, pod.namespace, pod.controller)
                if isinstance(found, Held):
                    return found
                controller = found
                self._controllers[uid] = _Kept(controller, now)
            leaving = in_flight.leaving(uid)
            active = sum(is_active(each) and each.uid not in leaving for each in siblings_of(snapshot, pod))
            held = why_incomplete(pod.controller.kind, controller, active, in_flight.unreplaced(uid))
            if held is not None:
                return Held(held.reason, f"pods of another workload are in its spread group, and {held.message}")
        return None

    def _fresh(self, kept: dict[str, _Kept[_T]], uid: str, now: float) -> _T | None:
        found = kept.get(uid)
        return None if found is None or now - found.read_at >= self._fresh_seconds else found.what


def _pods_of_other_controllers(move: Move, snapshot: ClusterSnapshot) -> Collection[Pod]:
    """Return one pod of each other controller that replaces its pods and has some in a spread group of a move."""
    own = None if move.pod.controller is None else move.pod.controller.uid
    samples: dict[str, Pod] = {}
    for labels, pods in snapshot.pods_by_labels.get(move.pod.namespace, {}).items():
        if _counted(move, labels):
            for pod in pods.values():
                if pod.controller is not None and pod.controller.uid != own and why_not_replaced(pod) is None:
                    samples.setdefault(pod.controller.uid, pod)
    return samples.values()


def _counted(move: Move, labels: Labels) -> bool:
    """Tell whether a group of a move counts pods with these labels."""
    return any(group.selector.matches(labels) for group in move.groups)
