"""Telling what is old news from what is new, by resource version.

Kopf hands the events of one object to its handler in order, but a worker that lags may still hold an event from before
a LIST, and a proxy or a restored connection may replay a watch. Applied after the LIST, such an event would bring a
deleted pod back, and nothing would ever take it away again.
"""

from __future__ import annotations

from respread.cluster.meta import ObjectKey

_EVENTS_PER_GENERATION = 20_000


class Versions:
    """Which versions of the objects of one resource have been seen.

    Resource versions of one resource are comparable as integers (KEP-5504; it was always so in practice). Where one
    is not an integer, nothing is known and everything counts as new.

    Memory is bounded: versions are remembered in two generations; when the younger is full, the older is forgotten,
    and whatever is not newer than what was forgotten counts as old. Events that are in the process at once are far
    fewer than a generation.
    """

    __slots__ = ("_events_per_generation", "_floor", "_older", "_younger")

    def __init__(self, events_per_generation: int = _EVENTS_PER_GENERATION) -> None:
        self._events_per_generation = events_per_generation
        self._floor = 0
        self._older: dict[ObjectKey, int] = {}
        self._younger: dict[ObjectKey, int] = {}

    def restart(self, list_version: str) -> None:
        """Start again from a complete list, whose version is that of every object in it or absent from it."""
        self._floor = _as_number(list_version) or 0
        self._older, self._younger = {}, {}

    def is_news(self, key: ObjectKey, version: str, *, deleted: bool = False) -> bool:
        """Return whether this version of the object is newer than any seen before, and remember it.

        A deletion has a version of its own in etcd, but the API only says that it has the object's last: so it is news
        if it is not older.
        """
        number = _as_number(version)
        if number is None:
            return True
        seen = self._younger.get(key) or self._older.get(key) or self._floor
        if number < seen or (number == seen and not deleted):
            return False
        self._younger[key] = number
        if len(self._younger) >= self._events_per_generation:
            self._floor = max(self._floor, max(self._older.values(), default=0))
            self._older, self._younger = self._younger, {}
        return True


def _as_number(version: str) -> int | None:
    return int(version) if version.isascii() and version.isdigit() else None
