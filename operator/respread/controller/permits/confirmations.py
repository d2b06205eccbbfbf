"""Confirms during evictions that the policies in the API server are still those of the plan, whatever the watch shows.

A watch can be silent for a minute or more without being noticed. A policy that was switched to DryRun or deleted
meanwhile must not evict. So before and during evictions, Respread reads the versions of the policies that apply to
them, and compares them with those of the plan: the ClusterRebalancePolicies, and the RebalancePolicies of the pod's
namespace. Each of these places is read separately, in parallel. If the policies of one are slow or can't be read, no
other place waits: namespaces that took long share a few readings of their own, however many they are, and the cluster
policies wait for no namespace.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import AbstractAsyncContextManager, nullcontext
from math import inf
from typing import Final, NamedTuple

import msgspec
from immutables import Map

from respread.api.policy import Policy
from respread.cluster.decode.decoder import Kind
from respread.cluster.meta import ObjectKey
from respread.kube.listing import METADATA_ONLY, ListError, list_objects
from respread.kube.requests import Requests
from respread.stores.watched_kinds import POLICY_KINDS
from respread.telemetry.logs import get_logger

EVERYWHERE: Final = ""
"""Stands for the cluster-scoped policies, ClusterRebalancePolicies."""
MOST_POLICIES: Final = 1_000
"""The most RebalancePolicies of a namespace. More would take too long to read every second."""
_TIMEOUT_SECONDS: Final = 3.0
_PAGE_OBJECTS: Final = 500
_PAGE_OBJECTS_OF_NAMESPACE: Final = 25
"""Annotations alone may have 256 KiB, and users of the namespace may write them."""

VersionsByName = Map[str, tuple[str, int]]
"""UID and generation of each policy, by name."""


class PolicyVersions(NamedTuple):
    """The versions of the policies of a namespace, or of the cluster policies, at some moment."""

    versions: VersionsByName
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


def versions_of(policies: Map[str, Policy]) -> VersionsByName:
    """Return the versions of known policies."""
    return Map({name: (policy.uid, policy.generation) for name, policy in policies.items()})


class PolicyReader:
    """Reads the versions of policies."""

    __slots__ = ("_clock", "_kinds", "_requests")

    def __init__(self, requests: Requests, clock: Callable[[], float], *, kinds: Iterable[Kind] = POLICY_KINDS) -> None:
        """Read from the API server.

        Args:
            requests: sends requests.
            clock: a monotonic clock in seconds.
            kinds: the kinds of policies that are used.
        """
        self._requests = requests
        self._clock = clock
        self._kinds = tuple(kinds)

    async def read(self, namespace: str) -> PolicyVersions:
        """Return the current versions of a namespace, or of `EVERYWHERE`, from the API server.

        Raises:
            ListError: they could not be read, or there are too many.
        """
        asked_at = self._clock()
        found: dict[str, tuple[str, int]] = {}
        for kind in self._kinds:
            if kind.namespaced is (namespace == EVERYWHERE):
                continue
            items = await list_objects(
                self._requests,
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


_log: Final = get_logger(__name__)

CONFIRM_SECONDS: Final = 1.0
"""How old an answer may be before it is requested again, and how long a move waits for it."""
READING_SECONDS: Final = 5.0
"""How long a reading may take. A later answer would be too old to confirm anything."""
KEPT_SECONDS: Final = 60.0
"""How long an unused answer is kept, and for how long a namespace counts as slow."""
AT_ONCE: Final = 8
"""The number of namespaces that are read at the same time."""
SLOW_AT_ONCE: Final = 4
"""The number of namespaces beside these whose last reading took more than `CONFIRM_SECONDS`."""


class Confirmations:
    """The last answer for each place, with the time of the request."""

    __slots__ = ("_answers", "_at_once", "_clock", "_reader", "_reading", "_slow", "_slow_at_once")

    def __init__(self, reader: PolicyReader, clock: Callable[[], float]) -> None:
        """Start without answers.

        Args:
            reader: reads policies.
            clock: a monotonic clock in seconds.
        """
        self._reader = reader
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
        self._answers = {at: known for at, known in self._answers.items() if now - known.asked_at < KEPT_SECONDS}
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
                    self.note(place, await self._reader.read(place))
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
        self._slow = {at: ended for at, ended in self._slow.items() if at != place and now - ended < KEPT_SECONDS}
        if seconds > CONFIRM_SECONDS:
            self._slow[place] = now
