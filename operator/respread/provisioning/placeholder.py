"""The Deployment that asks for room: pods that do nothing, as large as those that are to come. Pure.

Autoscalers launch nodes for Pending pods. These pods are Pending until the domain has a node, and hold its room until
the Deployment is deleted.
"""

from __future__ import annotations

from typing import Any, Final

import msgspec

from respread.api.owner_reference import owner_reference
from respread.cluster.annotations import EVICT
from respread.cluster.pod import Resources
from respread.provisioning.rooms import WantedRoom

ROOM_CLASS: Final = "respread-placeholder"
"""The PriorityClass that the component manifests/components/room creates, beside the right to ask for room."""
PLACEHOLDER_LABEL: Final = "respread.dev/placeholder"
"""Of every object that asks for a room, and of the pods. The value is `RoomKey.id`."""
_NAME: Final = "respread-placeholder"
_NOBODY: Final = 65_535


def placeholder_name(room_id: str) -> str:
    """Return the name of every object that asks for a room."""
    return f"{_NAME}-{room_id}"


def placeholder(room: WantedRoom, namespace: str, image: str) -> dict[str, Any]:
    """Return the Deployment for a room."""
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": metadata(room, namespace),
        "spec": {
            "replicas": room.pods,
            "selector": {"matchLabels": _labels(room)},
            "template": pod_template(room, image),
        },
    }


def metadata(room: WantedRoom, namespace: str) -> dict[str, Any]:
    """Return the metadata of every object that asks for a room.

    If its policy is a ClusterRebalancePolicy, the garbage collector deletes it with the policy, also while no replica
    of Respread runs. A RebalancePolicy can't own an object in another namespace: then the next leader deletes it.
    """
    owners = {"ownerReferences": [owner_reference(room.policy)]} if room.policy.is_cluster_policy else {}
    return {
        "name": placeholder_name(room.key.id),
        "namespace": namespace,
        "labels": _labels(room),
        "annotations": {"respread.dev/placeholder-for": f"{room}, for policy {room.key.policy}"},
        **owners,
    }


def pod_template(room: WantedRoom, image: str) -> dict[str, Any]:
    """Return the template of the pods that ask for a room.

    They can be placed where the group's pods can, by requests, tolerations, node selector and node affinity. They meet
    the Pod Security Standard `restricted`.
    """
    return {"metadata": {"labels": _labels(room), "annotations": {EVICT: "false"}}, "spec": _pod(room, image)}


def _labels(room: WantedRoom) -> dict[str, str]:
    return {"app.kubernetes.io/name": _NAME, PLACEHOLDER_LABEL: room.key.id}


def _pod(room: WantedRoom, image: str) -> dict[str, Any]:
    spec = room.spec
    resources = _quantities(spec.requests)
    affinity = (
        {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": msgspec.to_builtins(spec.node_affinity)}}
        if spec.node_affinity is not None
        else None
    )
    return {
        "schedulerName": spec.scheduler_name,
        "priorityClassName": room.priority_class,
        "nodeSelector": {**spec.node_selector, room.key.group.topology_key: room.key.domain},
        "tolerations": [msgspec.to_builtins(each) for each in spec.tolerations],
        **({} if affinity is None else {"affinity": affinity}),
        "automountServiceAccountToken": False,
        "terminationGracePeriodSeconds": 0,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "placeholder",
                "image": image,
                "resources": {"requests": resources, "limits": resources},
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            }
        ],
    }


def _quantities(requests: Resources) -> dict[str, str]:
    return {name: f"{amount}m" if name == "cpu" else str(amount) for name, amount in requests.items() if amount}
