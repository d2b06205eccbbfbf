"""The API server's answers: what their codes mean for any request, and the `metav1.Status` in place of an object."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from http import HTTPStatus
from typing import Final

import msgspec

_MESSAGE_LENGTH: Final = 500


class Meaning(Enum):
    """What the code of an answer means, whatever was requested."""

    DONE = auto()
    ABSENT = auto()
    """The object, its namespace or the whole resource does not exist."""
    CONFLICT = auto()
    """The object is another one than the request assumes: it exists, has changed, or belongs to somebody else."""
    FORBIDDEN = auto()
    """By RBAC or by admission."""
    UNAUTHORIZED = auto()
    """Nothing was done, and with renewed credentials it may be."""
    THROTTLED = auto()
    """Nothing was done, and later it may be."""
    REFUSED = auto()
    """Nothing was done, and the same request would be refused again."""
    UNCERTAIN = auto()
    """It may have been done, and the next attempt may succeed."""


_MEANINGS: Final[Mapping[int, Meaning]] = {
    HTTPStatus.NOT_FOUND: Meaning.ABSENT,
    HTTPStatus.CONFLICT: Meaning.CONFLICT,
    HTTPStatus.FORBIDDEN: Meaning.FORBIDDEN,
    HTTPStatus.UNAUTHORIZED: Meaning.UNAUTHORIZED,
    HTTPStatus.TOO_MANY_REQUESTS: Meaning.THROTTLED,
    HTTPStatus.REQUEST_TIMEOUT: Meaning.UNCERTAIN,
}


def meaning_of(status_code: int) -> Meaning:
    """Return what the code of an HTTP response means."""
    if HTTPStatus.OK <= status_code < HTTPStatus.MULTIPLE_CHOICES:
        return Meaning.DONE
    refused = HTTPStatus.BAD_REQUEST <= status_code < HTTPStatus.INTERNAL_SERVER_ERROR
    return _MEANINGS.get(status_code, Meaning.REFUSED if refused else Meaning.UNCERTAIN)


class StatusCause(msgspec.Struct, frozen=True):
    """One entry of `details.causes` of a `metav1.Status`."""

    reason: str = ""
    message: str = ""


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    """`details` of a `metav1.Status`: the object and the cause."""

    name: str = ""
    kind: str = ""
    """Actually the plural name of the object's resource."""
    causes: tuple[StatusCause, ...] = ()
    retry_after_seconds: float = 0


class Status(msgspec.Struct, frozen=True):
    """A `metav1.Status`, which the API server returns instead of an object."""

    message: str = ""
    reason: str = ""
    details: StatusDetails | None = None

    def has_cause(self, reason: str) -> bool:
        """Return whether it names a cause of that kind."""
        return self.details is not None and any(each.reason == reason for each in self.details.causes)

    def is_about(self, kind: str) -> bool:
        """Return whether it is about an object of that resource."""
        return self.details is not None and self.details.kind == kind


def status_of(body: bytes) -> Status:
    """Read the body of an answer. If it is not a `metav1.Status`, such as a proxy's page, it becomes the message."""
    try:
        return msgspec.json.decode(body, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Status(message=body[:_MESSAGE_LENGTH].decode("utf-8", "replace").strip())
