"""Converts between JSON values and structures. Reading reports all errors at once, with their fields.

msgspec stops at the first error. Users want to see all errors of a policy at once, with field names and in words.
"""

from __future__ import annotations

import difflib
import json
import re
import types
from collections.abc import Iterable, Mapping
from datetime import timedelta
from functools import cache
from typing import Annotated, Any, Final, Literal, NamedTuple, TypeVar, Union, get_args, get_origin

import msgspec
from immutables import Map

from respread.api.fields import (
    DURATION,
    DURATION_PATTERN,
    EXPECTS,
    DurationBounds,
    Problem,
    UnknownField,
    format_duration,
    parse_duration,
)

_Structure = TypeVar("_Structure", bound=msgspec.Struct)

_UNREADABLE: Final = object()
_MAX_SHOWN: Final = 60


def read_structure(kind: type[_Structure], value: object, path: str) -> tuple[_Structure | None, list[Problem]]:
    """Read a structure from JSON values.

    A field that is absent, null or invalid has its default. An invalid or unknown field is a problem. `path` is where
    the value is, for the problems: `spec`.

    Returns:
        The structure and the problems. The structure is None if the value is not an object, or if a field without a
        default is absent or invalid.
    """
    problems: list[Problem] = []
    found = _structure(kind, value, path, problems)
    return (found if isinstance(found, kind) else None), problems


def write_value(value: Any) -> Any:
    """Return any value of a structure as JSON values. A duration becomes a Go duration."""
    if isinstance(value, msgspec.Struct):
        pairs = ((name, getattr(value, field.name)) for name, field in _fields(type(value)).items())
        return {name: write_value(each) for name, each in pairs if each is not None}
    if isinstance(value, tuple):
        return [write_value(each) for each in value]
    if isinstance(value, Map):
        return dict(value)
    if isinstance(value, timedelta):
        return format_duration(value)
    return value


def shown(value: object) -> str:
    """Return a value as shown in a message: as JSON, shortened."""
    text = json.dumps(value, default=repr, ensure_ascii=False)
    return text if len(text) <= _MAX_SHOWN else text[: _MAX_SHOWN - 1] + "…"


def suggestion(name: str, known: Iterable[str]) -> str:
    """Return what to add to a message about an unknown word: a similar known one, if there is one."""
    close = difflib.get_close_matches(name, list(known), n=1)
    return f"; did you mean {close[0]}?" if close else ""


def _structure(kind: type[_Structure], value: object, path: str, problems: list[Problem]) -> _Structure | object:
    """Read a structure field by field, with the default for each field that is absent or invalid.

    Returns `_UNREADABLE` if the value is not an object, or lacks a field without a default.
    """
    if not isinstance(value, Mapping):
        problems.append(Problem(path, f"must be an object, not {shown(value)}"))
        return _UNREADABLE
    fields = _fields(kind)
    problems.extend(
        UnknownField(f"{path}.{name}", f"there is no such field{suggestion(str(name), fields)}")
        for name in value
        if name not in fields
    )
    read: dict[str, Any] = {}
    complete = True
    for name, field in fields.items():
        given = value.get(name)
        if given is not None:
            found = _value(field.type, field.bare, field.metas, given, f"{path}.{name}", problems)
            if found is not _UNREADABLE:
                read[field.name] = found
            elif field.required:
                complete = False
        elif field.required:
            problems.append(Problem(f"{path}.{name}", "is required"))
            complete = False
    return kind(**read) if complete else _UNREADABLE


class _Field(NamedTuple):
    """A field of a structure with its analyzed type. Asking msgspec each time is much slower than reading values."""

    name: str
    type: Any
    bare: Any
    metas: tuple[msgspec.Meta, ...]
    """What `_bare` returns for the type."""
    required: bool


@cache
def _fields(kind: type[msgspec.Struct]) -> Mapping[str, _Field]:
    """Return the fields of a structure by their JSON names."""
    return {
        each.encode_name: _Field(each.name, each.type, *_bare(each.type), each.required)
        for each in msgspec.structs.fields(kind)
    }


def _value(
    annotation: Any, kind: Any, metas: tuple[msgspec.Meta, ...], value: object, path: str, problems: list[Problem]
) -> object:
    """Read a value of any type in a policy. After an error, report the problem and return `_UNREADABLE`."""
    if get_origin(kind) is tuple:
        return _items(kind, metas, value, path, problems)
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        return _structure(kind, value, path, problems)
    if kind is timedelta:
        return _duration(metas, value, path, problems)
    if get_origin(kind) is Map:
        strings = _scalar(dict[str, str], (), value, path, problems)
        return Map(strings) if isinstance(strings, dict) else strings
    return _scalar(annotation, metas, value, path, problems)


def _bare(annotation: Any) -> tuple[Any, tuple[msgspec.Meta, ...]]:
    """Return a type without `Annotated` and `| None`, and the contents of `Annotated`, the outermost first."""
    metas: tuple[msgspec.Meta, ...] = ()
    while True:
        if get_origin(annotation) is Annotated:
            annotation, *found = get_args(annotation)
            metas += tuple(each for each in found if isinstance(each, msgspec.Meta))
            continue
        if get_origin(annotation) in {Union, types.UnionType}:
            some = [each for each in get_args(annotation) if each is not types.NoneType]
            if len(some) == 1:
                annotation = some[0]
                continue
        return annotation, metas


def _items(
    kind: Any,
    metas: tuple[msgspec.Meta, ...],
    value: object,
    path: str,
    problems: list[Problem],
) -> object:
    if not isinstance(value, list | tuple):
        problems.append(Problem(path, f"must be a list, not {shown(value)}"))
        return _UNREADABLE
    least = max((meta.min_length or 0 for meta in metas), default=0)
    most = min((meta.max_length for meta in metas if meta.max_length is not None), default=len(value))
    if not least <= len(value) <= most:
        problems.append(Problem(path, f"must have {least} to {most} items, this has {len(value)}"))
        return _UNREADABLE
    item_type = get_args(kind)[0]
    bare, item_metas = _bare(item_type)
    items = [
        _value(item_type, bare, item_metas, each, f"{path}[{index}]", problems) for index, each in enumerate(value)
    ]
    if any(each is _UNREADABLE for each in items):
        return _UNREADABLE
    repeated = _first_repeated(items, metas)
    if repeated is not None:
        problems.append(Problem(f"{path}[{repeated}]", f"is repeated: {shown(value[repeated])}"))
        return _UNREADABLE
    return tuple(items)


def _first_repeated(items: list[object], metas: tuple[msgspec.Meta, ...]) -> int | None:
    """Return the index of the first repeated item, if the list must not have repeated items."""
    schema = {name: value for meta in metas for name, value in (meta.extra_json_schema or {}).items()}
    match schema.get("x-kubernetes-list-type"):
        case "set":
            keys = items
        case "map":
            names = schema["x-kubernetes-list-map-keys"]
            keys = [tuple(write_value(each)[name] for name in names) for each in items]
        case _:
            return None
    return next((index for index, key in enumerate(keys) if key in keys[:index]), None)


def _duration(metas: tuple[msgspec.Meta, ...], value: object, path: str, problems: list[Problem]) -> object:
    bounds: DurationBounds = next(meta.extra[DURATION] for meta in metas if meta.extra and DURATION in meta.extra)
    if not isinstance(value, str) or not re.fullmatch(DURATION_PATTERN, value):
        problems.append(Problem(path, f"must be a duration such as 30s, 5m or 1h30m, not {shown(value)}"))
        return _UNREADABLE
    found = parse_duration(value)
    if not bounds.least <= found <= bounds.greatest:
        least, greatest = (format_duration(each) for each in bounds)
        problems.append(Problem(path, f"must be from {least} to {greatest}, not {shown(value)}"))
        return _UNREADABLE
    return found


def _scalar(
    annotation: Any,
    metas: tuple[msgspec.Meta, ...],
    value: object,
    path: str,
    problems: list[Problem],
) -> object:
    if isinstance(value, str) and value.endswith("\n"):
        # In Python, a pattern's $ also matches before a final line feed. For the API server it does not.
        problems.append(Problem(path, f"must not end with a line feed, as {shown(value)} does"))
        return _UNREADABLE
    try:
        return msgspec.convert(value, annotation)
    except msgspec.ValidationError as error:
        problems.append(Problem(path, _explained(annotation, metas, value, str(error))))
    except (TypeError, ValueError, OverflowError):
        # A value that JSON can't represent, from a caller within Respread.
        problems.append(Problem(path, f"must be plain data, not {shown(value)}"))
    return _UNREADABLE


def _explained(annotation: Any, metas: tuple[msgspec.Meta, ...], value: object, error: str) -> str:
    kind, _ = _bare(annotation)
    if get_origin(kind) is Literal:
        choices = [str(each) for each in get_args(kind)]
        return f"must be {' or '.join(choices)}, not {shown(value)}{suggestion(str(value), choices)}"
    expected = next((meta.extra[EXPECTS] for meta in metas if meta.extra and EXPECTS in meta.extra), None)
    if expected is not None:
        return f"must be {expected}, not {shown(value)}"
    least = max((meta.ge for meta in metas if meta.ge is not None), default=None)
    greatest = min((meta.le for meta in metas if meta.le is not None), default=None)
    if kind is int:
        return f"must be a whole number{_range(least, greatest)}, not {shown(value)}"
    if kind is str:
        shortest = max((meta.min_length for meta in metas if meta.min_length is not None), default=None)
        longest = min((meta.max_length for meta in metas if meta.max_length is not None), default=None)
        length = _range(shortest, longest)
        return f"must be a string{f' with a length{length}' if length else ''}, not {shown(value)}"
    if get_origin(kind) is dict:
        return f"must be an object whose values are strings, not {shown(value)}"
    sentence, _, _ = error.partition(" - at `$")
    return f"{sentence[:1].lower()}{sentence[1:]}: {shown(value)}"


def _range(least: float | None, greatest: float | None) -> str:
    if least is None:
        return "" if greatest is None else f" up to {greatest}"
    return f" from {least}" if greatest is None else f" from {least} to {greatest}"
