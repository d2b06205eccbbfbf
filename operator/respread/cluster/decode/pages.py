"""LIST documents: separates the items from the rest, which is passed on unchanged."""

from __future__ import annotations

from functools import partial

import msgspec

from respread.api.nesting import decoded
from respread.cluster.errors import READING_ERRORS, field_error_of


class ListDocument(msgspec.Struct, frozen=True):
    """A page of a LIST."""

    items: list[msgspec.Raw]
    remainder: bytes
    """The same document with every member unchanged, but without items."""


class NotAListError(ValueError):
    """A document that is not a LIST: a Status, a Table, or not a JSON object."""


def split_list(body: bytes) -> ListDocument:
    """Split a page of a LIST.

    Raises:
        NotAListError: the document is something else.
    """
    try:
        members = decoded(partial(msgspec.json.decode, type=dict[str, msgspec.Raw]), body)
        items = msgspec.json.decode(members["items"], type=list[msgspec.Raw] | None)
    except KeyError:
        raise NotAListError("there are no items in the document: it is not a list") from None
    except READING_ERRORS as error:
        raise NotAListError(f"it is not a list in JSON: {field_error_of(error)}") from error
    members["items"] = msgspec.Raw(b"[]")
    return ListDocument(items or [], msgspec.json.encode(members))
