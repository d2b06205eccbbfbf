"""JSON that msgspec does not read by itself: documents that are nested too deeply, and persistent maps.

The API server stores whatever a client writes into `metadata.managedFields`, up to 10,000 levels. msgspec stops at
Python's recursion limit, even if it only skips a value. Nobody may stop the operator that way.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final, TypeVar, get_origin

import msgspec
from immutables import Map

_T = TypeVar("_T")

MOST_LEVELS: Final = 100
"""Nothing that Respread reads is nested half as deeply."""
_TOKEN: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+"|[\[\]{}]', re.DOTALL)


def decoded(decode: Callable[[bytes | msgspec.Raw], _T], document: bytes | msgspec.Raw) -> _T:
    """Return what a decoder returns for a document. If this is nested too deeply, its deepest values are null.

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


def decode_map(type_: Any, value: Any) -> Any:
    """Convert a decoded JSON object to a `Map[str, str]`, for the `dec_hook` of a decoder.

    Raises:
        ValueError: it is not an object, or a value is not a string. msgspec converts it to a ValidationError with the
            path.
        NotImplementedError: another type is requested.
    """
    if get_origin(type_) is not Map and type_ is not Map:
        raise NotImplementedError(f"no way to decode {type_}")
    if not isinstance(value, dict):
        raise ValueError(f"Expected an object of strings, got {value!r}")  # noqa: TRY004 - msgspec's contract
    for key, each in value.items():
        if not isinstance(each, str):
            raise ValueError(f"Expected a string for {key!r}, got {each!r}")  # noqa: TRY004 - msgspec's contract
    return Map(value)


def encode_map(value: Any) -> Any:
    """Return a `Map` as a plain dict, for the `enc_hook` of an encoder.

    Raises:
        NotImplementedError: the value is something else.
    """
    if not isinstance(value, Map):
        raise NotImplementedError(f"no way to encode {type(value).__name__}")
    return dict(value)
