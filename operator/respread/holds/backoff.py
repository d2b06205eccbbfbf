"""Growing pauses after moves that did not help: of spread groups, and of policies.

A group that a move did not improve backs off. The caller identifies a group and its situation by strings. If the
situation has changed (nodes were added, the workload was scaled), the group gets a new chance earlier, because what
failed before may work now. But it waits at least for a floor, which grows with the failures, because a single change
means little where things change all the time.

If moves of several workloads fail in a row, the cause is elsewhere: in the nodes, the registry, an admission webhook.
Then the policy evicts nothing for some time, and after that makes a single move. If that succeeds, the pause is over.
If it fails, the next pause is longer. Workloads are counted, not moves, so that one workload that always fails does not
pause the others. A namespace in which nothing has failed waits only as long as the first pause, however long later ones
are, and then has a single move of its own. So the workloads of one tenant don't stop the others.

The data survives a restart: it is plain data, in wall-clock seconds.
"""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime
from math import inf
from typing import Final

import msgspec
from immutables import Map

from respread.api.reasons import Held, Reason, number_of
from respread.api.record import MAX_FAILED_WORKLOADS, MAX_WORKLOAD_LENGTH
from respread.cluster.pod import WorkloadName
from respread.timing import GrowingPause

PAUSE: Final = GrowingPause(first_seconds=60.0, longest_seconds=4 * 3600.0)
"""Of groups and of policies."""
JITTER: Final = 0.2
"""The largest part of a group's delay that is added to it, so that groups which failed together don't return
together."""
FLOOR: Final = 1 / 8
"""The part of a delay for which a group is left alone even if its situation changes."""


def delay_seconds(group: str, failures: int) -> float:
    """Return how long a group backs off after this many failures in a row."""
    digest = hashlib.blake2b(f"\0{group}\0{failures}".encode(), digest_size=8).digest()
    return PAUSE.seconds(failures) * (1 + JITTER * int.from_bytes(digest) / (1 << 64))


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

    groups: Map[str, BackOff] = Map()

    def failed(self, group: str, situation: str, now: float, *, took_seconds: float = 0.0) -> BackOffs:
        """Record a move that did not improve a group.

        One that was made before the last one failed tells no more than that: it starts the delay anew, but makes it no
        longer. The name of a group survives a restart, and its situation stays equal while it does not change. `now` is
        in seconds since the epoch, and the move was made `took_seconds` before.
        """
        before = self.groups.get(group)
        failures = 0 if before is None else before.failures
        if before is None or now - took_seconds >= before.until - delay_seconds(group, failures):
            failures += 1
        until = now + delay_seconds(group, failures)
        return BackOffs(self.groups.set(group, BackOff(failures, until, situation)))

    def improved(self, group: str) -> BackOffs:
        """Record a move that improved a group: its failures are forgotten."""
        return BackOffs(self.groups.delete(group)) if group in self.groups else self

    def held(self, group: str, situation: str, now: float) -> Held | None:
        """Return why a group is left alone, or None if it is not.

        A time further away than any delay means that a clock was set back. It is ignored.
        """
        known = self.groups.get(group)
        if known is None or not now < known.until <= now + PAUSE.longest_seconds * (1 + JITTER):
            return None
        floor = known.until - delay_seconds(group, known.failures) * (1 - FLOOR)
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


_IN: Final = " in "
"""Separates a workload and its namespace. No name contains a space."""
_NAMED: Final = 3
"""How many of the workloads a message names."""


class Failures(msgspec.Struct, frozen=True):
    """The failures of a policy since its last success."""

    workloads: tuple[str, ...] = ()
    """Each once, in the order of their first failure."""
    pauses: int = 0
    """In a row."""
    until: float = 0.0
    """The end of the last pause, in seconds since the epoch."""

    def reach(self, most: int) -> bool:
        """Return whether as many workloads have failed as may."""
        return 0 < most <= len(self.workloads)

    def pause_lasts(self, now: float) -> bool:
        """Return whether a pause is still on. One longer than possible means that a clock was set back."""
        return now < self.until <= now + PAUSE.longest_seconds

    @property
    def until_elsewhere(self) -> float:
        """When the pause ends for namespaces in which nothing has failed."""
        return min(self.until, self.until - PAUSE.seconds(self.pauses) + PAUSE.first_seconds)

    def paused(self, pauses: int, now: float) -> Failures:
        """Return them at the start of a pause."""
        return msgspec.structs.replace(self, pauses=pauses, until=now + PAUSE.seconds(pauses))


_NONE: Final = Failures()


class Breakers(msgspec.Struct, frozen=True):
    """The data of all policies. A value: every change returns another one.

    `most` is the number of different workloads that may fail in a row before the policy is paused; 0 if it never is.
    What is called `now` is in seconds since the epoch.
    """

    policies: Map[str, Failures] = Map()

    def failed(self, policy: str, workload: WorkloadName, most: int, now: float) -> Breakers:
        """Record a move that failed."""
        known = self.policies.get(policy, _NONE)
        name, names = _name_of(workload), known.workloads
        if name not in names and len(names) < MAX_FAILED_WORKLOADS:
            names = (*names, name)
        after = msgspec.structs.replace(known, workloads=names)
        if after.reach(most) and not known.pause_lasts(now):
            after = after.paused(known.pauses + 1, now)
        return Breakers(self.policies.set(policy, after))

    def succeeded(self, policy: str) -> Breakers:
        """Record a move that succeeded: earlier failures are forgotten."""
        return Breakers(self.policies.delete(policy)) if policy in self.policies else self

    def undecided(self, policy: str, most: int, now: float) -> Breakers:
        """Record a move without a result, for example after a scale-down. If it was the single one, wait again."""
        known = self.policies.get(policy, _NONE)
        if not known.reach(most) or known.pause_lasts(now):
            return self
        return Breakers(self.policies.set(policy, known.paused(known.pauses, now)))

    def paused(self, policy: str, most: int, now: float, namespace: str | None = None) -> Held | None:
        """Return why a policy evicts nothing now, as a whole or in a namespace, or None if it is not paused."""
        known = self.policies.get(policy, _NONE)
        if not known.reach(most) or not known.pause_lasts(now):
            return None
        if namespace is not None and namespace not in self.failing_namespaces(policy):
            known = msgspec.structs.replace(known, until=known.until_elsewhere)
            if now >= known.until:
                return None
        until = datetime.fromtimestamp(int(known.until), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        return Held(
            Reason.PAUSED,
            f"{_what_failed(policy, known)}; nothing is evicted in its name until {until}, and then one pod is tried",
        )

    def single(self, policy: str, most: int) -> Held | None:
        """Return what holds all moves but one of a policy after its pause; None if it has none."""
        known = self.policies.get(policy, _NONE)
        if not known.reach(most):
            return None
        return Held(Reason.PAUSED, f"{_what_failed(policy, known)}; one pod is tried before others are evicted")

    def has_failed(self, policy: str, workload: WorkloadName) -> bool:
        """Return whether a move of a workload failed in a row for a policy."""
        return _name_of(workload) in self.policies.get(policy, _NONE).workloads

    def failing_namespaces(self, policy: str) -> frozenset[str]:
        """Return the namespaces of the workloads that failed in a row for a policy."""
        return frozenset(name.rpartition(_IN)[2] for name in self.policies.get(policy, _NONE).workloads)

    def next_end(self, now: float) -> float:
        """Return when the next pause ends; infinity if there is none."""
        lasting = [each for each in self.policies.values() if each.pause_lasts(now)]
        ends = (end for each in lasting for end in (each.until_elsewhere, each.until) if end > now)
        return min(ends, default=inf)


def _name_of(workload: WorkloadName) -> str:
    # A longer name can only have been written into a status by somebody else.
    return f"{workload}{_IN}{workload.namespace}"[-MAX_WORKLOAD_LENGTH:]


def _what_failed(policy: str, known: Failures) -> str:
    count = len(known.workloads)
    names = ", ".join(known.workloads[-_NAMED:])
    others = f" and {count - _NAMED} more" if count > _NAMED else ""
    return f"evictions in the name of policy {policy} failed in a row, of pods of {names}{others}"
