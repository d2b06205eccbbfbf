"""The result for a line of descheduler's policy: a field of our policy, or a comment that says why there is none."""

from __future__ import annotations

from typing import Any, NamedTuple

from respread.cli.migrate.place import SourcePlace


class Setting(NamedTuple):
    """A field of a policy of Respread."""

    field: str
    """Below `spec`, such as `victims.minAge`."""
    value: Any
    """As in JSON."""
    why: str = ""
    """What a reader should know: one or two sentences, or nothing if its places are enough."""
    places: tuple[SourcePlace, ...] = ()
    """The fields that it was made from; none for a default of descheduler."""


class Remark(NamedTuple):
    """A line without a corresponding field."""

    places: tuple[SourcePlace, ...]
    why: str
    """Why there is none, and what to do."""
    caution: bool = False
    """Whether pods may be evicted without it that descheduler protects."""


Line = Setting | Remark
