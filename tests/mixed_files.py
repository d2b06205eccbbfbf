"""Which file a worker of pytest-xdist takes next: files that compute run beside files that wait for a control plane.

A test on a control plane leaves its CPU idle most of the time, and a test without one uses it all the time. The last
worker therefore takes the files that compute first, and the other workers take the others first.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]  # xdist has no types
from xdist.workermanage import WorkerController  # type: ignore[import-untyped]  # as above

COMPUTING: Final = ("tests/unit/", "tests/properties/", "tests/conformance/")
"""The folders without tests on a control plane."""


class MixedFiles(LoadFileScheduling):  # type: ignore[misc]  # as above
    """Distributes whole files in the order of the collection. The last worker gets the files that compute first."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        last = next(reversed(self.assigned_work))
        self.workqueue.move_to_end(next_file(self.workqueue, computing=node is last), last=False)
        super()._assign_work_unit(node)


def next_file(files: Iterable[str], *, computing: bool) -> str:
    """Return the first file of this kind, or the first one if none is left."""
    left = list(files)
    return next((each for each in left if each.startswith(COMPUTING) is computing), left[0])
