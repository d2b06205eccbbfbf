"""Creates, lists and deletes the placeholder Deployments of a namespace."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Final

import msgspec

from respread.kube.api_status import status_of
from respread.kube.requests import NoResponseError, Requests, Response
from respread.provisioning.placeholder import PLACEHOLDER_LABEL, placeholder, placeholder_name
from respread.provisioning.rooms import WantedRoom

TIMEOUT_SECONDS: Final = 10.0
_DEPLOYMENTS: Final = "/apis/apps/v1/namespaces/{namespace}/deployments"


class Result(StrEnum):
    """The API server's answer, as far as it matters."""

    DONE = "Done"
    REFUSED = "Refused"
    """Respread has no permission, or admission (a quota, a policy, an unknown PriorityClass) refuses the object."""
    FAILED = "Failed"
    """It may succeed later, and may have succeeded."""


class PlaceholderAnswer(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a request."""

    result: Result
    message: str = ""
    uids: Mapping[str, str] = {}
    """The UIDs of the Deployments that were found or created, by the ID of their room."""


class _Metadata(msgspec.Struct):
    uid: str = ""
    labels: dict[str, str] = {}


class _Deployment(msgspec.Struct):
    metadata: _Metadata


class _List(msgspec.Struct):
    items: list[_Deployment]


class Placeholders:
    """The placeholder Deployments of a cluster."""

    __slots__ = ("_image", "_requests")

    def __init__(self, requests: Requests, image: str) -> None:
        """Create it.

        Args:
            requests: to the API server.
            image: of the container, which does nothing until it is stopped.
        """
        self._requests = requests
        self._image = image

    async def list(self, namespace: str) -> PlaceholderAnswer:
        """List all of them."""
        return await self._ask(
            "GET", _DEPLOYMENTS, {"namespace": namespace}, query={"labelSelector": PLACEHOLDER_LABEL}
        )

    async def create(self, room: WantedRoom, namespace: str) -> PlaceholderAnswer:
        """Create that of a room. One that is there already stays as it is, and its UID is not known."""
        manifest = placeholder(room, namespace, self._image)
        return await self._ask("POST", _DEPLOYMENTS, {"namespace": namespace}, body=manifest)

    async def delete(self, room_id: str, uid: str, namespace: str) -> PlaceholderAnswer:
        """Delete that of a room, and its pods. None of that UID is as good."""
        names = {"namespace": namespace, "name": placeholder_name(room_id)}
        options = {"propagationPolicy": "Background", **({"preconditions": {"uid": uid}} if uid else {})}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", **options}
        return await self._ask("DELETE", f"{_DEPLOYMENTS}/{{name}}", names, body=body)

    async def _ask(self, method: Any, path: str, names: Mapping[str, str], **options: Any) -> PlaceholderAnswer:
        try:
            response = await self._requests.send(method, path, names, timeout_seconds=TIMEOUT_SECONDS, **options)
        except NoResponseError as error:
            return PlaceholderAnswer(result=Result.FAILED, message=error.message)
        return _answer(method, response)


def _answer(method: str, response: Response) -> PlaceholderAnswer:
    code = response.status_code
    if (method == "DELETE" and code in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}) or (
        method == "POST" and code == HTTPStatus.CONFLICT
    ):
        return PlaceholderAnswer(result=Result.DONE)
    if not response.succeeded:
        message = status_of(response.body).message or f"the API server answered {code} without a message"
        refused = HTTPStatus.BAD_REQUEST <= code < HTTPStatus.INTERNAL_SERVER_ERROR and code not in {
            HTTPStatus.UNAUTHORIZED,
            HTTPStatus.REQUEST_TIMEOUT,
            HTTPStatus.TOO_MANY_REQUESTS,
        }
        return PlaceholderAnswer(result=Result.REFUSED if refused else Result.FAILED, message=message)
    if method == "DELETE":
        return PlaceholderAnswer(result=Result.DONE)
    try:
        found = (
            msgspec.json.decode(response.body, type=_List).items
            if method == "GET"
            else [msgspec.json.decode(response.body, type=_Deployment)]
        )
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return PlaceholderAnswer(result=Result.FAILED, message=f"the answer is no Deployment: {error}")
    uids = {id_: each.metadata.uid for each in found if (id_ := each.metadata.labels.get(PLACEHOLDER_LABEL))}
    return PlaceholderAnswer(result=Result.DONE, uids=uids)
