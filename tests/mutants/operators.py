"""Small changes of single expressions, drawn at random.

This is our own code, because the kept libraries can't do it here. Cosmic Ray runs one command for all mutants, with
every test, and needs eleven more packages, SQLAlchemy among them. Mutmut changes only the inside of functions, so no
constant and no default of a class, and neither draws from a seed.
"""

from __future__ import annotations

import ast
import random
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from tests.mutants.change import Change

PACKAGES: Final = (
    "moves",
    "eviction",
    "holds",
    "controller",
    "planning",
    "spread",
    "scheduling",
    "kube",
    "telemetry/tls.py",
)
"""Where a fault may cost an eviction too many, or show metrics to somebody who may not read them.

Relative to `operator/respread`.
"""

_FLIPPED: Final[dict[type[ast.cmpop], tuple[str, str]]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: (r"is\s+not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: (r"not\s+in", "in"),
}
_SWAPPED: Final[dict[type[ast.operator], tuple[str, str]]] = {
    ast.Add: (r"\+", "-"),
    ast.Sub: ("-", "+"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: (r"\|", "&"),
}
_NOT_RUN: Final = {"annotation", "decorator_list", "returns"}
_NAMES: Final = {"any": "all", "all": "any", "min": "max", "max": "min"}
_NO_BEHAVIOR: Final = {"_log", "warnings"}
"""What is called on these changes no decision."""


def drawn(code_folder: Path, number: int, seed: int, only: str = "") -> list[Change]:
    """Return different changes from all files of `PACKAGES`, in the order of the files.

    Args:
        code_folder: `operator/respread`.
        number: how many at most.
        seed: the same one draws the same changes of the same code.
        only: a part of the names of files to draw from.
    """
    found: list[Change] = []
    for package in PACKAGES:
        path = code_folder / package
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            name = file.relative_to(code_folder).as_posix()
            if only in name:
                found.extend(changes_of(file.read_text(encoding="utf-8"), name))
    chosen = random.Random(seed).sample(range(len(found)), min(number, len(found)))
    return [found[at] for at in sorted(chosen)]


def changes_of(code: str, file: str) -> Iterator[Change]:
    """Yield all changes to a file, none of which breaks its syntax or its types for certain."""
    return _Finder(code, file).within(ast.parse(code))


class _Finder:
    """Finds changes in a file."""

    def __init__(self, code: str, file: str) -> None:
        self._code = code
        self._file = file
        self._lines = [0]
        for line in code.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._bytes = [line.encode() for line in code.splitlines(keepends=True)]

    def within(self, node: ast.AST) -> Iterator[Change]:
        """Yield the changes to a node and its children. Annotations and what decides nothing stay as they are."""
        yield from self._of(node)
        if isinstance(node, ast.AnnAssign) and _is_final(node):
            return
        for field, value in ast.iter_fields(node):
            if field in _NOT_RUN or (isinstance(node, ast.ClassDef) and field == "keywords"):
                continue
            for child in value if isinstance(value, list) else [value]:
                if isinstance(child, ast.AST) and not _is_no_decision(child):
                    yield from self.within(child)

    def _of(self, node: ast.AST) -> Iterator[Change]:  # noqa: C901, PLR0912 - a table
        match node:
            case ast.Compare():
                operands = [node.left, *node.comparators]
                for at, operator in enumerate(node.ops):
                    yield from self._between(operands[at], operands[at + 1], *_FLIPPED[type(operator)])
            case ast.BoolOp():
                yield from self._of_bool(node)
            case ast.UnaryOp(op=ast.Not()):
                yield self._change(node, f"({self._text(node.operand)})")
            case ast.If() | ast.IfExp():
                for wrong in ("True", "False"):
                    yield self._change(node.test, wrong)
            case ast.comprehension():
                for test in node.ifs:
                    yield self._change(test, "True")
            case ast.AnnAssign(value=ast.expr() as number) if _is_final(node):
                yield self._change(number, f"10 * {self._text(number)}")
            case ast.Constant(value=bool(value)):
                yield self._change(node, str(not value))
            case ast.Constant(value=int(value)):
                yield self._change(node, str(value + 1))
            case ast.Constant(value=float(value)):
                yield self._change(node, str(value * 2 or 1.0))
            case ast.BinOp() if type(node.op) in _SWAPPED and not _is_text(node):
                yield from self._between(node.left, node.right, *_SWAPPED[type(node.op)])
            case ast.Call(func=ast.Name(id=name) as function) if name in _NAMES:
                yield self._change(function, _NAMES[name])
            case ast.Expr(value=ast.Call() | ast.Await(value=ast.Call())) if _root(node.value) not in _NO_BEHAVIOR:
                yield self._change(node, "pass")
            case _:
                pass

    def _of_bool(self, node: ast.BoolOp) -> Iterator[Change]:
        word, other = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        texts = [f"({self._text(each)})" for each in node.values]
        yield self._change(node, f"({f' {other} '.join(texts)})")
        for at in range(len(texts)):
            yield self._change(node, f"({f' {word} '.join(texts[:at] + texts[at + 1 :])})")

    def _between(self, left: ast.expr, right: ast.expr, operator: str, wrong: str) -> Iterator[Change]:
        start = self._span(left)[1]
        gap = self._code[start : self._span(right)[0]]
        if (found := re.search(operator, gap)) is not None:
            yield self._at(start + found.start(), start + found.end(), wrong)

    def _change(self, node: ast.expr | ast.stmt, wrong: str) -> Change:
        return self._at(*self._span(node), wrong)

    def _at(self, start: int, end: int, wrong: str) -> Change:
        before, after = (" ".join(each.split()) for each in (self._code[start:end], wrong))
        return Change(f"{before} → {after}", self._file, start, end, wrong)

    def _text(self, node: ast.expr) -> str:
        start, end = self._span(node)
        return self._code[start:end]

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        """Return where a node is, in characters; `ast` counts bytes."""
        lines, ends = node.lineno - 1, (node.end_lineno or node.lineno) - 1
        return (
            self._lines[lines] + len(self._bytes[lines][: node.col_offset].decode()),
            self._lines[ends] + len(self._bytes[ends][: node.end_col_offset].decode()),
        )


def _is_final(node: ast.AnnAssign) -> bool:
    """Return whether a number gets a name. Tests take most of these from the code: another digit is no fault."""
    match node:
        case ast.AnnAssign(annotation=ast.Name(id="Final"), value=ast.Constant(value=int() | float())):
            return True
        case ast.AnnAssign(annotation=ast.Name(id="Final"), value=ast.BinOp(left=ast.Constant(), right=ast.Constant())):
            return True
        case _:
            return False


def _is_no_decision(node: ast.AST) -> bool:
    """Return whether it is a text, what is raised, or the `strict` of `zip`, which only tells of our own mistakes."""
    return isinstance(node, (ast.JoinedStr, ast.Raise)) or (isinstance(node, ast.keyword) and node.arg == "strict")


def _is_text(node: ast.expr) -> bool:
    match node:
        case ast.JoinedStr() | ast.Constant(value=str()):
            return True
        case ast.BinOp(left=left, right=right):
            return _is_text(left) or _is_text(right)
        case _:
            return False


def _root(node: ast.expr) -> str:
    """Return the first name of a call such as `a.b(c)`."""
    match node:
        case ast.Name(id=name):
            return name
        case ast.Attribute(value=inner) | ast.Call(func=inner) | ast.Await(value=inner):
            return _root(inner)
        case _:
            return ""


def package_of(file: str, packages: Sequence[str] = PACKAGES) -> str:
    """Return the package of a file that changes are drawn from."""
    return next((each for each in packages if file.startswith(each)), "elsewhere")
