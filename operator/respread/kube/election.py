"""Takes part in the leader election, by the Lease that is currently the right one."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from typing import Final

from respread.cluster.meta import ObjectKey
from respread.kube.access import AccessError
from respread.kube.leadership import Elector
from respread.telemetry.logs import get_logger

INSTALLED_NAMESPACE: Final = "respread-system"
"""The namespace in which manifests/ install the operator, and of its Lease."""
COMMON_NAMESPACE: Final = "default"
"""The namespace of the Lease for operators outside of a cluster if none is installed. Every cluster has it, and nobody
can delete it."""
LOOK_SECONDS: Final = 0.5
"""How often the right Lease is determined: well before an operator whose pod was just created can lead."""

_log: Final = get_logger(__name__)


class Election:
    """One candidate, which switches to another Lease when an operator is installed while it runs.

    Everything that it does as the leader by one Lease has ended before it tries to get another.
    """

    __slots__ = ("_changeover_seconds", "_elector", "_make", "_may_wait", "_past_terms", "_place")

    def __init__(
        self,
        make: Callable[[ObjectKey], Elector],
        place: Callable[[], ObjectKey | None],
        *,
        may_wait: bool,
        changeover_seconds: float,
    ) -> None:
        """Create a candidate.

        Args:
            make: creates a candidate for one Lease.
            place: returns which Lease it is; None while that is unknown.
            may_wait: whether to wait for missing permissions to the Lease instead of ending.
            changeover_seconds: how long to wait before another Lease is tried, until all replicas have found it and no
                replica leads by the former one.
        """
        self._make = make
        self._place = place
        self._may_wait = may_wait
        self._changeover_seconds = changeover_seconds
        self._elector: Elector | None = None
        self._past_terms = 0

    def holds(self) -> bool:
        """Return whether this candidate provably leads."""
        return self._elector is not None and self._elector.holds()

    def term(self) -> int:
        """Return a number that changes whenever another replica may have led."""
        return self._past_terms + (0 if self._elector is None else self._elector.term)

    def exclusive_seconds(self) -> float:
        """Return for how long no other replica can become the leader."""
        return 0.0 if self._elector is None else self._elector.exclusive_seconds()

    async def run(self) -> None:
        """Take part until cancelled. The Lease is released at the end.

        Raises:
            AccessError: permissions to the Lease are missing, and it should not wait for them.
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
            _log.info("Another Lease is the right one now", lease=str(lease), wait_seconds=self._changeover_seconds)
            await asyncio.sleep(self._changeover_seconds)
            lease = self._place() or lease

    async def _other_than(self, lease: ObjectKey, elector: Elector, running: asyncio.Task[None]) -> ObjectKey:
        """Return the right Lease when it changes."""
        while True:
            await asyncio.wait([running], timeout=LOOK_SECONDS)
            if running.done():
                running.result()
            if elector.forbidden and not self._may_wait:
                raise AccessError(elector.forbidden)
            found = self._place()
            if found is not None and found != lease:
                return found
