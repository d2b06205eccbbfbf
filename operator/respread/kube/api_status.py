"""The `metav1.Status` that the API server returns instead of an object."""

from __future__ import annotations

from typing import Final

import msgspec

_MESSAGE_LENGTH: Final = 500


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
