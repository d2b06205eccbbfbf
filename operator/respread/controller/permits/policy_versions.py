"""The current versions of policies according to the API server, whatever the watch shows.

A watch can be silent for a minute or more without being noticed. A policy that was switched to DryRun or deleted
meanwhile must not evict. So before and during evictions, Respread reads the versions of the policies that apply to
them, and compares them with those of the plan. These are the ClusterRebalancePolicies and the RebalancePolicies of the
pod's namespace. Policies of other namespaces cost nothing here, however many or large they are.
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
