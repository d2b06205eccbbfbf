"""The code follows rules that no linter checks: about callbacks, restored state, and code that only tests use."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from itertools import chain
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import pytest

OPERATOR: Final = Path(__file__).parents[3] / "operator"
MOST_EVICTION_LINES: Final = 300
CLOCKS: Final = frozenset({"clock", "wall_clock", "monotonic", "now"})
"""Parameters that every object may pass on."""
CALLED_FROM_OUTSIDE: Final = frozenset({"collect", "complete_for_kubectl"})
"""Methods that prometheus_client calls, and entry points of the package."""

Function: TypeAlias = ast.FunctionDef | ast.AsyncFunctionDef
Trees: TypeAlias = Mapping[str, ast.Module]


class Parameter(NamedTuple):
    """A parameter of a function or of a class."""

    module: str
    function: str
    name: str


class Definition(NamedTuple):
    """A function, a method, or the constructor of a class, with the name by which it is called."""

    module: str
    name: str
    node: Function
    owner: ast.ClassDef | None

    def parameters(self) -> list[ast.arg]:
        """Return the positional parameters without `self`."""
        every = [*self.node.args.posonlyargs, *self.node.args.args]
        return every if self.owner is None else every[1:]

    def callbacks(self, types: frozenset[str]) -> frozenset[str]:
        """Return the names of the parameters that are functions, whose annotations contain one of some types."""
        every = (*self.parameters(), *self.node.args.kwonlyargs)
        return frozenset(each.arg for each in every if each.arg not in CLOCKS and contains(each.annotation, types))


def contains(annotation: ast.expr | None, types: frozenset[str]) -> bool:
    return annotation is not None and any(
        isinstance(node, ast.Name) and node.id in types for node in ast.walk(annotation)
    )


def callable_types(trees: Trees) -> frozenset[str]:
    """Return the names of types of functions: `Callable`, and its aliases."""
    plain = frozenset({"Callable"})
    aliases = (node for tree in trees.values() for node in tree.body if isinstance(node, ast.AnnAssign))
    return plain | {ast.unparse(node.target) for node in aliases if contains(node.value, plain)}


def definitions(trees: Trees) -> Iterator[Definition]:
    """Yield the functions and methods of modules, without those inside others."""
    for module, tree in trees.items():
        for node in tree.body:
            if isinstance(node, Function):
                yield Definition(module, node.name, node, None)
            elif isinstance(node, ast.ClassDef):
                for inner in node.body:
                    if isinstance(inner, Function):
                        name = node.name if inner.name == "__init__" else inner.name
                        yield Definition(module, name, inner, node)


def passed_on(trees: Trees) -> dict[Parameter, set[Parameter]]:
    """Return the callbacks that functions pass on, directly or from an attribute, and to which parameters."""
    by_name: defaultdict[str, list[Definition]] = defaultdict(list)
    kept: dict[tuple[str, str], dict[str, Parameter]] = {}
    types = callable_types(trees)
    for each in definitions(trees):
        by_name[each.name].append(each)
        if each.owner is not None and each.node.name == "__init__" and (callbacks := each.callbacks(types)):
            kept[each.module, each.name] = {
                ast.unparse(node.targets[0]): Parameter(each.module, each.name, node.value.id)
                for node in each.node.body
                if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name) and node.value.id in callbacks
            }
    edges: defaultdict[Parameter, set[Parameter]] = defaultdict(set)
    for each in chain.from_iterable(by_name.values()):
        known = {name: Parameter(each.module, each.name, name) for name in each.callbacks(types)}
        known |= {} if each.owner is None else kept.get((each.module, each.owner.name), {})
        for call in ast.walk(each.node) if known else ():
            if isinstance(call, ast.Call) and isinstance(call.func, ast.Name | ast.Attribute):
                for called in by_name.get(call.func.id if isinstance(call.func, ast.Name) else call.func.attr, ()):
                    named = [(keyword.arg, keyword.value) for keyword in call.keywords]
                    placed = zip((each.arg for each in called.parameters()), call.args, strict=False)
                    for target, value in chain(placed, named):
                        if target is not None and (source := known.get(ast.unparse(value))) is not None:
                            edges[source].add(Parameter(called.module, called.name, target))
    return edges


def long_ways(edges: Mapping[Parameter, set[Parameter]]) -> list[str]:
    """Return the callbacks that a module gets from another one only to pass them on to a third one."""
    return [
        " → ".join(f"{module}: {function}({name})" for module, function, name in (first, second, third))
        for first, seconds in edges.items()
        for second in seconds
        for third in edges.get(second, ())
        if len({first.module, second.module, third.module}) == 3
    ]


def restored(tree: ast.Module) -> list[str]:
    """Return the attributes that a coroutine keeps in a variable, changes, and restores after it has waited."""
    found: list[str] = []
    for function in (node for node in ast.walk(tree) if isinstance(node, ast.AsyncFunctionDef)):
        waits = [node.lineno for node in ast.walk(function) if isinstance(node, ast.Await | ast.AsyncWith | ast.Yield)]
        assigned = [
            (node.lineno, ast.unparse(target), ast.unparse(value))
            for node in ast.walk(function)
            if isinstance(node, ast.Assign)
            for target, value in pairs(node)
        ]
        found += (
            attribute
            for line, variable, attribute in assigned
            for later, target, value in assigned
            if (target, value) == (attribute, variable) and "." in attribute and any(line <= at < later for at in waits)
        )
    return found


def pairs(node: ast.Assign) -> Iterator[tuple[ast.expr, ast.expr]]:
    """Yield each assigned target with its value."""
    for target in node.targets:
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            yield from zip(target.elts, node.value.elts, strict=False)
        else:
            yield target, node.value


def mentioned(tree: ast.Module) -> Iterator[str]:
    """Yield the names that a module uses, also those in strings."""
    for node in ast.walk(tree):
        match node:
            case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Constant(value=str() as name):
                yield name
            case ast.MatchClass(kwd_attrs=names):
                yield from names


@pytest.fixture(scope="module")
def trees() -> dict[str, ast.Module]:
    paths = sorted(path for package in ("respread", "respread_cli") for path in (OPERATOR / package).rglob("*.py"))
    return {str(path.relative_to(OPERATOR)): ast.parse(path.read_text(encoding="utf-8")) for path in paths}


def test_no_callback_is_passed_through_a_module_that_does_not_call_it(trees: Trees) -> None:
    edges = passed_on(trees)
    assert len(edges) > 10
    assert long_ways(edges) == []


def test_a_callback_that_takes_a_long_way_is_found() -> None:
    sources = {
        "one.py": "Done: TypeAlias = Callable[[], None]\ndef begin(done: Done): Middle(done)",
        "two.py": "class Middle:\n def __init__(self, done: Callable[[], None]):\n  self._done = done\n"
        " def run(self): finish(told=self._done)",
        "three.py": "def finish(told: Callable[[], None]): told()",
    }
    edges = passed_on({name: ast.parse(source) for name, source in sources.items()})
    assert long_ways(edges) == ["one.py: begin(done) → two.py: Middle(done) → three.py: finish(told)"]


def test_no_state_is_changed_awaited_and_restored(trees: Trees) -> None:
    assert {module: attributes for module, tree in trees.items() if (attributes := restored(tree))} == {}


def test_restored_state_is_found() -> None:
    source = "async def act(self):\n before, self.limit = self.limit, 0\n await self.send()\n self.limit = before\n"
    assert restored(ast.parse(source)) == ["self.limit"]
    assert restored(ast.parse(source.replace("await self.send()", "self.note()"))) == []


def test_the_life_of_an_eviction_fits_on_a_few_screens() -> None:
    life = (OPERATOR / "respread" / "controller" / "evictions.py").read_text(encoding="utf-8")
    assert len(life.splitlines()) <= MOST_EVICTION_LINES


def test_no_function_is_only_for_tests(trees: Trees) -> None:
    """A library may call the methods of a class that is derived from one of its own."""
    ours = {node.name for tree in trees.values() for node in tree.body if isinstance(node, ast.ClassDef)}
    uses = Counter(chain.from_iterable(map(mentioned, trees.values())))
    own = [
        each
        for each in definitions(trees)
        if each.owner is None or all(isinstance(base, ast.Name) and base.id in ours for base in each.owner.bases)
    ]
    assert len(own) > 1000
    unused = {each.node.name: each.module for each in own if not uses[each.node.name]}
    assert {
        name: module for name, module in unused.items() if not name.startswith("__") and name not in CALLED_FROM_OUTSIDE
    } == {}
