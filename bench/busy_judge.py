"""The judge of bench/busy and bench/pace: counts the pods of each workload by zone and, if needed, by host."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence

from bench.busy_fewest import fewest_evictions, skew
from bench.judge import Judge, Key, key_of
from respread_sandbox import SandboxApi
from respread_sandbox.pod_watch import PodLife, WatchedPod


class BusyJudge(Judge):
    """Knows the constraints of the workloads, which are the same for all."""

    def __init__(self, api: SandboxApi, *, zone_skew: int, host_skew: int | None) -> None:
        """Start watching.

        Args:
            api: the API of the sandbox.
            zone_skew: maxSkew of every workload's constraint over zones.
            host_skew: maxSkew of its constraint over hostnames, if there is one.
        """
        self._skews = (zone_skew, host_skew)
        self._before: frozenset[str] = frozenset()
        super().__init__(api)
        self.read_nodes()

    def read_nodes(self) -> None:
        """Read which nodes there are, after they changed."""
        labels = [node["metadata"]["labels"] for node in self._api.get("/api/v1/nodes")["items"]]
        self._zone_of = {each["kubernetes.io/hostname"]: each["topology.kubernetes.io/zone"] for each in labels}

    def before_change(self) -> None:
        """Remember the pods there are, before the cluster changes while a program runs."""
        self._before = frozenset(pod.metadata.uid for pod in self.now())

    def left_by_change(self) -> list[WatchedPod]:
        """Return the pods that a change has left so far: those from before it that only evictions deleted, if any."""
        return [life.pod for life in self._changed() if life.deleted_at is None or life.evicted_at is not None]

    def deleted_by_change(self) -> list[float]:
        """Return when each pod was deleted by the change so far, by `time.monotonic`."""
        return [life.deleted_at for life in self._changed() if life.deleted_at is not None and life.evicted_at is None]

    def violated(self) -> list[Key]:
        """Return the workloads with a violated constraint."""
        zone_skew, host_skew = self._skews
        return [
            key
            for key, zones in self._counts(self.staying()).items()
            if skew(map(sum, zones.values())) > zone_skew
            or (host_skew is not None and skew(count for hosts in zones.values() for count in hosts) > host_skew)
        ]

    def fewest(self, pods: Sequence[WatchedPod] | None = None) -> dict[Key, int]:
        """Return the fewest evictions after which the constraints of each workload hold.

        Args:
            pods: the pods; by default those that the scheduler counts now.
        """
        zone_skew, host_skew = self._skews
        return {
            key: fewest_evictions(zones, zone_skew=zone_skew, host_skew=host_skew)
            for key, zones in self._counts(self.staying() if pods is None else pods).items()
        }

    def victims(self) -> list[WatchedPod]:
        """Return the fewest pods that must be evicted, for constraints over zones alone: first one of each workload.

        Takes each from the fullest zone. The scheduler places its replacement in the emptiest zone.
        """
        zones = set(self._zone_of.values())
        in_zone: dict[Key, dict[str, list[WatchedPod]]] = defaultdict(lambda: {zone: [] for zone in zones})
        for pod in self.staying():
            in_zone[key_of(pod)][self._zone_of[pod.spec.node_name]].append(pod)
        fewest = self.fewest()
        return [
            max(in_zone[key].values(), key=len).pop()
            for turn in range(max(fewest.values(), default=0))
            for key, evictions in fewest.items()
            if turn < evictions
        ]

    def _changed(self) -> list[PodLife]:
        return [life for life in self._lives() if life.pod.metadata.uid in self._before]

    def _counts(self, staying: Sequence[WatchedPod]) -> dict[Key, dict[str, list[int]]]:
        """Return the pods on each host of each zone, for each workload.

        Without a constraint over hostnames, a zone counts as one host, because this is called ten times a second.
        """
        if self._skews[1] is None:
            zones = sorted(set(self._zone_of.values()))
            in_zone = Counter((key_of(pod), self._zone_of[pod.spec.node_name]) for pod in staying)
            return {key: {zone: [in_zone[key, zone]] for zone in zones} for key in set(map(key_of, staying))}
        on_host = Counter((key_of(pod), pod.spec.node_name) for pod in staying)
        hosts: dict[str, list[str]] = defaultdict(list)
        for host, zone in self._zone_of.items():
            hosts[zone].append(host)
        return {
            key: {zone: [on_host[key, host] for host in inside] for zone, inside in hosts.items()}
            for key in set(map(key_of, staying))
        }
