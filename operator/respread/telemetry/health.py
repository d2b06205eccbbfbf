"""Named checks, and the answers of `/livez` and `/readyz` that are made of them.

Alive means that a restart would not help; ready means that what is known of the cluster is complete. Which checks make
up which is for the operator to say; here is what they look like, and the heartbeat of a loop.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

MonotonicClock = Callable[[], float]
"""Seconds that only grow, whatever is done to the time of day; `time.monotonic` but in tests."""


class Check(msgspec.Struct, frozen=True):
    """One thing that was looked at."""

    name: str
    passed: bool
    message: str = ""
    """Why it failed, for the person who must act."""


class HealthReport(msgspec.Struct, frozen=True):
    """All that was looked at for one answer."""

    name: str
    """Of the endpoint, such as `readyz`."""
    checks: tuple[Check, ...]

    @property
    def passed(self) -> bool:
        """Whether every check passed."""
        return all(check.passed for check in self.checks)

    def render(self) -> str:
        """Return one line a check and the verdict, in the form of the API server's `/readyz?verbose`."""
        lines = [f"[+]{c.name} ok" if c.passed else f"[-]{c.name} failed: {c.message}" for c in self.checks]
        return "\n".join([*lines, f"{self.name} check {'passed' if self.passed else 'failed'}", ""])


class Heartbeat:
    """When one thing that is to go round and round last did."""

    __slots__ = ("_clock", "_last_seconds", "_limit_seconds", "_name")

    def __init__(self, name: str, *, limit_seconds: float, clock: MonotonicClock) -> None:
        """Start with a beat: what is silent from the beginning fails after the limit like anything else.

        Args:
            name: Of its check.
            limit_seconds: The longest time between two beats.
            clock: Read at each beat and each check.
        """
        self._name = name
        self._limit_seconds = limit_seconds
        self._clock = clock
        self._last_seconds = clock()

    def beat(self) -> None:
        """Note that it went round."""
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
