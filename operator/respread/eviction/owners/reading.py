"""A pod's controller and all of its pods, read from the API server and not from the watch.

Moves that were chosen together share what is read for them. To answer a LIST the API server goes through all pods of a
namespace, whatever the selector picks: for each of 50 moves of a large namespace that is far more work than the
evictions themselves. The Deployment controller tells the pods of its ReplicaSets apart by the label pod-template-hash,
so those of several can be asked for together. Whoever asks while a LIST of its namespace is under way shares the next
one: what it gets was listed after it had asked.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable, Callable, Hashable, Mapping
from datetime import datetime, timedelta
from typing import Any, Final, Generic, NamedTuple, TypeAlias, TypeVar
from weakref import WeakValueDictionary

import msgspec
from immutables import Map

from respread.api.fields import LabelSelector
from respread.api.json_documents import decode_map, decoded
from respread.api.reasons import Held, Reason
from respread.cluster.meta import OwnerReference
from respread.cluster.selectors import Selector, SelectorError, compile_selector, selector_of_labels
from respread.kube.listing import RefusedError, pages
from respread.kube.requests import Meaning, NoResponseError, Requests, Response
from respread.planning.victims.protection import leaves_it_to_its_replica_set

FAILED_SECONDS: Final = 1.0
"""How long a failure serves for moves that were chosen together: what is held is not chosen again before that."""
_PATHS: Final = {
    "ReplicaSet": "/apis/apps/v1/namespaces/{namespace}/replicasets/{name}",
    "StatefulSet": "/apis/apps/v1/namespaces/{namespace}/statefulsets/{name}",
    "ReplicationController": "/api/v1/namespaces/{namespace}/replicationcontrollers/{name}",
    "CloneSet": "/apis/apps.kruise.io/v1alpha1/namespaces/{namespace}/clonesets/{name}",
    "Deployment": "/apis/apps/v1/namespaces/{namespace}/deployments/{name}",
    "Rollout": "/apis/argoproj.io/v1alpha1/namespaces/{namespace}/rollouts/{name}",
}

_T = TypeVar("_T")

READING_ERRORS: Final = (NoResponseError, msgspec.DecodeError, UnicodeDecodeError, SelectorError)


class _ObjectOwner(msgspec.Struct, frozen=True, rename="camel"):
    kind: str
    name: str
    uid: str
    api_version: str = ""
    controller: bool = False


class ObjectMetadata(msgspec.Struct, frozen=True, rename="camel"):
    """The parts of `metadata` that are used."""

    name: str
    uid: str
    generation: int = 0
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    owner_references: tuple[_ObjectOwner, ...] = ()

    @property
    def controller(self) -> OwnerReference | None:
        """The owner that controls the object."""
        return next((_reference(each) for each in self.owner_references if each.controller), None)

    @property
    def owners(self) -> tuple[OwnerReference, ...]:
        """All owners. Some operators don't set `controller` in the references to their custom resources."""
        return tuple(map(_reference, self.owner_references))


def _reference(owner: _ObjectOwner) -> OwnerReference:
    return OwnerReference(owner.api_version, owner.kind, owner.name, owner.uid)


class RollingUpdate(msgspec.Struct, frozen=True):
    """`updateStrategy.rollingUpdate` of a StatefulSet."""

    partition: int = 0


class _UpdateStrategy(msgspec.Struct, frozen=True, rename="camel"):
    type: str = "RollingUpdate"
    rolling_update: RollingUpdate | None = None
    paused: bool = False
    """Of a CloneSet."""
    partition: int | str = 0
    """Of a CloneSet: how many pods, or a percentage, keep the earlier revision."""


class _Ordinals(msgspec.Struct, frozen=True):
    start: int = 0


class ControllerSpec(msgspec.Struct, frozen=True, rename="camel"):
    """The `spec` of a controller of any kind that is read here."""

    replicas: int = 1
    paused: bool = False
    selector: Any = None
    min_ready_seconds: int = 0
    pod_management_policy: str = "OrderedReady"
    update_strategy: _UpdateStrategy = _UpdateStrategy()
    ordinals: _Ordinals = _Ordinals()
    template: msgspec.Raw = msgspec.Raw(b"{}")
    """Undecoded, because most controllers are only counted."""
    volume_claim_templates: tuple[dict[str, Any], ...] = ()
    restart_at: datetime | None = None
    """Of a Rollout: it evicts the pods that are older."""


class ControllerStatus(msgspec.Struct, frozen=True, rename="camel"):
    """The `status` of a controller of any kind that is read here."""

    observed_generation: int | str = 0
    """In a Rollout a string, which is a number unless a very old controller or somebody else wrote it."""
    replicas: int = 0
    updated_replicas: int = 0
    current_replicas: int = 0
    current_revision: str = ""
    update_revision: str = ""
    current_pod_hash: str = ""
    """Of a Rollout: the hash of its template."""
    stable_hash: str = msgspec.field(default="", name="stableRS")
    """Of a Rollout: the hash of the template that was rolled out in full last."""
    restarted_at: datetime | None = None
    """Of a Rollout: the `restartAt` that was carried out last."""


class ControllerObject(msgspec.Struct, frozen=True):
    """A ReplicaSet, StatefulSet, ReplicationController, CloneSet, Deployment or Argo Rollout."""

    metadata: ObjectMetadata
    spec: ControllerSpec = ControllerSpec()
    status: ControllerStatus = ControllerStatus()

    @property
    def is_observed(self) -> bool:
        """Whether its own controller has seen its latest change."""
        observed = self.status.observed_generation
        if isinstance(observed, str):
            observed = int(observed) if re.fullmatch("[0-9]{1,18}", observed) else 0
        return self.metadata.generation <= observed


_read_controller: Final = msgspec.json.Decoder(ControllerObject).decode


class _ListedCondition(msgspec.Struct, frozen=True, rename="camel"):
    type: str = ""
    status: str = ""
    last_transition_time: datetime | None = None


class _ListedStatus(msgspec.Struct, frozen=True):
    phase: str = ""
    conditions: tuple[_ListedCondition, ...] = ()


class ListedPod(msgspec.Struct, frozen=True):
    """A pod as the API server lists it."""

    metadata: ObjectMetadata
    status: _ListedStatus = _ListedStatus()

    @property
    def active(self) -> bool:
        """Whether controllers count it: neither finished nor being deleted (`IsPodActive`)."""
        return self.metadata.deletion_timestamp is None and self.status.phase not in {"Succeeded", "Failed"}

    @property
    def is_going(self) -> bool:
        """Whether it is being deleted or about to be: the API server sets the condition before it deletes a pod."""
        return self.metadata.deletion_timestamp is not None or any(
            each.type == "DisruptionTarget" and each.status == "True" for each in self.status.conditions
        )

    @property
    def ready(self) -> _ListedCondition | None:
        """Its condition Ready if that is True."""
        return next((each for each in self.status.conditions if each.type == "Ready" and each.status == "True"), None)

    def is_available(self, min_ready_seconds: int, now: datetime) -> bool:
        """Return whether it is running and has been Ready for this many seconds (`IsPodAvailable`)."""
        if self.status.phase != "Running" or (ready := self.ready) is None:
            return False
        if min_ready_seconds <= 0:
            return True
        since = ready.last_transition_time
        return since is not None and now - since >= timedelta(seconds=min_ready_seconds)


class PodOfController(NamedTuple):
    """A pod of a controller, and all that the API server said of it."""

    pod: ListedPod
    document: msgspec.Raw | None
    """None if it was not kept."""


PodsOfController: TypeAlias = tuple[PodOfController, ...]
ListPods: TypeAlias = Callable[[str, OwnerReference, ControllerObject], Awaitable[PodsOfController | Held]]
"""Lists the pods that a controller has now: given its namespace, how its pods refer to it, and what was read of it."""


class OwnerReading(msgspec.Struct, frozen=True, kw_only=True):
    """A controller when it was read, its Deployment or Rollout if it has one, and its pods."""

    kind: str
    controller: ControllerObject
    owner: ControllerObject | None = None
    """The Deployment or Rollout."""
    owner_kind: str = ""
    owner_unread: Held | None = None
    """Why it could not be read."""
    pods: tuple[ListedPod, ...] = ()
    documents: Mapping[str, msgspec.Raw] = {}
    """All that was said of them, by their UIDs. Of very large pods some are missing."""


async def read_owner(
    requests: Requests, list_pods: ListPods, namespace: str, controller: OwnerReference
) -> OwnerReading | Held:
    """Return a pod's controller with its pods, and its Deployment or Rollout, or why that can't be read."""
    found = await read_controller(requests, namespace, controller)
    if isinstance(found, Held):
        return found
    reference = found.metadata.controller
    owner, pods = await asyncio.gather(_owner(requests, namespace, reference), list_pods(namespace, controller, found))
    if isinstance(pods, Held):
        return pods
    return OwnerReading(
        kind=controller.kind,
        controller=found,
        owner=None if isinstance(owner, Held) else owner,
        owner_kind="" if reference is None else reference.kind,
        owner_unread=owner if isinstance(owner, Held) else None,
        pods=tuple(each.pod for each in pods),
        documents={each.pod.metadata.uid: each.document for each in pods if each.document is not None},
    )


async def _owner(requests: Requests, namespace: str, owner: OwnerReference | None) -> ControllerObject | Held | None:
    if owner is None or not leaves_it_to_its_replica_set(owner):
        return None
    return await read_controller(requests, namespace, owner)


async def read_controller(requests: Requests, namespace: str, controller: OwnerReference) -> ControllerObject | Held:
    """Return a controller of pods, a Deployment or a Rollout alone, or why that can't be read."""
    what, names = f"{controller.kind} {controller.name}", {"namespace": namespace, "name": controller.name}
    gone = Held(Reason.UNKNOWN_REPLACEMENT, f"{what} is gone: nothing would replace the pod")
    try:
        response = await requests.send("GET", _PATHS[controller.kind], names)
        if response.meaning is Meaning.ABSENT:
            return gone
        if not response.succeeded:
            return unreadable(what, response)
        found = decoded(_read_controller, response.body)
    except READING_ERRORS as error:
        return unread(what, error)
    return found if found.metadata.uid == controller.uid else gone


def unread(what: str, error: Exception) -> Held:
    """Return what stands in a move's way when reading something raised one of the `READING_ERRORS`."""
    words = error.message if isinstance(error, NoResponseError) else str(error)
    return Held(Reason.API_UNAVAILABLE, f"{what} could not be read: {words}")


def unreadable(what: str, response: Response) -> Held:
    """Return what stands in a move's way when the API server refused to say something."""
    missing = response.meaning is Meaning.FORBIDDEN
    hint = ": does the operator's ClusterRole still have the rules of its manifest?" if missing else ""
    return Held(Reason.API_UNAVAILABLE, f"{what} could not be read: {response.refusal}{hint}")


class _Kept(msgspec.Struct, Generic[_T], frozen=True):
    what: _T
    read_at: float


class BatchReadings(Generic[_T]):
    """Readings by key. Who asks for one that is being read waits for it."""

    def __init__(self, clock: Callable[[], float], fresh_seconds: float) -> None:
        """Start without readings. Each is valid for `fresh_seconds`."""
        self._clock = clock
        self._fresh_seconds = fresh_seconds
        self._kept: dict[Hashable, _Kept[_T]] = {}
        self._failed: dict[Hashable, _Kept[Held]] = {}
        self._reading: dict[Hashable, asyncio.Lock] = {}

    def known(self, key: Hashable) -> _T | None:
        """Return a valid reading."""
        found = self._kept.get(key)
        return None if found is None or self._clock() - found.read_at >= self._fresh_seconds else found.what

    async def get(self, key: Hashable, read: Callable[[], Awaitable[_T | Held]]) -> _T | Held:
        """Return a valid reading, or why there is none."""
        async with self._reading.setdefault(key, asyncio.Lock()):
            if (known := self.known(key)) is not None:
                return known
            failed = self._failed.get(key)
            if failed is not None and self._clock() - failed.read_at < FAILED_SECONDS:
                return failed.what
            started_at = self._clock()
            found = await read()
            if isinstance(found, Held):
                self._failed[key] = _Kept(found, self._clock())
            else:
                self._kept[key] = _Kept(found, started_at)
            return found


_TEMPLATE_HASH: Final = "pod-template-hash"
"""The label by which the Deployment controller tells the pods of its ReplicaSets apart."""
GATHER_SECONDS: Final = 0.01
"""How long a LIST waits for others to share it."""
MOST_KEPT_BYTES: Final = 32 << 20
"""Of the pods of one LIST. All that is to be known of a pod beyond that is read when it is to be evicted."""
_PAGE: Final = 500
_PODS: Final = "/api/v1/namespaces/{namespace}/pods"

_ByController = dict[str, list[PodOfController]]
"""Pods by the UIDs of their controllers."""
read_pod: Final = msgspec.json.Decoder(ListedPod).decode


class PodLists:
    """Lists the pods of controllers; belongs to one event loop."""

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
        """Return the pods that a controller has now, or why they could not be listed."""
        whose = f"{reference.kind} {reference.name}"
        try:
            selector = _selector(reference.kind, controller.spec.selector)
        except READING_ERRORS as error:
            return unread(f"the selector of {whose}", error)
        template_hash = None if selector is None else dict(selector.required).get(_TEMPLATE_HASH)
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
            return await self._list(namespace, f"{_TEMPLATE_HASH} in ({','.join(hashes)})", "ReplicaSets")

    async def _list(self, namespace: str, selector: str | None, whose: str) -> _ByController | Held:
        what, found, kept_bytes = f"the list of pods of {whose}", _ByController(), 0
        names = {"namespace": namespace}
        try:
            async for page in pages(self._requests, _PODS, names, page_objects=_PAGE, label_selector=selector):
                for document in page.objects:
                    pod = decoded(read_pod, document)
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
