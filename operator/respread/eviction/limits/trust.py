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


class _Ready(NamedTuple):
    number: int
    """The replacements that became Ready since one did not."""
    failed: bool
    """Whether one did not."""
    at: float
    """When the last one ended, in seconds since the epoch."""


class Trust(msgspec.Struct, frozen=True):
    """What became of the last replacements of workloads. A value: every change returns another one.

    Losing it costs a little time.
    """

    workloads: Map[WorkloadName, _Ready] = Map()

    def with_end(self, workload: WorkloadName, now: float, *, ready: bool) -> Trust:
        """Return it after a move has ended, and whether its replacement was Ready."""
        known = self._known(workload, now)
        number = known.number + 1 if ready else 0
        return Trust(self.workloads.set(workload, _Ready(number, known.failed or not ready, now)))

    def most(self, workload: WorkloadName, now: float) -> int:
        """Return how many pods of a workload may be in flight at once, as far as this decides it."""
        known = self._known(workload, now)
        if known.failed and not known.number:
            return 1
        return FEW << min(known.number, _MOST_DOUBLINGS)

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
