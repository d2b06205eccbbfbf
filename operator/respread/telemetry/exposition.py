"""The text of `/metrics`: made by one thread of its own, once for all who ask meanwhile.

Making it takes a while where there are many series, and anybody who reaches the port can ask for it. So no number of
scrapes may take the threads that anything else waits for, hold up the event loop, or take more memory than a few.
"""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, NamedTuple, Self

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

WAIT_SECONDS: Final = 8.0
"""How long a scrape waits for its text. Prometheus waits for ten seconds: it had better be told."""
_COMPRESSION_LEVEL: Final = 1
"""The fastest: series compress tenfold all the same."""


class BusyError(Exception):
    """The text could not be made in time."""


class Exposed(NamedTuple):
    """What `/metrics` answers."""

    body: bytes
    content_type: str
    compressed: bool
    """Whether the body is compressed by gzip."""


_Format = tuple[str, bool]


class Exposition:
    """Makes the text of a registry: one at a time, for all who asked before it was begun."""

    __slots__ = ("_next", "_one_at_a_time", "_registry", "_thread", "_wait_seconds")

    def __init__(self, registry: CollectorRegistry, *, wait_seconds: float = WAIT_SECONDS) -> None:
        """Expose a registry.

        Args:
            registry: what is exposed.
            wait_seconds: how long who asks waits at most.
        """
        self._registry = registry
        self._wait_seconds = wait_seconds
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="scrape")
        self._one_at_a_time = asyncio.Lock()
        self._next: dict[_Format, asyncio.Task[Exposed]] = {}
        """By format, the text that is not begun yet."""

    def __enter__(self) -> Self:
        """Begin."""
        return self

    def __exit__(self, *_: object) -> None:
        """End without waiting for a text that is being made."""
        for task in self._next.values():
            task.cancel()
        self._thread.shutdown(wait=False, cancel_futures=True)

    async def text(self, accept: str, *, compressed: bool) -> Exposed:
        """Return the text as it is at this moment or later.

        Args:
            accept: the header by which the format is asked for.
            compressed: whether to compress it.

        Raises:
            BusyError: it could not be made in time.
        """
        encode, content_type = choose_encoder(accept)
        wanted = (content_type, compressed)
        task = self._next.get(wanted)
        if task is None:
            task = self._next[wanted] = asyncio.create_task(self._make(wanted, encode))
        try:
            async with asyncio.timeout(self._wait_seconds):
                return await asyncio.shield(task)  # others may wait for it, too
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


def _encoded(encode: Callable[[CollectorRegistry], bytes], registry: CollectorRegistry, *, compressed: bool) -> bytes:
    body = encode(registry)
    return gzip.compress(body, _COMPRESSION_LEVEL) if compressed else body
