"""The other controllers whose pods a move's spread groups count, and whether they are missing a pod."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from math import inf
from typing import Final

from immutables import Map

from respread.api.reasons import Reason
from respread.cluster.grouped_pods import PodsByName
from respread.cluster.matching import Matching
from respread.cluster.meta import Labels
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.eviction.owners.reading import (
    BatchReadings,
    ControllerObject,
    ControllerSpec,
    ControllerStatus,
    ObjectMetadata,
    read_controller,
)
from respread.eviction.owners.rest_rules import why_incomplete
from respread.kube.requests import Requests
from respread.moves.ledger import Ledger
from respread.planning.held import Held
from respread.planning.plan import Move
from respread.planning.victims.controllers import is_active, siblings_of
from respread.planning.victims.protection import why_not_replaced
from respread.spread.group import GroupKey

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
        """Read controllers from the API server.

        Args:
            requests: sends requests.
            clock: a monotonic clock in seconds.
            reading_seconds: how long reading may take for one move.
        """
        self._requests = requests
        self._reading_seconds = reading_seconds
        self._readings: BatchReadings[ControllerObject] = BatchReadings(clock, inf)
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._snapshot = ClusterSnapshot()
        self._by_group: dict[GroupKey, Mapping[str, Pod]] = {}
        self._label_sets: dict[str, Matching] = {}
        """By namespace: there are as many groups as moves, and trying each on every label set would be slow."""

    async def why_incomplete(self, move: Move, snapshot: ClusterSnapshot, moves: Ledger) -> Held | None:
        """Return why one of them holds a move, or None if all have the pods that they want.

        Args:
            move: the move.
            snapshot: the cluster of the plan.
            moves: the moves.
        """
        samples = self._samples(move, snapshot)
        if len(samples) > MOST_CONTROLLERS:
            return Held(
                Reason.GROUP_TOO_LARGE,
                f"its spread groups count the pods of {len(samples)} other controllers, and at most "
                f"{MOST_CONTROLLERS} are read before an eviction; a narrower labelSelector in its topology spread "
                "constraints would help",
            )
        unread = [pod for uid, pod in samples.items() if self._readings.known(uid) is None]
        if unread and (held := await self._read(unread, len(samples))) is not None:
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
        if move.pod.controller is not None:
            samples.pop(move.pod.controller.uid, None)
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

    async def _read(self, unread: list[Pod], of: int) -> Held | None:
        """Read some controllers, several at the same time, and return why not all of them could be read."""
        left, problems = iter(unread), list[Held]()

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
            missing = sum(
                pod.controller is not None and self._readings.known(pod.controller.uid) is None for pod in unread
            )
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
            metadata.name,
            metadata.uid,
            generation=metadata.generation,
            deletion_timestamp=metadata.deletion_timestamp,
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
