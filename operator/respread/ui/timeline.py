"""The course of the cluster since the page's server was started."""

from __future__ import annotations

from collections import deque
from datetime import datetime
from typing import Final

import msgspec

from respread.ui.changes import Happening
from respread.ui.overview import Overview

MOST_POINTS: Final = 600
MOST_HAPPENINGS: Final = 200


class TimePoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The cluster in numbers at one time."""

    time: datetime
    violated: int
    excess: int
    worst_skew: int
    in_flight: int


class TimelineChange(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The additions to the timeline since it was last sent."""

    points: tuple[TimePoint, ...]
    happenings: tuple[Happening, ...]


class Timeline:
    """Keeps the newest points and changes."""

    def __init__(self) -> None:
        self._points: deque[TimePoint] = deque(maxlen=MOST_POINTS)
        self._happenings: deque[Happening] = deque(maxlen=MOST_HAPPENINGS)

    def record(self, overview: Overview, found: tuple[Happening, ...]) -> TimelineChange:
        """Add changes, and return the addition."""
        point = TimePoint(
            time=overview.time,
            violated=overview.violated,
            excess=overview.excess,
            worst_skew=overview.worst_skew,
            in_flight=sum(row.in_flight for row in overview.rows),
        )
        self._points.append(point)
        self._happenings.extend(found)
        return TimelineChange(points=(point,), happenings=found)

    def everything(self) -> TimelineChange:
        """Return all that is kept."""
        return TimelineChange(points=tuple(self._points), happenings=tuple(self._happenings))
