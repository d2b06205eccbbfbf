"""The judge of bench/busy: counts the pods of each Deployment by zone and, if needed, by host."""

from __future__ import annotations

from collections import Counter, defaultdict

from bench.busy_fewest import fewest_evictions, skew
from bench.judge import Judge, Key, key_of
from respread_sandbox import SandboxApi


class BusyJudge(Judge):
    """Knows the constraints of the Deployments, which are the same for all."""

    def __init__(self, api: SandboxApi, *, zone_skew: int, host_skew: int | None) -> None:
        """Start watching. The nodes are read now.

        Args:
            api: the API of the sandbox.
            zone_skew: maxSkew of every Deployment's constraint over zones.
            host_skew: maxSkew of its constraint over hostnames, if there is one.
        """
        self._skews = (zone_skew, host_skew)
        labels = [node["metadata"]["labels"] for node in api.get("/api/v1/nodes")["items"]]
        self._zone_of = {each["kubernetes.io/hostname"]: each["topology.kubernetes.io/zone"] for each in labels}
        super().__init__(api)

    def violated(self) -> list[Key]:
        """Return the Deployments with a violated constraint."""
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

    def victims(self) -> list[tuple[str, str]]:
        """Return the namespaces and names of the fewest pods that must be evicted, for constraints over zones alone.

        Takes each from the fullest zone. The scheduler places its replacement in the emptiest zone.
        """
        in_zone: dict[Key, dict[str, list[str]]] = defaultdict(lambda: {zone: [] for zone in self._zone_of.values()})
        for pod in self.staying():
            in_zone[key_of(pod)][self._zone_of[pod.spec.node_name]].append(pod.metadata.name)
        return [
            (key[0], max(in_zone[key].values(), key=len).pop())
            for key, evictions in self.fewest().items()
            for _ in range(evictions)
        ]

    def _counts(self) -> dict[Key, dict[str, list[int]]]:
        """Return the pods on each host of each zone, for each Deployment, without terminating ones.

        Without a constraint over hostnames, a zone counts as one host, because this is called ten times a second.
        """
        staying = self.staying()
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
