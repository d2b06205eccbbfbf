"""Label selectors as users type them: `app=web,tier in (a,b),!canary`.

Mirrors apimachinery's `labels.Parse` (pkg/labels/selector.go), except for `<` and `>`, which label selectors of the API
don't have either.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from respread.api.label_selector import LabelSelector
from respread.cluster.selectors import Requirement, Selector, SelectorError, compile_selector, requirement

_TOKEN: Final = re.compile(r"\s*(?:(==|!=|[=!,()<>])|([^\s=!,()<>]+))")
_EQUALS: Final = ("=", "==")


def parse_selector(text: str) -> Selector:
    """Return the selector that a text stands for. An empty text selects everything.

    Raises:
        SelectorError: the API server would reject it.
    """
    everything = compile_selector(LabelSelector())
    return everything.with_requirements(_Tokens(text).requirements())


class _Tokens:
    """The operators, keys and values of a selector, from left to right."""

    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [found[1] or found[2] for found in _TOKEN.finditer(text)]
        self._at = 0

    def requirements(self) -> Iterator[Requirement]:
        if not self._tokens:
            return
        yield self._requirement()
        while self._at < len(self._tokens):
            self._expect(",")
            yield self._requirement()

    def _requirement(self) -> Requirement:
        if self._take("!"):
            return requirement(self._word("a label key"), "DoesNotExist")
        key = self._word("a label key")
        operator = self._peek()
        if operator in {"", ","}:
            return requirement(key, "Exists")
        self._at += 1
        if operator in _EQUALS:
            return requirement(key, "In", [self._value()])
        if operator == "!=":
            return requirement(key, "NotIn", [self._value()])
        if operator == "in":
            return requirement(key, "In", self._values())
        if operator == "notin":
            return requirement(key, "NotIn", self._values())
        raise SelectorError(f"{self._text!r}: {operator!r} after {key!r} is none of =, ==, !=, in and notin")

    def _value(self) -> str:
        """Return a value, which may be empty."""
        return "" if self._peek() in {"", ","} else self._word("a label value")

    def _values(self) -> list[str]:
        self._expect("(")
        values: list[str] = []
        while True:
            values.append("" if self._peek() in {",", ")"} else self._word("a label value"))
            if self._take(")"):
                return values
            self._expect(",")

    def _word(self, what: str) -> str:
        found = self._peek()
        if not found or found in "==!=,()<>":
            raise SelectorError(f"{self._text!r}: expected {what}, found {found or 'its end'!r}")
        self._at += 1
        return found

    def _expect(self, token: str) -> None:
        if not self._take(token):
            raise SelectorError(f"{self._text!r}: expected {token!r}, found {self._peek() or 'its end'!r}")

    def _take(self, token: str) -> bool:
        if self._peek() != token:
            return False
        self._at += 1
        return True

    def _peek(self) -> str:
        return self._tokens[self._at] if self._at < len(self._tokens) else ""
