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
from respread.eviction.answers import status_of
from respread.eviction.requests import NoResponseError, Requests
from respread.handlers.resources import POLICY_KINDS

_TIMEOUT_SECONDS: Final = 3.0
_PAGE: Final = "500"
_METADATA_ONLY: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
"""What policies say is not needed: a change of it is a new generation. Their statuses may be long."""

Versions = Map[str, tuple[str, int]]
"""UID and generation of each policy, by name."""


class UnreadError(Exception):
    """The versions could not be read."""


class PolicyVersions(NamedTuple):
    """The versions of all policies at some moment."""

    versions: Versions
    asked_at: float
    """Before which on the clock whatever was done to policies is in it."""


class _ListMetadata(msgspec.Struct, rename={"continue_": "continue"}):
    continue_: str = ""


class _Metadata(msgspec.Struct):
    name: str
    namespace: str = ""
    uid: str = ""
    generation: int = 0


class _Item(msgspec.Struct):
    metadata: _Metadata


class _List(msgspec.Struct):
    metadata: _ListMetadata
    items: list[_Item] | None
    """None in the metadata of no objects, as the API server writes it."""


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
            UnreadError: it could not be asked.
        """
        asked_at = self._clock()
        found: dict[str, tuple[str, int]] = {}
        for kind in self._kinds:
            query = {"limit": _PAGE}
            while True:
                page = await self._page(kind, query)
                for metadata in (item.metadata for item in page.items or ()):
                    name = str(ObjectKey(metadata.namespace, metadata.name))
                    found[name] = (metadata.uid, metadata.generation)
                if not page.metadata.continue_:
                    break
                query["continue"] = page.metadata.continue_
        return PolicyVersions(Map(found), asked_at)

    async def _page(self, kind: Kind, query: dict[str, str]) -> _List:
        try:
            response = await self._requests.send(
                "GET", kind.path, {}, query=query, accept=_METADATA_ONLY, timeout_seconds=_TIMEOUT_SECONDS
            )
            if response.succeeded:
                return msgspec.json.decode(response.body, type=_List)
        except NoResponseError as error:
            raise UnreadError(error.message) from error
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            raise UnreadError(f"the answer is no list of {kind.resource}: {error}") from error
        raise UnreadError(
            f"{kind.resource} can't be listed: {response.status_code}, {status_of(response.body).message}"
        )
