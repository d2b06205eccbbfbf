"""Reads documents that others wrote, and collects their errors and the results for their lines."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, NamedTuple, TypeVar

import msgspec

from respread.api.fields import UnknownField
from respread.api.structures import read_structure, shown


class SourcePlace(NamedTuple):
    """A field of a document."""

    document: str
    """Its name in messages: a file and the document in it."""
    path: str = ""
    """Such as `profiles[0].name`; empty for the document itself."""

    def at(self, name: str) -> SourcePlace:
        """Return the place of a field of the object here."""
        return SourcePlace(self.document, f"{self.path}.{name}" if self.path else name)

    def beside(self, name: str) -> SourcePlace:
        """Return the place of another field of the same object."""
        above, _, _ = self.path.rpartition(".")
        return SourcePlace(self.document, above).at(name)

    def item(self, index: int) -> SourcePlace:
        """Return the place of an item of the list here."""
        return SourcePlace(self.document, f"{self.path}[{index}]")

    def __str__(self) -> str:
        """Return both, as an error starts."""
        return f"{self.document}: {self.path}" if self.path else self.document


class Setting(NamedTuple):
    """A field of a policy of Respread."""

    field: str
    """Below `spec`, such as `victims.minAge`."""
    value: Any
    """As in JSON."""
    why: str = ""
    """What a reader should know: one or two sentences, or nothing if its places are enough."""
    places: tuple[SourcePlace, ...] = ()
    """The fields that it was made from; none for a default of descheduler."""


class Remark(NamedTuple):
    """A line without a corresponding field."""

    places: tuple[SourcePlace, ...]
    why: str
    """Why there is none, and what to do."""
    caution: bool = False
    """Whether pods may be evicted without it that descheduler protects."""


Line = Setting | Remark


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
