"""The last look at controllers before a pod is evicted, and at the controller of a pod whose replacement is late."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Final

from respread.api.policy import VictimRules
from respread.api.reasons import Reason
from respread.cluster.meta import OwnerReference
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.eviction.owners.other_controllers import OtherControllers
from respread.eviction.owners.pod_lists import PodLists
from respread.eviction.owners.reading import BatchReadings, OwnerReading, read_controller, read_owner
from respread.eviction.owners.replacements import ComingReplacements, Replacements
from respread.eviction.owners.rest_rules import wants_replacement, why_not_at_rest, why_too_small
from respread.kube.requests import Requests
from respread.moves.ledger import Ledger
from respread.planning.held import Held
from respread.planning.plan import Move
from respread.planning.victims.controllers import is_active, siblings_of
from respread.planning.victims.protection import is_trusted, why_not_replaced, why_owner_unknown

FRESH_SECONDS: Final = 2.0
"""How long a reading of a pod's own controller is valid for several pods that are evicted together."""
_REMEMBERED: Final = 4096
"""Controllers whose owners are kept in mind."""


def ordinary_rules(_: Move) -> VictimRules:
    """Return the rules of a policy with defaults."""
    return VictimRules()


class Owners:
    """Reads controllers and returns whether they are at rest."""

    def __init__(
        self,
        requests: Requests,
        clock: Callable[[], float],
        *,
        rules: Callable[[Move], VictimRules] = ordinary_rules,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        fresh_seconds: float = FRESH_SECONDS,
        coming: ComingReplacements | None = None,
        lists: PodLists | None = None,
        top: TopOwners | None = None,
    ) -> None:
        """Read controllers from the API server.

        Args:
            requests: sends requests.
            clock: a monotonic clock in seconds, such as `time.monotonic`.
            rules: the `spec.victims` of a move's policy.
            now: the time of day, with a time zone.
            fresh_seconds: how long a reading serves. What we evict meanwhile is taken into account; what others do in
                that time is not seen.
            coming: what replacements take of quotas that do not exist yet.
            lists: lists their pods.
            top: receives the owners of the controllers that are read.
        """
        self._requests = requests
        self._clock = clock
        self._rules = rules
        self._now = now
        self._fresh_seconds = fresh_seconds
        self._coming = ComingReplacements() if coming is None else coming
        self._lists = PodLists(requests) if lists is None else lists
        self._top = TopOwners() if top is None else top
        self._readings: BatchReadings[OwnerReading] = BatchReadings(clock, fresh_seconds)
        self._replacements = Replacements(requests, clock, fresh_seconds, self._coming)
        self._others = OtherControllers(requests, clock)

    def without_readings(self) -> Owners:
        """Return new owners without readings, for moves that were planned on the current state."""
        return Owners(
            self._requests,
            self._clock,
            rules=self._rules,
            now=self._now,
            fresh_seconds=self._fresh_seconds,
            coming=self._coming,
            lists=self._lists,
            top=self._top,
        )

    async def why_not_at_rest(
        self, move: Move, snapshot: ClusterSnapshot, moves: Ledger, together: Sequence[Move] = ()
    ) -> Held | None:
        """Return why a move must not be made because of its controllers, or None.

        The pod's own controller must be at rest, and must create a replacement that is placed as the pod would be. The
        other controllers whose pods its spread groups count only need to have all the pods that they want: otherwise
        they create a pod that may restore the group by itself.

        Args:
            move: the move.
            snapshot: the cluster of the plan. It must agree with what the API server says now.
            moves: the moves.
            together: the moves of its step.
        """
        return await self._of_own(move, snapshot, moves, together) or await self._others.why_incomplete(
            move, snapshot, moves
        )

    def has_read(self, pod: Pod) -> bool:
        """Tell whether a pod was read just now with its controller, and was there and not being deleted."""
        reading = None if pod.controller is None else self._readings.known(pod.controller.uid)
        return reading is not None and any(each.active and each.metadata.uid == pod.uid for each in reading.pods)

    async def wants_replacement(self, pod: Pod, snapshot: ClusterSnapshot) -> bool:
        """Return whether the controller of a leaving or gone pod wants a replacement.

        While that is unknown, it is assumed to.
        """
        if pod.controller is None or why_not_replaced(pod) is not None:
            return False
        found = await read_controller(self._requests, pod.namespace, pod.controller)
        if isinstance(found, Held):
            return found.reason is not Reason.UNKNOWN_REPLACEMENT
        active = sum(is_active(each) and each.uid != pod.uid for each in siblings_of(snapshot, pod))
        return wants_replacement(pod.controller.kind, found, pod.name, active)

    async def _of_own(
        self, move: Move, snapshot: ClusterSnapshot, moves: Ledger, together: Sequence[Move]
    ) -> Held | None:
        pod, controller = move.pod, move.pod.controller
        if (held := why_not_replaced(pod)) is not None or controller is None:
            return held
        if (held := await self._replacements.why_unknown(pod)) is not None:
            return held
        reading = await self._readings.get(
            controller.uid, lambda: read_owner(self._requests, self._lists.of, pod.namespace, controller)
        )
        if isinstance(reading, Held):
            return reading
        self._top.note(controller.uid, reading.controller.metadata.controller)
        rules = self._rules(move)
        siblings = tuple(siblings_of(snapshot, pod))
        held = (
            _why_owners_unknown(reading, controller, rules)
            or _why_owner_unread(reading, rules)
            or why_too_small(reading, rules.min_replicas)
            or why_not_at_rest(
                reading,
                pod,
                siblings,
                moves.leaving(controller.uid),
                unreplaced=moves.unreplaced(controller.uid, {each.metadata.uid for each in reading.pods}),
                expected=moves.unreplaced(controller.uid, {each.uid for each in siblings}),
                exchanged=moves.exchanged(controller.uid),
                now=self._now(),
                together=[each.pod.uid for each in together if each.pod.uid != pod.uid],
            )
        )
        return held or await self._replacements.why_not(move, reading, moves, rules)


def _why_owners_unknown(reading: OwnerReading, controller: OwnerReference, rules: VictimRules) -> Held | None:
    """Return which owner of a pod's controller protects the pod, whether it is the controller's controller or not."""
    unknown = (
        why_owner_unknown(controller, each, rules.trusted_controllers) for each in reading.controller.metadata.owners
    )
    return next((held for held in unknown if held is not None), None)


def _why_owner_unread(reading: OwnerReading, rules: VictimRules) -> Held | None:
    """Return why a Deployment or Rollout could not be read. One of a kind that the policy trusts need not be."""
    owner = reading.controller.metadata.controller
    return None if owner is None or is_trusted(owner, rules.trusted_controllers) else reading.owner_unread


class TopOwners:
    """Remembers what controls the controllers that were read before evictions.

    ReplicaSets are not watched, and without a UID `kubectl describe` does not find an object's Events.
    """

    __slots__ = ("_owners",)

    def __init__(self) -> None:
        self._owners: OrderedDict[str, OwnerReference] = OrderedDict()

    def note(self, controller_uid: str, owner: OwnerReference | None) -> None:
        """Remember the owner of a controller; None if it has none."""
        if owner is None:
            return
        self._owners[controller_uid] = owner
        self._owners.move_to_end(controller_uid)
        if len(self._owners) > _REMEMBERED:
            self._owners.popitem(last=False)

    def of(self, pod: Pod) -> OwnerReference | None:
        """Return the owner of a pod's controller if it is known, else the controller; None if the pod has none."""
        return None if pod.controller is None else self._owners.get(pod.controller.uid, pod.controller)
