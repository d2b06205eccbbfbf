"""The workload that a pod belongs to, as users name it."""

from __future__ import annotations

from typing import NamedTuple

from respread.cluster.pod import Pod


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

    A Deployment's ReplicaSet is recognized by its name, which is the Deployment's name and the pod's
    `pod-template-hash` (`getReplicaSetName` in the deployment controller). So no ReplicaSet needs to be read.
    """
    controller = pod.controller
    if controller is None:
        return WorkloadName("Pod", pod.namespace, pod.name)
    if controller.kind == "ReplicaSet" and (template_hash := pod.labels.get("pod-template-hash")):
        deployment = controller.name.removesuffix(f"-{template_hash}")
        if deployment != controller.name:
            return WorkloadName("Deployment", pod.namespace, deployment)
    return WorkloadName(controller.kind, pod.namespace, controller.name)
