"""Which policies there are at this moment, whatever the watch has brought: asked of the API server itself.

A watch can be silent without anybody noticing for a minute or more. A policy that was switched to DryRun or deleted
meanwhile must not evict: so before anything is evicted, and again and again while it is, the versions of all policies
are read, and compared with those that the moves were planned for.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec
from immutables import Map

from respread.api.policy import Policy
from respread.cluster.decode import Kind
from respread.cluster.meta import ObjectKey
from respread.eviction.requests import Requests
from respread.handlers.listing import METADATA_ONLY, list_objects
from respread.handlers.resources import POLICY_KINDS

_TIMEOUT_SECONDS: Final = 3.0
_PAGE_OBJECTS: Final = 500

Versions = Map[str, tuple[str, int]]
"""UID and generation of each policy, by name."""


class PolicyVersions(NamedTuple):
    """The versions of all policies at some moment."""

    versions: Versions
    asked_at: float
    """Before which on the clock whatever was done to policies is in it."""


class _Metadata(msgspec.Struct):
    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0


class _Item(msgspec.Struct):
    metadata: _Metadata


_decode: Final = msgspec.json.Decoder(_Item).decode


def versions_of(policies: Map[str, Policy]) -> Versions:
    """Return the versions of policies as they are known."""
    return Map({name: (policy.uid, policy.generation) for name, policy in policies.items()})


class PolicyReader:
    """Reads the versions of all policies."""

    __slots__ = ("_clock", "_kinds", "_requests")

    def __init__(self, requests: Requests, clock: Callable[[], float], *, kinds: Iterable[Kind] = POLICY_KINDS) -> None:
        """Read from the API server.

        Args:
            requests: how to ask it.
            clock: seconds that never go back.
            kinds: of the policies that count.
        """
        self._requests = requests
        self._clock = clock
        self._kinds = tuple(kinds)

    async def read(self) -> PolicyVersions:
        """Return them as the API server has them now.

        Raises:
            ListError: it could not be asked.
        """
        asked_at = self._clock()
        found: dict[str, tuple[str, int]] = {}
        for kind in self._kinds:
            items = await list_objects(
                self._requests,
                kind,
                _decode,
                page_objects=_PAGE_OBJECTS,
                timeout_seconds=_TIMEOUT_SECONDS,
                accept=METADATA_ONLY,  # what policies say is not needed: a change of it is a new generation
            )
            for metadata in (item.metadata for item in items):
                found[str(ObjectKey(metadata.namespace, metadata.name))] = (metadata.uid, metadata.generation)
        return PolicyVersions(Map(found), asked_at)
