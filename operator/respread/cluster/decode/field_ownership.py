"""Who set a field of an object, as the API server keeps book of it in `metadata.managedFields`."""

from __future__ import annotations

from typing import Final

import msgspec

from respread.cluster.errors import READING_ERRORS

FIELD_MANAGER: Final = "respread"
"""Under which name Respread applies fields."""


class _Entry(msgspec.Struct):
    """What one manager owns."""

    manager: str = ""
    operation: str = ""
    fields: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw, name="fieldsV1")


_decode: Final = msgspec.json.Decoder(list[_Entry] | None).decode


def annotation_is_applied(managed_fields: bytes | msgspec.Raw, annotation: str) -> bool:
    """Tell whether an annotation is there by server-side apply of Respread, and nobody else owns it too.

    Args:
        managed_fields: `metadata.managedFields` as JSON. Where nothing was sent, or nothing that can be read, the
            annotation is taken for somebody else's.
        annotation: its key.
    """
    if not bytes(managed_fields):
        return False
    try:
        entries = _decode(managed_fields) or ()
    except READING_ERRORS:
        return False
    # Elsewhere among an entry's fields only a label could have that name: not worth reading them all.
    name = msgspec.json.encode(f"f:{annotation}")
    owners = [entry for entry in entries if name in bytes(entry.fields)]
    return bool(owners) and all(entry.manager == FIELD_MANAGER and entry.operation == "Apply" for entry in owners)
