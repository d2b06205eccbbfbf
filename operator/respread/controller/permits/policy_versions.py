"""Which policies there are at this moment, whatever the watch has brought: asked of the API server itself.

A watch can be silent without anybody noticing for a minute or more. A policy that was switched to DryRun or deleted
meanwhile must not evict: so before anything is evicted, and again and again while it is, the versions of the policies
that may have a say in it are read, and compared with those that the moves were planned for. These are the
ClusterRebalancePolicies and the RebalancePolicies of the pod's own namespace: what is in other namespaces, however much
or large, costs nothing here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

import msgspec
from immutables import Map

from respread.api.policy import Policy
from respread.cluster.decode.decoder import Kind
from respread.cluster.meta import ObjectKey
from respread.kube.listing import METADATA_ONLY, list_objects
from respread.kube.requests import Requests
from respread.stores.watched_kinds import POLICY_KINDS

EVERYWHERE: Final = ""
"""In place of a namespace: the policies that belong to none, ClusterRebalancePolicies."""
MOST_POLICIES: Final = 1_000
"""So many RebalancePolicies a namespace may have: more take too long to read every second."""
_TIMEOUT_SECONDS: Final = 3.0
_PAGE_OBJECTS: Final = 500
_PAGE_OBJECTS_OF_NAMESPACE: Final = 25
"""Annotations alone may be 256 KiB long, and anybody in the namespace may write them."""

Versions = Map[str, tuple[str, int]]
"""UID and generation of each policy, by name."""


class PolicyVersions(NamedTuple):
    """The versions of the policies of a namespace, or of those that belong to none, at some moment."""

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
    """Reads the versions of policies."""

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

    async def read(self, namespace: str) -> PolicyVersions:
        """Return those of a namespace, or of `EVERYWHERE`, as the API server has them now.

        Raises:
            ListError: it could not be asked, or there are more than can be read.
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
                accept=METADATA_ONLY,  # what policies say is not needed: a change of it is a new generation
            )
            for metadata in (item.metadata for item in items):
                found[str(ObjectKey(metadata.namespace, metadata.name))] = (metadata.uid, metadata.generation)
        return PolicyVersions(Map(found), asked_at)
