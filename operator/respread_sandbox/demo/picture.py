"""The spread of one side's pods at one moment, computed only from the pods and independently of the operator.

None of it is the operator's: what checks should not be what is checked.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from respread.cluster.annotations import POD_DELETION_COST
from respread_sandbox import SandboxApi
from respread_sandbox.demo.world import HOSTNAME, MAX_SKEW, ZONE
from respread_sandbox.pod_watch import PodWatch, WatchedPod


class Picture(msgspec.Struct, frozen=True, kw_only=True):
    """The pods of one side's namespace at one moment."""

    per_zone: Mapping[str, Mapping[str, int]]
    """Deployment, zone, and number of pods that are not terminating, for every Deployment and every zone."""
    per_host: Mapping[str, Mapping[str, int]]
    pods: int
    """The pods that are not terminating."""
    ready: int
    pending: int
    """The pods without a node."""
    ranked: int
    """The pods with a pod deletion cost."""
    terminating: int
    evicted: int
    """Pods evicted through the Eviction API since the count began."""
    otherwise_deleted: int
    """Pods deleted in any other way since then."""

    @property
    def violated_zones(self) -> tuple[str, ...]:
        """The Deployments whose zone constraint is violated."""
        return violated(self.per_zone)

    @property
    def violated_hosts(self) -> tuple[str, ...]:
        """The Deployments whose hostname constraint is violated."""
        return violated(self.per_host)

    @property
    def worst_skew(self) -> int:
        """The largest skew over zones."""
        return max((skew(counts) for counts in self.per_zone.values()), default=0)

    @property
    def fewest_evictions(self) -> int:
        """The least number of evictions that make all zone constraints hold."""
        return sum(fewest_evictions(list(counts.values())) for counts in self.per_zone.values())

    def settled(self, pods: int) -> bool:
        """Return whether there are exactly this many pods, all Ready, and none is terminating."""
        return self.pods == self.ready == pods and not self.terminating


class Pair(NamedTuple):
    """Both sides at one moment."""

    without: Picture
    prevented: Picture


def violated(counts: Mapping[str, Mapping[str, int]]) -> tuple[str, ...]:
    """Return the Deployments with more than the allowed skew."""
    return tuple(name for name, domains in counts.items() if skew(domains) > MAX_SKEW)


def skew(counts: Mapping[str, int]) -> int:
    """Return the most pods of any domain minus the fewest."""
    return max(counts.values(), default=0) - min(counts.values(), default=0)


def fewest_evictions(counts: Sequence[int], max_skew: int = MAX_SKEW) -> int:
    """Return the fewest pods to move until no domain has more than maxSkew pods more than another.

    In the end every domain has between `low` and `low + max_skew` pods, for some `low`. Whatever is above that has to
    move out and whatever is missing has to move in, and a move does one of each: the larger sum is what it takes. It is
    enough too: moves from the domains above, then from the fullest, to those below, then to the emptiest.
    """
    return min(
        max(
            sum(max(0, count - low - max_skew) for count in counts),
            sum(max(0, low - count) for count in counts),
        )
        for low in range(max(counts, default=0) + 1)
        if low * len(counts) <= sum(counts) <= (low + max_skew) * len(counts)
    )


class PodObserver:
    """Knows every pod of one namespace, and how each deleted one was deleted."""

    def __init__(self, api: SandboxApi, namespace: str, deployments: Sequence[str]) -> None:
        """Start watching.

        Args:
            api: Of the sandbox.
            namespace: Whose pods.
            deployments: The Deployments that there will be.
        """
        self._deployments = deployments
        nodes = api.get("/api/v1/nodes")["items"]
        self._zone_of: dict[str, str] = {node["metadata"]["name"]: node["metadata"]["labels"][ZONE] for node in nodes}
        self._host_of: dict[str, str] = {
            node["metadata"]["name"]: node["metadata"]["labels"][HOSTNAME] for node in nodes
        }
        self._count_from = 0.0
        self._watch = PodWatch(api, namespace=namespace)

    def close(self) -> None:
        """Stop watching."""
        self._watch.close()

    def begin_count(self) -> None:
        """Count evictions and other deletions from now on."""
        self._count_from = time.monotonic()

    def picture(self) -> Picture:
        """Return the current picture.

        Raises:
            SandboxError: the watch ended, so that nobody can tell.
        """
        lives = self._watch.lives()
        pods = [life.pod for life in lives if not life.gone]
        counted = [life for life in lives if life.deleted_at is not None and life.deleted_at >= self._count_from]
        evicted = sum(life.evicted_at is not None for life in counted)
        staying = [pod for pod in pods if not pod.terminating]
        return Picture(
            per_zone=self._per_domain(staying, self._zone_of),
            per_host=self._per_domain(staying, self._host_of),
            pods=len(staying),
            ready=sum(pod.ready for pod in staying),
            pending=sum(not pod.spec.node_name for pod in staying),
            ranked=sum(POD_DELETION_COST in pod.metadata.annotations for pod in staying),
            terminating=len(pods) - len(staying),
            evicted=evicted,
            otherwise_deleted=len(counted) - evicted,
        )

    def _per_domain(self, pods: Sequence[WatchedPod], domain_of: Mapping[str, str]) -> dict[str, dict[str, int]]:
        counts = Counter(
            (pod.metadata.labels.get("app", ""), domain_of[pod.spec.node_name]) for pod in pods if pod.spec.node_name
        )
        domains = sorted(set(domain_of.values()))
        return {name: {domain: counts[name, domain] for domain in domains} for name in self._deployments}
