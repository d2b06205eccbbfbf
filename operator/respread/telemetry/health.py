"""Named checks, and the answers of `/livez` and `/readyz` that consist of them.

Liveness fails if a restart would help. Readiness requires that the stored cluster is complete. The operator decides
which checks belong to which. This module defines the checks and the heartbeat of a loop.
"""

from __future__ import annotations

from collections.abc import Callable

import msgspec

MonotonicClock = Callable[[], float]
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

    __slots__ = ("_clock", "_last_seconds", "_limit_seconds", "_name")

    def __init__(self, name: str, *, limit_seconds: float, clock: MonotonicClock) -> None:
        """Start with a beat, so that a loop that never runs fails after the limit too.

        Args:
            name: The name of the check.
            limit_seconds: The longest time between two beats.
            clock: Read at each beat and each check.
        """
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
