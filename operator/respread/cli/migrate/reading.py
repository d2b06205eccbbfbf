"""Reads documents that others wrote, and collects their errors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from respread.api.problem import UnknownField
from respread.api.structures import read_structure, shown
from respread.cli.migrate.lines import Remark
from respread.cli.migrate.place import SourcePlace

_Structure = TypeVar("_Structure", bound=msgspec.Struct)
_Args_co = TypeVar("_Args_co", bound=msgspec.Struct, covariant=True)


class Sourced(NamedTuple, Generic[_Args_co]):
    """A structure, and the place of each field that is set. The fields may be in several objects."""

    args: _Args_co
    places: Mapping[str, SourcePlace]
    """By the names of the structure's attributes."""


class Reading:
    """What is found while documents are read.

    `mistakes` are errors that descheduler rejects too. `passed_over` are fields that it does not know and ignores.
    """

    def __init__(self) -> None:
        self.mistakes: list[str] = []
        self.passed_over: list[Remark] = []

    def mistake(self, place: SourcePlace, what: str) -> None:
        """Record what is wrong, and what to do."""
        self.mistakes.append(f"{place}: {what}")

    def structure(self, kind: type[_Structure], value: object, place: SourcePlace) -> _Structure:
        """Read an object. A field that is absent, null or invalid has its default."""
        found, problems = read_structure(kind, {} if value is None else value, place.path)
        for problem in problems:
            at = SourcePlace(place.document, problem.field.removeprefix("."))
            if isinstance(problem, UnknownField):
                self.passed_over.append(Remark((at,), f"descheduler passes over this: {problem.message}."))
            else:
                self.mistake(at, problem.message)
        return kind() if found is None else found

    def sourced(self, kind: type[_Structure], value: object, place: SourcePlace) -> Sourced[_Structure]:
        """Read an object, and note where its fields are."""
        args = self.structure(kind, value, place)
        return Sourced(args, places_of(args, place))

    def mapping(self, value: object, place: SourcePlace) -> Mapping[str, Any]:
        """Read an object with arbitrary fields. Null means an empty one."""
        if value is None:
            return {}
        if isinstance(value, Mapping) and all(isinstance(name, str) for name in value):
            return value
        self.mistake(place, f"must be an object, not {shown(value)}")
        return {}

    def items(self, value: object, place: SourcePlace) -> list[tuple[Any, SourcePlace]]:
        """Read a list of anything, each item with its place. Null means an empty list."""
        if value is None:
            return []
        if isinstance(value, list):
            return [(item, place.item(index)) for index, item in enumerate(value)]
        self.mistake(place, f"must be a list, not {shown(value)}")
        return []


def places_of(args: msgspec.Struct, place: SourcePlace) -> dict[str, SourcePlace]:
    """Return where each field that is not None stands, for a structure that was read from one place."""
    return {
        field.name: place.at(field.encode_name)
        for field in msgspec.structs.fields(args)
        if getattr(args, field.name) is not None
    }
