"""Watches pods through the API server, independently of the programs that move them."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from typing import Any, Final, Literal, NamedTuple

import msgspec
import requests

from respread_sandbox.api import SandboxApi
from respread_sandbox.options import SandboxError

_READ_SECONDS: Final = 60
"""A watch that is silent for longer is started again; the API server sends bookmarks about once a minute."""


class Metadata(msgspec.Struct, rename="camel", frozen=True):
    """The used fields of a pod's metadata."""

    uid: str = ""
    namespace: str = ""
    name: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class _WatchedSpec(msgspec.Struct, rename="camel", frozen=True):
    node_name: str = ""


class _PodCondition(msgspec.Struct, frozen=True):
    type: str
    status: str
    reason: str = ""


class _PodStatus(msgspec.Struct, frozen=True):
    conditions: list[_PodCondition] = []


class WatchedPod(msgspec.Struct, frozen=True):
    """A pod as the API server shows it."""

    metadata: Metadata
    spec: _WatchedSpec = msgspec.field(default_factory=_WatchedSpec)
    status: _PodStatus = msgspec.field(default_factory=_PodStatus)

    @property
    def terminating(self) -> bool:
        """Whether it is terminating."""
        return self.metadata.deletion_timestamp is not None

    @property
    def ready(self) -> bool:
        """Whether its condition Ready is True."""
        return self._has("Ready")

    @property
    def evicted(self) -> bool:
        """Whether the Eviction API deletes it: the API server writes this condition before it deletes the pod."""
        return self._has("DisruptionTarget", "EvictionByEvictionAPI")

    def _has(self, condition: str, reason: str | None = None) -> bool:
        return any(
            each.type == condition and each.status == "True" and reason in (None, each.reason)
            for each in self.status.conditions
        )


class PodLife(NamedTuple):
    """A pod as it was last seen, and when its creation and deletion were first seen, by `time.monotonic`."""

    pod: WatchedPod
    gone: bool = False
    ready_at: float | None = None
    deleted_at: float | None = None
    """When it was first seen terminating."""
    evicted_at: float | None = None
    """When it was first seen terminating because of the Eviction API."""


class _PodList(msgspec.Struct):
    metadata: Metadata
    items: list[WatchedPod]


class _Event(msgspec.Struct):
    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: msgspec.Raw


class PodWatch:
    """Knows every pod since the start, and how each deleted one was deleted."""

    def __init__(self, api: SandboxApi, *, namespace: str | None = None, label_selector: str = "") -> None:
        """List pods, and start watching. A namespace of None is all."""
        self._api = api
        self._path = "/api/v1/pods" if namespace is None else f"/api/v1/namespaces/{namespace}/pods"
        self._label_selector = label_selector
        self._lives: dict[str, PodLife] = {}
        self._failure: str | None = None
        self._closed = threading.Event()
        self._lock = threading.Lock()
        # A watch that began with a list of its own would have no version to go on from if it broke off at once.
        listed = msgspec.convert(api.get(f"{self._path}?labelSelector={label_selector}"), _PodList)
        for pod in listed.items:
            self._see(pod)
        version = listed.metadata.resource_version
        threading.Thread(target=self._watch, args=(version,), name="pod-watch", daemon=True).start()

    def close(self) -> None:
        """Stop watching. The thread ends with the next message, or with the process."""
        self._closed.set()

    def lives(self) -> list[PodLife]:
        """Return every pod seen so far, including deleted ones.

        Raises:
            SandboxError: the watch ended, so that nobody can tell.
        """
        with self._lock:
            if self._failure is not None:
                raise SandboxError(self._failure)
            return list(self._lives.values())

    def _watch(self, version: str) -> None:
        try:
            while not self._closed.is_set():
                for event in self._events(version):
                    version = self._take(event)
        except (SandboxError, msgspec.DecodeError, OSError) as error:
            if not self._closed.is_set():
                with self._lock:
                    self._failure = f"the watch of the pods was lost: {error}"

    def _events(self, version: str) -> Iterator[_Event]:
        parameters: dict[str, Any] = {
            "watch": 1,
            "labelSelector": self._label_selector,
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
        }
        client = self._api.client
        try:
            with client.session.get(
                client.url + self._path, params=parameters, stream=True, timeout=(5, _READ_SECONDS)
            ) as response:
                response.raise_for_status()
                for line in response.iter_lines(chunk_size=None):
                    if self._closed.is_set():
                        return
                    yield msgspec.json.decode(line, type=_Event)
        except requests.exceptions.RequestException:
            if not self._closed.is_set():
                self._api.get("/livez")  # if that is answered, the watch continues where it ended

    def _take(self, event: _Event) -> str:
        """Apply an event, and return the version to continue from."""
        if event.type == "ERROR":
            raise SandboxError(f"the API server ended it: {bytes(event.object).decode()}")
        pod = msgspec.json.decode(event.object, type=WatchedPod)
        if event.type != "BOOKMARK":
            with self._lock:
                self._see(pod, gone=event.type == "DELETED")
        return pod.metadata.resource_version

    def _see(self, pod: WatchedPod, *, gone: bool = False) -> None:
        now, was = time.monotonic(), self._lives.get(pod.metadata.uid, PodLife(pod))
        leaving = gone or pod.terminating
        self._lives[pod.metadata.uid] = PodLife(
            pod,
            gone,
            was.ready_at or (now if pod.ready and not leaving else None),
            was.deleted_at or (now if leaving else None),
            was.evicted_at or (now if leaving and pod.evicted else None),
        )
