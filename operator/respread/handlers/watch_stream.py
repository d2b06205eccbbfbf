"""Reads the body of a watch for Kopf.

Kopf reads a watch as chunks of bytes. It ends the whole process after an error in it other than 410, and after an
invalid line, such as one that was cut off. This module passes only whole lines without objects, and of events that
arrive together only the last. It converts errors that a new list resolves to 410, after which Kopf lists again. It also
records everything that arrives, including bookmarks, which Kopf does not pass on.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from time import monotonic
from typing import Any, Final, Self

import aiohttp
import msgspec

from respread.cluster.stores import NODES
from respread.handlers.event_buffer import ErrorEventError, LightEvent, NotAnEventError
from respread.handlers.informer import Informer
from respread.kube.retry import Retry
from respread.telemetry.logs import get_logger

_GONE: Final = 410
_TOLD_SECONDS: Final = 10.0
"""How often Kopf receives the progress of a watch while only heartbeats arrive: often enough to continue from there
after a disconnection, and for Kopf not to consider the watch dead."""
_BETWEEN_HEARTBEATS_SECONDS: Final = 0.5
"""How long node heartbeats are collected, because each wake-up of the process costs as much as reading them."""
_BETWEEN_EVENTS_SECONDS: Final = 0.05
"""How long events are collected after some were passed on, because each time costs Kopf as much as reading some."""

_log: Final = get_logger(__name__)


class StreamContent:
    """A response's content that is read in other chunks.

    Everything except `iter_chunked` is the content's own, so that closing the response still ends its readers.
    """

    def __init__(self, content: aiohttp.StreamReader, chunks: Callable[[int], AsyncIterator[bytes]]) -> None:
        """Replace what is read of a content. `chunks` is given about how many bytes a chunk may have."""
        self._content = content
        self.iter_chunked = chunks

    def __getattr__(self, name: str) -> Any:
        """Return whatever else the content has."""
        return getattr(self._content, name)


def whole_lines(
    content: aiohttp.StreamReader, informer: Informer, retry: Retry, unread: Callable[[], int] = lambda: 0
) -> StreamContent:
    """Return the content of a watch in whole lines, as many at a time as have come.

    `unread` returns how many bytes have come that aiohttp did not read yet.
    """

    def waiting(taken: int) -> int:
        """Return how many bytes have arrived and were not taken."""
        return content.total_bytes - taken + unread()

    return StreamContent(
        content, lambda size: _WholeLines(or_lost(content.iter_chunked(size)), informer, retry, waiting)
    )


def expired(content: aiohttp.StreamReader) -> StreamContent:
    """Return the content of a watch whose version is too old: only the error, which makes Kopf list again."""

    async def chunks(_size: int) -> AsyncIterator[bytes]:
        yield msgspec.json.encode({"type": "ERROR", "object": {"code": _GONE}}) + b"\n"

    return StreamContent(content, chunks)


async def or_lost(chunks: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield the chunks of a body. If Kopf has closed the session, the connection is lost, which Kopf waits out."""
    try:
        async for chunk in chunks:
            yield chunk
    except RuntimeError as error:  # aiohttp's, which Kopf does not catch
        raise aiohttp.ClientConnectionError(str(error)) from error


class _WholeLines:
    """The content, cut at line ends."""

    def __init__(
        self, chunks: AsyncIterator[bytes], informer: Informer, retry: Retry, waiting: Callable[[int], int]
    ) -> None:
        self._chunks = chunks
        self._informer = informer
        self._retry = retry
        self._waiting = waiting
        self._taken = 0
        """The number of bytes read."""
        informer.backlog.emptied()  # Of the earlier watch.
        self._begun: list[bytes] = []
        """The parts of an incomplete line."""
        self._has_passed = False
        """Whether anything except errors has arrived."""
        self._broken: NotAnEventError | None = None
        """Why nothing more is read."""
        self._told_at_seconds = monotonic()
        """When Kopf last received something."""
        self._pause_seconds = _BETWEEN_HEARTBEATS_SECONDS if informer.kind == NODES else 0.0
        self._reads_at_seconds = 0.0
        """Until when data is collected."""

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> bytes:
        backlog = self._informer.backlog
        while True:
            if self._broken is not None:
                raise aiohttp.ClientPayloadError(str(self._broken)) from self._broken
            if (left := self._reads_at_seconds - monotonic()) > 0:
                await asyncio.sleep(left)
            if not self._waiting(self._taken):
                backlog.emptied()
            chunk = await anext(self._chunks)  # At the end of the stream, an incomplete line is dropped.
            taken_at_seconds = backlog.came()
            self._taken += len(chunk)
            has_all = not self._waiting(self._taken)
            self._informer.health.heard(self._informer.kind.resource)
            whole, line_end, rest = chunk.rpartition(b"\n")
            if not line_end:
                self._begun.append(rest)
                continue
            lines = b"".join((*self._begun, whole, line_end))
            self._begun = [rest] if rest else []
            passed = await self._read(lines)
            if has_all and not rest:
                backlog.emptied(taken_at_seconds)
            self._reads_at_seconds = monotonic() + (_BETWEEN_EVENTS_SECONDS if passed else self._pause_seconds)
            if passed:
                self._told_at_seconds = monotonic()
                return passed

    async def _read(self, lines: bytes) -> bytes:
        """Return what Kopf gets of some lines, up to the first error or invalid line.

        Of consecutive object events, this is the last one. Of heartbeats alone, it is usually nothing.
        """
        passed: list[bytes] = []
        pending: LightEvent | None = None
        end: bytes | None = None
        for line in lines.split(b"\n"):
            if not line:
                continue
            try:
                event = self._informer.read_event(line)
            except ErrorEventError:
                end = await self._translate(line, is_first=not (self._has_passed or passed or pending))
                break
            except NotAnEventError as error:
                self._broken = error
                await self._wait("A line of a watch can't be read; watching again", str(error))
                break
            if pending is not None and (event is None or (event.is_bookmark and not pending.is_bookmark)):
                passed.append(pending.encode())
            if event is None:
                passed.append(line)
            pending = event
        else:
            self._has_passed = True
            self._retry.succeeded()
        if pending is not None:
            was_told = monotonic() - self._told_at_seconds < _TOLD_SECONDS
            if passed or end is not None or not pending.is_bookmark or not was_told:
                passed.append(pending.encode())
        if end is not None:
            passed.append(end)
        return b"".join(line + b"\n" for line in passed)

    async def _translate(self, line: bytes, *, is_first: bool) -> bytes:
        """Return the error as 410, after waiting if it is another error, or came before anything else."""
        try:
            status = msgspec.json.decode(line, type=_ErrorEvent).object
        except msgspec.DecodeError:
            status = {}
        # It is normal for a version to become too old, unless it was listed just before.
        if status.get("code") != _GONE or is_first:
            message = f"{status.get('code')} {status.get('message') or status.get('reason') or ''}"
            await self._wait("The API server ended a watch with an error; listing again", message.strip())
        return msgspec.json.encode({"type": "ERROR", "object": {**status, "code": _GONE}})

    async def _wait(self, event: str, fault: str) -> None:
        seconds = self._retry.failed()
        _log.warning(event, kind=self._informer.kind.resource, fault=fault, wait_seconds=round(seconds, 1))
        await asyncio.sleep(seconds)


class _ErrorEvent(msgspec.Struct):
    object: dict[str, Any]
