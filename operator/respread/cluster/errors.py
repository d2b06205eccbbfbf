"""What is wrong with an object that cannot be decoded, and what is known about it all the same."""

from __future__ import annotations

from typing import Final, TypeAlias

import msgspec

from respread.cluster.objects import Node
from respread.cluster.pod import Pod


class Unread(msgspec.Struct, frozen=True):
    """An object that could not be decoded in full."""

    fault: str
    """The object and what is wrong with it, in one line."""
    node_name: str | None = ""
    """For a pod: the node on which it uses more than is known. Empty: none. None: any node, because its node can't be
    decoded, or because it may have an anti-affinity that can't be decoded."""
    labels_read: bool = True
    """Whether its labels are known."""


class Outline(msgspec.Struct, frozen=True):
    """The parts that could be decoded."""

    unread: Unread
    known: Pod | Node | None = None
    """The object with the known parts; None if there are too few."""


ReadingError: TypeAlias = msgspec.DecodeError | UnicodeDecodeError | RecursionError
READING_ERRORS: Final = (msgspec.DecodeError, UnicodeDecodeError, RecursionError)
"""What msgspec raises if a document does not have the expected form."""


class FieldError(ValueError):
    """The API would reject the content of a field.

    Args:
        path: the field, such as `spec.containers[0].resources.requests[cpu]`; empty for the object as a whole.
        message: what is wrong, without the path.
    """

    def __init__(self, path: str, message: str) -> None:
        super().__init__(f"{path}: {message}" if path else message)
        self.path = path
        self.message = message

    def within(self, field: str) -> FieldError:
        """Return the error with a path relative to the object that contains this field."""
        return FieldError(f"{field}.{self.path}" if self.path else field, self.message)


class DecodeError(ValueError):
    """An object that was left out because it can't be decoded.

    Args:
        resource: plural name of the resource, such as `pods`.
        namespace: of the object; empty if it has none or it is unknown.
        name: of the object; empty if it is unknown.
        path: the invalid field, as in `FieldError`.
        message: what is wrong with it.
        outline: the parts that could be decoded.
    """

    def __init__(
        self, resource: str, namespace: str, name: str, path: str, message: str, outline: Outline | None = None
    ) -> None:
        self.resource = resource
        self.namespace = namespace
        self.name = name
        self.path = path
        self.message = message
        self.outline = outline
        super().__init__(resource, namespace, name, path, message)

    def __str__(self) -> str:
        """Return one line with resource, object, field and fault."""
        key = f"{self.namespace}/{self.name}" if self.namespace else self.name
        where = f"{self.resource} {key or '(without a name)'}"
        return f"{where}: {self.path}: {self.message}" if self.path else f"{where}: {self.message}"


def field_error_of(error: ReadingError) -> FieldError:
    """Return msgspec's error about a document as a `FieldError`, with the path separated."""
    if isinstance(error, UnicodeDecodeError):
        return FieldError("", f"it is not UTF-8: {error.reason}")
    if isinstance(error, RecursionError):
        return FieldError("", "it is nested too deeply")
    message, at, path = str(error).rpartition(" - at `")
    if not at:
        return FieldError("", str(error))
    return FieldError(path.rstrip("`").removeprefix("$").removeprefix("."), message)
