"""The place of a field in the input."""

from __future__ import annotations

from typing import NamedTuple


class SourcePlace(NamedTuple):
    """A field of a document."""

    document: str
    """Its name in messages: a file and the document in it."""
    path: str = ""
    """Such as `profiles[0].name`; empty for the document itself."""

    def at(self, name: str) -> SourcePlace:
        """Return the place of a field of the object here."""
        return SourcePlace(self.document, f"{self.path}.{name}" if self.path else name)

    def beside(self, name: str) -> SourcePlace:
        """Return the place of another field of the same object."""
        above, _, _ = self.path.rpartition(".")
        return SourcePlace(self.document, above).at(name)

    def item(self, index: int) -> SourcePlace:
        """Return the place of an item of the list here."""
        return SourcePlace(self.document, f"{self.path}[{index}]")

    def __str__(self) -> str:
        """Return both, as an error starts."""
        return f"{self.document}: {self.path}" if self.path else self.document
