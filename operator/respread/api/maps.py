"""Persistent maps in JSON: msgspec's hooks for `immutables.Map[str, str]`, which is a plain object in JSON."""

from __future__ import annotations

from typing import Any, get_origin

from immutables import Map


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
