"""Asks an autoscaler for room in domains without a node, or without room, while this replica leads.

The control loop passes each plan. Room that the plan wants is asked for in one of two ways:

    CapacityBuffer  where the API server serves the kind and an autoscaler takes it up. It holds no room, so the plan
                    moves pods as soon as a node has come. The buffer is deleted then: the autoscaler would keep as much
                    room free beside the moved pods.
    Deployment      everywhere else. Its pods hold the room of the node that comes. It is deleted when they are Ready,
                    and the next plan finds the room free.

Either is deleted too when the room is not wanted any more, or when no node has come for a long time. Nothing is kept
about it elsewhere: each leader looks for these objects by their label at first, and deletes those that it does not
want, such as those of policies that were deleted while no replica ran.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from enum import StrEnum
from math import inf
from time import monotonic
from typing import Final, NamedTuple

from immutables import Map

from respread.api.conditions import RoomMissing, RoomReason
from respread.api.policy import Policy
from respread.cluster.state import ClusterSnapshot
from respread.cluster.stores import Policies
from respread.kube.retry import Retry, WokenLoop
from respread.planning.plan import Plan
from respread.provisioning.room_objects import (
    PLACEHOLDER_LABEL,
    READY_FOR_PROVISIONING,
    ROOM_CLASS,
    Buffers,
    Placeholders,
    Result,
    RoomAnswer,
    placeholder_name,
)
from respread.provisioning.rooms import WantedRoom, asks_for_room, is_short, moves_into, wanted_rooms
from respread.spread.index import Spread
from respread.telemetry.logs import get_logger
from respread.telemetry.metrics import Metrics

_log: Final = get_logger(__name__)

AT_ONCE: Final = 10
"""The number of rooms that are asked for at the same time for one policy."""
REFUSED_SECONDS: Final = 60.0
"""How long nothing is asked for after the API server refused it."""


class RoomLoop:
    """Creates and deletes the objects by which room is asked for."""

    def __init__(
        self,
        placeholders: Placeholders,
        buffers: Buffers,
        *,
        namespace: Callable[[], str | None],
        leads: Callable[[], bool],
        may_evict: Callable[[Policy], bool],
        metrics: Metrics,
        notify: Callable[[], None] = lambda: None,
        clock: Callable[[], float] = monotonic,
    ) -> None:
        """Create the loop.

        All its objects are in the namespace, the operator's own; None while unknown. Room is asked for only if a policy
        may evict now. `notify` is called when `missing` has changed.
        """
        self._ways: Final[Mapping[Way, Placeholders | Buffers]] = {Way.PLACEHOLDER: placeholders, Way.BUFFER: buffers}
        self._namespace = namespace
        self._leads = leads
        self._may_evict = may_evict
        self._metrics = metrics
        self._notify = notify
        self._clock = clock
        self._policies: Policies = Map()
        self._asking: Policies = Map()
        """Those policies that ask for room."""
        self._term: RoomTerm | None = None
        self._retry = Retry()
        self._paused_until = -inf
        self._refused: dict[str, str] = {}
        """The API server's message while it refuses what a policy asks for, by policy."""
        self._loop = WokenLoop(lambda: _log.exception("Asking for room failed; it is tried again"))
        self.missing: Mapping[str, RoomMissing] = {}
        """What is done about missing room, by policy, for its status."""

    def observe(self, view: RoomView, term: int | None) -> None:
        """Take over a plan.

        The term is a number that differs whenever somebody else may have led since; None while this replica does not
        lead.
        """
        if term is None:
            self._term = None
            return
        if view.policies is not self._policies:
            self._policies = view.policies
            self._asking = Map({name: each for name, each in view.policies.items() if asks_for_room(each)})
        if self._term is None or self._term.number != term:
            self._term = RoomTerm(term)
            # Most clusters have no use for any of this: then it costs them nothing, and takes no permission.
            self._term.needed = view.may_be_left(self._namespace())
        self._term.needed |= bool(self._asking)
        if self._term.needed:
            self._term.view = view
            self._loop.wake()

    def stop(self) -> None:
        """End `run` when the sent request is answered. Nothing more is sent."""
        self._loop.stop()

    async def run(self) -> None:
        """Create and delete these objects until stopped."""
        await self._loop.run(self._step)

    async def _step(self) -> float:
        """Do everything that is due, and return the seconds until the next step unless something changes."""
        term, now = self._term, self._clock()
        if term is None or term.view is None or (namespace := self._namespace()) is None or not self._may_send(term):
            return inf
        if now < self._paused_until:
            return self._paused_until - now
        view = term.view
        wanted = {room.key.id: room for room in self._wanted(view)}
        term.wanted_since = {id_: term.wanted_since.get(id_, now) for id_ in wanted}
        # A group whose domain is missing is not violated as the scheduler sees it, so the plan does not wait for it.
        due = {
            id_: term.wanted_since[id_] + room.policy.spec.quiet_period.total_seconds() for id_, room in wanted.items()
        }
        self._refused = {}
        if (
            await self._list(term, namespace)
            and await self._end(term, view, wanted, namespace)
            and await self._begin(term, view, [room for id_, room in wanted.items() if due[id_] <= now], namespace)
        ):
            self._retry.succeeded()
        self._tell(term, view, wanted)
        times = [each.next_look() for each in term.asked.values()]
        times += [*term.resting.values(), *due.values(), self._paused_until]
        return min((each for each in times if each > now), default=inf) - now

    async def _list(self, term: RoomTerm, namespace: str) -> bool:
        """Find what earlier leaders created, once, and return whether it is known."""
        if term.listed:
            return True
        placeholders = await self._ways[Way.PLACEHOLDER].list(namespace)
        if placeholders.result is Result.REFUSED and not self._asking:
            term.needed, term.view = False, None
            _log.warning("Not allowed to look for what asked for room before", error=placeholders.message)
            return False
        if not self._succeeded(placeholders, self._asking):
            return False
        buffers = await self._ways[Way.BUFFER].list(namespace)
        if buffers.result is Result.FAILED:
            return self._succeeded(buffers, self._asking)
        for way, found in ((Way.BUFFER, buffers), (Way.PLACEHOLDER, placeholders)):
            term.asked.update({id_: Asked(way, uid, self._clock(), None) for id_, uid in found.uids.items()})
        term.listed = True
        return True

    def _wanted(self, view: RoomView) -> Iterable[WantedRoom]:
        """Return the room that policies want which may evict now."""
        labels = (each.labels for each in view.snapshot.nodes.values())
        return wanted_rooms(view.plan, view.spread.groups, self._evicting(), labels)

    def _evicting(self) -> dict[str, Policy]:
        """Return the policies that ask for room and may evict now."""
        return {name: each for name, each in self._asking.items() if self._may_evict(each)}

    async def _end(self, term: RoomTerm, view: RoomView, wanted: Mapping[str, WantedRoom], namespace: str) -> bool:
        """Delete what has served, and return whether all went well."""
        ready = view.ready_placeholders(namespace)
        if not await self._see_who_takes_up(term, namespace):
            return False
        for id_, asked in list(term.asked.items()):
            room = wanted.get(id_)
            if asked.room is None and room is not None:
                asked = term.asked[id_] = asked._replace(room=room)  # noqa: PLW2901 - of the leader before
            why = _why_ended(asked, room, view, self._evicting(), ready=ready[id_], now=self._clock())
            if why is None:
                continue
            of = () if asked.room is None else (asked.room.key.policy,)
            if not self._may_send(term) or not self._succeeded(
                await self._ways[asked.way].delete(id_, asked.uid, namespace), of
            ):
                return False
            term.end(id_, why, self._clock())
            self._tell_end(id_, asked, why)
        return True

    def _tell_end(self, id_: str, asked: Asked, why: RoomEnd) -> None:
        """Count and log that a room is no longer asked for."""
        if asked.room is not None and asked.room.key.policy in self._policies:
            self._metrics.count_room_request(policy=asked.room.key.policy, result=why)
        _log.info(
            "Room is no longer asked for",
            kind=asked.way,
            name=placeholder_name(id_),
            why=why,
            room=str(asked.room or ""),
        )

    async def _see_who_takes_up(self, term: RoomTerm, namespace: str) -> bool:
        """Find out, once for each CapacityBuffer, whether it was taken up, and return whether that is known."""
        due = [id_ for id_, each in term.asked.items() if each.awaits_taking_up and each.next_look() <= self._clock()]
        if not due:
            return True
        found = await self._ways[Way.BUFFER].list(namespace)
        if found.result is Result.FAILED:
            return self._succeeded(found, ())
        for id_ in due:
            taken_up = READY_FOR_PROVISIONING in found.conditions.get(id_, ())
            term.asked[id_] = term.asked[id_]._replace(taken_up=taken_up)
        return True

    async def _begin(self, term: RoomTerm, view: RoomView, due: Iterable[WantedRoom], namespace: str) -> bool:
        """Ask for room, and return whether all went well. Where one is refused, those of others may not be."""
        of_policy = Counter(each.room.key.policy for each in term.asked.values() if each.room is not None)
        for room in due:
            id_, policy = room.key.id, room.key.policy
            if id_ in term.asked or term.resting.get(id_, -inf) > self._clock():
                continue
            if of_policy[policy] >= AT_ONCE or policy in self._refused or not room.is_lowest(view.priority_classes):
                continue
            if not self._may_send(term):
                return False
            way, answer = await self._ask(term, room, namespace)
            if not self._succeeded(answer, (policy,)):
                if answer.result is Result.FAILED:
                    return False
                continue
            term.asked[id_] = Asked(way, answer.uids.get(id_, ""), self._clock(), room)
            of_policy[policy] += 1
            self._metrics.count_room_request(policy=policy, result="Created")
            _log.info("Room is asked for", kind=way, name=placeholder_name(id_), room=str(room), policy=policy)
        return not self._refused

    async def _ask(self, term: RoomTerm, room: WantedRoom, namespace: str) -> tuple[Way, RoomAnswer]:
        """Ask for room by a CapacityBuffer, or by a Deployment if that can't be."""
        if term.buffers_rest_until <= self._clock():
            answer = await self._ways[Way.BUFFER].create(room, namespace)
            if answer.result in {Result.DONE, Result.FAILED} or not self._may_send(term):
                return Way.BUFFER, answer
            term.rest_buffers(self._clock())
            _log.info("No CapacityBuffer can be created; a Deployment asks for room", reason=answer.message)
        return Way.PLACEHOLDER, await self._ways[Way.PLACEHOLDER].create(room, namespace)

    def _may_send(self, term: RoomTerm) -> bool:
        return self._term is term and self._leads() and not self._loop.stopping

    def _succeeded(self, answer: RoomAnswer, policies: Iterable[str]) -> bool:
        """Return whether a request for policies succeeded. If not, pause."""
        if answer.result is Result.DONE:
            return True
        if answer.result is not Result.FAILED:
            pause_seconds = REFUSED_SECONDS
            self._refused.update(dict.fromkeys(policies, answer.message))
            if answer.sent:
                _log.warning(
                    "Room can't be asked for, which provision: Request of a policy needs",
                    policies=sorted(policies),
                    error=answer.message,
                )
        else:
            pause_seconds = max(1.0, self._retry.failed())
            _log.warning("A request that asks for room failed; pausing", error=answer.message)
        self._paused_until = self._clock() + pause_seconds
        return False

    def _tell(self, term: RoomTerm, view: RoomView, wanted: Mapping[str, WantedRoom]) -> None:
        """Work out what statuses say, and have them written if it has changed."""
        missing = room_missing(term, wanted, self._refused, view.priority_classes)
        if missing != self.missing:
            self.missing = missing
            self._notify()


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


def _why_ended(
    asked: Asked, wanted: WantedRoom | None, view: RoomView, policies: Mapping[str, Policy], *, ready: int, now: float
) -> RoomEnd | None:
    """Return why a room is not to be asked for any more, None if it is.

    `wanted` is the same room as the plan wants it now.
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


class RoomTerm:
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
    term: RoomTerm, wanted: Mapping[str, WantedRoom], refused: Mapping[str, str], priority_classes: Mapping[str, int]
) -> dict[str, RoomMissing]:
    """Return by policy the reason that matters most, and which room it is about.

    `wanted` has the room that the plan wants by its ID, and `refused` the API server's message while it refuses what a
    policy asks for, by policy.
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
