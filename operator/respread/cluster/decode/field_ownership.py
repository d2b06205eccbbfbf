"""Who set a field of an object, according to `metadata.managedFields`."""

from __future__ import annotations

from typing import Final

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


def annotation_is_applied(managed_fields: bytes | msgspec.Raw, annotation: str) -> bool:
    """Return whether an annotation was set by Respread's server-side apply, and no other manager owns it.

    Args:
        managed_fields: `metadata.managedFields` as JSON. If it is absent or can't be decoded, the annotation counts as
            somebody else's.
        annotation: its key.
    """
    if not bytes(managed_fields):
        return False
    try:
        entries = _decode(managed_fields) or ()
    except READING_ERRORS:
        return False
    # Only a label could have that name elsewhere in the fields of an entry, so there is no need to read them all.
    name = msgspec.json.encode(f"f:{annotation}")
    owners = [entry for entry in entries if name in bytes(entry.fields)]
    return bool(owners) and all(entry.manager == FIELD_MANAGER and entry.operation == "Apply" for entry in owners)
