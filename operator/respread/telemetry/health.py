"""Named checks, those of watches among them, and the answers of `/livez` and `/readyz` that consist of them.

Liveness fails if a restart would help. Readiness requires that the stored cluster is complete. The operator decides
which checks belong to which.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

_MonotonicClock = Callable[[], float]
"""A monotonic clock in seconds: `time.monotonic`, except in tests."""


class Check(msgspec.Struct, frozen=True):
    """One check and its result."""

    name: str
    passed: bool
    message: str = ""
    """Why it failed, for the user."""


class HealthReport(msgspec.Struct, frozen=True):
    """All checks of one answer."""

    name: str
    """The name of the endpoint, such as `readyz`."""
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return all(check.passed for check in self.checks)

    def render(self) -> str:
        """Return one line per check and the verdict, in the form of the API server's `/readyz?verbose`."""
        lines = [f"[+]{c.name} ok" if c.passed else f"[-]{c.name} failed: {c.message}" for c in self.checks]
        return "\n".join([*lines, f"{self.name} check {'passed' if self.passed else 'failed'}", ""])


class Heartbeat:
    """When a loop last ran."""

    def __init__(self, name: str, *, limit_seconds: float, clock: _MonotonicClock) -> None:
        """Start with a beat, so that a loop that never runs fails after the limit too."""
        self._name = name
        self._limit_seconds = limit_seconds
        self._clock = clock
        self._last_seconds = clock()

    def beat(self) -> None:
        """Record that the loop has run."""
        self._last_seconds = self._clock()

    @property
    def age_seconds(self) -> float:
        """The time since the last beat."""
        return self._clock() - self._last_seconds

    def check(self) -> Check:
        """Return a check that fails if the last beat is older than the limit."""
        age = self.age_seconds
        return Check(
            self._name,
            age <= self._limit_seconds,
            f"last sign of life {age:.0f} s ago, limit {self._limit_seconds:.0f} s",
        )


SILENT_SECONDS: Final = 75
"""How long a watch may be silent before it is started again: longer than the minute between bookmarks, and not longer
than the API server remembers events."""
IDLE_LIMIT_SECONDS: Final = 180
"""More than twice that time."""
SILENCE_LIMIT_SECONDS: Final = 900


class WatchHealth:
    """What was received of each kind, and when. Any thread may read it."""

    def __init__(self, kinds: Iterable[str], clock: _MonotonicClock = time.monotonic) -> None:
        """Start with nothing received. Kinds are the plural names of the watched resources."""
        self.kinds = tuple(kinds)
        """The watched kinds."""
        self._clock = clock
        start = clock()
        self._heard = dict.fromkeys(self.kinds, start)
        self._asked = dict.fromkeys(self.kinds, start)
        self._problems: dict[str, str] = {}
        self._synced: frozenset[str] = frozenset()

    def asked(self, kind: str) -> None:
        """Record that a request for a kind is being made."""
        self._asked[kind] = self._clock()

    def answered(self, kind: str) -> None:
        """Record that a request was granted, so that an earlier obstacle is gone."""
        self._problems.pop(kind, None)

    def heard(self, kind: str) -> None:
        """Record that a page, an event or a bookmark has arrived."""
        self._heard[kind] = self._clock()

    def is_silent(self, kind: str) -> bool:
        """Return whether nothing was heard of a kind for so long that only a new list shows its state."""
        return self._clock() - self._heard[kind] >= SILENT_SECONDS

    def listed(self, kind: str) -> None:
        """Record that a complete list of a kind has been applied."""
        self._synced |= {kind}

    def hindered(self, kind: str, problem: str) -> None:
        """Record why a kind can't be listed or watched. Readiness reports it until a request is granted."""
        self._problems[kind] = problem

    @property
    def synced(self) -> bool:
        """Whether every kind has been listed completely at least once."""
        return len(self._synced) == len(self.kinds)

    def has_synced(self, kind: str) -> bool:
        """Return whether a kind has been listed completely at least once."""
        return kind in self._synced

    def ages_seconds(self) -> dict[str, float]:
        """Return the time since the last page, event or bookmark of each kind.

        The API server sends a bookmark about every minute, so more than two minutes mean that the watch is broken.
        """
        now = self._clock()
        return {kind: now - heard for kind, heard in self._heard.items()}

    def sync_checks(self) -> tuple[Check, ...]:
        """Return, for each kind, whether it has been listed completely, for readiness."""
        return tuple(
            Check(f"sync-{kind}", kind in self._synced and not problem, problem or "not listed yet")
            for kind in self.kinds
            for problem in (self._problems.get(kind, ""),)
        )

    def watch_checks(self) -> tuple[Check, ...]:
        """Return, for each kind, whether its watch is alive, for liveness.

        If a kind is not even requested any more, it has lost its watcher, and only a restart helps. If it is requested
        without success, it gets more time, because the API server may be down.
        """
        now = self._clock()
        checks: list[Check] = []
        for kind in self.kinds:
            silent, idle = now - self._heard[kind], now - max(self._heard[kind], self._asked[kind])
            message = f"nothing heard for {silent:.0f} s, nothing asked for {idle:.0f} s"
            passed = silent <= SILENCE_LIMIT_SECONDS and idle <= IDLE_LIMIT_SECONDS
            checks.append(Check(f"watch-{kind}", passed, message))
        return tuple(checks)

    def ready(self) -> HealthReport:
        """Return whether every kind has been listed completely."""
        return HealthReport("readyz", self.sync_checks())

    def live(self, heartbeat: Heartbeat) -> HealthReport:
        """Return whether a restart would not help: every watch and the loop with the heartbeat run."""
        return HealthReport("livez", (*self.watch_checks(), heartbeat.check()))
