"""The pods of controllers, listed for several controllers with one request.

To answer a LIST the API server goes through all pods of a namespace, whatever the selector picks: for each of 50 moves
of a large namespace that is far more work than the evictions themselves. The Deployment controller tells the pods of
its ReplicaSets apart by the label pod-template-hash, so those of several can be asked for together. Whoever asks while
a LIST of its namespace is under way shares the next one: what it gets was listed after it had asked.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final
from weakref import WeakValueDictionary

import msgspec
from immutables import Map

from respread.api.label_selector import LabelSelector
from respread.api.maps import decode_map
from respread.api.nesting import decoded
from respread.cluster.meta import OwnerReference
from respread.cluster.selectors import Selector, compile_selector, selector_of_labels
from respread.eviction.owners.reading import (
    READING_ERRORS,
    ControllerObject,
    ListedPod,
    PodOfController,
    PodsOfController,
    unread,
    unreadable,
)
from respread.kube.listing import RefusedError, pages
from respread.kube.requests import Requests
from respread.planning.held import Held

TEMPLATE_HASH: Final = "pod-template-hash"
"""The label by which the Deployment controller tells the pods of its ReplicaSets apart."""
GATHER_SECONDS: Final = 0.01
"""How long a LIST waits for others to share it."""
MOST_KEPT_BYTES: Final = 32 << 20
"""Of the pods of one LIST. All that is to be known of a pod beyond that is read when it is to be evicted."""
_PAGE: Final = 500
_PODS: Final = "/api/v1/namespaces/{namespace}/pods"

_ByController = dict[str, list[PodOfController]]
"""Pods by the UIDs of their controllers."""
_read_pod: Final = msgspec.json.Decoder(ListedPod).decode


class PodLists:
    """Lists the pods of controllers; belongs to one event loop."""

    __slots__ = ("_hashes", "_next", "_requests", "_turns")

    def __init__(self, requests: Requests) -> None:
        self._requests = requests
        self._hashes: dict[str, set[str]] = {}
        """By namespace, the values of the label that the next LIST asks for."""
        self._next: dict[str, asyncio.Task[_ByController | Held]] = {}
        """By namespace: the LIST that has not been sent yet."""
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def of(
        self, namespace: str, reference: OwnerReference, controller: ControllerObject
    ) -> PodsOfController | Held:
        """Return the pods that a controller has now, or why they could not be listed.

        Args:
            namespace: where it is.
            reference: as its pods refer to it.
            controller: as it was read.
        """
        whose = f"{reference.kind} {reference.name}"
        try:
            selector = _selector(reference.kind, controller.spec.selector)
        except READING_ERRORS as error:
            return unread(f"the selector of {whose}", error)
        template_hash = None if selector is None else dict(selector.required).get(TEMPLATE_HASH)
        if not template_hash:
            found = await self._list(namespace, None if selector is None else str(selector), whose)
        else:
            found = await asyncio.shield(self._shared(namespace, template_hash))
        if isinstance(found, Held):
            return found
        pods = found.get(reference.uid, ())
        return tuple(each for each in pods if selector is None or selector.matches(each.pod.metadata.labels))

    def _shared(self, namespace: str, template_hash: str) -> asyncio.Task[_ByController | Held]:
        """Have the pods with one more value of the label listed by the next LIST of a namespace."""
        self._hashes.setdefault(namespace, set()).add(template_hash)
        if (task := self._next.get(namespace)) is None:
            task = self._next[namespace] = asyncio.create_task(self._list_together(namespace))
        return task

    async def _list_together(self, namespace: str) -> _ByController | Held:
        await asyncio.sleep(GATHER_SECONDS)
        async with self._turns.setdefault(namespace, asyncio.Lock()):
            del self._next[namespace]  # who asks from now on is served by the next one
            hashes = sorted(self._hashes.pop(namespace))
            return await self._list(namespace, f"{TEMPLATE_HASH} in ({','.join(hashes)})", "ReplicaSets")

    async def _list(self, namespace: str, selector: str | None, whose: str) -> _ByController | Held:
        what, found, kept_bytes = f"the list of pods of {whose}", _ByController(), 0
        names = {"namespace": namespace}
        try:
            async for page in pages(
                self._requests,
                _PODS,
                names,
                page_objects=_PAGE,
                label_selector=selector,
            ):
                for document in page.objects:
                    pod = decoded(_read_pod, document)
                    if (owner := pod.metadata.controller) is not None:
                        kept_bytes += len(document)
                        kept = document if kept_bytes <= MOST_KEPT_BYTES else None
                        found.setdefault(owner.uid, []).append(PodOfController(pod, kept))
        except RefusedError as error:
            return unreadable(what, error.response)
        except READING_ERRORS as error:
            return unread(what, error)
        return found


def _selector(kind: str, selector: Any) -> Selector | None:
    """Return a controller's selector; None where it has none, and every pod has to be listed."""
    if not selector:
        return None
    if kind == "ReplicationController":
        return selector_of_labels(Map(msgspec.convert(selector, type=dict[str, str])))
    return compile_selector(msgspec.convert(selector, type=LabelSelector, dec_hook=decode_map))
