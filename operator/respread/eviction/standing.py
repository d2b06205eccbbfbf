"""What became of the last replacements, and how many places in flight that gives.

A pod whose replacement never becomes Ready keeps its place in flight for minutes. So that two such namespaces don't use
all places, a namespace may use all of a limit only after a replacement in it was Ready; see `unproven_share`. The
places go to the namespace with the fewest moves in flight (`fair_order`). Where limits allow many evictions at once,
many healthy pods of a workload would be spent by the time the first failure is known. So a workload begins with a few.
Each replacement that becomes Ready doubles the number, and each that takes longer than these did halves it twice.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable
from math import inf
from typing import Final, NamedTuple

import msgspec
from immutables import Map

from respread.cluster.pod import WorkloadName

FEW: Final = 5
"""The number of pods in flight at once before a replacement was Ready."""
VALID_SECONDS: Final = 3600.0
"""For how long the outcome of a move tells something about the next ones."""
FAILED_SECONDS: Final = 24 * 3600.0
"""The same of a failure. It is much longer than any back-off."""
_MOST_DOUBLINGS: Final = 12
_MOST_READY: Final = 20
"""Of the replacements that became Ready, how many count."""
_OF_ONE_LATE: Final = 2
"""How often a move that is late halves what these have doubled."""
_TOGETHER_SECONDS: Final = 1.0
"""Of the first few, a move is late that was sent this soon after one that ended well: they were sent together."""
_WEIGHT: Final = 0.2
"""How much the time of the last replacement counts in the mean of all."""


class _Ready(NamedTuple):
    number: int
    """The replacements that became Ready since one did not."""
    failed: bool
    """Whether the last one did not."""
    at: float
    """When the last one ended, in seconds since the epoch."""
    seconds: float | None = None
    """The mean time from the eviction until a replacement was Ready."""
    slowest: float = 0.0
    """The longest of these times; 0 if it is not known."""
    late: int = 0
    """How many moves in flight are late."""

    @property
    def late_seconds(self) -> float:
        """A move in flight for longer than this is late."""
        together = min(_TOGETHER_SECONDS, self.slowest / 2) if self.number < FEW else 0.0
        return self.slowest - together or inf

    def is_old(self, now: float) -> bool:
        """Whether it tells nothing any more."""
        return now >= self.at + (FAILED_SECONDS if self.failed else VALID_SECONDS)


class Trust(msgspec.Struct, frozen=True):
    """What became of the last replacements of workloads. A value: every change returns another one.

    Losing it costs a little time. What is called `now` is in seconds since the epoch.
    """

    workloads: Map[WorkloadName, _Ready] = Map()

    def with_end(self, workload: WorkloadName, now: float, *, ready: bool, seconds: float | None = None) -> Trust:
        """Return it after a move has ended.

        `seconds` is how long its replacement took since the eviction; None if that is not known.
        """
        known = self._known(workload, now)
        number = min(known.number + 1, _MOST_READY) if ready else 0
        mean, slowest = known.seconds, known.slowest
        if ready and seconds is not None:
            mean = seconds if mean is None else mean + _WEIGHT * (seconds - mean)
            slowest = max(seconds, slowest)
        return Trust(self.workloads.set(workload, _Ready(number, not ready, now, mean, slowest)))

    def beside(self, in_flight: Iterable[tuple[WorkloadName, float]], now: float) -> Trust:
        """Return it beside moves in flight.

        Of each move, `in_flight` has the workload, and how long ago the eviction was sent, in seconds.
        """
        late = Counter(name for name, seconds in in_flight if seconds > self._known(name, now).late_seconds)
        workloads = self.workloads
        for name, number in late.items():
            workloads = workloads.set(name, workloads[name]._replace(late=number))
        return Trust(workloads)

    def most(self, workload: WorkloadName, now: float, more: int = 0) -> int:
        """Return how many pods of a workload may be in flight at once, as far as this decides it.

        `more` counts as if so many more replacements were Ready.
        """
        known = self._known(workload, now)
        ready = known.number + more
        if known.failed and not ready:
            return 1
        return FEW << max(0, min(ready - _OF_ONE_LATE * known.late, _MOST_DOUBLINGS))

    def has_failed(self, workload: WorkloadName, now: float) -> bool:
        """Return whether the last replacement of a workload was not Ready."""
        return self._known(workload, now).failed

    def seconds(self, workload: WorkloadName, now: float) -> float | None:
        """Return how long the last replacements of a workload took until they were Ready; None if that is not known.

        The newer one was, the more it counts.
        """
        known = self._known(workload, now)
        return known.seconds if now < known.at + VALID_SECONDS else None

    def without_old(self, now: float) -> Trust:
        """Return it without what tells nothing any more."""
        old = [workload for workload, known in self.workloads.items() if known.is_old(now)]
        if not old:
            return self
        workloads = self.workloads
        for workload in old:
            workloads = workloads.delete(workload)
        return Trust(workloads)

    def _known(self, workload: WorkloadName, now: float) -> _Ready:
        known = self.workloads.get(workload)
        if known is None or known.is_old(now):
            return _Ready(0, failed=False, at=now)
        return known


UNPROVEN_SHARE: Final = 1 / 5
"""The part of `limits.inFlight` for all namespaces in which no replacement was Ready yet, or not the last one."""


class Standings(msgspec.Struct, frozen=True):
    """A value: every change returns another one. Losing it only costs a little time."""

    ready: Map[str, bool] = Map()
    """By namespace, whether the last replacement was Ready; not there before the first move has ended."""
    served: Map[str, int] = Map()
    """By namespace, the number of the last eviction there."""
    evictions: int = 0
    """The number of evictions, in all namespaces."""

    def with_end(self, namespace: str, *, ready: bool) -> Standings:
        """Return them after a move has ended, and whether its replacement was Ready."""
        return msgspec.structs.replace(self, ready=self.ready.set(namespace, ready))

    def with_eviction(self, namespace: str) -> Standings:
        """Return them after a namespace was served."""
        number = self.evictions + 1
        return msgspec.structs.replace(self, served=self.served.set(namespace, number), evictions=number)

    def among(self, namespaces: Collection[str]) -> Standings:
        """Return them without namespaces that are gone."""
        if all(name in namespaces for known in (self.ready, self.served) for name in known):
            return self
        return msgspec.structs.replace(
            self,
            ready=Map({name: ready for name, ready in self.ready.items() if name in namespaces}),
            served=Map({name: number for name, number in self.served.items() if name in namespaces}),
        )


def unproven_share(in_flight: int) -> int:
    """Return how many of a limit's places unproven namespaces have together; at least one."""
    return max(1, round(in_flight * UNPROVEN_SHARE))
