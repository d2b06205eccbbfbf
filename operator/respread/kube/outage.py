"""What stands between us and an answer for now: said once, then waited out, longer each time."""

from __future__ import annotations

import asyncio
from typing import Final

from respread.kube.retry import Retry
from respread.telemetry.logs import get_logger

_log: Final = get_logger(__name__)


class Outage:
    """In the way of one sort of requests, or not."""

    __slots__ = ("_problem", "retry")

    def __init__(self) -> None:
        """Start with nothing in the way."""
        self.retry = Retry()
        self._problem = ""

    async def wait(self, event: str, problem: str, *, of: str, at_least_seconds: float = 0.0) -> None:
        """Wait before asking again, and log why if it was not for the same reason the last time.

        Args:
            event: what to log.
            problem: what is in the way, and what to do about it.
            of: what was asked for.
            at_least_seconds: how long the API server wants to be left alone.
        """
        if problem != self._problem:
            self._problem = problem
            _log.error(event, kind=of, problem=problem)
        await asyncio.sleep(max(self.retry.failed(), at_least_seconds))

    def over(self) -> None:
        """Note that a request was granted. The pauses begin anew only after an answer that could be used."""
        self._problem = ""
