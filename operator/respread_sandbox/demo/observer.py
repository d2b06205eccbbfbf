"""The demo's pods, observed independently of the operator."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence

from respread.cluster.annotations import POD_DELETION_COST
from respread_sandbox import SandboxApi
from respread_sandbox.demo.picture import Picture
from respread_sandbox.demo.world import HOSTNAME, ZONE
from respread_sandbox.pod_watch import PodWatch, WatchedPod


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
