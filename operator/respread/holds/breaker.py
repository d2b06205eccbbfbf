"""Pauses a policy whose moves fail one after another, for any groups.

A group that a move did not help backs off by itself (`backoff`). If moves of several workloads fail in a row, the cause
is elsewhere: in the nodes, the registry, an admission webhook. Then the policy evicts nothing for some time, and after
that makes a single move. If that succeeds, the pause is over. If it fails, the next pause is longer. Workloads are
counted, not moves, so that one workload that always fails does not pause the others.

A namespace in which nothing has failed waits only as long as the first pause, however long later ones are, and then has
a single move of its own. So the workloads of one tenant don't stop the others.

The data survives a restart: it is plain data, in wall-clock seconds.
"""

from __future__ import annotations

from datetime import UTC, datetime
from math import inf
from typing import Final

import msgspec
from immutables import Map

from respread.api.reasons import Reason
from respread.api.record import MAX_FAILED_WORKLOADS, MAX_WORKLOAD_LENGTH
from respread.cluster.pod import WorkloadName
from respread.growing_pause import GrowingPause
from respread.planning.held import Held

PAUSES: Final = GrowingPause(first_seconds=60.0, longest_seconds=4 * 3600.0)
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


_NONE: Final = Failures()


class Breakers(msgspec.Struct, frozen=True):
    """The data of all policies. A value: every change returns another one.

    `most` is the number of different workloads that may fail in a row before the policy is paused; 0 if it never is.
    """

    pause: GrowingPause = PAUSES
    policies: Map[str, Failures] = Map()

    def failed(self, policy: str, workload: WorkloadName, most: int, now: float) -> Breakers:
        """Record a move that failed.

        Args:
            policy: the policy for which it was made.
            workload: the workload of the pod.
            most: how many workloads may fail.
            now: seconds since the epoch.
        """
        known = self.policies.get(policy, _NONE)
        name, names = _name_of(workload), known.workloads
        if name not in names and len(names) < MAX_FAILED_WORKLOADS:
            names = (*names, name)
        after = msgspec.structs.replace(known, workloads=names)
        if self._tripped(after, most) and not self._lasts(known, now):
            after = self._paused(after, known.pauses + 1, now)
        return self._with(self.policies.set(policy, after))

    def succeeded(self, policy: str) -> Breakers:
        """Record a move that succeeded: earlier failures are forgotten."""
        return self._with(self.policies.delete(policy)) if policy in self.policies else self

    def undecided(self, policy: str, most: int, now: float) -> Breakers:
        """Record a move without a result, for example after a scale-down. If it was the single one, wait again."""
        known = self.policies.get(policy, _NONE)
        if not self._tripped(known, most) or self._lasts(known, now):
            return self
        return self._with(self.policies.set(policy, self._paused(known, known.pauses, now)))

    def paused(self, policy: str, most: int, now: float, namespace: str | None = None) -> Held | None:
        """Return why a policy evicts nothing now, or None if it is not paused.

        Args:
            policy: its name.
            most: how many workloads may fail.
            now: seconds since the epoch.
            namespace: the namespace; None for the policy as a whole.
        """
        known = self.policies.get(policy, _NONE)
        if not self._tripped(known, most) or not self._lasts(known, now):
            return None
        if namespace is not None and namespace not in self.failing_namespaces(policy):
            known = msgspec.structs.replace(known, until=self._until_elsewhere(known))
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
        if not self._tripped(known, most):
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
        lasting = [each for each in self.policies.values() if self._lasts(each, now)]
        ends = (end for each in lasting for end in (self._until_elsewhere(each), each.until) if end > now)
        return min(ends, default=inf)

    def _tripped(self, known: Failures, most: int) -> bool:
        return 0 < most <= len(known.workloads)

    def _lasts(self, known: Failures, now: float) -> bool:
        """Return whether a pause is still on. One longer than possible means that a clock was set back."""
        return now < known.until <= now + self.pause.longest_seconds

    def _until_elsewhere(self, known: Failures) -> float:
        """Return when a pause ends for namespaces in which nothing has failed."""
        began = known.until - self.pause.seconds(known.pauses)
        return min(known.until, began + self.pause.first_seconds)

    def _paused(self, known: Failures, pauses: int, now: float) -> Failures:
        return msgspec.structs.replace(known, pauses=pauses, until=now + self.pause.seconds(pauses))

    def _with(self, policies: Map[str, Failures]) -> Breakers:
        return Breakers(self.pause, policies)


def _name_of(workload: WorkloadName) -> str:
    # A longer name can only have been written into a status by somebody else.
    return f"{workload}{_IN}{workload.namespace}"[-MAX_WORKLOAD_LENGTH:]


def _what_failed(policy: str, known: Failures) -> str:
    count = len(known.workloads)
    names = ", ".join(known.workloads[-_NAMED:])
    others = f" and {count - _NAMED} more" if count > _NAMED else ""
    return f"evictions in the name of policy {policy} failed in a row, of pods of {names}{others}"
