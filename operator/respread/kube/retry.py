"""Pauses between attempts: growing, with random parts, and endless."""

from __future__ import annotations

import random
from collections.abc import Iterator


class RetryDelays:
    """Delays in seconds, doubling up to a maximum, each with up to half of it removed at random; endless.

    Iterating starts from the minimum delay each time. Kopf uses this for its retries, which therefore never end,
    because a restart of the operator would not bring an API server back.
    """

    __slots__ = ("_greatest_seconds", "_least_seconds", "_random")

    def __init__(
        self, *, least_seconds: float = 0.5, greatest_seconds: float = 30.0, generator: random.Random | None = None
    ) -> None:
        self._least_seconds = least_seconds
        self._greatest_seconds = greatest_seconds
        self._random = generator or random.Random()  # noqa: S311 - spreads load, keeps no secret

    def __iter__(self) -> Iterator[float]:
        """Yield delays without end."""
        delay_seconds = self._least_seconds
        while True:
            yield delay_seconds * self._random.uniform(0.5, 1.0)
            delay_seconds = min(delay_seconds * 2, self._greatest_seconds)


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
