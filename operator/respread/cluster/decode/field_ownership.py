"""Who set a field of an object, according to `metadata.managedFields`."""

from __future__ import annotations

from typing import Final, NamedTuple

import msgspec

from respread.cluster.errors import READING_ERRORS

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

    Args:
        managed_fields: `metadata.managedFields` as JSON. If it is absent or can't be decoded, the annotation counts as
            somebody else's.
        annotation: its key.
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
