"""Python's garbage collector, set for a process that keeps much for ever and makes and drops a little all the time."""

from __future__ import annotations

import atexit
import gc
from typing import Final

_THRESHOLDS: Final = (20_000, 20, 100)


def relax_garbage_collection() -> None:
    """Look for reference cycles far less often than by default.

    By default all young objects are examined after every 700 new ones, which is every few watch events and a quarter
    of the CPU they take. What the cluster state drops is freed at once by reference counting: it has no cycles. And at
    the end of the process nothing is looked through any more, which with 150,000 pods would take seconds. What was
    imported until now stays for ever, so it is not looked through either.
    """
    gc.freeze()
    gc.set_threshold(*_THRESHOLDS)
    atexit.unregister(gc.freeze)
    atexit.register(gc.freeze)
