"""Persistent maps on the wire: msgspec's hooks for `immutables.Map[str, str]`, which are plain objects in JSON."""

from __future__ import annotations

from typing import Any, get_origin

import msgspec
from immutables import Map


def decode_map(type_: Any, value: Any) -> Any:
    """Make a `Map[str, str]` of a decoded JSON object, for the `dec_hook` of a decoder.

    Raises:
        msgspec.ValidationError: keys or values are not strings; msgspec adds the path.
        NotImplementedError: another type is asked for.
    """
    if get_origin(type_) is not Map and type_ is not Map:
        raise NotImplementedError(f"no way to decode {type_}")
    return Map(msgspec.convert(value, dict[str, str]))


def encode_map(value: Any) -> Any:
    """Return a `Map` as a plain dict, for the `enc_hook` of an encoder.

    Raises:
        NotImplementedError: the value is something else.
    """
    if not isinstance(value, Map):
        raise NotImplementedError(f"no way to encode {type(value).__name__}")
    return dict(value)
