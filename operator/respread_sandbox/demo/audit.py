"""The requests of the operator according to the API server's audit log."""

from __future__ import annotations

from http import HTTPStatus
from pathlib import Path

import msgspec


class OperatorRequests(msgspec.Struct, frozen=True):
    """The operator's requests that the demo reports."""

    evictions: int
    """The number of evictions that the API server carried out."""
    patches: int
    """The number of patches of pods that the API server carried out."""
    refused: tuple[str, ...]
    """The requests that were forbidden, each once, as verb and path."""


class _User(msgspec.Struct):
    username: str = ""


class _Object(msgspec.Struct):
    resource: str = ""
    subresource: str = ""


class _Answer(msgspec.Struct):
    code: int = 0


class _Entry(msgspec.Struct, rename="camel"):
    user: _User = msgspec.field(default_factory=_User)
    verb: str = ""
    path: str = msgspec.field(default="", name="requestURI")
    object_ref: _Object | None = None
    response_status: _Answer | None = None


def requests_of(service_account: str, audit_log: Path) -> OperatorRequests:
    """Read the audit log.

    Args:
        service_account: its namespace and name, with a colon between.
        audit_log: the file, a line of JSON a request.
    """
    user = f"system:serviceaccount:{service_account}"
    evictions, patches, refused = 0, 0, dict[str, None]()
    with audit_log.open("rb") as lines:
        for line in lines:
            if user.encode() not in line:
                continue
            entry = msgspec.json.decode(line, type=_Entry)
            if entry.user.username != user or entry.response_status is None:
                continue
            code, about = entry.response_status.code, entry.object_ref or _Object()
            if code == HTTPStatus.CREATED and about.subresource == "eviction":
                evictions += 1
            elif code == HTTPStatus.OK and (entry.verb, about.resource, about.subresource) == ("patch", "pods", ""):
                patches += 1
            elif code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
                refused[f"{entry.verb} {entry.path.partition('?')[0]}"] = None
    return OperatorRequests(evictions, patches, tuple(refused))
