"""How many objects to request per page of a list.

The API server counts objects, but one may have 20 bytes or 1.5 MiB, depending on its author. So a list starts with few
objects, asks for more while pages are small, and for fewer if they are not. A page that is far too large is not read,
but requested again in parts.
"""

from __future__ import annotations

from typing import Final

FIRST_OBJECTS: Final = 100
MOST_OBJECTS: Final = 500
WANTED_BYTES: Final = 8 << 20
MOST_BYTES: Final = 32 << 20
"""For a page with more than one object."""
SHRINK: Final = 8
"""By which factor a page is made smaller that was too large."""


class PageSize:
    """The size of the next page of one kind."""

    __slots__ = ("_most", "objects")

    def __init__(self) -> None:
        self.objects = FIRST_OBJECTS
        """How many objects to request next."""
        self._most = MOST_OBJECTS

    def is_too_large(self, size_bytes: int) -> bool:
        """Return whether a page of this size is too large to be read."""
        return size_bytes > MOST_BYTES and self.objects > 1

    def refused(self) -> None:
        """Record that a page was too large, so that no page of these objects is that large again."""
        self.objects = self._most = max(1, self.objects // SHRINK)

    def was_slow(self) -> None:
        """Record that a page did not arrive in time. As large a one would not either, so none is requested again."""
        self.objects = self._most = max(1, self.objects // 2)

    def took(self, size_bytes: int) -> None:
        """Record the size of a page that was read."""
        if size_bytes > WANTED_BYTES:
            self.objects = max(1, self.objects // 2)
        elif size_bytes < WANTED_BYTES // 2:
            self.objects = min(self._most, self.objects * 2)
