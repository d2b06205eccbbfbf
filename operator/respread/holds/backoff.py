"""Back-off of spread groups: growing pauses after moves that did not improve them.

The data survives a restart: it is plain data, in wall-clock seconds. The caller identifies a group and its situation by
strings. If the situation has changed (nodes were added, the workload was scaled), the group gets a new chance earlier,
because what failed before may work now. But it waits at least for a floor, which grows with the failures, because a
single change means little where things change all the time.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection
from datetime import UTC, datetime

import msgspec
from immutables import Map

from respread.api.reasons import Reason
from respread.api.words import number_of
from respread.growing_pause import GrowingPause
from respread.planning.held import Held


class BackOffRules(msgspec.Struct, frozen=True, kw_only=True):
    """How long a group backs off."""

    pause: GrowingPause = GrowingPause(first_seconds=60.0, longest_seconds=4 * 3600.0)
    jitter: float = 0.2
    """The largest part of a delay that is added to it, so that groups which failed together don't return together."""
    floor: float = 1 / 8
    """The part of a delay for which a group is left alone even if its situation changes."""
    seed: str = ""
    """The same seed gives the same jitter."""

    def delay_seconds(self, group: str, failures: int) -> float:
        """Return how long a group backs off after this many failures in a row."""
        digest = hashlib.blake2b(f"{self.seed}\0{group}\0{failures}".encode(), digest_size=8).digest()
        return self.pause.seconds(failures) * (1 + self.jitter * int.from_bytes(digest) / (1 << 64))


class BackOff(msgspec.Struct, frozen=True):
    """The data of one group."""

    failures: int
    """Moves in a row that did not improve it, those that were in flight at the same time as one."""
    until: float
    """Seconds since the epoch."""
    situation: str
    """The situation when the last of them failed."""


class BackOffs(msgspec.Struct, frozen=True):
    """The data of all groups. A value: every change returns another one."""

    rules: BackOffRules = BackOffRules()
    groups: Map[str, BackOff] = Map()

    def failed(self, group: str, situation: str, now: float, *, took_seconds: float = 0.0) -> BackOffs:
        """Record a move that did not improve a group.

        One that was made before the last one failed tells no more than that: it starts the delay anew, but makes it no
        longer.

        Args:
            group: a name for the group that survives a restart.
            situation: its current situation, in a form that stays equal while it does not change.
            now: seconds since the epoch.
            took_seconds: how long ago the move was made.
        """
        before = self.groups.get(group)
        failures = 0 if before is None else before.failures
        if before is None or now - took_seconds >= before.until - self.rules.delay_seconds(group, failures):
            failures += 1
        until = now + self.rules.delay_seconds(group, failures)
        return self._with(self.groups.set(group, BackOff(failures, until, situation)))

    def improved(self, group: str) -> BackOffs:
        """Record a move that improved a group: its failures are forgotten."""
        return self._with(self.groups.delete(group)) if group in self.groups else self

    def held(self, group: str, situation: str, now: float) -> Held | None:
        """Return why a group is left alone, or None if it is not.

        A time further away than any delay means that a clock was set back. It is ignored.
        """
        known = self.groups.get(group)
        if known is None or not now < known.until <= now + self._longest_seconds:
            return None
        floor = self._floor(group, known)
        floor_seconds = floor - now
        left = f"{number_of(known.failures, 'move')} in a row did not improve it; it is left alone for another"
        if known.situation != situation:
            if floor_seconds <= 0:
                return None
            message = f"{left} {floor_seconds:.0f} s at least, although its situation has changed"
            return Held(Reason.BACKING_OFF, message, datetime.fromtimestamp(floor, UTC))
        sooner = f"for {floor_seconds:.0f} s if" if floor_seconds > 0 else "until"
        message = f"{left} {known.until - now:.0f} s, or {sooner} its situation changes"
        return Held(Reason.BACKING_OFF, message, datetime.fromtimestamp(known.until, UTC))

    def without_others(self, groups: Collection[str]) -> BackOffs:
        """Forget all groups except these, because they no longer exist or are no longer violated."""
        kept = Map({group: known for group, known in self.groups.items() if group in groups})
        return self if len(kept) == len(self.groups) else self._with(kept)

    def _floor(self, group: str, known: BackOff) -> float:
        """Return until when a group is left alone in any case, derived from the end of its back-off."""
        return known.until - self.rules.delay_seconds(group, known.failures) * (1 - self.rules.floor)

    @property
    def _longest_seconds(self) -> float:
        return self.rules.pause.longest_seconds * (1 + self.rules.jitter)

    def _with(self, groups: Map[str, BackOff]) -> BackOffs:
        return BackOffs(self.rules, groups)
