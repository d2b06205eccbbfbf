"""How fresh what we know of each kind is: for readiness, liveness and the metrics."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable

import msgspec


class KindHealth(msgspec.Struct, frozen=True, kw_only=True):
    """How the watch of one kind stands."""

    kind: str
    """The plural name of the resource."""
    synced: bool
    """Whether a complete list has arrived since the start."""
    problem: str
    """What keeps it from being listed or watched now, for the person who can change it; empty if nothing does."""
    age_seconds: float
    """Since the last page, event or bookmark; since the start if there was none."""
    idle_seconds: float
    """Since anything was last heard or asked."""


class WatchHealth:
    """What was heard of each kind, and when. Readable from any thread."""

    __slots__ = ("_asked", "_clock", "_heard", "_kinds", "_problems", "_synced")

    def __init__(self, kinds: Iterable[str], clock: Callable[[], float] = time.monotonic) -> None:
        """Start with every kind unheard.

        Args:
            kinds: Plural names of the watched resources.
            clock: Seconds of a clock that is never set.
        """
        self._kinds = tuple(kinds)
        self._clock = clock
        start = clock()
        self._heard = dict.fromkeys(self._kinds, start)
        self._asked = dict.fromkeys(self._kinds, start)
        self._problems: dict[str, str] = {}
        self._synced: frozenset[str] = frozenset()

    @property
    def kinds(self) -> tuple[str, ...]:
        """The watched kinds."""
        return self._kinds

    def asked(self, kind: str) -> None:
        """Note that a request for a kind is being made."""
        self._asked[kind] = self._clock()

    def heard(self, kind: str) -> None:
        """Note that a page, an event or a bookmark has come, so that whatever hindered the kind does no more."""
        self._heard[kind] = self._clock()
        if kind in self._problems:
            del self._problems[kind]

    def listed(self, kind: str) -> None:
        """Note that a complete list of a kind has been taken over."""
        self._synced |= {kind}

    def hindered(self, kind: str, problem: str) -> None:
        """Note what keeps a kind from being listed or watched; it is what readiness says until something is heard."""
        self._problems[kind] = problem

    @property
    def synced(self) -> bool:
        """Whether every kind has been listed completely at least once."""
        return len(self._synced) == len(self._kinds)

    def has_synced(self, kind: str) -> bool:
        """Return whether a kind has been listed completely at least once."""
        return kind in self._synced

    def ages_seconds(self) -> dict[str, float]:
        """Return for each kind how long ago the last page, event or bookmark came.

        The API server sends a bookmark about every minute, so more than two minutes mean that the watch is broken.
        """
        now = self._clock()
        return {kind: now - heard for kind, heard in self._heard.items()}

    def report(self) -> tuple[KindHealth, ...]:
        """Return how every kind stands."""
        now = self._clock()
        return tuple(
            KindHealth(
                kind=kind,
                synced=kind in self._synced,
                problem=self._problems.get(kind, ""),
                age_seconds=now - self._heard[kind],
                idle_seconds=now - max(self._heard[kind], self._asked[kind]),
            )
            for kind in self._kinds
        )

    def stuck(self, limit_seconds: float) -> tuple[str, ...]:
        """Return the kinds of which nothing was heard nor even asked for so long.

        While the API server can't be reached it is asked again and again, and a restart would not help; but a kind that
        nobody asks for any more has lost its watcher, and only a restart brings it back.
        """
        return tuple(each.kind for each in self.report() if each.idle_seconds > limit_seconds)
