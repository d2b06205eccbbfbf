"""The text of `/metrics`, produced by a thread of its own, once for all clients that wait.

With many series this takes some time, and everybody who reaches the port can request it. So no number of scrapes may
use the threads that others need, block the event loop, or use more memory than a few scrapes.
"""

from __future__ import annotations

import asyncio
import gzip
import re
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, Self

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

WAIT_SECONDS: Final = 8.0
"""How long a scrape waits for its text. Prometheus itself waits for ten seconds."""
_VERSION: Final = re.compile(r"version=([0-9]{0,3})[^;,]*")
"""A version in an Accept header. The client library compares it as it is, which fails for words, and repeats it in the
Content-Type, so that each would be a format of its own."""
_COMPRESSION_LEVEL: Final = 1
"""The fastest level: series still compress tenfold."""


class BusyError(Exception):
    """The text could not be produced in time."""


class Exposed(NamedTuple):
    """The answer of `/metrics`."""

    body: bytes
    content_type: str
    compressed: bool
    """Whether the body is compressed by gzip."""


_Format = tuple[str, bool]


class Exposition:
    """Produces the text of a registry, one at a time, for all clients that requested it before it was started."""

    __slots__ = ("_next", "_one_at_a_time", "_registry", "_thread", "_wait_seconds")

    def __init__(self, registry: CollectorRegistry, *, wait_seconds: float = WAIT_SECONDS) -> None:
        """Expose a registry.

        Args:
            registry: the registry.
            wait_seconds: how long a client waits at most.
        """
        self._registry = registry
        self._wait_seconds = wait_seconds
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="scrape")
        self._one_at_a_time = asyncio.Lock()
        self._next: dict[_Format, asyncio.Task[Exposed]] = {}
        """By format, the text that is not started yet."""

    def __enter__(self) -> Self:
        """Start the thread."""
        return self

    def __exit__(self, *_: object) -> None:
        """Stop without waiting for a text in production."""
        for task in self._next.values():
            task.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def text(self, accept: str, *, compressed: bool) -> Exposed:
        """Return the text as of now or later.

        Args:
            accept: the Accept header, which selects the format.
            compressed: whether to compress it.

        Raises:
            BusyError: it could not be produced in time.
        """
        encode, content_type = choose_encoder(_VERSION.sub(_known_version, accept))
        wanted = (content_type, compressed)
        task = self._next.get(wanted)
        if task is None:
            task = self._next[wanted] = asyncio.create_task(self._make(wanted, encode))
        try:
            async with asyncio.timeout(self._wait_seconds):
                return await asyncio.shield(task)  # Others may wait for it too.
        except TimeoutError as error:
            raise BusyError(f"the metrics could not be collected within {self._wait_seconds:g} s") from error

    async def _make(self, wanted: _Format, encode: Callable[[CollectorRegistry], bytes]) -> Exposed:
        content_type, compressed = wanted
        async with self._one_at_a_time:
            del self._next[wanted]
            body = await self._in_thread(lambda: _encoded(encode, self._registry, compressed=compressed))
        return Exposed(body, content_type, compressed)

    def _in_thread(self, work: Callable[[], bytes]) -> Awaitable[bytes]:
        return asyncio.get_running_loop().run_in_executor(self._thread, work)


def _known_version(asked: re.Match[str]) -> str:
    return "version=1.0.0" if int(asked[1] or "0") else "version=0.0.4"


def _encoded(encode: Callable[[CollectorRegistry], bytes], registry: CollectorRegistry, *, compressed: bool) -> bytes:
    body = encode(registry)
    return gzip.compress(body, _COMPRESSION_LEVEL) if compressed else body
