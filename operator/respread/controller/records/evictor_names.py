"""Finds by Events who evicts pods besides Respread, to name them to users."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from respread.api.nesting import decoded
from respread.cluster.pod import Pod, WorkloadName, workload_of
from respread.holds.other_evictions import OtherEvictions
from respread.kube.events import REPORTING_CONTROLLER
from respread.kube.requests import NoResponseError, Requests, TooLargeError
from respread.telemetry.metrics import Metrics

EVENT_SECONDS: Final = 2.0
"""How long after an eviction its Event is looked for. Events are written in the background."""
MOST_WAITING: Final = 20
"""For how many evictions Events are looked for, one after another. Others are left without a name."""
MOST_EVENTS: Final = "50"
MOST_BYTES: Final = 4 << 20
"""Of all these Events together. An ordinary one has a kilobyte."""
LONGEST_NAME: Final = 128
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
        metrics.count_other_eviction(namespace=pod.namespace)
        names.look_for(pod)

    others = OtherEvictions(evicted)
    names = EvictorNames(requests, others.name)
    return others, names


class EvictorNames:
    """Looks for the Events of evictions, one after another."""

    __slots__ = ("_event_seconds", "_requests", "_tell", "_waiting")

    def __init__(
        self,
        requests: Requests,
        tell: Callable[[WorkloadName, str], None],
        *,
        event_seconds: float = EVENT_SECONDS,
    ) -> None:
        """Create it.

        Args:
            requests: sends requests.
            tell: called with a workload and who reported that they evicted a pod of it.
            event_seconds: how long after an eviction its Event is looked for.
        """
        self._requests = requests
        self._tell = tell
        self._event_seconds = event_seconds
        self._waiting: asyncio.Queue[Pod] = asyncio.Queue(MOST_WAITING)

    def look_for(self, pod: Pod) -> None:
        """Look for the Event of an eviction soon. It is left out if there are too many."""
        if not self._waiting.full():
            self._waiting.put_nowait(pod)

    async def run(self) -> None:
        """Look for Events until cancelled."""
        while True:
            pod = await self._waiting.get()
            await asyncio.sleep(self._event_seconds)
            if name := await self._evictor_of(pod):
                self._tell(workload_of(pod), name)
            self._waiting.task_done()

    async def idle(self) -> None:
        """Wait until there is no eviction whose Event is to be looked for."""
        await self._waiting.join()

    async def _evictor_of(self, pod: Pod) -> str:
        """Return who reported the eviction of a pod; empty if there is no report, or if Events can't be read."""
        query = {"fieldSelector": f"regarding.uid={pod.uid}", "limit": MOST_EVENTS}
        try:
            response = await self._requests.send(
                "GET",
                _EVENTS,
                {"namespace": pod.namespace},
                query=query,
                most_bytes=MOST_BYTES,
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
    is_name = name not in {"", REPORTING_CONTROLLER} and len(name) <= LONGEST_NAME and name.isprintable()
    return is_name and ("evict" in words or "desched" in words)
