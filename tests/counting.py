"""Costs told in calls, which are the same on every machine, rather than in time."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

LINEAR: Final = 2.4
"""By how much more what doubles may cost; what is quadratic costs four times as much."""


def calls(work: Callable[[], object]) -> int:
    """Return how many functions are called for a piece of work, C's and Python's."""
    count = 0

    def on_event(_frame: FrameType, event: str, _argument: Any) -> None:
        nonlocal count
        count += event in {"call", "c_call"}

    before = sys.getprofile()
    sys.setprofile(on_event)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count
