"""A change to one place of a file."""

from __future__ import annotations

import ast
from functools import lru_cache
from typing import NamedTuple

_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_tree = lru_cache(maxsize=1)(ast.parse)


class Change(NamedTuple):
    """A change to one place of a file."""

    name: str
    file: str
    """Relative to `operator/respread`."""
    start: int
    """The first character that is replaced."""
    end: int
    """The character after the last one that is replaced."""
    wrong: str

    def put_into(self, code: str) -> str:
        """Return the code of the file with the change."""
        return code[: self.start] + self.wrong + code[self.end :]

    def line(self, code: str) -> int:
        """Return the number of the first line that is changed."""
        return code.count("\n", 0, self.start) + 1

    def function(self, code: str) -> str:
        """Return the qualified name of the innermost function around the change; empty if there is none."""
        line = self.line(code)

        def within(node: ast.AST, prefix: str) -> str:
            for child in ast.iter_child_nodes(node):
                if isinstance(child, ast.stmt) and not child.lineno <= line <= (child.end_lineno or 0):
                    continue
                if isinstance(child, (*_FUNCTIONS, ast.ClassDef)):
                    name = f"{prefix}{child.name}"
                    if isinstance(child, ast.ClassDef):
                        return within(child, f"{name}.")
                    return within(child, f"{name}.<locals>.") or name
                if found := within(child, prefix):
                    return found
            return ""

        return within(_tree(code), "")

    def body(self, code: str) -> str:
        """Return the qualified name of the outermost function around the change; empty if it is not in its body."""
        line, name = self.line(code), self.function(code).partition(".<locals>.")[0]
        bodies = (
            (node.body[0].lineno, node.end_lineno or 0)
            for node in ast.walk(_tree(code))
            if isinstance(node, _FUNCTIONS) and node.name == name.rpartition(".")[2]
        )
        return name if any(first <= line <= last for first, last in bodies) else ""
