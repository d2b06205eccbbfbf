"""Taking part in the election of the leader, by whichever Lease is the right one at the moment."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from respread.cluster.meta import ObjectKey
from respread.kube.access import AccessError
from respread.kube.leadership import Elector
from respread.telemetry.logs import get_logger

LOOK_SECONDS: Final = 0.5
"""How often it is asked which Lease is the right one: well before an operator whose pod was just made can lead."""

_log: Final = get_logger(__name__)


class Election:
    """One candidate, that goes over to another Lease when an operator is installed while it runs.

    What is done as the leader by one Lease has ended before another is tried for.
    """

    __slots__ = ("_elector", "_make", "_may_wait", "_past_terms", "_place", "_settle_seconds")

    def __init__(
        self,
        make: Callable[[ObjectKey], Elector],
        place: Callable[[], ObjectKey | None],
        *,
        may_wait: bool,
        settle_seconds: float,
    ) -> None:
        """Prepare a candidate.

        Args:
            make: makes a candidate for one Lease.
            place: tells which Lease it is; None as long as that is not known.
            may_wait: whether to wait for the rights to the Lease where they are missing, rather than to end.
            settle_seconds: how long to wait before another Lease is tried for: in that time all others have found it
                too, and whoever led by the former one does so no longer.
        """
        self._make = make
        self._place = place
        self._may_wait = may_wait
        self._settle_seconds = settle_seconds
        self._elector: Elector | None = None
        self._past_terms = 0

    def holds(self) -> bool:
        """Tell whether this candidate leads, provably."""
        return self._elector is not None and self._elector.holds()

    def term(self) -> int:
        """Return a number that differs whenever somebody else may have led since."""
        return self._past_terms + (0 if self._elector is None else self._elector.term)

    def exclusive_seconds(self) -> float:
        """Return for how long nobody else can become the leader."""
        return 0.0 if self._elector is None else self._elector.exclusive_seconds()

    async def run(self) -> None:
        """Take part until cancelled; the Lease is given up at the end.

        Raises:
            AccessError: the rights to the Lease are missing, and it is not to be waited for them.
        """
        while (lease := self._place()) is None:  # noqa: ASYNC110 - no event tells that everything is listed
            await asyncio.sleep(LOOK_SECONDS / 5)
        while True:
            _log.info("Taking part in the election of the leader", lease=str(lease))
            self._elector = elector = self._make(lease)
            running = asyncio.create_task(elector.run(), name="leader-election")
            try:
                lease = await self._other_than(lease, elector, running)
            finally:
                running.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    await running
                self._past_terms += elector.term
                self._elector = None
            _log.info("Another Lease is the right one now", lease=str(lease), wait_seconds=self._settle_seconds)
            await asyncio.sleep(self._settle_seconds)
            lease = self._place() or lease

    async def _other_than(self, lease: ObjectKey, elector: Elector, running: asyncio.Task[None]) -> ObjectKey:
        """Return the right Lease as soon as it is another."""
        while True:
            await asyncio.wait([running], timeout=LOOK_SECONDS)
            if running.done():
                running.result()
            if elector.forbidden and not self._may_wait:
                raise AccessError(elector.forbidden)
            found = self._place()
            if found is not None and found != lease:
                return found
