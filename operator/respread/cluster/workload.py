"""The workload that a pod belongs to, as users name it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple

from respread.cluster.pod import Pod

_TEMPLATE_HASHES: Final[Mapping[str, str]] = {
    "pod-template-hash": "Deployment",
    "rollouts-pod-template-hash": "Rollout",
}
"""The labels by which the owners of ReplicaSets tell their pods apart, with the owners' kinds."""


class WorkloadName(NamedTuple):
    """A workload's kind, namespace and name, such as `Deployment`, `shop`, `web`."""

    kind: str
    namespace: str
    name: str

    def __str__(self) -> str:
        """Return `kind/name`, as kubectl writes it."""
        return f"{self.kind}/{self.name}"


def workload_of(pod: Pod) -> WorkloadName:
    """Return the workload of a pod. A pod without a controller is its own workload.

    The ReplicaSet of a Deployment or Argo Rollout is recognized by its name, which is the owner's name and the pod's
    template hash (`getReplicaSetName` in the deployment controller). So no ReplicaSet needs to be read.
    """
    controller = pod.controller
    if controller is None:
        return WorkloadName("Pod", pod.namespace, pod.name)
    if controller.kind == "ReplicaSet":
        for label, kind in _TEMPLATE_HASHES.items():
            template_hash = pod.labels.get(label)
            owner = controller.name.removesuffix(f"-{template_hash}")
            if template_hash and owner != controller.name:
                return WorkloadName(kind, pod.namespace, owner)
    return WorkloadName(controller.kind, pod.namespace, controller.name)
