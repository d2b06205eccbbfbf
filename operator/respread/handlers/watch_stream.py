"""The body of a watch, on its way to Kopf.

Kopf reads a watch as chunks of bytes, gives up the whole process on an error in it other than 410, and on a last line
that was cut off. Here only whole lines pass, an error that a new list cures is made to look like the one that Kopf
cures by a new list, and whatever comes is noted: bookmarks too, which Kopf keeps to itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any, Final, Self

import aiohttp
import msgspec

from respread.handlers.backoff import Backoff
from respread.handlers.feed import Feed
from respread.telemetry.logs import get_logger

_GONE: Final = 410
_ERROR_LINE: Final = b'{"type":"ERROR"'
"""How the API server begins an error event; no other line can, since a line break within JSON strings is escaped."""

_log: Final = get_logger(__name__)


class WatchStream:
    """A response's content that is read like it, line by whole line.

    Everything but `iter_chunked` is the content's own, so that closing the response still ends who waits for it.
    """

    def __init__(self, content: aiohttp.StreamReader, feed: Feed, backoff: Backoff) -> None:
        self._content = content
        self._feed = feed
        self._backoff = backoff

    def iter_chunked(self, size: int) -> AsyncIterator[bytes]:
        """Return whole lines, as many at a time as have come, in chunks of about `size` bytes."""
        return _WholeLines(self._content.iter_chunked(size), self._feed, self._backoff)

    def __getattr__(self, name: str) -> Any:
        """Return whatever else the content has."""
        return getattr(self._content, name)


class _WholeLines:
    """What comes, cut after line ends."""

    def __init__(self, chunks: AsyncIterator[bytes], feed: Feed, backoff: Backoff) -> None:
        self._chunks = chunks
        self._feed = feed
        self._backoff = backoff
        self._begun: list[bytes] = []
        """The pieces of a line whose end has not come yet."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        while True:
            chunk = await anext(self._chunks)  # at the end of the stream a line that has no end is dropped
            self._feed.health.heard(self._feed.kind.resource)
            whole, line_end, rest = chunk.rpartition(b"\n")
            if not line_end:
                self._begun.append(rest)
                continue
            lines = b"".join((*self._begun, whole, line_end))
            self._begun = [rest] if rest else []
            if lines.startswith(_ERROR_LINE) or b"\n" + _ERROR_LINE in lines:
                return await self._translate(lines)
            self._backoff.succeeded()
            return lines

    async def _translate(self, lines: bytes) -> bytes:
        """Return the lines up to the error and the error as 410; what follows it is void."""
        kept: list[bytes] = []
        for line in lines.splitlines(keepends=True):
            if line.startswith(_ERROR_LINE):
                status = _status_of(line)
                if status.get("code") != _GONE:
                    await self._wait(status)
                kept.append(msgspec.json.encode({"type": "ERROR", "object": {**status, "code": _GONE}}) + b"\n")
                break
            kept.append(line)
        return b"".join(kept)

    async def _wait(self, status: dict[str, Any]) -> None:
        seconds = self._backoff.failed()
        _log.warning(
            "The API server ended a watch with an error; listing anew",
            kind=self._feed.kind.resource,
            error=status.get("message") or status.get("reason") or "",
            code=status.get("code"),
            wait_seconds=round(seconds, 1),
        )
        await asyncio.sleep(seconds)


def _status_of(line: bytes) -> dict[str, Any]:
    try:
        status = msgspec.json.decode(line, type=_ErrorEvent).object
    except msgspec.DecodeError:
        return {}
    return status


class _ErrorEvent(msgspec.Struct):
    object: dict[str, Any]
