"""Kubernetes Events (`events.k8s.io/v1`) on policies and workloads, written in the background.

Events inform users, and nothing depends on them. So recording one never waits and never fails, and the log says what
can't be written. A repeated Event within ten minutes is counted, and the number per object is limited, as by
client-go's event recorders, except that counts are written once a minute and not at every repetition.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
import time
from collections import OrderedDict, deque
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

from respread.kube.requests import Meaning, Method, NoResponseError, Requests, status_of
from respread.telemetry.logs import get_logger
from respread.timing import Allowance


class EventType(StrEnum):
    """The severity of an Event."""

    NORMAL = "Normal"
    WARNING = "Warning"


class EventObject(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """The object of an Event, as the API writes it."""

    api_version: str
    kind: str
    namespace: str = ""
    """Empty for a cluster-scoped object."""
    name: str
    uid: str
    """Without it, `kubectl describe` does not find the Event."""

    def __str__(self) -> str:
        """Return a readable form: `Deployment shop/web`."""
        return f"{self.kind} {self.namespace}/{self.name}" if self.namespace else f"{self.kind} {self.name}"


class Event(msgspec.Struct, frozen=True, kw_only=True):
    """Something to report about an object. Two equal ones are the same Event seen twice."""

    regarding: EventObject
    reason: str
    """The reason as one word in CamelCase."""
    action: str
    """What was done or not done, as one word in CamelCase."""
    note: str
    """A message for users. It is cut at 1 kB."""
    type: EventType = EventType.NORMAL
    related: EventObject | None = None


WINDOW_SECONDS: Final = 600.0
"""An Event that is repeated within this time is counted."""
COUNT_INTERVAL_SECONDS: Final = 60.0
"""The minimum time between two updates of one Event's count."""
OBJECT_BURST: Final = 25
"""New Events about one object at once, as many as client-go's spam filter allows."""
OBJECT_INTERVAL_SECONDS: Final = 10.0
"""After that, one new Event about the object in this time."""
REMEMBERED: Final = 4096
"""How many Events, and objects, are remembered."""


class Series(msgspec.Struct, eq=False):
    """One Event and how often it was seen."""

    event: Event
    name: str
    """Of the Event object."""
    first_time: datetime
    last_time: datetime
    last_seconds: float
    written_seconds: float
    count: int = 1
    written_count: int = 0
    """The count in the API server; 0 until the Event is created."""


class SeriesBook:
    """The Events of the last minutes. Each call passes the time."""

    def __init__(self, count_interval_seconds: float = COUNT_INTERVAL_SECONDS) -> None:
        self._count_interval_seconds = count_interval_seconds
        self._series: OrderedDict[Event, Series] = OrderedDict()
        self._allowances: OrderedDict[EventObject, Allowance] = OrderedDict()

    def see(self, event: Event, *, time: datetime, now_seconds: float) -> Series | None:
        """Count an Event, and return its series, which is new if the count is 1; None if there are too many."""
        series = self._series.get(event)
        if series is not None and now_seconds - series.last_seconds <= WINDOW_SECONDS:
            series.count += 1
            series.last_time = time
            series.last_seconds = now_seconds
            self._series.move_to_end(event)
            return series
        if not self._allow(event.regarding, now_seconds):
            return None
        series = Series(event, _make_name(event), time, time, now_seconds, now_seconds)
        self._series[event] = series
        self._series.move_to_end(event)
        _trim(self._series)
        return series

    def forget(self, series: Series) -> None:
        """Make the Event's next occurrence a new one, because its object is gone or could not be created."""
        if self._series.get(series.event) is series:
            del self._series[series.event]

    def uncounted(self) -> list[Series]:
        """Return the created Events whose count is not written yet."""
        return [series for series in self._series.values() if 0 < series.written_count < series.count]

    def due(self, now_seconds: float) -> list[Series]:
        """Return those of them that may be written now."""
        return [s for s in self.uncounted() if now_seconds >= s.written_seconds + self._count_interval_seconds]

    def _allow(self, regarding: EventObject, now_seconds: float) -> bool:
        """Take one of the object's tokens. It gets a new one every interval, up to the burst."""
        allowance = self._allowances.get(regarding) or Allowance.full(
            1 / OBJECT_INTERVAL_SECONDS, OBJECT_BURST, now_seconds
        )
        allowed = allowance.left(now_seconds) >= 1
        self._allowances[regarding] = allowance.used(int(allowed), now_seconds)
        self._allowances.move_to_end(regarding)
        _trim(self._allowances)
        return allowed


def _trim(book: OrderedDict[Any, Any]) -> None:
    while len(book) > REMEMBERED:
        book.popitem(last=False)


REPORTING_CONTROLLER: Final = "respread.dev/respread"

# Limits of the API's validation (pkg/apis/core/validation/events.go).
_LONGEST_NOTE_BYTES: Final = 1024
_LONGEST_WORD: Final = 128
_LONGEST_NAME: Final = 253
_NAMESPACE_OF_CLUSTER_OBJECTS: Final = "default"

_EVENTS: Final = "/apis/events.k8s.io/v1/namespaces/{namespace}/events"
_EVENT: Final = f"{_EVENTS}/{{name}}"

_REQUEST_SECONDS: Final = 10.0
_CLOSE_SECONDS: Final = 2.0
_RETRY_DELAYS_SECONDS: Final = (0.5, 2.0)
_LEAST_WRITE_INTERVAL_SECONDS: Final = 0.05
_COMPLAINT_INTERVAL_SECONDS: Final = 60.0


class EventRecorder:
    """Takes Events and writes them one after another."""

    def __init__(
        self,
        requests: Requests,
        *,
        instance: str,
        count_interval_seconds: float = COUNT_INTERVAL_SECONDS,
        queue_size: int = 1000,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        """Create it. `queue_size` Events may wait.

        The requests need `create` and `patch` of `events.k8s.io` Events. The instance is the replica that reports,
        usually its pod's name.
        """
        self._requests = requests
        self._instance = instance[:_LONGEST_WORD]
        self._count_interval_seconds = count_interval_seconds
        self._book = SeriesBook(count_interval_seconds)
        self._queue_size = queue_size
        self._unwritten: deque[Series] = deque()
        self._wake = asyncio.Event()
        self._now = now
        self._monotonic = monotonic
        self._complaints: dict[str, float] = {}
        self._log = get_logger(__name__)

    def record(self, event: Event) -> None:
        """Take an Event, which will be written soon. Call it in the event loop's thread.

        If there are too many, it is dropped and the log says so.
        """
        if len(self._unwritten) >= self._queue_size:
            self._complain("Events are dropped: too many wait to be written", regarding=event.regarding)
            return
        series = self._book.see(event, time=self._now(), now_seconds=self._monotonic())
        if series is None:
            self._complain("Events are dropped: too many about one object", regarding=event.regarding)
        elif series.count == 1:
            self._unwritten.append(series)
            self._wake.set()

    @contextlib.asynccontextmanager
    async def writing(self) -> AsyncIterator[EventRecorder]:
        """Write Events while the context lasts, and for up to two seconds after."""
        writer = asyncio.create_task(self._run(), name="events")
        try:
            yield self
        finally:
            writer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await writer
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_CLOSE_SECONDS):
                    await self._write_the_rest()

    async def _run(self) -> None:
        """Write what is recorded until cancelled. Look for counts to write at least every interval."""
        while True:
            # Not wait_for: until Python 3.12, it loses a cancellation that arrives together with its result.
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._count_interval_seconds):
                    await self._wake.wait()
            self._wake.clear()
            while self._unwritten:
                await self._create_first()
                await asyncio.sleep(_LEAST_WRITE_INTERVAL_SECONDS)
            for series in self._book.due(self._monotonic()):
                await self._write_count(series)
                await asyncio.sleep(_LEAST_WRITE_INTERVAL_SECONDS)

    async def _write_the_rest(self) -> None:
        """Write what waits and every count that the API server does not have."""
        while self._unwritten:
            await self._create_first()
        for series in self._book.uncounted():
            await self._write_count(series)

    async def _create_first(self) -> None:
        series = self._unwritten[0]  # It stays there until it is written, so that a cancelled attempt is repeated.
        created = await self._send(
            series,
            "POST",
            _EVENTS,
            lambda: self._make_body(series),
            done_if=Meaning.CONFLICT,  # An attempt whose answer was lost has created it.
        )
        self._unwritten.popleft()
        if created:
            series.written_count = 1
            series.written_seconds = self._monotonic()

    async def _write_count(self, series: Series) -> None:
        count = series.count
        body = {"series": {"count": count, "lastObservedTime": _format_micro_time(series.last_time)}}
        written = await self._send(series, "PATCH", _EVENT, lambda: body)
        if written:
            series.written_count = count
            series.written_seconds = self._monotonic()

    async def _send(
        self,
        series: Series,
        method: Method,
        path: str,
        make_body: Callable[[], dict[str, Any]],
        *,
        done_if: Meaning | None = None,
    ) -> bool:
        """Send a request, again if that may help, and return whether it is done. If not, the series is forgotten."""
        names = {"namespace": _namespace(series.event.regarding), "name": series.name}
        failure = ""
        for delay_seconds in (0.0, *_RETRY_DELAYS_SECONDS):
            await asyncio.sleep(delay_seconds)
            try:
                response = await self._requests.send(
                    method, path, names, body=make_body(), timeout_seconds=_REQUEST_SECONDS
                )
            except NoResponseError as error:
                failure = error.message
            except Exception as error:  # noqa: BLE001 - whatever it is, it must not end the writing of other Events
                failure = f"{type(error).__name__}: {error}"
                break
            else:
                if response.succeeded or response.meaning is done_if:
                    return True
                if not response.sent:  # The permission is missing, which is told elsewhere.
                    self._book.forget(series)
                    return False
                failure = f"{response.status_code} {status_of(response.body).message}"
                if response.meaning not in {Meaning.THROTTLED, Meaning.UNCERTAIN}:
                    break
        self._book.forget(series)
        self._complain("An Event could not be written", regarding=series.event.regarding, error=failure)
        return False

    def _make_body(self, series: Series) -> dict[str, Any]:
        event = series.event
        related = {} if event.related is None else {"related": event.related}
        return {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": series.name, "namespace": _namespace(event.regarding)},
            "eventTime": _format_micro_time(series.first_time),
            "type": event.type.value,
            "reason": event.reason[:_LONGEST_WORD],
            "action": event.action[:_LONGEST_WORD],
            "note": _shorten(event.note),
            "regarding": event.regarding,
            **related,
            "reportingController": REPORTING_CONTROLLER,
            "reportingInstance": self._instance,
        }

    def _complain(self, message: str, **fields: object) -> None:
        """Log a failure, each kind at most once a minute, because one cause may have thousands."""
        now = self._monotonic()
        if now - self._complaints.get(message, -_COMPLAINT_INTERVAL_SECONDS) >= _COMPLAINT_INTERVAL_SECONDS:
            self._complaints[message] = now
            self._log.warning(message, **fields)


def _make_name(event: Event) -> str:
    suffix = f".{secrets.token_hex(8)}"
    return event.regarding.name[: _LONGEST_NAME - len(suffix)].rstrip(".-") + suffix


def _namespace(regarding: EventObject) -> str:
    return regarding.namespace or _NAMESPACE_OF_CLUSTER_OBJECTS


def _shorten(note: str) -> str:
    """Cut the note to the length that the API accepts, in bytes."""
    encoded = note.encode("utf-8", errors="replace")
    if len(encoded) <= _LONGEST_NOTE_BYTES:
        return encoded.decode()
    return encoded[: _LONGEST_NOTE_BYTES - len("…".encode())].decode(errors="ignore") + "…"


def _format_micro_time(moment: datetime) -> str:
    return moment.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
