"""Pauses between attempts, growing, with random parts, and endless; and obstacles that are waited out with them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from itertools import count
from typing import Final

from respread.growing_pause import GrowingPause
from respread.telemetry.logs import get_logger


class RetryDelays:
    """Delays in seconds, doubling up to a maximum, each with up to half of it removed at random; endless.

    Iterating starts from the minimum delay each time. Kopf uses this for its retries, which therefore never end,
    because a restart of the operator would not bring an API server back.
    """

    __slots__ = ("_pause", "_random")

    def __init__(
        self, *, least_seconds: float = 0.5, greatest_seconds: float = 30.0, generator: random.Random | None = None
    ) -> None:
        self._pause = GrowingPause(least_seconds, greatest_seconds)
        self._random = generator or random.Random()  # noqa: S311 - spreads load, keeps no secret

    def __iter__(self) -> Iterator[float]:
        """Return delays without end."""
        return (self._pause.seconds(times) * self._random.uniform(0.5, 1.0) for times in count(1))


class Retry:
    """The pauses of one thing that fails and succeeds again."""

    __slots__ = ("_delays", "_spacing")

    def __init__(self, delays: RetryDelays | None = None) -> None:
        self._spacing = delays or RetryDelays()
        self._delays: Iterator[float] | None = None

    @property
    def failing(self) -> bool:
        """Whether it has failed since the last success."""
        return self._delays is not None

    def failed(self) -> float:
        """Record a failure, and return for how many seconds to wait."""
        if self._delays is None:
            self._delays = iter(self._spacing)
        return next(self._delays)

    def succeeded(self) -> None:
        """Record a success: the next failure starts from the minimum delay."""
        self._delays = None


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
