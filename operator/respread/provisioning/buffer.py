"""The CapacityBuffer that asks for room: pods that exist only in the autoscaler's simulation. Pure.

The API is Cluster Autoscaler's (`autoscaling.x-k8s.io/v1beta1`, cluster-autoscaler/apis/capacitybuffer in
kubernetes/autoscaler); Karpenter serves it too. The autoscaler launches nodes until the pods would have room, and keeps
that room free until the buffer is deleted. Nothing but the autoscaler respects it: kube-scheduler may use the room.
"""

from __future__ import annotations

from typing import Any, Final

from respread.provisioning.placeholder import metadata, placeholder_name, pod_template
from respread.provisioning.rooms import WantedRoom

API_VERSION: Final = "autoscaling.x-k8s.io/v1beta1"
KIND: Final = "CapacityBuffer"
READY_FOR_PROVISIONING: Final = "ReadyForProvisioning"
"""The condition that an autoscaler sets to True when it has read the buffer and its template."""
_ACTIVE: Final = "buffer.x-k8s.io/active-capacity"
"""The strategy: nodes are launched at once and stay."""


def buffer(room: WantedRoom, namespace: str) -> dict[str, Any]:
    """Return the CapacityBuffer for a room. It refers to `buffer_template`."""
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": metadata(room, namespace),
        "spec": {
            "provisioningStrategy": _ACTIVE,
            "podTemplateRef": {"name": placeholder_name(room.key.id)},
            "replicas": room.pods,
        },
    }


def buffer_template(room: WantedRoom, namespace: str, image: str, buffer_uid: str) -> dict[str, Any]:
    """Return the PodTemplate of a room's CapacityBuffer, with which it is deleted."""
    owner = {"apiVersion": API_VERSION, "kind": KIND, "name": placeholder_name(room.key.id), "uid": buffer_uid}
    return {
        "apiVersion": "v1",
        "kind": "PodTemplate",
        "metadata": {**metadata(room, namespace), "ownerReferences": [owner]},
        "template": pod_template(room, image),
    }
