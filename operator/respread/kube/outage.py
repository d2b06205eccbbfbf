"""An obstacle for requests: logged once, then waited out with growing pauses."""

from __future__ import annotations

import asyncio
from typing import Final

from respread.kube.retry import Retry
from respread.telemetry.logs import get_logger

_log: Final = get_logger(__name__)


class Outage:
    """The obstacle for one kind of requests, if there is one."""

    __slots__ = ("_problem", "retry")

    def __init__(self) -> None:
        self.retry = Retry()
        self._problem = ""

    async def wait(self, event: str, problem: str, *, of: str, at_least_seconds: float = 0.0) -> None:
        """Wait before asking again, and log the cause if it has changed.

        Args:
            event: what to log.
            problem: the obstacle, and what to do about it.
            of: what was requested.
            at_least_seconds: how long the API server asks to wait.
        """
        if problem != self._problem:
            self._problem = problem
            _log.error(event, kind=of, problem=problem)
        await asyncio.sleep(max(self.retry.failed(), at_least_seconds))

    def over(self) -> None:
        """Note that a request was accepted. The pauses restart only after a usable answer."""
        self._problem = ""
