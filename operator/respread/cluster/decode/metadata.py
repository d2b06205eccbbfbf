"""Parts of the JSON that all kinds share: metadata, quantities, selectors, and who set an annotation."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated, Final, NamedTuple, TypeAlias

import msgspec

from respread.api.fields import LabelSelector
from respread.cluster.objects import READING_ERRORS, FieldError
from respread.cluster.quantity import QuantityError, parse_nano
from respread.cluster.selectors import SelectorError, compile_selector

WireAmounts: TypeAlias = dict[str, str | int | float]
"""Quantities by resource name. The API accepts plain numbers as well as strings."""


Timestamp: TypeAlias = Annotated[datetime, msgspec.Meta(tz=True)]
"""A time of the API, which always has a time zone."""


class WireCondition(msgspec.Struct, gc=False):
    """A condition of a pod or node."""

    type: str = ""
    status: str = ""
    reason: str | None = None


class WireIdentity(msgspec.Struct, rename="camel", omit_defaults=True):
    """The parts of `metadata` that tell which object it is, and which version of it."""

    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class WireMetadata(msgspec.Struct, rename="camel"):
    """The parts of `metadata` that Respread reads for every kind."""

    name: str
    namespace: str = ""
    uid: str = ""
    labels: dict[str, str] | None = None
    annotations: dict[str, str] | None = None
    owner_references: msgspec.Raw = msgspec.Raw()
    creation_timestamp: Timestamp | None = None
    deletion_timestamp: Timestamp | None = None
    generation: int = 0


def nano_amounts(amounts: Mapping[str, str | int | float] | None, path: str) -> dict[str, int]:
    """Return quantities in billionths of a unit.

    Raises:
        FieldError: one of them is not a quantity. The path is that of this one.
    """
    if not amounts:
        return {}
    nano: dict[str, int] = {}
    for name, amount in amounts.items():
        try:
            nano[name] = parse_nano(amount if isinstance(amount, str) else str(amount))
        except QuantityError as error:
            raise FieldError(f"{path}[{name}]", f"{amount!r:.60} is not a quantity: {error}") from error
    return nano


def checked_selector(selector: LabelSelector | None, path: str) -> LabelSelector | None:
    """Return a selector unchanged.

    Raises:
        FieldError: the API would reject it.
    """
    try:
        compile_selector(selector)
    except SelectorError as error:
        raise FieldError(path, str(error)) from error
    return selector


FIELD_MANAGER: Final = "respread"
"""The field manager with which Respread applies fields."""


class _Entry(msgspec.Struct):
    """The fields of one manager."""

    manager: str = ""
    operation: str = ""
    fields: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw, name="fieldsV1")


_decode: Final = msgspec.json.Decoder(list[_Entry] | None).decode


class AnnotationOwner(NamedTuple):
    """Who set an annotation."""

    ours: bool
    """Whether Respread's server-side apply did, and no other manager owns it."""
    other: str
    """Another field manager that owns it; empty if there is none, or if it is not known."""


_UNKNOWN: Final = AnnotationOwner(ours=False, other="")


def owner_of_annotation(managed_fields: bytes | msgspec.Raw, annotation: str) -> AnnotationOwner:
    """Return who set an annotation.

    If `metadata.managedFields` is absent or can't be decoded, the annotation counts as somebody else's.
    """
    if not bytes(managed_fields):
        return _UNKNOWN
    try:
        entries = _decode(managed_fields) or ()
    except READING_ERRORS:
        return _UNKNOWN
    # Only a label could have that name elsewhere in the fields of an entry, so there is no need to read them all.
    name = msgspec.json.encode(f"f:{annotation}")
    owners = [entry for entry in entries if name in bytes(entry.fields)]
    others = [entry for entry in owners if entry.manager != FIELD_MANAGER or entry.operation != "Apply"]
    return AnnotationOwner(bool(owners) and not others, others[0].manager if others else "")
