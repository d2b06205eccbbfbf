"""Distinguishes old events from new ones by resource version.

Kopf passes the events of one object to its handler in order, but a slow worker may still hold an event from before a
list, and a proxy or a restored connection may repeat a watch. If such an event were applied after the list, it would
bring back a deleted pod for good.
"""

from __future__ import annotations

from respread.cluster.meta import ObjectKey

_EVENTS_PER_GENERATION = 20_000


class Versions:
    """The known versions of the objects of one resource.

    Resource versions of one resource are comparable as integers (KEP-5504; this was always so in practice). If one is
    not an integer, nothing is known and everything counts as new.

    Memory is bounded: versions are stored in two generations. When the younger is full, the older is dropped, and
    everything not newer than the dropped versions counts as old. The process handles far fewer events at once than a
    generation.
    """

    __slots__ = ("_events_per_generation", "_floor", "_older", "_younger")

    def __init__(self, events_per_generation: int = _EVENTS_PER_GENERATION) -> None:
        self._events_per_generation = events_per_generation
        self._floor = 0
        self._older: dict[ObjectKey, int] = {}
        self._younger: dict[ObjectKey, int] = {}

    def restart(self, list_version: str) -> None:
        """Start again from a complete list, whose version applies to all objects in it and to all absent ones."""
        self._floor = _as_number(list_version) or 0
        self._older, self._younger = {}, {}

    def is_news(self, key: ObjectKey, version: str, *, deleted: bool = False) -> bool:
        """Return whether this version of the object is newer than all known ones, and store it.

        A deletion has a version of its own in etcd, but the API only reports the object's last version. So it is new if
        it is not older.
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
