"""Watching the demo's pods through the API server, beside the operator and without asking it."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, Literal

import msgspec
import requests

from respread.cluster.annotations import POD_DELETION_COST
from respread_sandbox import SandboxApi, SandboxError
from respread_sandbox.demo.picture import Picture
from respread_sandbox.demo.world import HOSTNAME, ZONE

_READ_SECONDS: Final = 60
"""A watch that is silent for longer is begun anew; the API server sends bookmarks about once a minute."""


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}
    annotations: dict[str, str] = {}


class _Spec(msgspec.Struct, rename="camel"):
    node_name: str = ""


class _Condition(msgspec.Struct):
    type: str
    status: str
    reason: str = ""


class _Status(msgspec.Struct):
    conditions: list[_Condition] = []


class _Pod(msgspec.Struct):
    metadata: _Metadata
    spec: _Spec = msgspec.field(default_factory=_Spec)
    status: _Status = msgspec.field(default_factory=_Status)

    @property
    def terminating(self) -> bool:
        return self.metadata.deletion_timestamp is not None

    def has(self, condition: str, reason: str | None = None) -> bool:
        """Whether a condition is True, for a reason if one is given."""
        return any(
            each.type == condition and each.status == "True" and reason in (None, each.reason)
            for each in self.status.conditions
        )


class _PodEvent(msgspec.Struct):
    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: msgspec.Raw


class _PodList(msgspec.Struct):
    metadata: _Metadata
    items: list[_Pod]


class PodObserver:
    """Knows every pod of one namespace, and how each one that is gone went.

    The API server notes on a pod that it evicts the condition DisruptionTarget with reason EvictionByEvictionAPI,
    before it deletes the pod: that is what is counted.
    """

    def __init__(self, api: SandboxApi, namespace: str, deployments: Sequence[str]) -> None:
        """Begin to watch.

        Args:
            api: Of the sandbox.
            namespace: Whose pods.
            deployments: The Deployments that there will be.
        """
        self._api = api
        self._path = f"/api/v1/namespaces/{namespace}/pods"
        self._deployments = deployments
        nodes = api.get("/api/v1/nodes")["items"]
        self._zone_of: dict[str, str] = {node["metadata"]["name"]: node["metadata"]["labels"][ZONE] for node in nodes}
        self._host_of: dict[str, str] = {
            node["metadata"]["name"]: node["metadata"]["labels"][HOSTNAME] for node in nodes
        }
        self._pods: dict[str, _Pod] = {}
        self._going: set[str] = set()
        """UIDs of pods whose deletion was seen to begin since the count was begun."""
        self._evicted: set[str] = set()
        self._failure: str | None = None
        self._closed = threading.Event()
        self._lock = threading.Lock()
        version = self._list()
        self._thread = threading.Thread(target=self._watch, args=(version,), name="pod-observer", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Look no longer; the thread ends when it next hears something, or with the process."""
        self._closed.set()

    def begin_count(self) -> None:
        """Count evictions and other deletions from now on."""
        with self._lock:
            self._going.clear()
            self._evicted.clear()

    def picture(self) -> Picture:
        """Return how things are.

        Raises:
            SandboxError: the watch ended, so that nobody can tell.
        """
        with self._lock:
            if self._failure is not None:
                raise SandboxError(self._failure)
            pods = list(self._pods.values())
            going, evicted = len(self._going), len(self._evicted)
        staying = [pod for pod in pods if not pod.terminating]
        return Picture(
            per_zone=self._per_domain(staying, self._zone_of),
            per_host=self._per_domain(staying, self._host_of),
            pods=len(staying),
            ready=sum(pod.has("Ready") for pod in staying),
            pending=sum(not pod.spec.node_name for pod in staying),
            ranked=sum(POD_DELETION_COST in pod.metadata.annotations for pod in staying),
            terminating=len(pods) - len(staying),
            evicted=evicted,
            otherwise_deleted=going - evicted,
        )

    def _per_domain(self, pods: Sequence[_Pod], domain_of: Mapping[str, str]) -> dict[str, dict[str, int]]:
        counts = Counter(
            (pod.metadata.labels.get("app", ""), domain_of[pod.spec.node_name]) for pod in pods if pod.spec.node_name
        )
        domains = sorted(set(domain_of.values()))
        return {name: {domain: counts[name, domain] for domain in domains} for name in self._deployments}

    def _list(self) -> str:
        answer = msgspec.convert(self._api.get(self._path), _PodList)
        with self._lock:
            self._pods = {pod.metadata.uid: pod for pod in answer.items}
        return answer.metadata.resource_version

    def _watch(self, version: str) -> None:
        try:
            while not self._closed.is_set():
                for event in self._events(version):
                    version = self._take(event)
        except (SandboxError, msgspec.DecodeError, OSError) as error:
            if not self._closed.is_set():
                with self._lock:
                    self._failure = f"the watch of the demo's pods was lost: {error}"

    def _events(self, version: str) -> Iterator[_PodEvent]:
        parameters: dict[str, Any] = {"watch": 1, "resourceVersion": version, "allowWatchBookmarks": "true"}
        client = self._api.client
        try:
            with client.session.get(
                client.url + self._path, params=parameters, stream=True, timeout=(5, _READ_SECONDS)
            ) as response:
                response.raise_for_status()
                for line in response.iter_lines(chunk_size=None):
                    if self._closed.is_set():
                        return
                    yield msgspec.json.decode(line, type=_PodEvent)
        except requests.exceptions.RequestException:
            if not self._closed.is_set():
                self._api.get("/livez")  # if that is answered, the watch is begun anew where it broke off

    def _take(self, event: _PodEvent) -> str:
        """Take over an event, and return the version to go on from."""
        if event.type == "ERROR":
            raise SandboxError(f"the API server ended it: {bytes(event.object).decode()}")
        pod = msgspec.json.decode(event.object, type=_Pod)
        kind, uid, version = event.type, pod.metadata.uid, pod.metadata.resource_version
        if kind == "BOOKMARK":
            return version
        with self._lock:
            if kind == "DELETED":
                self._pods.pop(uid, None)
            else:
                self._pods[uid] = pod
            if kind == "DELETED" or pod.terminating:
                self._going.add(uid)
                if pod.has("DisruptionTarget", "EvictionByEvictionAPI"):
                    self._evicted.add(uid)
        return version
