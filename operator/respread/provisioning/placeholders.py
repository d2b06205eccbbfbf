"""Creates, lists and deletes the placeholder Deployments of a namespace."""

from __future__ import annotations

from typing import Final

from respread.kube.requests import Requests
from respread.provisioning.placeholder import placeholder
from respread.provisioning.room_objects import RoomAnswer, RoomObjects
from respread.provisioning.rooms import WantedRoom

_PATH: Final = "/apis/apps/v1/namespaces/{namespace}/deployments"


class Placeholders:
    """The placeholder Deployments of a cluster."""

    __slots__ = ("_image", "_objects")

    def __init__(self, requests: Requests, image: str) -> None:
        """Create it.

        Args:
            requests: to the API server.
            image: of the container, which does nothing until it is stopped.
        """
        self._objects = RoomObjects(requests, _PATH)
        self._image = image

    async def list(self, namespace: str) -> RoomAnswer:
        """List all of them."""
        return await self._objects.list(namespace)

    async def create(self, room: WantedRoom, namespace: str) -> RoomAnswer:
        """Create that of a room. One that is there already stays as it is, and its UID is not known."""
        return await self._objects.create(placeholder(room, namespace, self._image), namespace)

    async def delete(self, room_id: str, uid: str, namespace: str) -> RoomAnswer:
        """Delete that of a room, and its pods. None of that UID is as good."""
        return await self._objects.delete(room_id, uid, namespace)
