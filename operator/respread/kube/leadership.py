"""Leader election: only the replica that holds a Lease evicts, and only while it can prove that it holds it.

Two clocks decide, and neither is the time of day. The leader counts from before it *requested* a renewal and stops
leading `renew_deadline_seconds` later. The others count from after they *saw* a renewal and wait for all of
`lease_seconds`. The time in between is for an eviction to arrive before the next leader starts.

`kubernetes.aio.leaderelection` is not used: it compares times of day, waits for a renewal without a limit while the
leader continues, ends after a loss or a lost connection, and never releases the Lease. See docs/eviction.md.

Which Lease is the right one can change while an operator runs outside of the cluster: `Election` follows it.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import sys
import time
from collections.abc import Callable
from datetime import UTC, datetime
from math import inf
from typing import Any, Final

import msgspec

from respread import __version__
from respread.cluster.meta import VERSION, ObjectKey
from respread.kube.access import AccessError
from respread.kube.requests import Meaning, NoResponseError, Requests, Response
from respread.telemetry.logs import get_logger

INSTALLED_NAMESPACE: Final = "respread-system"
"""The namespace in which manifests/ install the operator, and of its Lease."""
COMMON_NAMESPACE: Final = "default"
"""The namespace of the Lease for operators outside of a cluster if none is installed. Every cluster has it, and nobody
can delete it."""
LOOK_SECONDS: Final = 0.5
"""How often the right Lease is determined: well before an operator whose pod was just created can lead."""
_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
_LEASE: Final = f"{_LEASES}/{{name}}"
_RETRY_SECONDS: Final = 2.0
_JITTER: Final = 0.2
_LEAST_PAUSE_SECONDS: Final = 0.01
_RELEASE_SECONDS: Final = 2.0
"""How long the end of a process waits for its Lease to be released."""
_RELEASED_SECONDS: Final = 1
"""The duration in a Lease that its holder has released. No leader uses one as short."""

_log = get_logger(__name__)


class LeaseTimes(msgspec.Struct, frozen=True):
    """How long a Lease is held. Each time is longer than the next, as safety requires.

    The defaults are those of the control plane's own components.
    """

    lease_seconds: int = 15
    """How long the others wait for a leader that does not renew."""

    @property
    def renew_deadline_seconds(self) -> float:
        """How long after its last renewal a leader continues."""
        return self.lease_seconds * 2 / 3

    @property
    def retry_seconds(self) -> float:
        """The time from one renewal, or one attempt to get the Lease, to the next.

        A leader looks at the Lease at least as often as by default: others may have shorter times, and wait no longer.
        """
        return min(self.lease_seconds * 2 / 15, _RETRY_SECONDS)


def seconds_since_boot() -> float:
    """Return seconds of a clock that can't be set and that continues while the machine sleeps."""
    if sys.platform != "linux":
        return time.monotonic()
    return time.clock_gettime(time.CLOCK_BOOTTIME)


class Elector:
    """One candidate for a Lease.

    `run` tries to get it and keeps it renewed. If the Lease is lost, it tries to get it again. Cancelling `run`
    releases the Lease at once, so first end everything that is done as the leader.
    """

    def __init__(
        self,
        requests: Requests,
        lease: ObjectKey,
        identity: str,
        *,
        times: LeaseTimes = LeaseTimes(),  # noqa: B008 - a value
        clock: Callable[[], float] = seconds_since_boot,
        on_change: Callable[[bool], None] | None = None,
        may_give_up: Callable[[], bool] = lambda: True,
        is_first: Callable[[], bool] = lambda: False,
    ) -> None:
        """Create a candidate.

        If the Lease does not exist, it is created without a holder. No other process, past or present, may have the
        same identity. The clock continues while the process is frozen. `on_change` is called when the Lease was taken
        and when it was lost.

        `may_give_up` is called at the end: whether nothing that was done as the leader is still on its way. If not, the
        Lease expires instead. `is_first` is called while the Lease has never been held: whether certainly nobody has
        ever led. Otherwise it may have been deleted while somebody leads, who gets the duration of the Lease to find
        out.
        """
        self.lease = lease
        self.identity = identity
        self.times = times
        self._requests = requests
        self._clock = clock
        self._on_change = on_change
        self._may_give_up = may_give_up
        self._is_first = is_first
        self._random = random.Random()  # noqa: S311 - keeps candidates apart, no secret
        self._renewed_at = -inf
        self._leading = False
        self._object: dict[str, Any] | None = None
        self._seen: tuple[Any, ...] | None = None
        self._seen_at = 0.0
        self.term = 0
        """How often this candidate took the Lease. A new number means that others may have led. The Lease's own counter
        is lost when somebody deletes it."""
        self._taken = False
        """Whether another replica or nobody held the Lease when we last began to write it as ours."""
        self._is_vacant = False
        """Whether the Lease had never been held when it was last seen, for example after it was deleted and created
        again."""
        self._is_released = False
        """Whether its holder had released the Lease when it was last seen."""
        self._is_ours = False
        """Whether the Lease was ours when it was last seen. If somebody else wrote our name into it, it is not."""
        self._acquired = ""
        """When we last took the Lease, as we wrote it."""
        self._said_seconds = 0.0
        """The duration that the Lease said when it was last seen."""
        self._seen_seconds = 0.0
        """How long the others have to wait by what was seen so far."""
        self.holder = ""
        """The last known holder of the Lease; empty if there was none."""
        self._trouble = ""
        self.forbidden = ""
        """Which permissions to the Lease are missing and what to do, from the last answer; empty if none are."""

    def holds(self) -> bool:
        """Return whether the Lease is provably ours now. Check it before everything that only a leader may do."""
        return self.remaining_seconds() > 0

    def remaining_seconds(self) -> float:
        """Return for how long the Lease stays ours if it is never renewed again; 0 if it is not ours."""
        return max(0.0, self._renewed_at + self.times.renew_deadline_seconds - self._clock())

    def exclusive_seconds(self) -> float:
        """Return for how long no other replica can become the leader. Requests must arrive within that time."""
        return max(0.0, self._renewed_at + self.times.lease_seconds - self._clock())

    async def run(self) -> None:
        """Get the Lease, renew it, and get it again when it was lost, until cancelled."""
        try:
            while True:
                await self._attempt_in_time()
                self._notice()
                await asyncio.sleep(self._pause_seconds())
        finally:
            await self._release()

    async def _attempt_in_time(self) -> None:
        """Make one attempt, which ends with the Lease at the latest: a hanging request must not hide its loss."""
        limit = self.remaining_seconds() or self.times.renew_deadline_seconds
        try:
            async with asyncio.timeout(limit):
                await self._attempt()
        except TimeoutError:
            self._troubled(f"the API server did not answer within {limit:.1f} s")
        except NoResponseError as error:
            self._troubled(error.message)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            self._troubled(f"the API server's answer is not a Lease: {error}")

    async def _attempt(self) -> None:
        """Renew the Lease if it is ours, else take it if it is free."""
        if self._object is not None and self.holds() and await self._write(self._object):
            return
        response = await self._send("GET", _LEASE)
        if response.meaning is Meaning.ABSENT:
            response = await self._send("POST", _LEASES, self._vacant())
        if not response.succeeded:
            self._refused("read or create", response)
            return
        self._trouble = self.forbidden = ""
        found = msgspec.json.decode(response.body, type=dict[str, Any])
        self._see(found)
        if self.holder not in {"", self.identity}:
            self._renewed_at = -inf
        if self._is_free():
            await self._write(found)

    def _vacant(self) -> dict[str, Any]:
        """Return a Lease without a holder: a request to create it may arrive late, when another replica leads."""
        metadata = {"namespace": self.lease.namespace, "name": self.lease.name}
        return {"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": metadata, "spec": {}}

    def _is_free(self) -> bool:
        """Return whether nobody else can be leading according to the Lease as it was just seen.

        Somebody may have deleted it, or removed or replaced its holder, while a leader does not know that yet.
        """
        if self.holds() or self._is_ours or self._is_released or (self._is_vacant and self._is_first()):
            return True
        return self._clock() >= self._seen_at + self._seen_seconds

    async def _write(self, lease: dict[str, Any]) -> bool:
        """Write the Lease as ours, if nobody has written it since we read it (by its resourceVersion)."""
        if not self._wrote(lease.get("spec") or {}) and not self.holds():
            self._taken = True
        started = self._clock()
        ours = {**lease, "metadata": _metadata(lease), "spec": self._spec(lease.get("spec") or {})}
        return self._written(await self._send("PUT", _LEASE, ours), started)

    def _written(self, response: Response, started: float) -> bool:
        if response.meaning is Meaning.CONFLICT:
            self._object = None
            return False
        if not response.succeeded:
            self._refused("write", response)
            return False
        self._object = msgspec.json.decode(response.body, type=dict[str, Any])
        self._see(self._object)
        self.term += self._taken
        self._taken = False
        self._renewed_at = started
        self._trouble = ""
        return True

    async def _release(self) -> None:
        """Release the Lease, so that nobody has to wait until it expires."""
        self._renewed_at = -inf
        self._notice()
        if not self._may_give_up():
            _log.warning("The Lease is left to run out: a request may still be on its way", lease=str(self.lease))
            return
        try:
            async with asyncio.timeout(_RELEASE_SECONDS):
                await self._give_up()
        except (TimeoutError, NoResponseError, msgspec.DecodeError, UnicodeDecodeError) as error:
            _log.warning("The Lease was not released and will expire", lease=str(self.lease), error=str(error))

    async def _give_up(self) -> None:
        response = await self._send("GET", _LEASE)  # A renewal may have been cancelled after it was sent.
        if not response.succeeded:
            return
        found = msgspec.json.decode(response.body, type=dict[str, Any])
        self._see(found)
        if not self._is_ours:
            return
        spec = self._spec(found["spec"]) | {"leaseDurationSeconds": _RELEASED_SECONDS}
        del spec["holderIdentity"]
        response = await self._send("PUT", _LEASE, {**found, "spec": spec})
        if response.succeeded:
            self.holder = ""
        else:
            self._refused("give up", response)

    async def _send(self, method: Any, path: str, body: dict[str, Any] | None = None) -> Response:
        """Send a request, and leave time for another one, over another connection, as client-go does."""
        seconds = self.times.renew_deadline_seconds / 2
        return await self._requests.send(method, path, self.lease._asdict(), body=body, timeout_seconds=seconds)

    def _spec(self, before: dict[str, Any]) -> dict[str, Any]:
        """Return the spec with us as the holder. Unknown fields are kept."""
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec = {
            **before,
            "holderIdentity": self.identity,
            "leaseDurationSeconds": self.times.lease_seconds,
            "renewTime": now,
        }
        if not self._wrote(before):
            self._acquired = now
            spec["acquireTime"] = now
            spec["leaseTransitions"] = int(before.get("leaseTransitions") or 0) + bool(before)
        return spec

    def _wrote(self, spec: dict[str, Any]) -> bool:
        """Return whether we made a Lease ours, and nobody has written it since."""
        return spec.get("holderIdentity") == self.identity and spec.get("acquireTime") == self._acquired

    def _see(self, lease: dict[str, Any]) -> None:
        """Record the content of the Lease, and since when: a different content means a renewal by its holder.

        A duration shorter than before counts from the second renewal with it. Before that, somebody may have edited or
        deleted the Lease of a leader that counts on the longer one.
        """
        spec = lease.get("spec") or {}
        seen: tuple[Any, ...] = (
            spec.get("holderIdentity"),
            spec.get("renewTime"),
            spec.get("acquireTime"),
            spec.get("leaseTransitions"),
        )
        holder, seconds = spec.get("holderIdentity") or "", spec.get("leaseDurationSeconds")
        is_vacant = not holder and not spec.get("renewTime")
        if is_vacant:  # It may have been held, deleted and created again meanwhile.
            seen = (*seen, (lease.get("metadata") or {}).get("resourceVersion"))
        renewed = seen != self._seen and holder != "" and holder == self.holder
        if seen != self._seen:
            self._seen, self._seen_at = seen, self._clock()
        says_seconds = float(seconds or self.times.lease_seconds)
        self._seen_seconds = max(says_seconds, self._said_seconds if renewed else self._seen_seconds)
        self._said_seconds = says_seconds
        self.holder = holder
        self._is_vacant = is_vacant
        self._is_released = not holder and not is_vacant and seconds == _RELEASED_SECONDS
        self._is_ours = self._wrote(spec)

    def _notice(self) -> None:
        """Report that the Lease was taken or lost."""
        leading = self.holds()
        if leading == self._leading:
            return
        self._leading = leading
        _log.info(
            "This replica leads" if leading else "This replica does not lead any more",
            lease=str(self.lease),
            identity=self.identity,
            holder=self.holder,
        )
        if self._on_change is not None:
            self._on_change(leading)

    def _pause_seconds(self) -> float:
        pause = self.times.retry_seconds * (1 + _JITTER * self._random.random())
        if self._is_vacant:
            pause /= 4  # It may become known at any moment that nobody has ever led.
        return min(pause, max(remaining, _LEAST_PAUSE_SECONDS)) if (remaining := self.remaining_seconds()) else pause

    def _refused(self, what: str, response: Response) -> None:
        trouble = f"the API server would not {what} it: {response.refusal}"
        if response.meaning is Meaning.FORBIDDEN:
            trouble += (
                f"; the operator needs the rights to get, create and update leases in namespace {self.lease.namespace} "
                "(as manifests/base/role.yaml gives them): grant them, name another namespace by --lease-namespace, or "
                "give --no-leader-election if certainly no other operator acts on this cluster"
            )
            self.forbidden = f"no leader can be elected by the Lease {self.lease}: {trouble}"
        self._troubled(trouble)

    def _troubled(self, trouble: str) -> None:
        if trouble != self._trouble:
            _log.warning("The Lease is out of reach", lease=str(self.lease), error=trouble, leading=self.holds())
        self._trouble = trouble


def _metadata(lease: dict[str, Any]) -> dict[str, Any]:
    """Return a Lease's metadata with our version, which `respread version` shows."""
    metadata = lease.get("metadata") or {}
    return {**metadata, "annotations": {**(metadata.get("annotations") or {}), VERSION: __version__}}


class Election:
    """One candidate, which switches to another Lease when an operator is installed while it runs.

    Everything that it does as the leader by one Lease has ended before it tries to get another.
    """

    def __init__(
        self,
        make: Callable[[ObjectKey], Elector],
        place: Callable[[], ObjectKey | None],
        *,
        may_wait: bool,
        changeover_seconds: float,
    ) -> None:
        """Create a candidate. `make` creates one for a Lease.

        `place` returns which Lease it is; None while that is unknown. If it `may_wait`, missing permissions to the
        Lease don't end it. It waits for `changeover_seconds` before it tries another Lease, until all replicas have
        found that and none leads by the former one.
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
