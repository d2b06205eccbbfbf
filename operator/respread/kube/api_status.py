"""The `metav1.Status` that the API server answers with where there is no object to answer with."""

from __future__ import annotations

from typing import Final

import msgspec

_MESSAGE_LENGTH: Final = 500


class StatusCause(msgspec.Struct, frozen=True):
    """One entry of `details.causes` of a `metav1.Status`."""

    reason: str = ""
    message: str = ""


class StatusDetails(msgspec.Struct, frozen=True, rename="camel"):
    """`details` of a `metav1.Status`: which object it is about, and why."""

    name: str = ""
    kind: str = ""
    """Of the object that stands in the way; its plural name, in truth."""
    causes: tuple[StatusCause, ...] = ()
    retry_after_seconds: float = 0


class Status(msgspec.Struct, frozen=True):
    """A `metav1.Status`, as the API server answers with where there is no object to answer with."""

    message: str = ""
    reason: str = ""
    details: StatusDetails | None = None

    def has_cause(self, reason: str) -> bool:
        """Tell whether a cause of that kind is named."""
        return self.details is not None and any(each.reason == reason for each in self.details.causes)

    def is_about(self, kind: str) -> bool:
        """Tell whether it is about an object of that resource."""
        return self.details is not None and self.details.kind == kind


def status_of(body: bytes) -> Status:
    """Read the body of an answer; what is not a `metav1.Status`, as a proxy's page, becomes its message."""
    try:
        return msgspec.json.decode(body, type=Status)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return Status(message=body[:_MESSAGE_LENGTH].decode("utf-8", "replace").strip())
