"""Who judges bench/busy: what the API server shows of the pods, and nothing that either side says of itself."""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterable
from statistics import median

from bench.busy_fewest import fewest_evictions, skew
from respread_sandbox import SandboxApi, SandboxError
from respread_sandbox.pod_watch import PodLife, PodWatch, WatchedPod

Key = tuple[str, str]
"""A Deployment: its namespace and name."""


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
    """Knows every pod that has the label app, and which of them were evicted, whoever asked for it."""

    def __init__(self, api: SandboxApi, *, zone_skew: int, host_skew: int | None) -> None:
        """Begin to watch; the nodes are taken as they are now.

        Args:
            api: of the sandbox.
            zone_skew: maxSkew of every Deployment's constraint over zones.
            host_skew: maxSkew of its constraint over hostnames, if there is one.
        """
        self._skews = (zone_skew, host_skew)
        labels = [node["metadata"]["labels"] for node in api.get("/api/v1/nodes")["items"]]
        self._zone_of = {each["kubernetes.io/hostname"]: each["topology.kubernetes.io/zone"] for each in labels}
        self._watch = PodWatch(api, label_selector="app")

    def close(self) -> None:
        """Look no longer."""
        self._watch.close()

    @property
    def evictions(self) -> int:
        """How many evictions were made so far."""
        return sum(life.evicted_at is not None for life in self._lives())

    def settled(self) -> bool:
        """Whether every pod is Ready and none is being deleted."""
        return all(pod.ready and not pod.terminating for pod in self._now())

    def pending(self) -> int:
        """Return how many pods have no node."""
        return sum(not pod.spec.node_name and not pod.terminating for pod in self._now())

    def sizes(self) -> dict[Key, int]:
        """Return how many pods each Deployment has."""
        return dict(Counter(map(_key, self._now())))

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
        lives = self._lives()
        evicted = [(_key(life.pod), life.evicted_at) for life in lives if life.evicted_at is not None]
        ready = [(_key(life.pod), life.ready_at) for life in lives if life.ready_at is not None]
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
        staying = [pod for pod in self._now() if pod.spec.node_name and not pod.terminating]
        if self._skews[1] is None:
            zones = sorted(set(self._zone_of.values()))
            in_zone = Counter((_key(pod), self._zone_of[pod.spec.node_name]) for pod in staying)
            return {key: {zone: [in_zone[key, zone]] for zone in zones} for key in set(map(_key, staying))}
        on_host = Counter((_key(pod), pod.spec.node_name) for pod in staying)
        hosts: dict[str, list[str]] = defaultdict(list)
        for host, zone in self._zone_of.items():
            hosts[zone].append(host)
        return {
            key: {zone: [on_host[key, host] for host in inside] for zone, inside in hosts.items()}
            for key in set(map(_key, staying))
        }

    def _now(self) -> list[WatchedPod]:
        return [life.pod for life in self._lives() if not life.gone]

    def _lives(self) -> list[PodLife]:
        try:
            return self._watch.lives()
        except SandboxError as error:
            raise SystemExit(str(error)) from error


def _key(pod: WatchedPod) -> Key:
    return (pod.metadata.namespace, pod.metadata.labels["app"])
