"""Which Events to write: a repeated one within ten minutes is counted, and the number per object is limited.

Mirrors client-go's event recorders, except that counts are written once a minute and not at every repetition.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from datetime import datetime
from enum import StrEnum
from typing import Any, Final

import msgspec

from respread.allowance import Allowance


class EventType(StrEnum):
    """The severity of an Event."""

    NORMAL = "Normal"
    WARNING = "Warning"


class EventObject(msgspec.Struct, frozen=True, kw_only=True):
    """The object of an Event."""

    api_version: str
    kind: str
    namespace: str
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


class EventPace(msgspec.Struct, frozen=True, kw_only=True):
    """Limits for the writing of Events."""

    window_seconds: float = 600
    """An Event that is repeated within this time is counted."""
    count_interval_seconds: float = 60
    """The minimum time between two updates of one Event's count."""
    object_burst: int = 25
    """New Events about one object at once, as many as client-go's spam filter allows."""
    object_interval_seconds: float = 10
    """After that, one new Event about the object in this time."""
    remembered: int = 4096
    """How many Events, and objects, are remembered."""


DEFAULT_PACE: Final = EventPace()


class Series:
    """One Event and how often it was seen."""

    __slots__ = (
        "count",
        "event",
        "first_time",
        "last_seconds",
        "last_time",
        "name",
        "written_count",
        "written_seconds",
    )

    def __init__(self, event: Event, name: str, time: datetime, now_seconds: float) -> None:
        self.event = event
        self.name = name
        """Of the Event object."""
        self.first_time = time
        self.last_time = time
        self.last_seconds = now_seconds
        self.count = 1
        self.written_count = 0
        """The count in the API server; 0 until the Event is created."""
        self.written_seconds = now_seconds


class Verdict(StrEnum):
    """What to do with an Event that was seen."""

    NEW = "new"
    COUNTED = "counted"
    REFUSED = "refused"


class SeriesBook:
    """The Events of the last minutes. Each call passes the time."""

    __slots__ = ("_allowances", "_make_name", "_pace", "_series")

    def __init__(self, pace: EventPace, make_name: Callable[[Event], str]) -> None:
        """Start without Events.

        Args:
            pace: The limits.
            make_name: Returns a unique name for each new Event object.
        """
        self._pace = pace
        self._make_name = make_name
        self._series: OrderedDict[Event, Series] = OrderedDict()
        self._allowances: OrderedDict[EventObject, Allowance] = OrderedDict()

    def see(self, event: Event, *, time: datetime, now_seconds: float) -> tuple[Verdict, Series | None]:
        """Record an Event. NEW means that its series is to be created."""
        series = self._series.get(event)
        if series is not None and now_seconds - series.last_seconds <= self._pace.window_seconds:
            series.count += 1
            series.last_time = time
            series.last_seconds = now_seconds
            self._series.move_to_end(event)
            return Verdict.COUNTED, series
        if not self._allow(event.regarding, now_seconds):
            return Verdict.REFUSED, None
        series = Series(event, self._make_name(event), time, now_seconds)
        self._series[event] = series
        self._series.move_to_end(event)
        _trim(self._series, self._pace.remembered)
        return Verdict.NEW, series

    def forget(self, series: Series) -> None:
        """Make the Event's next occurrence a new one, because its object is gone or could not be created."""
        if self._series.get(series.event) is series:
            del self._series[series.event]

    def uncounted(self) -> list[Series]:
        """Return the created Events whose count is not written yet."""
        return [series for series in self._series.values() if 0 < series.written_count < series.count]

    def due(self, now_seconds: float) -> list[Series]:
        """Return those of them that may be written now."""
        return [s for s in self.uncounted() if now_seconds >= s.written_seconds + self._pace.count_interval_seconds]

    def _allow(self, regarding: EventObject, now_seconds: float) -> bool:
        """Take one of the object's tokens. It gets a new one every interval, up to the burst."""
        allowance = self._allowances.get(regarding) or Allowance.full(
            1 / self._pace.object_interval_seconds, self._pace.object_burst, now_seconds
        )
        allowed = allowance.left(now_seconds) >= 1
        self._allowances[regarding] = allowance.used(int(allowed), now_seconds)
        self._allowances.move_to_end(regarding)
        _trim(self._allowances, self._pace.remembered)
        return allowed


def _trim(book: OrderedDict[Any, Any], size: int) -> None:
    while len(book) > size:
        book.popitem(last=False)
