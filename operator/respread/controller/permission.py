"""Whether a move may still be made: what has changed since it was planned, whatever the watch shows.

A watch can be silent for a minute or more without being noticed. A policy that was switched to DryRun or deleted
meanwhile must not evict. So before and during evictions, Respread reads the versions of the policies that apply to
them, and compares them with those of the plan: the ClusterRebalancePolicies, and the RebalancePolicies of the pod's
namespace. Each of these places is read separately, in parallel. If the policies of one are slow or can't be read, no
other place waits: namespaces that took long share a few readings of their own, however many they are, and the cluster
policies wait for no namespace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AbstractAsyncContextManager, nullcontext
from datetime import datetime
from math import inf
from typing import Final, NamedTuple

import msgspec
from immutables import Map

from respread.api.policy import Policy
from respread.api.reasons import Held, Reason
from respread.cluster.decode.decoder import Kind
from respread.cluster.meta import ObjectKey
from respread.cluster.stores import POLICY_KINDS, Policies
from respread.holds.holds import Windows
from respread.kube.listing import METADATA_ONLY, ListError, list_objects
from respread.kube.requests import Requests
from respread.planning.plan import Move
from respread.telemetry.logs import get_logger

_log: Final = get_logger(__name__)

OLD_SECONDS: Final = 20.0
"""A move may be sent until this long after it was planned. An older one is planned again."""
CONFIRMED_SECONDS: Final = 5.0
"""A move may be sent until this long after the request whose answer confirmed the policies."""


class Leading(NamedTuple):
    """The current state of leadership."""

    leads: Callable[[], bool]
    """Whether this replica evicts and writes statuses."""
    term: Callable[[], int]
    """A number that changes whenever another replica may have led."""
    exclusive_seconds: Callable[[], float] = lambda: inf
    """For how long no other replica can lead."""


class PoliciesThere(NamedTuple):
    """The policies of a namespace, or the cluster policies."""

    policies: Policies = Map()
    versions: _VersionsByName = Map()


class PlannedFor(NamedTuple):
    """The policies for which moves were planned, and when."""

    policies: Policies
    by_place: Mapping[str, PoliciesThere]
    """By namespace; cluster policies are under `EVERYWHERE`."""
    term: int
    """The leader's."""
    at: float
    """Seconds on the clock."""


class Permission:
    """Checked before every step of a move, the last time right before it is sent.

    A move is planned for the current policies. If one that applies to it changes, is deleted or is created, the move is
    not made, because another policy may govern its pod now, or other limits may apply. These are the
    ClusterRebalancePolicies and the policies of the pod's namespace; other namespaces don't matter. Both the watch,
    which is fast, and the API server, which is always right, must confirm that no policy has changed.
    """

    def __init__(
        self,
        leading: Leading,
        policies: Callable[[], Policies],
        confirmations: Confirmations,
        *,
        clock: Callable[[], float],
        now: Callable[[], datetime],
    ) -> None:
        self._leading = leading
        self._policies = policies
        self._confirmations = confirmations
        self._clock = clock
        self._now = now
        self._seen: tuple[Policies, Mapping[str, PoliciesThere]] = (Map(), {})
        """The policies of the last check, and the same by place."""
        self._told: dict[str, str] = {}
        """By namespace, the logged reason why nothing is evicted there now."""
        self._stopping = False

    @property
    def leads(self) -> bool:
        """Whether this replica leads."""
        return self._leading.leads()

    @property
    def exclusive_seconds(self) -> float:
        """For how long no other replica can lead. What is not answered by then counts as what may have been done."""
        return self._leading.exclusive_seconds()

    def planned_for(self, policies: Policies, at: float) -> PlannedFor:
        """Return the policies for which moves are planned. `at` is when they are planned, on the clock."""
        return PlannedFor(policies, self._by_place(policies), self._leading.term(), at)

    def stop(self) -> None:
        """Let no more moves be sent."""
        self._stopping = True

    async def confirm(self, namespace: str) -> None:
        """Request the policies of a namespace from the API server, unless a recent answer exists."""
        await self._confirmations.refresh((EVERYWHERE, namespace))

    def why_not(self, move: Move, planned: PlannedFor) -> Held | None:
        """Return why a move may not be made, or None."""
        if self._stopping:
            return Held(Reason.NOT_LEADING, "this replica is being stopped")
        if not self._leading.leads() or self._leading.term() != planned.term:
            return Held(Reason.NOT_LEADING, "this replica does not lead")
        policies = self._policies()
        if (held := self.of_policy(policies.get(move.policy), move.policy)) is not None:
            return held
        namespace, there = move.pod.namespace, self._by_place(policies)
        if any(there.get(place) != planned.by_place.get(place) for place in (EVERYWHERE, namespace)):
            return Held(Reason.IN_MOTION, "the policies have changed since it was planned")
        if (age := self._clock() - planned.at) > OLD_SECONDS:
            return Held(Reason.IN_MOTION, f"it was planned {age:.0f} s ago, and is planned again")
        held = self._unconfirmed_at(EVERYWHERE, planned) or self._unconfirmed_at(namespace, planned)
        self._tell(namespace, held)
        return held

    def of_policy(self, policy: Policy | None, name: str) -> Held | None:
        """Return why a policy may evict nothing, or None if it may."""
        if policy is None:
            return Held(Reason.NOT_SELECTED, f"policy {name} was deleted")
        if policy.problems:
            return Held(Reason.INVALID_POLICY, f"policy {name} is invalid and evicts nothing until it is fixed")
        if policy.spec.mode != "Enforce":
            return Held(Reason.DRY_RUN, f"the mode of policy {name} is DryRun: it plans and does not evict")
        return Windows.of(policy.spec.windows).why_closed(self._now())

    async def aclose(self) -> None:
        """Cancel the requests in progress."""
        await self._confirmations.aclose()

    def _unconfirmed_at(self, place: str, planned: PlannedFor) -> Held | None:
        where = f" of {place}" if place else ""
        confirmed = self._confirmations.of(place)
        if confirmed is None or (age := self._clock() - confirmed.asked_at) > CONFIRMED_SECONDS:
            since = "yet" if confirmed is None else f"for {age:.0f} s"
            return Held(Reason.API_UNAVAILABLE, f"the policies{where} could not be read {since}")
        if confirmed.versions != planned.by_place.get(place, PoliciesThere()).versions:
            return Held(Reason.IN_MOTION, f"the policies{where} have changed, and the watch has not brought it yet")
        return None

    def _tell(self, namespace: str, held: Held | None) -> None:
        """Log once that nothing is evicted in a namespace now."""
        if held is None:
            self._told.pop(namespace, None)
        elif self._told.get(namespace) != held.reason:
            self._told[namespace] = held.reason
            _log.warning("Nothing is evicted for now", namespace=namespace, reason=held.reason, message=held.message)

    def _by_place(self, policies: Policies) -> Mapping[str, PoliciesThere]:
        """Return the policies by place, computed once while none changes."""
        if policies is not self._seen[0]:
            found: dict[str, dict[str, Policy]] = {}
            for name, policy in policies.items():
                found.setdefault(policy.namespace, {})[name] = policy
            there = {place: PoliciesThere(its := Map(named), versions_of(its)) for place, named in found.items()}
            self._seen = (policies, there)
        return self._seen[1]


EVERYWHERE: Final = ""
"""Stands for the cluster-scoped policies, ClusterRebalancePolicies."""
MOST_POLICIES: Final = 1_000
"""The most RebalancePolicies of a namespace. More would take too long to read every second."""
_TIMEOUT_SECONDS: Final = 3.0
_PAGE_OBJECTS: Final = 500
_PAGE_OBJECTS_OF_NAMESPACE: Final = 25
"""Annotations alone may have 256 KiB, and users of the namespace may write them."""

_VersionsByName = Map[str, tuple[str, int]]
"""UID and generation of each policy, by name."""


class PolicyVersions(NamedTuple):
    """The versions of the policies of a namespace, or of the cluster policies, at some moment."""

    versions: _VersionsByName
    asked_at: float
    """The time of the request on the clock. It includes every change before that."""


class _Metadata(msgspec.Struct):
    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0


class _Item(msgspec.Struct):
    metadata: _Metadata


_decode: Final = msgspec.json.Decoder(_Item).decode


def versions_of(policies: Map[str, Policy]) -> _VersionsByName:
    """Return the versions of known policies."""
    return Map({name: (policy.uid, policy.generation) for name, policy in policies.items()})


async def read_versions(
    requests: Requests, clock: Callable[[], float], namespace: str, *, kinds: Iterable[Kind] = POLICY_KINDS
) -> PolicyVersions:
    """Return the current versions of the policies of a namespace, or of `EVERYWHERE`, from the API server.

    Raises:
        ListError: they could not be read, or there are too many.
    """
    asked_at = clock()
    found: dict[str, tuple[str, int]] = {}
    for kind in kinds:
        if kind.namespaced is (namespace == EVERYWHERE):
            continue
        items = await list_objects(
            requests,
            kind,
            _decode,
            namespace=namespace,
            page_objects=_PAGE_OBJECTS_OF_NAMESPACE if kind.namespaced else _PAGE_OBJECTS,
            most_objects=MOST_POLICIES if kind.namespaced else None,
            timeout_seconds=_TIMEOUT_SECONDS,
            accept=METADATA_ONLY,  # The specs are not needed: a change of a spec is a new generation.
        )
        for metadata in (item.metadata for item in items):
            found[str(ObjectKey(metadata.namespace, metadata.name))] = (metadata.uid, metadata.generation)
    return PolicyVersions(Map(found), asked_at)


CONFIRM_SECONDS: Final = 1.0
"""How old an answer may be before it is requested again, and how long a move waits for it."""
READING_SECONDS: Final = 5.0
"""How long a reading may take. A later answer would be too old to confirm anything."""
_KEPT_SECONDS: Final = 60.0
"""How long an unused answer is kept, and for how long a namespace counts as slow."""
AT_ONCE: Final = 8
"""The number of namespaces that are read at the same time."""
SLOW_AT_ONCE: Final = 4
"""The number of namespaces beside these whose last reading took more than `CONFIRM_SECONDS`."""


class Confirmations:
    """The last answer for each place, with the time of the request."""

    def __init__(self, read: Callable[[str], Awaitable[PolicyVersions]], clock: Callable[[], float]) -> None:
        """`read` reads those of a place, as `read_versions` does."""
        self._read_place = read
        self._clock = clock
        self._answers: dict[str, PolicyVersions] = {}
        self._at_once = asyncio.Semaphore(AT_ONCE)
        self._slow_at_once = asyncio.Semaphore(SLOW_AT_ONCE)
        self._slow: dict[str, float] = {}
        """When a reading that took long ended, by namespace."""
        self._reading: dict[str, asyncio.Task[None]] = {}
        """By place. A slow reading continues after its waiters have given up, and later ones use its answer."""

    def of(self, place: str) -> PolicyVersions | None:
        """Return the last answer for a place, or None."""
        return self._answers.get(place)

    def note(self, place: str, answer: PolicyVersions) -> None:
        """Store the policies of a place according to the API server."""
        now = self._clock()
        self._answers = {at: known for at, known in self._answers.items() if now - known.asked_at < _KEPT_SECONDS}
        self._answers[place] = answer

    async def refresh(self, places: Iterable[str]) -> None:
        """Read the policies of places with an old answer, for at most a second."""
        now = self._clock()
        reading = [self._read_once(each) for each in places if now - self._asked_at(each) >= CONFIRM_SECONDS]
        if reading:
            await asyncio.wait(reading, timeout=CONFIRM_SECONDS)

    async def aclose(self) -> None:
        """Cancel the readings in progress."""
        reading = tuple(self._reading.values())
        for task in reading:
            task.cancel()
        await asyncio.gather(*reading, return_exceptions=True)

    def _asked_at(self, place: str) -> float:
        answer = self._answers.get(place)
        return -inf if answer is None else answer.asked_at

    def _read_once(self, place: str) -> asyncio.Task[None]:
        """Start to read a place, unless this is already in progress."""
        if (task := self._reading.get(place)) is None:
            task = self._reading[place] = asyncio.create_task(self._read(place))
            task.add_done_callback(lambda _: self._reading.pop(place))
        return task

    async def _read(self, place: str) -> None:
        async with self._turn(place):
            began = self._clock()
            try:
                async with asyncio.timeout(READING_SECONDS):
                    self.note(place, await self._read_place(place))
            except TimeoutError:
                _log.info("The policies can't be read in time", namespace=place, limit_seconds=READING_SECONDS)
            except ListError as error:
                _log.info("The policies can't be read", namespace=place, error=str(error))
            self._took(place, self._clock() - began)

    def _turn(self, place: str) -> AbstractAsyncContextManager[object]:
        """Return what lets as many namespaces through at the same time as there may be."""
        if place == EVERYWHERE:
            return nullcontext()
        return self._slow_at_once if place in self._slow else self._at_once

    def _took(self, place: str, seconds: float) -> None:
        now = self._clock()
        self._slow = {at: ended for at, ended in self._slow.items() if at != place and now - ended < _KEPT_SECONDS}
        if seconds > CONFIRM_SECONDS:
            self._slow[place] = now
