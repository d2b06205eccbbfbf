"""Creates, lists and deletes the objects of one kind by which room is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from http import HTTPStatus
from typing import Any, Final

import msgspec

from respread.kube.api_status import status_of
from respread.kube.requests import NoResponseError, Requests, Response
from respread.provisioning.placeholder import PLACEHOLDER_LABEL, placeholder_name

TIMEOUT_SECONDS: Final = 10.0


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


class _Condition(msgspec.Struct):
    type: str = ""
    status: str = ""


class _Status(msgspec.Struct):
    conditions: list[_Condition] | None = None


class _Object(msgspec.Struct):
    metadata: _Metadata
    status: _Status = msgspec.field(default_factory=_Status)


class _List(msgspec.Struct):
    items: list[_Object]


class RoomObjects:
    """The objects of one kind that have the label of a room."""

    __slots__ = ("_path", "_requests")

    def __init__(self, requests: Requests, path: str) -> None:
        """Create it.

        Args:
            requests: to the API server.
            path: of the kind, with `{namespace}`.
        """
        self._requests = requests
        self._path = path

    async def list(self, namespace: str) -> RoomAnswer:
        """List all of them."""
        names = {"namespace": namespace}
        return await self._ask("GET", self._path, names, query={"labelSelector": PLACEHOLDER_LABEL})

    async def create(self, manifest: Mapping[str, Any], namespace: str) -> RoomAnswer:
        """Create one. One that is there already stays as it is, and its UID is not known."""
        return await self._ask("POST", self._path, {"namespace": namespace}, body=manifest)

    async def delete(self, room_id: str, uid: str, namespace: str) -> RoomAnswer:
        """Delete that of a room, and what it owns. None of that UID is as good."""
        names = {"namespace": namespace, "name": placeholder_name(room_id)}
        options = {"propagationPolicy": "Background", **({"preconditions": {"uid": uid}} if uid else {})}
        body = {"apiVersion": "v1", "kind": "DeleteOptions", **options}
        return await self._ask("DELETE", f"{self._path}/{{name}}", names, body=body)

    async def _ask(self, method: Any, path: str, names: Mapping[str, str], **options: Any) -> RoomAnswer:
        try:
            response = await self._requests.send(method, path, names, timeout_seconds=TIMEOUT_SECONDS, **options)
        except NoResponseError as error:
            return RoomAnswer(result=Result.FAILED, message=error.message)
        return _answer(method, response)


def _answer(method: str, response: Response) -> RoomAnswer:
    code = response.status_code
    if (method == "DELETE" and code in {HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT}) or (
        method == "POST" and code == HTTPStatus.CONFLICT
    ):
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
    code, status = response.status_code, status_of(response.body)
    message = status.message or f"the API server answered {code} without a message"
    if code == HTTPStatus.NOT_FOUND and not status.is_about("namespaces"):
        return RoomAnswer(result=Result.NOT_SERVED, message=message)
    refused = HTTPStatus.BAD_REQUEST <= code < HTTPStatus.INTERNAL_SERVER_ERROR and code not in {
        HTTPStatus.UNAUTHORIZED,
        HTTPStatus.REQUEST_TIMEOUT,
        HTTPStatus.TOO_MANY_REQUESTS,
    }
    return RoomAnswer(result=Result.REFUSED if refused else Result.FAILED, message=message, sent=response.sent)
