"""Reads a stored structure and brings values that are out of bounds within their bounds.

A policy's status may be of a version with other bounds, the API server does not check the text of a record, and other
clients may write both. Nothing in them may stop the operator, and one value beyond its bounds is no reason to drop the
others. A spec is different: its author wants to see the errors. So a number or a time beyond its bounds is read as the
bound, a string or list that is too long is cut, and a value that can't be read is left out.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from functools import cache
from typing import Any, Final, TypeVar, cast

import msgspec
from msgspec import inspect as types

from respread.api.fields import EARLIEST, LATEST

_Structure = TypeVar("_Structure", bound=msgspec.Struct)
_Read = Callable[[object], object]

_UNREADABLE: Final = object()


def read_clamped(kind: type[_Structure], value: object) -> _Structure | None:
    """Read a structure from JSON values, every field within its bounds.

    Its fields are numbers, strings, times, tuples and such structures.

    Returns:
        The structure. None if the value is not an object, or if a field without a default is absent or can't be read.
    """
    found = _reader(kind)(value)
    return None if found is _UNREADABLE else cast("_Structure", found)


@cache
def _reader(kind: type[msgspec.Struct]) -> _Read:
    return _of(types.type_info(kind), {})


def _of(kind: types.Type, said: Mapping[str, Any]) -> _Read:  # noqa: PLR0911 - one line for each kind of type there is
    """Return a function that reads a value of a type, and returns `_UNREADABLE` if it can't."""
    match kind:
        case types.Metadata():
            return _of(kind.type, {**said, **(kind.extra_json_schema or {})})
        case types.UnionType():
            (some,) = (each for each in kind.types if not isinstance(each, types.NoneType))
            return _of(some, said)
        case types.StructType():
            return _structure(kind)
        case types.VarTupleType():
            return _items(kind, said.get("x-kubernetes-list-map-keys", ()))
        case types.IntType():
            return _number(kind)
        case types.StrType():
            return _text(kind)
        case types.LiteralType():
            values = frozenset(kind.values)
            return lambda value: value if isinstance(value, str) and value in values else _UNREADABLE
        case types.DateTimeType():
            return _moment
        case _:
            raise TypeError(f"a field of a status has a type that is not read yet: {kind}")


def _structure(kind: types.StructType) -> _Read:
    fields = [(each.encode_name, each.name, each.required, _of(each.type, {})) for each in kind.fields]

    def read(value: object) -> object:
        if not isinstance(value, Mapping):
            return _UNREADABLE
        found: dict[str, Any] = {}
        for encoded, name, required, read_field in fields:
            given = value.get(encoded)
            inner = _UNREADABLE if given is None else read_field(given)
            if inner is not _UNREADABLE:
                found[name] = inner
            elif required:
                return _UNREADABLE
        return kind.cls(**found)

    return read


def _items(kind: types.VarTupleType, keys: Sequence[str]) -> _Read:
    read_item, most = _of(kind.item_type, {}), kind.max_length
    names = _names(kind.item_type, keys)

    def read(value: object) -> object:
        if not isinstance(value, list | tuple):
            return _UNREADABLE
        found: dict[object, object] = {}
        for position, each in enumerate(value):
            if most is not None and len(found) >= most:
                break
            item = read_item(each)
            if item is not _UNREADABLE:
                found.setdefault(tuple(getattr(item, name) for name in names) if names else position, item)
        return tuple(found.values())

    return read


def _names(kind: types.Type, keys: Sequence[str]) -> list[str]:
    """Return the Python names of the fields."""
    while isinstance(kind, types.Metadata):
        kind = kind.type
    if not keys or not isinstance(kind, types.StructType):
        return []
    return [each.name for each in kind.fields if each.encode_name in keys]


def _number(kind: types.IntType) -> _Read:
    def read(value: object) -> object:
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            return _UNREADABLE
        if kind.ge is not None:
            value = max(value, kind.ge)
        return value if kind.le is None else min(value, kind.le)

    return read


def _text(kind: types.StrType) -> _Read:
    # In Python, $ also matches before a final line feed. For the API server it does not.
    pattern = None if kind.pattern is None else re.compile(re.sub(r"\$\Z", r"\\Z", kind.pattern))

    def read(value: object) -> object:
        if not isinstance(value, str):
            return _UNREADABLE
        text = value if kind.max_length is None else value[: kind.max_length]
        if len(text) < (kind.min_length or 0) or (pattern is not None and pattern.search(text) is None):
            return _UNREADABLE
        return text

    return read


def _moment(value: object) -> object:
    if not isinstance(value, str):
        return _UNREADABLE
    try:
        moment: datetime = msgspec.convert(value, datetime)
    except msgspec.ValidationError:
        return _UNREADABLE
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(EARLIEST, min(moment, LATEST)).astimezone(UTC)
