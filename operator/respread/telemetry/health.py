"""Whether the operator is alive, and whether it is ready, as named checks with a message each.

Alive means: the control loop turns, and every watch heard something (an event or a bookmark, which the API server sends
about once a minute) within its limit. Kopf does not restart a watcher that was cancelled, and a connection can stall in
silence; a restart of the process is the cure for both. Ready means: every watched kind was listed entirely.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

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


class Freshness:
    """When each of a fixed set of things last gave a sign of life."""

    __slots__ = ("_clock", "_last_seconds", "_limits_seconds")

    def __init__(self, limits_seconds: Mapping[str, float], *, clock: MonotonicClock) -> None:
        """Start with everything fresh: who is silent from the beginning fails after its limit like anyone else.

        Args:
            limits_seconds: The greatest age of each thing's last sign of life, by its name.
            clock: Read at each sign of life and each report.
        """
        self._clock = clock
        self._limits_seconds = dict(limits_seconds)
        self._last_seconds = dict.fromkeys(limits_seconds, clock())

    def touch(self, name: str) -> None:
        """Note a sign of life; a name that is not in the set is a KeyError."""
        if name not in self._last_seconds:
            raise KeyError(name)
        self._last_seconds[name] = self._clock()

    def ages_seconds(self) -> dict[str, float]:
        """Return the age of each last sign of life."""
        now = self._clock()
        return {name: now - last for name, last in self._last_seconds.items()}

    def checks(self) -> tuple[Check, ...]:
        """Return one check for each thing, failed if its last sign of life is older than its limit."""
        return tuple(
            Check(name, age <= limit, f"last sign of life {age:.0f} s ago, limit {limit:.0f} s")
            for (name, age), limit in zip(self.ages_seconds().items(), self._limits_seconds.values(), strict=True)
        )


class Synced:
    """Which watched kinds were listed entirely, and for those that were not, why."""

    __slots__ = ("_waiting",)

    def __init__(self, kinds: Iterable[str]) -> None:
        self._waiting: dict[str, str | None] = dict.fromkeys(kinds, "not listed yet")

    def mark_synced(self, kind: str) -> None:
        """Note that the kind was listed entirely."""
        self._change(kind, None)

    def mark_unsynced(self, kind: str, reason: str) -> None:
        """Note that what is held of the kind is not to be trusted, and why."""
        self._change(kind, reason)

    @property
    def complete(self) -> bool:
        """Whether every kind is synced."""
        return all(reason is None for reason in self._waiting.values())

    def checks(self) -> tuple[Check, ...]:
        """Return one check for each kind."""
        return tuple(Check(f"{kind}-synced", reason is None, reason or "") for kind, reason in self._waiting.items())

    def _change(self, kind: str, reason: str | None) -> None:
        if kind not in self._waiting:
            raise KeyError(kind)
        self._waiting[kind] = reason


class Health:
    """What `/livez` and `/readyz` answer from."""

    __slots__ = ("loop", "synced", "watches")

    def __init__(
        self, kinds: Iterable[str], *, loop_limit_seconds: float, watch_limit_seconds: float, clock: MonotonicClock
    ) -> None:
        """Expect signs of life from the control loop and from the watch of each kind.

        Args:
            kinds: The watched kinds, as `pods`.
            loop_limit_seconds: The longest time for one turn of the control loop.
            watch_limit_seconds: The longest time between two events or bookmarks of one kind; well above a minute, in
                which the API server sends a bookmark if nothing else.
            clock: Monotonic seconds.
        """
        kinds = tuple(kinds)
        self.loop = Freshness({"control-loop": loop_limit_seconds}, clock=clock)
        self.watches = Freshness(dict.fromkeys(kinds, watch_limit_seconds), clock=clock)
        self.synced = Synced(kinds)

    def beat(self) -> None:
        """Note a turn of the control loop."""
        self.loop.touch("control-loop")

    def live(self) -> HealthReport:
        """Report whether a restart would help."""
        watches = (msgspec.structs.replace(check, name=f"{check.name}-watch") for check in self.watches.checks())
        return HealthReport("livez", (*self.loop.checks(), *watches))

    def ready(self) -> HealthReport:
        """Report whether what is known of the cluster is complete."""
        return HealthReport("readyz", self.synced.checks())
