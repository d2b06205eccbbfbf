"""What others do to pods: evictions by somebody else, and nodes that lose their pods; and how Respread gives way.

The API server marks each pod that it evicts with the condition `DisruptionTarget` and the reason
`EvictionByEvictionAPI`. If Respread did not evict such a pod, and its node stays, somebody else did, for a reason that
Respread does not know. If that happens to a workload again and again, one of the two may undo what the other does. So
Respread leaves the constraints of the workload alone, each time for twice as long. Events may tell who it was.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from collections.abc import Set as AbstractSet
from datetime import datetime, timedelta
from math import inf
from typing import Final, NamedTuple

import msgspec
from immutables import Map

from respread.api.json_documents import decoded
from respread.api.reasons import Held, Reason
from respread.cluster.meta import ObjectKey
from respread.cluster.pod import Pod, WorkloadName, workload_of
from respread.cluster.state import ClusterSnapshot
from respread.kube.events import REPORTING_CONTROLLER
from respread.kube.requests import NoResponseError, Requests, TooLargeError
from respread.planning.leaving_nodes import MarkedNodes, loses_its_pods
from respread.spread.group import SpreadGroup
from respread.telemetry.metrics import OTHER_EVICTIONS, Metrics
from respread.timing import ClockReading, GrowingPause

EVICTED: Final = "EvictionByEvictionAPI"
"""The reason of the condition `DisruptionTarget` of evicted pods."""
JUDGED_AFTER: Final = timedelta(seconds=2)
"""An eviction is judged after this time, because nodes are watched apart from pods: the cordon of a drain may be seen
after its first eviction."""
ROUND: Final = timedelta(seconds=10)
"""Evictions with shorter pauses between them are one round of somebody who evicts several pods."""
LONGEST_ROUND: Final = timedelta(minutes=1)
"""After this time, evictions without such a pause count as another round. Otherwise, who never pauses would never be
recognized."""
REPEATED: Final = 2
"""From this number of rounds on, Respread gives way. A single one may be a person."""
WAIT: Final = GrowingPause(first_seconds=60.0, longest_seconds=3600.0)
FORGOTTEN: Final = timedelta(hours=1)
"""Evictions longer ago than this, and than the last wait, are forgotten."""
MOST_TIMES: Final = 1000
_NO_PODS: Map[ObjectKey, Pod] = Map()


class OtherEvictor(msgspec.Struct, frozen=True):
    """Somebody else who evicts pods of one workload."""

    times: int
    """In how many rounds."""
    last: datetime
    """The time of the last eviction, with a time zone."""
    until: datetime
    """Until when Respread leaves the workload alone."""
    began: datetime
    """The time of the first eviction of the last round."""
    name: str = ""
    """The evictor according to an Event; empty if unknown."""

    @property
    def repeated(self) -> bool:
        """Whether pods were evicted so often that Respread gives way, and users should know."""
        return self.times >= REPEATED


def _evicted_again(before: OtherEvictor | None, now: datetime) -> OtherEvictor:
    """Return what follows from another eviction. `now` has a time zone."""
    if before is None:
        return OtherEvictor(1, last=now, until=now, began=now)
    is_same_round = now < before.last + ROUND and now < before.began + LONGEST_ROUND
    if is_same_round or now < before.until:  # In the latter case, Respread has not provoked it.
        until = max(before.until, now + timedelta(seconds=WAIT.first_seconds)) if before.repeated else before.until
        return msgspec.structs.replace(before, last=now, until=until)
    times = min(before.times + 1, MOST_TIMES)
    until = now + timedelta(seconds=WAIT.seconds(times + 1 - REPEATED))
    return OtherEvictor(times, last=now, until=until, began=now, name=before.name)


class OtherEvictions:
    """Recognizes such evictions, and remembers the workloads."""

    def __init__(self, on_eviction: Callable[[Pod], None] = lambda _pod: None) -> None:
        """Know of none yet. `on_eviction` is called with each pod that somebody else evicted."""
        self._on_eviction = on_eviction
        self._known: dict[WorkloadName, OtherEvictor] = {}
        self._pending: dict[str, tuple[Pod, datetime]] = {}
        """Evicted pods that are to be judged, by their UIDs, and when each was first seen."""
        self._seen: frozenset[str] | None = None
        """UIDs of pods being deleted that were looked at. None until the first look: nobody knows who evicted them."""

    @property
    def repeated(self) -> Mapping[WorkloadName, OtherEvictor]:
        """Those who evict pods again and again, by workload."""
        return {workload: known for workload, known in self._known.items() if known.repeated}

    def observe(self, snapshot: ClusterSnapshot, ours: AbstractSet[str], now: datetime) -> None:
        """Take over a snapshot.

        `ours` are the UIDs of the pods that Respread evicted, as long as they are being deleted.
        """
        leaving = snapshot.leaving_pods.values()
        if self._seen is not None:
            new = (pod for pod in leaving if pod.uid not in self._seen and pod.disruption == EVICTED)
            self._pending.update((pod.uid, (pod, now)) for pod in new)
        self._seen = frozenset(pod.uid for pod in leaving)
        for uid in ours & self._pending.keys():
            del self._pending[uid]
        known = {
            name: each
            for name, each in self._known.items()
            # A time in the future means that a clock was set back. It would take until then for the wait to end.
            if each.last - ROUND <= now < max(each.last, each.until) + FORGOTTEN
        }
        for uid, (pod, seen_at) in list(self._pending.items()):
            if now < seen_at + JUDGED_AFTER:
                continue
            del self._pending[uid]
            node = snapshot.nodes.get(pod.node_name)
            if node is not None and not loses_its_pods(node):
                workload = workload_of(pod)
                known[workload] = _evicted_again(known.get(workload), seen_at)
                self._on_eviction(pod)
        self._known = known

    def next_due(self, moment: ClockReading) -> float:
        """Return when the next eviction is to be judged, on the clock; infinity if there is none."""
        earliest = min((seen_at for _, seen_at in self._pending.values()), default=None)
        return inf if earliest is None else moment.on_the_clock(earliest + JUDGED_AFTER)

    def forget(self) -> None:
        """Start again: somebody else has evicted for Respread in the meantime."""
        self._known, self._pending, self._seen = {}, {}, None

    def name(self, workload: WorkloadName, evictor: str) -> None:
        """Record who said that they evicted a pod of a workload."""
        if (known := self._known.get(workload)) is not None:
            self._known[workload] = msgspec.structs.replace(known, name=evictor)

    def held(self, group: SpreadGroup, now: datetime) -> Held | None:
        """Return why a group is held; None unless another client evicts its pods repeatedly."""
        found = [
            (workload, known)
            for workload in group.workloads
            if (known := self._known.get(workload)) is not None and known.repeated and now < known.until
        ]
        if not found:
            return None
        workload, known = max(found, key=lambda each: each[1].until)
        return Held(
            Reason.OTHER_DESCHEDULER,
            f"{known.name or 'somebody else'} evicts pods of {workload} from nodes that stay, last at "
            f"{known.last:%H:%M:%S} UTC: the constraint is left alone until {known.until:%H:%M:%S} UTC",
            until=known.until,
        )


class _Departure(NamedTuple):
    pods: Map[ObjectKey, Pod]
    since: datetime


class Departures:
    """Remembers of each node that is losing its pods when it lost one last.

    A cordoned node is one of them from the first pod that somebody else evicts there until it takes pods again.
    """

    def __init__(self) -> None:
        self._marked = MarkedNodes()
        self._known: dict[str, _Departure] = {}

    def observe(self, snapshot: ClusterSnapshot, ours: Iterable[Pod], now: datetime) -> Mapping[str, datetime]:
        """Return when each node that is losing its pods lost one last, or began to.

        `ours` are the pods that we have evicted.
        """
        self._marked.advance(snapshot)
        drained = self._marked.drained(snapshot, ours, self._known)
        known: dict[str, _Departure] = {}
        for name in self._marked.tainted.keys() | drained:
            pods, before = snapshot.pods_by_node.get(name, _NO_PODS), self._known.get(name)
            lost = before is None or any(key not in pods for key in before.pods)
            known[name] = _Departure(pods, now if before is None or lost else before.since)
        self._known = known
        return {name: each.since for name, each in known.items()}


_EVENT_SECONDS: Final = 2.0
"""How long after an eviction its Event is looked for. Events are written in the background."""
MOST_WAITING: Final = 20
"""For how many evictions Events are looked for, one after another. Others are left without a name."""
MOST_EVENTS: Final = "50"
MOST_BYTES: Final = 4 << 20
"""Of all these Events together. An ordinary one has a kilobyte."""
_LONGEST_NAME: Final = 128
"""As the API server requires of events.k8s.io. It requires nothing of Events that are written as v1."""
_EVENTS: Final = "/apis/events.k8s.io/v1/namespaces/{namespace}/events"


class _Event(msgspec.Struct, rename="camel"):
    reporting_controller: str = ""
    reason: str = ""
    action: str = ""


class _Events(msgspec.Struct):
    items: list[_Event] | None = None


_read_events: Final = msgspec.json.Decoder(_Events).decode


def others_by_name(requests: Requests, metrics: Metrics) -> tuple[OtherEvictions, EvictorNames]:
    """Return what recognizes the evictions of others and counts them, and what looks for the names of these."""

    def evicted(pod: Pod) -> None:
        metrics.count(OTHER_EVICTIONS, namespace=pod.namespace)
        names.look_for(pod)

    others = OtherEvictions(evicted)
    names = EvictorNames(requests, others.name)
    return others, names


class EvictorNames:
    """Looks for the Events of evictions, one after another."""

    def __init__(self, requests: Requests, tell: Callable[[WorkloadName, str], None]) -> None:
        """Create it. `tell` is called with a workload and who reported that they evicted a pod of it."""
        self._requests = requests
        self._tell = tell
        self._waiting: asyncio.Queue[Pod] = asyncio.Queue(MOST_WAITING)

    def look_for(self, pod: Pod) -> None:
        """Look for the Event of an eviction soon. It is left out if there are too many."""
        if not self._waiting.full():
            self._waiting.put_nowait(pod)

    async def run(self) -> None:
        """Look for Events until cancelled."""
        while True:
            pod = await self._waiting.get()
            await asyncio.sleep(_EVENT_SECONDS)
            if name := await self._evictor_of(pod):
                self._tell(workload_of(pod), name)

    async def _evictor_of(self, pod: Pod) -> str:
        """Return who reported the eviction of a pod; empty if there is no report, or if Events can't be read."""
        query = {"fieldSelector": f"regarding.uid={pod.uid}", "limit": MOST_EVENTS}
        try:
            response = await self._requests.send(
                "GET", _EVENTS, {"namespace": pod.namespace}, query=query, most_bytes=MOST_BYTES
            )
            events = decoded(_read_events, response.body).items or () if response.succeeded else ()
        except (NoResponseError, TooLargeError, msgspec.DecodeError, UnicodeDecodeError):
            return ""  # It is only a name.
        return next((each.reporting_controller for each in events if _reports_eviction(each)), "")


def _reports_eviction(event: _Event) -> bool:
    """Return whether somebody else reports an eviction of their own.

    descheduler writes the action `Descheduled`, the Vertical Pod Autoscaler the reason `EvictedByVPA`. Notes are not
    read, because they contain names, such as that of the namespace.
    """
    name, words = event.reporting_controller, f"{event.reason} {event.action}".lower()
    is_name = name not in {"", REPORTING_CONTROLLER} and len(name) <= _LONGEST_NAME and name.isprintable()
    return is_name and ("evict" in words or "desched" in words)
