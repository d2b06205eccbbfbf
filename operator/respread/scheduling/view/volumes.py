"""Volumes: the claims of a pod to be placed, and what pods on each node use."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from respread.cluster.meta import ObjectKey
from respread.cluster.objects import PersistentVolumeClaim, StorageClass
from respread.cluster.pod import Pod, PodSpec
from respread.cluster.state import ClusterSnapshot


def claim_named(snapshot: ClusterSnapshot, pod: Pod, name: str) -> PersistentVolumeClaim | None:
    """Return the claim with this name in the pod's namespace."""
    return snapshot.persistent_volume_claims.get(ObjectKey(pod.namespace, name))


def claims_with_names(snapshot: ClusterSnapshot, pod: Pod) -> Iterator[tuple[str, bool, PersistentVolumeClaim | None]]:
    """Yield each claim of a pod: its name, whether it is for an `ephemeral` volume, and the claim if it exists."""
    for name in pod.persistent_volume_claims:
        yield name, False, claim_named(snapshot, pod, name)
    for name in pod.ephemeral_claims:
        yield name, True, claim_named(snapshot, pod, name)


def was_made_for(claim: PersistentVolumeClaim, pod: Pod) -> bool:
    """Return whether the claim of an `ephemeral` volume belongs to this pod (`ephemeral.VolumeIsForPod`)."""
    return claim.controller is not None and claim.controller.uid == pod.uid


def not_found(name: str) -> str:
    """Return the message for a claim that does not exist."""
    return f"the PersistentVolumeClaim {name} does not exist"


def not_made_for(name: str, pod: Pod) -> str:
    """Return the message for an ephemeral volume whose claim belongs to something else."""
    return f"the PersistentVolumeClaim {name} was not made for pod {pod.key}, which is not its owner"


def class_of(snapshot: ClusterSnapshot, claim: PersistentVolumeClaim) -> StorageClass | None:
    """Return a claim's storage class, if it names an existing one."""
    return snapshot.storage_classes.get(claim.storage_class_name) if claim.storage_class_name else None


def is_bound_by_scheduler(snapshot: ClusterSnapshot, claim: PersistentVolumeClaim) -> bool:
    """Return whether an unbound claim waits for the scheduler to choose a node (WaitForFirstConsumer)."""
    storage_class = class_of(snapshot, claim)
    return storage_class is not None and storage_class.volume_binding_mode == "WaitForFirstConsumer"


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
