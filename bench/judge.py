"""The judge of programs that restore a spread. It uses the pods in the API server, and no reports of programs."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Sequence
from statistics import median
from typing import Final

from respread_sandbox import SandboxApi, SandboxError
from respread_sandbox.pod_watch import PodLife, PodWatch, WatchedPod

Key = tuple[str, str]
"""A Deployment: its namespace and name."""

_REFUSED: Final = re.compile(
    r'^apiserver_request_total\{(?=.*code="[45])(?=.*dry_run="")(?=.*subresource="eviction").*\} (\S+)$', re.MULTILINE
)


def waits(evicted: Iterable[tuple[Key, float]], ready: Iterable[tuple[Key, float]]) -> list[float]:
    """Return how long each eviction took until a replacement was Ready, without evictions that have none.

    Evictions of a Deployment are paired in order with the pods that became Ready after them.

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


class Judge(ABC):
    """Knows every pod with the label app, and which of them were evicted, by any client."""

    def __init__(self, api: SandboxApi) -> None:
        """Start watching."""
        self._api = api
        self._watch = PodWatch(api, label_selector="app")
        self._refused_before = refused_evictions(api)

    def close(self) -> None:
        """Stop watching."""
        self._watch.close()

    @abstractmethod
    def violated(self) -> Sequence[object]:
        """Return the current violations, in the units of the fewest violations."""

    @property
    def evictions(self) -> int:
        """Return the number of evictions so far."""
        return sum(life.evicted_at is not None for life in self._lives())

    def refused(self) -> int:
        """Return how many evictions the API server has refused so far, for a budget or another reason."""
        return refused_evictions(self._api) - self._refused_before

    def all_ready(self) -> bool:
        """Return whether every pod is Ready and none is terminating."""
        return all(pod.ready and not pod.terminating for pod in self.now())

    def pending(self) -> int:
        """Return how many pods have no node."""
        return sum(not pod.spec.node_name and not pod.terminating for pod in self.now())

    def sizes(self) -> dict[Key, int]:
        """Return how many pods each Deployment has."""
        return dict(Counter(map(key_of, self.now())))

    def staying(self) -> list[WatchedPod]:
        """Return the pods that the scheduler counts: those with a node that are not terminating."""
        return [pod for pod in self.now() if pod.spec.node_name and not pod.terminating]

    def replacement_seconds(self) -> float:
        """Return the observed median time from an eviction to a Ready replacement."""
        lives = self._lives()
        evicted = [(key_of(life.pod), life.evicted_at) for life in lives if life.evicted_at is not None]
        ready = [(key_of(life.pod), life.ready_at) for life in lives if life.ready_at is not None]
        taken = waits(evicted, ready)
        return median(taken) if taken else 0.0

    def describe(self) -> str:
        """Return the current state in words."""
        pods = self.now()
        return (
            f"{len(pods):,} pods, {sum(pod.ready for pod in pods):,} Ready, "
            f"{sum(pod.terminating for pod in pods):,} being deleted, {self.pending():,} Pending"
        )

    def now(self) -> list[WatchedPod]:
        """Return all pods."""
        return [life.pod for life in self._lives() if not life.gone]

    def _lives(self) -> list[PodLife]:
        try:
            return self._watch.lives()
        except SandboxError as error:
            raise SystemExit(str(error)) from error


def refused_evictions(api: SandboxApi) -> int:
    """Return how many evictions the API server has refused since it started, by its own metrics."""
    return round(sum(map(float, _REFUSED.findall(api.get("/metrics")))))


def key_of(pod: WatchedPod) -> Key:
    """Return the Deployment of a pod."""
    return (pod.metadata.namespace, pod.metadata.labels["app"])
