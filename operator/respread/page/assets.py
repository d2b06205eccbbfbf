"""The files of the page in the package."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.resources import files
from typing import Final, NamedTuple

_CONTENT_TYPES: Final = {
    ".css": "text/css",
    ".html": "text/html",
    ".js": "text/javascript",
    ".svg": "image/svg+xml",
}


class Asset(NamedTuple):
    """A file of the page."""

    content: bytes
    content_type: str


def _read() -> dict[str, Asset]:
    found = {}
    for file in files("respread.page").joinpath("files").iterdir():
        content_type = _CONTENT_TYPES.get("." + file.name.rpartition(".")[2])
        if content_type is not None:
            found[file.name] = Asset(file.read_bytes(), content_type)
    return found


ASSETS: Final[Mapping[str, Asset]] = _read()
"""The files by name. Nothing else is served."""
