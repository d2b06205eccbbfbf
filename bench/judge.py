"""The judge of programs that restore a spread. It uses the pods in the API server, and no reports of programs."""

from __future__ import annotations

import math
import re
from abc import ABC, abstractmethod
from collections import Counter, defaultdict, deque
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Final, NamedTuple

from respread_sandbox import SandboxApi, SandboxError
from respread_sandbox.pod_watch import PodLife, PodWatch, WatchedPod

Key = tuple[str, str]
"""A workload: its namespace and name."""

_REFUSED: Final = re.compile(
    r'^apiserver_request_total\{(?=.*code="[45])(?=.*dry_run="")(?=.*subresource="eviction").*\} (\S+)$', re.MULTILINE
)


class Flight(NamedTuple):
    """An eviction, until a replacement is Ready."""

    key: Key
    evicted_at: float
    ready_at: float = math.inf
    """Infinite if no pod became Ready for it."""


def flights(evicted: Iterable[tuple[Key, float]], ready: Iterable[tuple[Key, float]]) -> list[Flight]:
    """Return the evictions. Those of a Deployment are paired in order with the pods that became Ready after them.

    Args:
        evicted: the Deployment of each evicted pod, and when it was evicted.
        ready: the Deployment of each pod, and when it became Ready.
    """
    ends: dict[Key, deque[float]] = defaultdict(deque)
    for key, at in sorted(ready, key=lambda each: each[1]):
        ends[key].append(at)
    found = []
    for key, at in sorted(evicted, key=lambda each: each[1]):
        while ends[key] and ends[key][0] <= at:
            ends[key].popleft()
        found.append(Flight(key, at, ends[key].popleft() if ends[key] else math.inf))
    return found


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

    def evicted_at(self) -> list[float]:
        """Return when each eviction so far was seen, by `time.monotonic`, in order."""
        return sorted(life.evicted_at for life in self._lives() if life.evicted_at is not None)

    def refused(self) -> int:
        """Return how many evictions the API server has refused so far, for a budget or another reason."""
        return refused_evictions(self._api) - self._refused_before

    def all_ready(self) -> bool:
        """Return whether every pod is Ready and none is terminating."""
        return all(pod.ready and not pod.terminating for pod in self.now())

    def has_ready(self, wanted: Mapping[Key, int]) -> bool:
        """Return whether each workload has this number of pods, all Ready, besides terminating ones."""
        staying = [pod for pod in self.now() if not pod.terminating]
        return all(pod.ready for pod in staying) and dict(Counter(map(key_of, staying))) == wanted

    def pending(self) -> int:
        """Return how many pods have no node."""
        return sum(not pod.spec.node_name and not pod.terminating for pod in self.now())

    def sizes(self) -> dict[Key, int]:
        """Return how many pods each Deployment has."""
        return dict(Counter(map(key_of, self.now())))

    def staying(self) -> list[WatchedPod]:
        """Return the pods that the scheduler counts: those with a node that are not terminating."""
        return [pod for pod in self.now() if pod.spec.node_name and not pod.terminating]

    def flights(self) -> list[Flight]:
        """Return the evictions so far, in order."""
        lives = self._lives()
        return flights(
            [(key_of(life.pod), life.evicted_at) for life in lives if life.evicted_at is not None],
            [(key_of(life.pod), life.ready_at) for life in lives if life.ready_at is not None],
        )

    def replacement_seconds(self) -> float:
        """Return the observed median time from an eviction to a Ready replacement."""
        taken = [each.ready_at - each.evicted_at for each in self.flights() if each.ready_at < math.inf]
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
