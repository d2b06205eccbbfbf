"""Who judges bench/busy: what the API server shows of the pods, and nothing that either side says of itself."""

from __future__ import annotations

import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Iterator
from statistics import median
from typing import Any, Final, Literal, NamedTuple

import msgspec
import requests

from bench.busy_fewest import fewest_evictions, skew
from respread_sandbox import SandboxApi

Key = tuple[str, str]
"""A Deployment: its namespace and name."""

READ_SECONDS: Final = 120


class _Metadata(msgspec.Struct, rename="camel"):
    uid: str = ""
    namespace: str = ""
    resource_version: str = ""
    deletion_timestamp: str | None = None
    labels: dict[str, str] = {}


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

    def has(self, condition: str, reason: str | None = None) -> bool:
        return any(
            each.type == condition and each.status == "True" and reason in (None, each.reason)
            for each in self.status.conditions
        )


class _PodList(msgspec.Struct):
    metadata: _Metadata
    items: list[_Pod]


class _Event(msgspec.Struct):
    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK", "ERROR"]
    object: msgspec.Raw


class _Seen(NamedTuple):
    """What counts of a pod."""

    key: Key
    node: str
    ready: bool
    terminating: bool


def waits(evicted: Iterable[tuple[Key, float]], ready: Iterable[tuple[Key, float]]) -> list[float]:
    """Return how long each eviction took until a replacement was Ready; none for those that have none.

    Evictions of a Deployment, in their order, are paired with the pods that became Ready after them.

    Args:
        evicted: the Deployment of each evicted pod, and when it was evicted.
        ready: the Deployment of each pod, and when it became Ready.
    """
    ends: dict[Key, deque[float]] = defaultdict(deque)
    for key, at in sorted(ready, key=lambda each: each[1]):
        ends[key].append(at)
    taken = []
    for key, at in sorted(evicted, key=lambda each: each[1]):
        while ends[key] and ends[key][0] <= at:
            ends[key].popleft()
        if ends[key]:
            taken.append(ends[key].popleft() - at)
    return taken


class Judge:
    """Knows every pod that has the label app, and which of them were evicted.

    The API server notes on a pod that it evicts the condition DisruptionTarget with the reason EvictionByEvictionAPI,
    before it deletes the pod: that is what is counted, whoever asked for it.
    """

    def __init__(self, api: SandboxApi, *, zone_skew: int, host_skew: int | None) -> None:
        """Begin to watch; the nodes are taken as they are now.

        Args:
            api: of the sandbox.
            zone_skew: maxSkew of every Deployment's constraint over zones.
            host_skew: maxSkew of its constraint over hostnames, if there is one.
        """
        self._api = api
        self._skews = (zone_skew, host_skew)
        labels = [node["metadata"]["labels"] for node in api.get("/api/v1/nodes")["items"]]
        self._zone_of = {each["kubernetes.io/hostname"]: each["topology.kubernetes.io/zone"] for each in labels}
        self._pods: dict[str, _Seen] = {}
        self._evicted_at: dict[str, tuple[Key, float]] = {}
        self._ready_at: dict[str, tuple[Key, float]] = {}
        """When a pod was first seen Ready."""
        self._failure: BaseException | None = None
        self._closed = threading.Event()
        self._lock = threading.Lock()
        version = self._list()
        threading.Thread(target=self._watch, args=(version,), name="judge", daemon=True).start()

    def close(self) -> None:
        """Look no longer."""
        self._closed.set()

    @property
    def evictions(self) -> int:
        """How many evictions were made so far."""
        with self._lock:
            return len(self._evicted_at)

    def settled(self) -> bool:
        """Whether every pod is Ready and none is being deleted."""
        return all(pod.ready and not pod.terminating for pod in self._now())

    def pending(self) -> int:
        """Return how many pods have no node."""
        return sum(not pod.node and not pod.terminating for pod in self._now())

    def sizes(self) -> dict[Key, int]:
        """Return how many pods each Deployment has."""
        return dict(Counter(pod.key for pod in self._now()))

    def violated(self) -> list[Key]:
        """Return the Deployments that have a constraint which does not hold."""
        zone_skew, host_skew = self._skews
        return [
            key
            for key, zones in self._counts().items()
            if skew(map(sum, zones.values())) > zone_skew
            or (host_skew is not None and skew(count for hosts in zones.values() for count in hosts) > host_skew)
        ]

    def fewest(self) -> dict[Key, int]:
        """Return the fewest evictions after which the constraints of each Deployment hold."""
        zone_skew, host_skew = self._skews
        return {
            key: fewest_evictions(zones, zone_skew=zone_skew, host_skew=host_skew)
            for key, zones in self._counts().items()
        }

    def replacement_seconds(self) -> float:
        """Return how long it took from an eviction until a replacement was Ready: the median, as it was seen."""
        with self._lock:
            evicted, ready = list(self._evicted_at.values()), list(self._ready_at.values())
        taken = waits(evicted, ready)
        return median(taken) if taken else 0.0

    def describe(self) -> str:
        """Return how things stand, in words."""
        pods = self._now()
        return (
            f"{len(pods):,} pods, {sum(pod.ready for pod in pods):,} Ready, "
            f"{sum(pod.terminating for pod in pods):,} being deleted, {self.pending():,} Pending"
        )

    def _counts(self) -> dict[Key, dict[str, list[int]]]:
        """Return the pods on each host of each zone, for each Deployment; those being deleted are not counted.

        Where no constraint is over hostnames, a zone counts as one host: it is asked for ten times a second.
        """
        staying = [pod for pod in self._now() if pod.node and not pod.terminating]
        if self._skews[1] is None:
            zones = sorted(set(self._zone_of.values()))
            in_zone = Counter((pod.key, self._zone_of[pod.node]) for pod in staying)
            return {key: {zone: [in_zone[key, zone]] for zone in zones} for key in {pod.key for pod in staying}}
        on_host = Counter((pod.key, pod.node) for pod in staying)
        hosts: dict[str, list[str]] = defaultdict(list)
        for host, zone in self._zone_of.items():
            hosts[zone].append(host)
        return {
            key: {zone: [on_host[key, host] for host in inside] for zone, inside in hosts.items()}
            for key in {pod.key for pod in staying}
        }

    def _now(self) -> list[_Seen]:
        with self._lock:
            if self._failure is not None:
                raise SystemExit(f"the watch of the pods was lost: {self._failure}")
            return list(self._pods.values())

    def _list(self) -> str:
        """Take over what there is; a watch that begins with that has no version to go on from if it breaks off."""
        found = msgspec.convert(self._api.get("/api/v1/pods?labelSelector=app"), _PodList)
        for pod in found.items:
            self._see(pod)
        return found.metadata.resource_version

    def _watch(self, version: str) -> None:
        try:
            while not self._closed.is_set():
                for event in self._events(version):
                    version = self._take(event)
        except (requests.exceptions.RequestException, msgspec.DecodeError, OSError, ValueError) as error:
            with self._lock:
                self._failure = error

    def _events(self, version: str) -> Iterator[_Event]:
        parameters: dict[str, Any] = {
            "watch": 1,
            "labelSelector": "app",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
        }
        client = self._api.client
        with client.session.get(
            f"{client.url}/api/v1/pods", params=parameters, stream=True, timeout=(5, READ_SECONDS)
        ) as response:
            response.raise_for_status()
            for line in response.iter_lines(chunk_size=None):
                if self._closed.is_set():
                    return
                yield msgspec.json.decode(line, type=_Event)

    def _take(self, event: _Event) -> str:
        """Take over an event, and return the version to go on from."""
        if event.type == "ERROR":
            raise ValueError(bytes(event.object).decode())
        pod = msgspec.json.decode(event.object, type=_Pod)
        if event.type == "BOOKMARK":
            return pod.metadata.resource_version
        with self._lock:
            self._see(pod, gone=event.type == "DELETED")
        return pod.metadata.resource_version

    def _see(self, pod: _Pod, *, gone: bool = False) -> None:
        uid, now = pod.metadata.uid, time.monotonic()
        key = (pod.metadata.namespace, pod.metadata.labels["app"])
        ready, terminating = pod.has("Ready"), pod.metadata.deletion_timestamp is not None
        if gone:
            self._pods.pop(uid, None)
        else:
            self._pods[uid] = _Seen(key, pod.spec.node_name, ready, terminating)
        if (gone or terminating) and pod.has("DisruptionTarget", "EvictionByEvictionAPI"):
            self._evicted_at.setdefault(uid, (key, now))
        elif ready:
            self._ready_at.setdefault(uid, (key, now))
