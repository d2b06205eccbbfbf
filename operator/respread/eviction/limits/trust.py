"""How many pods of a workload may be in flight at once, by what became of its last replacements.

Where replacements never become Ready, limits that allow many evictions at once would have spent many healthy pods by
the time the first failure is known. So a workload begins with a few, and each replacement that becomes Ready doubles
them.
"""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec
from immutables import Map

from respread.cluster.workload import WorkloadName

FEW: Final = 5
"""The number of pods in flight at once before a replacement was Ready."""
VALID_SECONDS: Final = 3600.0
"""For how long the outcome of a move tells something about the next ones."""
_MOST_DOUBLINGS: Final = 12
_WEIGHT: Final = 0.2
"""How much the time of the last replacement counts in the mean of all."""


class _Ready(NamedTuple):
    number: int
    """The replacements that became Ready since one did not."""
    failed: bool
    """Whether one did not."""
    at: float
    """When the last one ended, in seconds since the epoch."""
    seconds: float | None = None
    """The mean time from the eviction until a replacement was Ready."""


class Trust(msgspec.Struct, frozen=True):
    """What became of the last replacements of workloads. A value: every change returns another one.

    Losing it costs a little time.
    """

    workloads: Map[WorkloadName, _Ready] = Map()

    def with_end(self, workload: WorkloadName, now: float, *, ready: bool, seconds: float | None = None) -> Trust:
        """Return it after a move has ended.

        Args:
            workload: of its pod.
            now: in seconds since the epoch.
            ready: whether its replacement was Ready.
            seconds: how long that took since the eviction; None if that is not known.
        """
        known = self._known(workload, now)
        number = known.number + 1 if ready else 0
        mean = known.seconds
        if ready and seconds is not None:
            mean = seconds if mean is None else mean + _WEIGHT * (seconds - mean)
        return Trust(self.workloads.set(workload, _Ready(number, known.failed or not ready, now, mean)))

    def most(self, workload: WorkloadName, now: float, more: int = 0) -> int:
        """Return how many pods of a workload may be in flight at once, as far as this decides it.

        Args:
            workload: the workload.
            now: in seconds since the epoch.
            more: as if so many more replacements were Ready.
        """
        known = self._known(workload, now)
        if known.failed and not known.number + more:
            return 1
        return FEW << min(known.number + more, _MOST_DOUBLINGS)

    def seconds(self, workload: WorkloadName, now: float) -> float | None:
        """Return how long the last replacements of a workload took until they were Ready; None if that is not known.

        The newer one was, the more it counts.
        """
        return self._known(workload, now).seconds

    def without_old(self, now: float) -> Trust:
        """Return it without what tells nothing any more."""
        old = [workload for workload, known in self.workloads.items() if now >= known.at + VALID_SECONDS]
        if not old:
            return self
        workloads = self.workloads
        for workload in old:
            workloads = workloads.delete(workload)
        return Trust(workloads)

    def _known(self, workload: WorkloadName, now: float) -> _Ready:
        known = self.workloads.get(workload)
        if known is None or now >= known.at + VALID_SECONDS:
            return _Ready(0, failed=False, at=now)
        return known
