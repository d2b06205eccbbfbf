"""Durations in Go's syntax, for values that other programs parse by `time.ParseDuration`."""

from __future__ import annotations

import re
from datetime import timedelta
from fractions import Fraction
from typing import Final

_NANOSECONDS: Final = {
    "ns": 1,
    "us": 10**3,
    "\u00b5s": 10**3,  # micro sign
    "\u03bcs": 10**3,  # Greek letter mu
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h)")
_LEAST: Final = -(1 << 63)
_GREATEST: Final = (1 << 63) - 1
_LONGEST_TEXT: Final = 256
"""Go accepts longer ones. Nobody writes them, and exact arithmetic with them would take time."""


def parse_go_duration(text: str) -> timedelta | None:
    """Return a duration, rounded up to a microsecond, or None if `time.ParseDuration` would reject it.

    Unlike durations in policies, it may be negative, and it is at most the 292 years of Go's `time.Duration`.
    """
    if len(text) > _LONGEST_TEXT:
        return None
    sign, unsigned = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if unsigned == "0":
        return timedelta(0)
    nanoseconds, end = Fraction(0), 0
    while (part := _PART.match(unsigned, end)) is not None:
        # Go truncates each part to nanoseconds.
        nanoseconds += int(Fraction(part[1].rstrip(".")) * _NANOSECONDS[part[2]])
        end = part.end()
    if not end or end != len(unsigned) or not _LEAST <= sign * nanoseconds <= _GREATEST:
        return None
    return timedelta(microseconds=-(-sign * int(nanoseconds) // 1000))
