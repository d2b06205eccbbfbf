"""JSON that is nested more deeply than msgspec reads.

The API server stores whatever a client writes into `metadata.managedFields`, up to 10,000 levels. msgspec stops at
Python's recursion limit, even if it only skips a value. Nobody may stop the operator that way.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final, TypeVar

import msgspec

_T = TypeVar("_T")

MOST_LEVELS: Final = 100
"""Nothing that Respread reads is nested half as deeply."""
_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)


def decoded(decode: Callable[[bytes | msgspec.Raw], _T], document: bytes | msgspec.Raw) -> _T:
    """Return what a decoder returns for a document. If this is nested too deeply, its deepest values are null.

    Args:
        decode: the decoder.
        document: the document as JSON.

    Raises:
        msgspec.DecodeError: the decoder's.
    """
    try:
        return decode(document)
    except RecursionError:
        return decode(shallow(bytes(document)))


def shallow(document: bytes) -> bytes:
    """Return a JSON document with null for each array and object below `MOST_LEVELS`; empty if it is no JSON."""
    kept: list[bytes] = []
    level = begin = 0
    for token in _TOKEN.finditer(document):
        match token[0]:
            case b"{" | b"[":
                level += 1
                if level == MOST_LEVELS + 1:
                    kept += (document[begin : token.start()], b"null")
            case b"}" | b"]":
                if level == MOST_LEVELS + 1:
                    begin = token.end()
                level -= 1
            case _:  # a string
                pass
    return b"" if level else b"".join((*kept, document[begin:]))
