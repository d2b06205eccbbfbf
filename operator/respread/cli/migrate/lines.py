"""What becomes of a line of a descheduler's policy: a field of ours, or a comment that says why there is none."""

from __future__ import annotations

from typing import Any, NamedTuple

from respread.cli.migrate.place import SourcePlace


class Setting(NamedTuple):
    """A field of a policy of ours."""

    field: str
    """Below `spec`, as `victims.minAge`."""
    value: Any
    """As JSON has it."""
    why: str = ""
    """What a reader should know of it: a sentence or two, or nothing if its places say it."""
    places: tuple[SourcePlace, ...] = ()
    """What it was made of; none for what descheduler does unless told otherwise."""


class Remark(NamedTuple):
    """A line that has no field of ours."""

    places: tuple[SourcePlace, ...]
    why: str
    """Why there is none, and what to do."""
    caution: bool = False
    """Whether without it pods may be evicted that descheduler leaves alone."""


Line = Setting | Remark
