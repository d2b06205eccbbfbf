"""The objects by which room is asked for: their content, and how they are created, listed and deleted.

A placeholder is a Deployment of pods that do nothing, as large as those that are to come. Autoscalers launch nodes for
Pending pods. These are Pending until the domain has a node, and hold its room until the Deployment is deleted.

A CapacityBuffer has pods that exist only in the autoscaler's simulation. The API is Cluster Autoscaler's
(`autoscaling.x-k8s.io/v1beta1`, cluster-autoscaler/apis/capacitybuffer in kubernetes/autoscaler); Karpenter serves it
too. The autoscaler launches nodes until the pods would have room, and keeps that room free until the buffer is deleted.
Nothing but the autoscaler respects it: kube-scheduler may use the room.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, ClassVar, Final

import msgspec

from respread.cluster.decode.metadata import WireCondition
from respread.cluster.meta import EVICT
from respread.kube.requests import Meaning, NoResponseError, Requests, Response, status_of
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
    owners = {"ownerReferences": [room.policy.owner_reference]} if room.policy.is_cluster_policy else {}
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
    resources = {
        name: f"{amount}m" if name == "cpu" else str(amount) for name, amount in spec.requests.items() if amount
    }
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
        "securityContext": {"runAsNonRoot": True, "runAsUser": _NOBODY, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [
            {
                "name": "placeholder",
                "image": image,
                "resources": {"requests": resources, "limits": resources},
                "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
            }
        ],
    }


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


class Result(StrEnum):
    """The API server's answer, as far as it matters."""

    DONE = "Done"
    REFUSED = "Refused"
    """Respread has no permission, or admission (a quota, a policy, an unknown PriorityClass) refuses the object."""
    NOT_SERVED = "NotServed"
    """The API server does not know the kind."""
    FAILED = "Failed"
    """It may succeed later, and may have succeeded."""


class RoomAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a request."""

    result: Result
    message: str = ""
    sent: bool = True
    """Whether the request was sent. False: the permission is missing."""
    uids: Mapping[str, str] = {}
    """The UIDs of the objects that were found or created, by the ID of their room."""
    conditions: Mapping[str, frozenset[str]] = {}
    """The conditions of these objects that are True, by the ID of their room."""


class _Metadata(msgspec.Struct):
    uid: str = ""
    labels: dict[str, str] = {}


class _Status(msgspec.Struct):
    conditions: list[WireCondition] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata
    status: _Status = msgspec.field(default_factory=_Status)


class _List(msgspec.Struct):
    items: list[_Object]


class _RoomObjects:
    """The objects of one kind that have the label of a room."""

    _path: ClassVar[str]

    def __init__(self, requests: Requests, image: str) -> None:
        """Create it. The image is of the pods' container, which does nothing until it is stopped."""
        self._requests = requests
        self._image = image

    async def list(self, namespace: str) -> RoomAnswer:
        """List all of them."""
        names = {"namespace": namespace}
        return await self._ask("GET", self._path, names, query={"labelSelector": PLACEHOLDER_LABEL})

    async def delete(self, room_id: str, uid: str, namespace: str) -> RoomAnswer:
        """Delete that of a room, and what it owns. None of that UID is as good."""
        names = {"namespace": namespace, "name": placeholder_name(room_id)}
        options = {"propagationPolicy": "Background", **({"preconditions": {"uid": uid}} if uid else {})}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", **options}
        return await self._ask("DELETE", f"{self._path}/{{name}}", names, body=body)

    async def _ask(self, method: Any, path: str, names: Mapping[str, str], **options: Any) -> RoomAnswer:
        try:
            response = await self._requests.send(method, path, names, **options)
        except NoResponseError as error:
            return RoomAnswer(result=Result.FAILED, message=error.message)
        return _answer(method, response)


_DONE_ALREADY: Final = {"DELETE": (Meaning.ABSENT, Meaning.CONFLICT), "POST": (Meaning.CONFLICT,)}


def _answer(method: str, response: Response) -> RoomAnswer:
    if response.meaning in _DONE_ALREADY.get(method, ()):
        return RoomAnswer(result=Result.DONE)
    if not response.succeeded:
        return _failure(response)
    if method == "DELETE":
        return RoomAnswer(result=Result.DONE)
    try:
        found = (
            msgspec.json.decode(response.body, type=_List).items
            if method == "GET"
            else [msgspec.json.decode(response.body, type=_Object)]
        )
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return RoomAnswer(result=Result.FAILED, message=f"the answer can't be read: {error}")
    by_room = {id_: each for each in found if (id_ := each.metadata.labels.get(PLACEHOLDER_LABEL))}
    return RoomAnswer(
        result=Result.DONE,
        uids={id_: each.metadata.uid for id_, each in by_room.items()},
        conditions={
            id_: frozenset(known.type for known in each.status.conditions or () if known.status == "True")
            for id_, each in by_room.items()
        },
    )


def _failure(response: Response) -> RoomAnswer:
    status = status_of(response.body)
    message = status.message or f"the API server answered {response.status_code} without a message"
    if response.meaning is Meaning.ABSENT and not status.is_about("namespaces"):
        return RoomAnswer(result=Result.NOT_SERVED, message=message)
    may_pass = response.meaning in {Meaning.UNAUTHORIZED, Meaning.THROTTLED, Meaning.UNCERTAIN}
    return RoomAnswer(result=Result.FAILED if may_pass else Result.REFUSED, message=message, sent=response.sent)


class Placeholders(_RoomObjects):
    """The placeholder Deployments of a cluster."""

    _path = "/apis/apps/v1/namespaces/{namespace}/deployments"

    async def create(self, room: WantedRoom, namespace: str) -> RoomAnswer:
        """Create that of a room. One that is there already stays as it is, and its UID is not known."""
        body = placeholder(room, namespace, self._image)
        return await self._ask("POST", self._path, {"namespace": namespace}, body=body)


_TEMPLATES: Final = "/api/v1/namespaces/{namespace}/podtemplates"


class Buffers(_RoomObjects):
    """The CapacityBuffers of a cluster that ask for room, each with its PodTemplate, which goes with it."""

    _path = "/apis/autoscaling.x-k8s.io/v1beta1/namespaces/{namespace}/capacitybuffers"

    async def create(self, room: WantedRoom, namespace: str) -> RoomAnswer:
        """Create that of a room, and its PodTemplate, of which no pod is made.

        One that is there already stays as it is, and its UID is not known. The buffer comes first, so that its template
        can belong to it and is deleted with it. An autoscaler waits for the template, and takes up no buffer without.
        """
        names = {"namespace": namespace}
        made = await self._ask("POST", self._path, names, body=buffer(room, namespace))
        if uid := made.uids.get(room.key.id, ""):
            template = buffer_template(room, namespace, self._image, uid)
            await self._ask("POST", _TEMPLATES, names, body=template)
        return made
