"""The last look before a pod is evicted at its controller and at others whose pods count, and later if it is late."""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from datetime import UTC, datetime
from math import inf
from typing import Final

from immutables import Map

from respread.api.policy import VictimRules
from respread.api.reasons import Held, Reason
from respread.cluster.meta import Labels, OwnerReference
from respread.cluster.pod import Pod
from respread.cluster.selectors import Matching
from respread.cluster.state import ClusterSnapshot, PodsByName
from respread.eviction.owners.reading import (
    BatchReadings,
    ControllerObject,
    ControllerSpec,
    ControllerStatus,
    ObjectMetadata,
    OwnerReading,
    PodLists,
    read_controller,
    read_owner,
)
from respread.eviction.owners.replacements import ComingReplacements, Replacements
from respread.eviction.owners.rest_rules import wants_replacement, why_incomplete, why_not_at_rest, why_too_small
from respread.kube.requests import Requests
from respread.moves.entry import controller_uid_of
from respread.moves.ledger import Ledger
from respread.planning.plan import Move
from respread.planning.victims.protection import is_active, is_trusted, siblings_of, why_not_replaced, why_owner_unknown
from respread.spread.group import GroupKey

FRESH_SECONDS: Final = 2.0
"""How long a reading of a pod's own controller is valid for several pods that are evicted together."""
MOST_REMEMBERED: Final = 4096
"""Controllers whose owners are kept in mind."""


class Owners:
    """Reads controllers and returns whether they are at rest."""

    def __init__(
        self,
        requests: Requests,
        clock: Callable[[], float],
        *,
        note: Callable[[str, OwnerReference | None], None] = lambda *_: None,
    ) -> None:
        """Read controllers from the API server.

        What we evict while a reading is fresh is taken into account; what others do in that time is not seen. `note`
        receives the owners of the controllers that are read.
        """
        self._requests = requests
        self._clock = clock
        self._coming = ComingReplacements()
        self._lists = PodLists(requests)
        self._note = note
        self._begin()

    def _begin(self) -> None:
        """Start without readings."""
        self._readings: BatchReadings[OwnerReading] = BatchReadings(self._clock, FRESH_SECONDS)
        self._replacements = Replacements(self._requests, self._clock, FRESH_SECONDS, self._coming)
        self._others = OtherControllers(self._requests, self._clock)

    def without_readings(self) -> Owners:
        """Return new owners without readings, for moves that were planned on the current state."""
        owners = copy(self)
        owners._begin()  # noqa: SLF001 - our own class
        return owners

    async def why_not_at_rest(
        self, move: Move, rules: VictimRules, snapshot: ClusterSnapshot, moves: Ledger, together: Sequence[Move] = ()
    ) -> Held | None:
        """Return why a move must not be made because of its controllers, or None.

        The pod's own controller must be at rest, and must create a replacement that is placed as the pod would be. The
        other controllers whose pods its spread groups count only need to have all the pods that they want: otherwise
        they create a pod that may restore the group by itself. The snapshot is that of the plan: it must agree with
        what the API server says now. `together` are the moves of the same step, and `rules` the `spec.victims` of the
        move's policy.
        """
        return await self._of_own(move, rules, snapshot, moves, together) or await self._others.why_incomplete(
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
        self, move: Move, rules: VictimRules, snapshot: ClusterSnapshot, moves: Ledger, together: Sequence[Move]
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
        self._note(controller.uid, reading.controller.metadata.controller)
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
                now=datetime.now(UTC),
                together=[each.pod.uid for each in together],
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

    def __init__(self) -> None:
        self._owners: OrderedDict[str, OwnerReference] = OrderedDict()

    def note(self, controller_uid: str, owner: OwnerReference | None) -> None:
        """Remember the owner of a controller; None if it has none."""
        if owner is None:
            return
        self._owners[controller_uid] = owner
        self._owners.move_to_end(controller_uid)
        if len(self._owners) > MOST_REMEMBERED:
            self._owners.popitem(last=False)

    def of(self, pod: Pod) -> OwnerReference | None:
        """Return the owner of a pod's controller if it is known, else the controller; None if the pod has none."""
        return None if pod.controller is None else self._owners.get(pod.controller.uid, pod.controller)


MOST_CONTROLLERS: Final = 1000
"""A group that counts the pods of more controllers is left alone, because reading them takes too long."""
AT_ONCE: Final = 16
"""How many are read at the same time."""
READING_SECONDS: Final = 5.0
"""How long reading may take for one move, so that its plan does not become too old."""


class OtherControllers:
    """Reads the controllers that share spread groups with moves that were chosen together, each once."""

    def __init__(
        self, requests: Requests, clock: Callable[[], float], reading_seconds: float = READING_SECONDS
    ) -> None:
        """Read controllers from the API server. For one move, reading may take `reading_seconds`."""
        self._requests = requests
        self._reading_seconds = reading_seconds
        self._readings: BatchReadings[ControllerObject] = BatchReadings(clock, inf)
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._snapshot = ClusterSnapshot()
        self._by_group: dict[GroupKey, Mapping[str, Pod]] = {}
        self._label_sets: dict[str, Matching] = {}
        """By namespace: there are as many groups as moves, and trying each on every label set would be slow."""

    async def why_incomplete(self, move: Move, snapshot: ClusterSnapshot, moves: Ledger) -> Held | None:
        """Return why one of them holds a move, or None if all have the pods that they want."""
        samples = self._samples(move, snapshot)
        if len(samples) > MOST_CONTROLLERS:
            return Held(
                Reason.GROUP_TOO_LARGE,
                f"its spread groups count the pods of {len(samples)} other controllers, and at most "
                f"{MOST_CONTROLLERS} are read before an eviction; a narrower labelSelector in its topology spread "
                "constraints would help",
            )
        unread = {uid: pod for uid, pod in samples.items() if self._readings.known(uid) is None}
        if (held := await self._read(unread, len(samples))) is not None:
            return held
        for uid, pod in samples.items():
            controller = self._readings.known(uid)
            if controller is None or pod.controller is None:
                continue
            leaving = moves.leaving(uid)
            siblings = tuple(siblings_of(snapshot, pod))
            active = [each.name for each in siblings if is_active(each) and each.uid not in leaving]
            held = why_incomplete(
                pod.controller.kind, controller, active, moves.unreplaced(uid, {each.uid for each in siblings})
            )
            if held is not None:
                return _of_other(held)
        return None

    def _samples(self, move: Move, snapshot: ClusterSnapshot) -> dict[str, Pod]:
        """Return one pod of each other controller that replaces its pods and has some in a spread group of a move."""
        if snapshot is not self._snapshot:
            self._snapshot, self._by_group, self._label_sets = snapshot, {}, {}
        samples: dict[str, Pod] = {}
        for group in move.groups:
            if group not in self._by_group:
                self._by_group[group] = self._samples_of(group, move.pod.namespace)
            samples |= self._by_group[group]
        samples.pop(controller_uid_of(move), None)
        return samples

    def _samples_of(self, group: GroupKey, namespace: str) -> dict[str, Pod]:
        """Return one pod of each controller that replaces its pods and has some that a group counts."""
        label_sets: Map[Labels, PodsByName] = self._snapshot.pods_by_labels.get(namespace, Map())
        if (matching := self._label_sets.get(namespace)) is None:
            matching = self._label_sets[namespace] = Matching()
            for labels in label_sets:
                matching.add_labels(labels)
        samples: dict[str, Pod] = {}
        for labels in matching.labels_of(group.selector):
            for pod in label_sets[labels].values():
                if pod.controller is not None and pod.controller.uid not in samples and why_not_replaced(pod) is None:
                    samples[pod.controller.uid] = pod
        return samples

    async def _read(self, unread: Mapping[str, Pod], of: int) -> Held | None:
        """Read some controllers, several at the same time, and return why not all of them could be read."""
        left, problems = iter(unread.values()), list[Held]()

        async def read_some() -> None:
            for pod in left:
                if (held := await self._read_one(pod)) is not None:
                    problems.append(held)
                if problems:
                    return

        try:
            async with asyncio.timeout(self._reading_seconds), asyncio.TaskGroup() as group:
                for _ in range(min(AT_ONCE, len(unread))):
                    group.create_task(read_some())
        except TimeoutError:
            missing = sum(self._readings.known(uid) is None for uid in unread)
            return Held(
                Reason.GROUP_TOO_LARGE,
                f"its spread groups count the pods of {of} other controllers, of which {missing} could not be read in "
                f"the {self._reading_seconds:.0f} s there are; a narrower labelSelector in its topology spread "
                "constraints, or a faster API server, would help",
            )
        return problems[0] if problems else None

    async def _read_one(self, pod: Pod) -> Held | None:
        controller = pod.controller
        if controller is None:
            return None

        async def read() -> ControllerObject | Held:
            found = await read_controller(self._requests, pod.namespace, controller)
            return found if isinstance(found, Held) else _numbers_of(found)

        async with self._at_once:
            found = await self._readings.get(controller.uid, read)
        return _of_other(found) if isinstance(found, Held) else None


def _numbers_of(found: ControllerObject) -> ControllerObject:
    """Return a controller with what `why_incomplete` needs. There may be a thousand, with templates of 1.5 MiB."""
    metadata = found.metadata
    return ControllerObject(
        metadata=ObjectMetadata(
            metadata.name, metadata.uid, generation=metadata.generation, deletion_timestamp=metadata.deletion_timestamp
        ),
        spec=ControllerSpec(replicas=found.spec.replicas),
        status=ControllerStatus(observed_generation=found.status.observed_generation),
    )


def _of_other(held: Held) -> Held:
    """Add the name of the controller.

    A controller that is gone does not hold the move for long, because its pods go too.
    """
    reason = Reason.IN_MOTION if held.reason is Reason.UNKNOWN_REPLACEMENT else held.reason
    return Held(reason, f"pods of another workload are in its spread group, and {held.message}")
