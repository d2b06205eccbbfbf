"""Which file a worker of pytest-xdist takes next: those that compute run beside those that wait for a control plane.

A test on a control plane leaves its processor idle most of the time, and a test without one never does. So the last
worker begins with the files that only compute, while the others wait. A worker without such a file left takes another.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from xdist.scheduler import LoadFileScheduling  # type: ignore[import-untyped]  # xdist has no types
from xdist.workermanage import WorkerController  # type: ignore[import-untyped]  # as above

COMPUTING: Final = ("tests/unit/", "tests/properties/", "tests/conformance/")
"""The folders without tests on a control plane."""


class MixedFiles(LoadFileScheduling):  # type: ignore[misc]  # as above
    """Gives out whole files in the order of the collection, those that compute first to the last worker."""

    def _assign_work_unit(self, node: WorkerController) -> None:
        last = next(reversed(self.assigned_work))
        self.workqueue.move_to_end(next_file(self.workqueue, computing=node is last), last=False)
        super()._assign_work_unit(node)


def next_file(files: Iterable[str], *, computing: bool) -> str:
    """Return the first file of this kind, or the first one if none is left."""
    left = list(files)
    return next((each for each in left if each.startswith(COMPUTING) is computing), left[0])
