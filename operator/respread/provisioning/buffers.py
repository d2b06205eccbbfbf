"""Creates, lists and deletes the CapacityBuffers of a namespace."""

from __future__ import annotations

from typing import Final

from respread.kube.requests import Requests
from respread.provisioning.buffer import buffer, buffer_template
from respread.provisioning.room_objects import RoomAnswer, RoomObjects
from respread.provisioning.rooms import WantedRoom

_PATH: Final = "/apis/autoscaling.x-k8s.io/v1beta1/namespaces/{namespace}/capacitybuffers"
_TEMPLATES: Final = "/api/v1/namespaces/{namespace}/podtemplates"


class Buffers:
    """The CapacityBuffers of a cluster that ask for room, each with its PodTemplate."""

    __slots__ = ("_image", "_objects", "_templates")

    def __init__(self, requests: Requests, image: str) -> None:
        """Create it.

        Args:
            requests: to the API server.
            image: of the templates' container. No pod is made of them.
        """
        self._objects = RoomObjects(requests, _PATH)
        self._templates = RoomObjects(requests, _TEMPLATES)
        self._image = image

    async def list(self, namespace: str) -> RoomAnswer:
        """List all of them."""
        return await self._objects.list(namespace)

    async def create(self, room: WantedRoom, namespace: str) -> RoomAnswer:
        """Create that of a room, and its PodTemplate.

        One that is there already stays as it is, and its UID is not known. The buffer comes first, so that its template
        can belong to it and is deleted with it. An autoscaler waits for the template, and takes up no buffer without.
        """
        made = await self._objects.create(buffer(room, namespace), namespace)
        if uid := made.uids.get(room.key.id, ""):
            await self._templates.create(buffer_template(room, namespace, self._image, uid), namespace)
        return made

    async def delete(self, room_id: str, uid: str, namespace: str) -> RoomAnswer:
        """Delete that of a room. The garbage collector deletes its PodTemplate. None of that UID is as good."""
        return await self._objects.delete(room_id, uid, namespace)
