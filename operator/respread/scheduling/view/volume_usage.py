"""The volumes that pods on each node use, and which claims are in use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from respread.cluster.meta import ObjectKey
from respread.cluster.pod import Pod, PodSpec


class VolumeUsage:
    """Which pods of each node have volumes that a filter uses."""

    __slots__ = ("_pods", "changed", "claims")

    def __init__(self) -> None:
        self._pods: dict[int, dict[int, Pod]] = {}
        self.claims: Counter[ObjectKey] = Counter()
        """The number of pods with a node that use each claim, without claims of `ephemeral` volumes."""
        self.changed: set[int] = set()
        """Slots of nodes whose pods have changed, for `Attachments` to process."""

    def take(self, slot: int, pod: Pod) -> None:
        """Add a pod's volumes on a node."""
        self._pods.setdefault(slot, {})[id(pod)] = pod
        self.changed.add(slot)
        for claim in pod.persistent_volume_claims:
            self.claims[ObjectKey(pod.namespace, claim)] += 1

    def give_back(self, slot: int, pod: Pod) -> None:
        """Remove a pod's volumes."""
        pods = self._pods[slot]
        del pods[id(pod)]
        if not pods:
            del self._pods[slot]
        self.changed.add(slot)
        for claim in pod.persistent_volume_claims:
            key = ObjectKey(pod.namespace, claim)
            self.claims[key] -= 1
            if not self.claims[key]:
                del self.claims[key]

    def pods(self, slot: int) -> Iterator[Pod]:
        """Yield the pods of a node that have such volumes, by name."""
        yield from sorted(self._pods.get(slot, {}).values(), key=lambda pod: pod.key)

    def slots(self) -> Iterator[int]:
        """Yield the slots of the nodes that have such pods."""
        yield from self._pods


def has_volumes(spec: PodSpec) -> bool:
    """Return whether pods have volumes that a filter uses."""
    return bool(
        spec.shared_claims or spec.stateful_claims or spec.ephemeral_volumes or spec.disks or spec.migrated_volumes
    )
