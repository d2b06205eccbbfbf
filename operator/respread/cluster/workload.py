"""Which workload a pod belongs to, as people name it."""

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
    """Return the workload whose pod this is; a pod without a controller is its own.

    A ReplicaSet that a Deployment made is known by its name, the Deployment's with the pod's `pod-template-hash` at the
    end (`getReplicaSetName` in the deployment controller), so that no ReplicaSet need be read for it.
    """
    controller = pod.controller
    if controller is None:
        return WorkloadName("Pod", pod.namespace, pod.name)
    if controller.kind == "ReplicaSet" and (template_hash := pod.labels.get("pod-template-hash")):
        deployment = controller.name.removesuffix(f"-{template_hash}")
        if deployment != controller.name:
            return WorkloadName("Deployment", pod.namespace, deployment)
    return WorkloadName(controller.kind, pod.namespace, controller.name)
