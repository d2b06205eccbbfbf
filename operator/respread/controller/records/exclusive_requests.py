"""Requests that write what only the leader writes: statuses and records of policies."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from math import inf
from typing import Any, Final

from respread.kube.requests import Method, NoResponseError, Requests, Response

TIMEOUT_SECONDS: Final = 10.0
ARRIVAL_SECONDS: Final = 15.0
"""For how long a request that nobody answered may still arrive. It would overwrite what the next leader has written, so
that the Lease is not released meanwhile."""


class ExclusiveRequests:
    """Sends requests while no other replica can lead, and knows whether one of them may still arrive."""

    __slots__ = ("_clock", "_exclusive_seconds", "_requests", "_unanswered_at")

    def __init__(self, requests: Requests, clock: Callable[[], float], exclusive_seconds: Callable[[], float]) -> None:
        """Send through the API server.

        Args:
            requests: sends requests.
            clock: a monotonic clock in seconds.
            exclusive_seconds: for how long no other replica can lead.
        """
        self._requests = requests
        self._clock = clock
        self._exclusive_seconds = exclusive_seconds
        self._unanswered_at = -inf

    @property
    def uncertain(self) -> bool:
        """Whether a request may still be on its way: it was sent a short time ago, and was not answered."""
        return self._clock() - self._unanswered_at < ARRIVAL_SECONDS

    async def send(
        self, method: Method, path: str, names: Mapping[str, str], body: Mapping[str, Any]
    ) -> Response | None:
        """Send a request once, and return the answer; None if this replica does not lead any more: nothing was sent.

        Raises:
            NoResponseError: no answer, or not all of it, arrived.
        """
        timeout_seconds = min(TIMEOUT_SECONDS, self._exclusive_seconds())
        request = await self._requests.prepare(method, path, names, body=body, timeout_seconds=timeout_seconds)
        if self._exclusive_seconds() <= 0:  # The next leader may have written its own.
            return None
        try:
            return await request.send()
        except NoResponseError as error:
            if error.sent:
                self._unanswered_at = self._clock()
            raise
        except asyncio.CancelledError:
            self._unanswered_at = self._clock()
            raise
