r"""What `-o` takes: the formats, and `jsonpath=TEMPLATE` in kubectl's dialect: `{range .moves[*]}{.pod}{"\n"}{end}`.

The templates mirror client-go's util/jsonpath as kubectl calls it, with missing keys allowed. No Python library reads
this dialect.
"""

from __future__ import annotations

import ast
import json
import operator
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, Final

import msgspec

FORMATS: Final = ("table", "wide", "json", "yaml", "markdown", "html", "name")
"""The values of `-o`, besides `jsonpath=TEMPLATE`."""
JSONPATH: Final = "jsonpath"
VIOLATED: Final = 1
"""The exit code for violated constraints, if it is requested."""
_BLANKS: Final = re.compile(r"\s*")
_NAME: Final = re.compile(r"(?:\\.?|[^ \t\r\n.,\[\]$@{}\\])*", re.DOTALL)
_ESCAPED: Final = re.compile(r"\\(.?)", re.DOTALL)
_QUOTED: Final = re.compile(r"""'(?:\\.|[^'\\])*'|"(?:\\.|[^"\\])*\"""", re.DOTALL)
_INSIDE: Final = re.compile(rf"(?:{_QUOTED.pattern}|[^\]'\"])*", re.DOTALL)
"""What is in brackets."""
_SLICE: Final = re.compile(r"(-?\d*)(:-?\d*)?(:-?\d*)?")
_COMPARISON: Final = re.compile(r"([^!<>=]+)([!<>=]+)(.+)", re.DOTALL)
_QUOTES: Final = ("'", '"')
_COMPARE: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

PathStep = Callable[[Sequence[Any]], list[Any]]
"""Goes from values to what is found in them."""
_Path = Callable[[Any], list[Any]]
"""Goes from one value to what a path finds in it."""
_Part = Callable[[Any], str]
"""Goes from a value to what a part of the template prints of it."""


class TemplateError(ValueError):
    """A template that can't be read, or that does not fit the document."""


class JsonPathTemplate:
    """A template that has been read."""

    def __init__(self, text: str) -> None:
        """Read a template.

        Raises:
            TemplateError: it can't be read.
        """
        self._parts = _Reader(text).block(in_range=False)

    def render(self, document: Any) -> str:
        """Return the text for a document of dicts, lists and scalars.

        Raises:
            TemplateError: the template indexes what is no list, or an index is out of bounds.
        """
        return "".join(part(document) for part in self._parts)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True, separators=(",", ":"))


def _words(text: str) -> _Part:
    return lambda _: text


class _Reader:
    """Reads a template from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._at = 0

    def block(self, *, in_range: bool) -> list[_Part]:
        """Return the parts up to `{end}`, or to the end of the text."""
        parts: list[_Part] = []
        while self._at < len(self._text):
            opening = self._text.find("{", self._at)
            if opening != self._at:
                until = len(self._text) if opening < 0 else opening
                parts.append(_words(self._text[self._at : until]))
                self._at = until
                continue
            self._at += 1
            self._taken(_BLANKS)
            if self._word("end"):
                self._close()
                if not in_range:
                    raise TemplateError("there is an {end} without a {range}")
                return parts
            parts.append(self._action())
        if in_range:
            raise TemplateError("a {range} has no {end}")
        return parts

    def _action(self) -> _Part:
        """Return what follows an opening brace, up to its closing one."""
        if self._peek() in _QUOTES:
            text = self._quoted()
            self._close()
            return _words(text)
        is_range, path = self._word("range"), self._path()
        self._close()
        if not is_range:
            return lambda value: " ".join(map(_text, path(value)))
        body = self.block(in_range=True)
        return lambda value: "".join(part(each) for each in path(value) for part in body)

    def operand(self) -> _Path:
        """Return what the text is in all: a path, or a literal in quotes."""
        literal = self._quoted() if self._text.startswith(_QUOTES) else None
        path = self._path() if literal is None else lambda _: [literal]
        if self._at < len(self._text):
            raise TemplateError(f"{self._text!r} is neither a path nor a value")
        return path

    def _path(self) -> _Path:
        steps: list[PathStep] = []
        while True:
            self._taken(_BLANKS)
            character = self._peek()
            if character in {"@", "$"}:  # client-go ignores both: a path starts at the current object
                self._at += 1
            elif self._text.startswith("..", self._at):
                self._at += 1
                steps.append(_descendants)
            elif character == ".":
                self._at += 1
                if name := _ESCAPED.sub(r"\1", self._taken(_NAME)):
                    steps.append(_children if name == "*" else _field(name))
            elif character == "[":
                steps.append(self._bracket())
            elif character in {"", "}"}:
                return partial(_found, steps)
            else:
                raise TemplateError(f"a path starts with a dot, unlike {self._text[self._at :].split('}')[0]!r}")

    def _bracket(self) -> PathStep:
        self._at += 1
        if self._text.startswith("?(", self._at):
            return self._filter()
        inside = self._taken(_INSIDE)
        if self._peek() != "]":
            if self._peek():
                self._quoted()  # which is not closed
            raise TemplateError("a [ is not closed")
        self._at += 1
        steps = [_selection(each.strip()) for each in _split(inside)]
        return steps[0] if len(steps) == 1 else _union(steps)

    def _filter(self) -> PathStep:
        self._at += 2
        start, depth = self._at, 1
        while depth:
            character = self._peek()
            if not character:
                raise TemplateError("a filter [?(…)] is not closed")
            if character in _QUOTES:
                self._quoted()
                continue
            depth += {"(": 1, ")": -1}.get(character, 0)
            self._at += 1
        condition = self._text[start : self._at - 1]
        if self._peek() != "]":
            raise TemplateError(f"a filter ends with )], unlike [?({condition})")
        self._at += 1
        return _filtered(condition)

    def _quoted(self) -> str:
        if not (text := self._taken(_QUOTED)):
            raise TemplateError(f"a {self._peek()} is not closed")
        try:
            return str(ast.literal_eval(text.replace("\n", "\\n")))
        except (SyntaxError, ValueError) as error:
            raise TemplateError(f"{text} is no text") from error

    def _word(self, word: str) -> bool:
        """Consume a word, if it is the next one."""
        end = self._at + len(word)
        if self._text[self._at : end] != word or self._text[end : end + 1].isalnum():
            return False
        self._at = end
        return True

    def _close(self) -> None:
        self._taken(_BLANKS)
        if self._peek() != "}":
            raise TemplateError("a { is not closed")
        self._at += 1

    def _taken(self, pattern: re.Pattern[str]) -> str:
        """Consume what comes next and matches, and return it; nothing, if nothing does."""
        found = pattern.match(self._text, self._at)
        self._at = self._at if found is None else found.end()
        return "" if found is None else found[0]

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]


def _split(inside: str) -> list[str]:
    """Split the inside of brackets at commas, but not in quotes."""
    return re.findall(r"""(?:'[^']*'|"[^"]*"|[^,'"])+""", inside) or [""]


def _selection(text: str) -> PathStep:
    """Return the step of `['key']`, `[*]`, `[0]` or `[0:2]`."""
    if text.startswith(_QUOTES) and text[-1:] == text[:1]:
        return _field(text[1:-1])
    match = _SLICE.fullmatch(":" if text == "*" else text)
    if match is None or not text:
        raise TemplateError(f"[{text}] is neither an index, a slice, a key in quotes nor *")
    start, end, step = (None if not part or part == ":" else int(part.lstrip(":")) for part in match.groups())
    if match[2] is None and start is not None:
        end = start + 1 or None
        return _slice(slice(start, end), index=start)
    if step is not None and step <= 0:
        raise TemplateError(f"[{text}]: a step must be above 0")
    return _slice(slice(start, end, step), index=None)


def _field(name: str) -> PathStep:
    return lambda values: [value[name] for value in values if isinstance(value, dict) and name in value]


def _slice(taken: slice, *, index: int | None) -> PathStep:
    def step(values: Sequence[Any]) -> list[Any]:
        found: list[Any] = []
        for value in _lists(values):
            if index is not None and not -len(value) <= index < len(value):
                raise TemplateError(f"array index out of bounds: index {index}, length {len(value)}")
            found += value[taken]
        return found

    return step


def _union(steps: Sequence[PathStep]) -> PathStep:
    return lambda values: [found for step in steps for found in step(values)]


def _found(steps: Iterable[PathStep], value: Any) -> list[Any]:
    found = [value]
    for step in steps:
        found = step(found)
    return found


def _filtered(condition: str) -> PathStep:
    match = _COMPARISON.fullmatch(condition)
    if match is None:
        exists = _operand(condition)
        return lambda values: [each for value in _lists(values) for each in value if exists(each)]
    left, compare, right = _operand(match[1]), _COMPARE.get(match[2]), _operand(match[3])
    if compare is None:
        raise TemplateError(f"{match[2]} is not a comparison: use {', '.join(_COMPARE)}")

    def passes(element: Any) -> bool:
        lefts, rights = left(element), right(element)
        if len(lefts) > 1 or len(rights) > 1:
            raise TemplateError(f"{condition}: only one value can be compared at a time")
        try:
            return bool(lefts and rights) and compare(lefts[0], rights[0])
        except TypeError as error:
            raise TemplateError(f"{condition}: values of different types can't be compared") from error

    return lambda values: [each for value in _lists(values) for each in value if passes(each)]


def _operand(text: str) -> _Path:
    """Return one side of a comparison: a path, or a literal."""
    text = text.strip()
    if not text.startswith(_QUOTES):
        with suppress(ValueError):
            literal = json.loads(text)
            return lambda _: [literal]
    return _Reader(text).operand()


def _lists(values: Sequence[Any]) -> Iterator[list[Any]]:
    for value in values:
        if isinstance(value, list):
            yield value
        elif value is not None:
            raise TemplateError(f"{_text(value)} is not a list")


def _children(values: Sequence[Any]) -> list[Any]:
    found: list[Any] = []
    for value in values:
        found += value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return found


def _descendants(values: Sequence[Any]) -> list[Any]:
    """Return the values and all that is in them, except for what holds nothing."""
    found: list[Any] = []
    for value in values:
        if children := _children([value]):
            found += [value, *_descendants(children)]
    return found


class OutputOptions(msgspec.Struct, frozen=True):
    """How to show the result."""

    format: str = "table"
    """One of `FORMATS`, or `jsonpath`."""
    no_color: bool = False
    template: JsonPathTemplate | None = None
    """With `jsonpath`, its template."""
    exit_code: bool = False
    """Whether violated constraints decide about the exit code."""
    watch: bool = False
    """Whether to print the result again when it changes."""

    @property
    def wide(self) -> bool:
        """Whether to show everything."""
        return self.format == "wide"

    def code(self, *, violated: bool) -> int:
        """Return the exit code."""
        return VIOLATED if violated and self.exit_code else 0
