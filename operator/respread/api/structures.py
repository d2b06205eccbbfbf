"""Converts between JSON values and structures, and reads what others wrote.

A spec is read to the letter. msgspec stops at the first error, but users want to see all errors of a policy at once,
with field names and in words.

Statuses and records are read within bounds. A policy's status may be of a version with other bounds, the API server
does not check the text of a record, and other clients may write both. Nothing in them may stop the operator, and one
value beyond its bounds is no reason to drop the others. So a number or a time beyond its bounds is read as the bound, a
string or list that is too long is cut, and a value that can't be read is left out.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache
from typing import Any, Final, Literal, TypeAlias, TypeVar, cast, get_args, get_origin

import msgspec
from immutables import Map
from msgspec import inspect as types

from respread.api.fields import (
    DURATION,
    DURATION_PATTERN,
    EARLIEST,
    EXPECTS,
    LATEST,
    DurationBounds,
    Problem,
    UnknownField,
    format_duration,
    parse_duration,
)

_Structure = TypeVar("_Structure", bound=msgspec.Struct)

_Problems: TypeAlias = list[Problem] | None
"""The errors so far; None if values are read within bounds."""
_Read: TypeAlias = Callable[[Any, str, _Problems], object]
"""Reads the value at a path. If it can't, it adds a problem and returns `_UNREADABLE`."""

_UNREADABLE: Final = object()
_CHOICES: Final = "choices"
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
    found = _reader(kind)(value, path, problems)
    return None if found is _UNREADABLE else cast("_Structure", found), problems


def read_clamped(kind: type[_Structure], value: object) -> _Structure | None:
    """Read a structure from JSON values, every field within its bounds.

    Returns:
        The structure. None if the value is not an object, or if a field without a default is absent or can't be read.
    """
    found = _reader(kind)(value, "", None)
    return None if found is _UNREADABLE else cast("_Structure", found)


def write_value(value: Any) -> Any:
    """Return any value of a structure as JSON values. A duration becomes a Go duration."""
    if isinstance(value, msgspec.Struct):
        pairs = ((each.encode_name, getattr(value, each.name)) for each in msgspec.structs.fields(value))
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


@cache
def _reader(kind: type[msgspec.Struct]) -> _Read:
    return _of(types.type_info(kind), {}, {})


def _of(kind: types.Type, schema: Mapping[str, Any], extra: Mapping[str, Any]) -> _Read:  # noqa: C901, PLR0911, PLR0912 - a line for each kind of type there is
    """Return what reads values of a type, with the schema keywords and the extra of its `Meta`."""
    match kind:
        case types.Metadata():
            return _of(kind.type, {**(kind.extra_json_schema or {}), **schema}, {**(kind.extra or {}), **extra})
        case types.UnionType():
            some = [each for each in kind.types if not isinstance(each, types.NoneType)]
            return _of(some[0], schema, extra) if len(some) == 1 else _either(some, extra[EXPECTS])
        case types.StructType():
            return _structure(kind)
        case types.VarTupleType():
            return _items(kind, schema, extra)
        case types.CustomType() if kind.cls is Map:
            return _strings
        case types.IntType():
            return _number(kind, extra.get(EXPECTS, f"a whole number{_range(kind.ge, kind.le)}"))
        case types.StrType():
            length = _range(kind.min_length, kind.max_length)
            return _text(kind, extra.get(EXPECTS, f"a string{f' with a length{length}' if length else ''}"))
        case types.LiteralType():
            return _choice(extra[_CHOICES])
        case types.BoolType():
            return _flag
        case types.DateTimeType():
            return _moment
        case types.TimeDeltaType():
            return _duration(extra[DURATION])
        case types.AnyType():
            return _anything
        case _:
            raise TypeError(f"a field has a type that is not read yet: {kind}")


def _wrong(problems: _Problems, path: str, message: str) -> object:
    if problems is not None:
        problems.append(Problem(path, message))
    return _UNREADABLE


def _unfit(problems: _Problems, path: str, expected: str, value: object, choices: Sequence[str] = ()) -> object:
    if _ends_with_line_feed(value):
        return _wrong(problems, path, f"must not end with a line feed, as {shown(value)} does")
    return _wrong(problems, path, f"must be {expected}, not {shown(value)}{suggestion(str(value), choices)}")


def _ends_with_line_feed(value: object) -> bool:
    """Return whether a pattern's $ would match before the end, as it does not for the API server."""
    return isinstance(value, str) and value.endswith("\n")


def _structure(kind: types.StructType) -> _Read:
    """Read a structure field by field, with the default for each field that is absent or can't be read."""
    annotations = [each.type for each in msgspec.structs.fields(kind.cls)]
    known = [each.encode_name for each in kind.fields]
    fields = [
        (each.encode_name, each.name, each.required, _of(each.type, {}, {_CHOICES: _choices(annotation)}))
        for each, annotation in zip(kind.fields, annotations, strict=True)
    ]

    def read(value: Any, path: str, problems: _Problems) -> object:
        if not isinstance(value, Mapping):
            return _wrong(problems, path, f"must be an object, not {shown(value)}")
        if problems is not None:
            problems += _unknown_fields(value, path, known)
        found: dict[str, Any] = {}
        complete = True
        for encoded, name, required, read_field in fields:
            if (given := value.get(encoded)) is not None:
                inner = read_field(given, path if problems is None else f"{path}.{encoded}", problems)
                if inner is not _UNREADABLE:
                    found[name] = inner
                    continue
            elif required and problems is not None:
                problems.append(Problem(f"{path}.{encoded}", "is required"))
            complete = complete and not required
        return kind.cls(**found) if complete else _UNREADABLE

    return read


def _unknown_fields(value: Mapping[Any, Any], path: str, known: Collection[str]) -> Iterator[Problem]:
    for name in value:
        if name not in known:
            yield UnknownField(f"{path}.{name}", f"there is no such field{suggestion(str(name), known)}")


def _choices(annotation: Any) -> tuple[str, ...]:
    """Return the words of a Literal in their order, which msgspec does not tell; none if there is none."""
    if get_origin(annotation) is Literal:
        return get_args(annotation)
    return next((found for each in get_args(annotation) if (found := _choices(each))), ())


def _items(kind: types.VarTupleType, schema: Mapping[str, Any], extra: Mapping[str, Any]) -> _Read:
    read_item, least, most = _of(kind.item_type, {}, extra), kind.min_length or 0, kind.max_length
    identity = _identity(kind.item_type, schema)

    def read(value: Any, path: str, problems: _Problems) -> object:
        if not isinstance(value, list | tuple):
            return _wrong(problems, path, f"must be a list, not {shown(value)}")
        if problems is not None and not least <= len(value) <= (len(value) if most is None else most):
            return _wrong(problems, path, f"must have {least} to {most} items, this has {len(value)}")
        found: dict[object, object] = {}
        for position, each in enumerate(value):
            if most is not None and len(found) >= most:
                break
            item = read_item(each, path if problems is None else f"{path}[{position}]", problems)
            if item is _UNREADABLE:
                found[item] = item
                continue
            key = position if identity is None else identity(item)
            if problems is not None and key in found:
                return _wrong(problems, f"{path}[{position}]", f"is repeated: {shown(each)}")
            found.setdefault(key, item)
        unreadable = found.pop(_UNREADABLE, None) is not None
        return _UNREADABLE if unreadable and problems is not None else tuple(found.values())

    return read


def _identity(kind: types.Type, schema: Mapping[str, Any]) -> Callable[[Any], object] | None:
    """Return by what items of a list differ, None if they may be equal."""
    while isinstance(kind, types.Metadata):
        kind = kind.type
    match schema.get("x-kubernetes-list-type"):
        case "set":
            return lambda item: item
        case "map" if isinstance(kind, types.StructType):
            names = [each.name for each in kind.fields if each.encode_name in schema["x-kubernetes-list-map-keys"]]
            return lambda item: tuple(getattr(item, name) for name in names)
        case _:
            return None


def _either(kinds: Sequence[types.Type], expected: str) -> _Read:
    readers = [_of(each, {}, {}) for each in kinds]

    def read(value: Any, path: str, problems: _Problems) -> object:
        for each in readers:
            if (found := each(value, path, [])) is not _UNREADABLE:
                return found
        return _unfit(problems, path, expected, value)

    return read


def _number(kind: types.IntType, expected: str) -> _Read:
    least, most = kind.ge, kind.le

    def read(value: Any, path: str, problems: _Problems) -> object:
        if problems is None and isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool):
            return _unfit(problems, path, expected, value)
        found = value if least is None else max(value, least)
        if most is not None:
            found = min(found, most)
        return found if problems is None or found == value else _unfit(problems, path, expected, value)

    return read


def _text(kind: types.StrType, expected: str) -> _Read:
    pattern = None if kind.pattern is None else re.compile(kind.pattern)
    least, most = kind.min_length or 0, kind.max_length

    def read(value: Any, path: str, problems: _Problems) -> object:
        if not isinstance(value, str):
            return _unfit(problems, path, expected, value)
        text = value if most is None else value[:most]
        if problems is not None and (len(text) < len(value) or _ends_with_line_feed(value)):
            return _unfit(problems, path, expected, value)
        if pattern is not None and (_ends_with_line_feed(text) or pattern.search(text) is None):
            return _unfit(problems, path, expected, value)
        return text if len(text) >= least else _unfit(problems, path, expected, value)

    return read


def _choice(choices: tuple[str, ...]) -> _Read:
    def read(value: Any, path: str, problems: _Problems) -> object:
        if isinstance(value, str) and value in choices:
            return value
        return _unfit(problems, path, " or ".join(choices), value, choices)

    return read


def _duration(bounds: DurationBounds) -> _Read:
    least, greatest = (format_duration(each) for each in bounds)

    def read(value: Any, path: str, problems: _Problems) -> object:
        if not isinstance(value, str) or not re.fullmatch(DURATION_PATTERN, value):
            return _wrong(problems, path, f"must be a duration such as 30s, 5m or 1h30m, not {shown(value)}")
        found = max(bounds.least, min(given := parse_duration(value), bounds.greatest))
        if problems is not None and found != given:
            return _unfit(problems, path, f"from {least} to {greatest}", value)
        return found

    return read


def _strings(value: Any, path: str, problems: _Problems) -> object:
    if isinstance(value, Mapping) and all(isinstance(each, str) for pair in value.items() for each in pair):
        return Map(value)
    return _unfit(problems, path, "an object whose values are strings", value)


def _flag(value: Any, path: str, problems: _Problems) -> object:
    return value if isinstance(value, bool) else _unfit(problems, path, "true or false", value)


def _anything(value: Any, path: str, problems: _Problems) -> object:
    return _unfit(problems, path, "", value) if _ends_with_line_feed(value) else value


def _moment(value: Any, path: str, problems: _Problems) -> object:
    try:
        moment = None if not isinstance(value, str) else msgspec.convert(value, datetime)
    except msgspec.ValidationError:
        moment = None
    if moment is None:
        return _unfit(problems, path, "a time such as 2026-01-02T03:04:05Z", value)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return max(EARLIEST, min(moment, LATEST)).astimezone(UTC)


def _range(least: float | None, greatest: float | None) -> str:
    if least is None:
        return "" if greatest is None else f" up to {greatest}"
    return f" from {least}" if greatest is None else f" from {least} to {greatest}"
