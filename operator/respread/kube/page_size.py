"""How many objects to ask a LIST for at once.

The API server counts objects, and one may take 20 bytes or 1.5 MiB, which whoever may create it decides. So a list
begins with few, asks for more while pages are small, and for fewer where they are not; and no page is read that is far
larger than all: it is asked for again in parts.
"""

from __future__ import annotations

from typing import Final

FIRST_OBJECTS: Final = 100
MOST_OBJECTS: Final = 500
WANTED_BYTES: Final = 8 << 20
MOST_BYTES: Final = 32 << 20
"""Of a page of more than one object."""
_SHRINK: Final = 8


class PageSize:
    """The size of the next page of one kind."""

    __slots__ = ("_most", "objects")

    def __init__(self) -> None:
        """Begin with few objects."""
        self.objects = FIRST_OBJECTS
        """How many to ask for next."""
        self._most = MOST_OBJECTS

    def is_too_large(self, size_bytes: int) -> bool:
        """Tell whether so much of a page is more than is read of it."""
        return size_bytes > MOST_BYTES and self.objects > 1

    def refused(self) -> None:
        """Note that a page was too large: where those objects are, no page is to be that large again."""
        self.objects = self._most = max(1, self.objects // _SHRINK)

    def took(self, size_bytes: int) -> None:
        """Note how large a page was that was read."""
        if size_bytes > WANTED_BYTES:
            self.objects = max(1, self.objects // 2)
        elif size_bytes < WANTED_BYTES // 2:
            self.objects = min(self._most, self.objects * 2)
