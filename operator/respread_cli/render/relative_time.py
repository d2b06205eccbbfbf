"""Times as people at a terminal say them: how long until then, or since then."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Final

from respread.eviction.limits.remaining import in_words

_TIME: Final = re.compile(r"at (\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d))")


def with_relative_times(text: str, now: datetime) -> str:
    """Return a text with each time after "at", in RFC 3339, replaced: `in 34 s`, `2 min ago`."""
    return _TIME.sub(lambda found: relative(datetime.fromisoformat(found[1]), now), text)


def relative(time: datetime, now: datetime) -> str:
    """Return how long it is until a time, or since then. Both have a time zone."""
    seconds = round((time - now).total_seconds())
    return f"in {in_words(seconds)}" if seconds > 0 else f"{in_words(-seconds)} ago"
