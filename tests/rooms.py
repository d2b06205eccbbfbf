"""The packages of operator/ and their imports, as a Mermaid diagram and a table: `make architecture`.

The diagram leaves out transitive imports, so that it shows the layers.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Final

from tests.generated_parts import GeneratedParts

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "architecture.md"
PACKAGES: Final = ("respread", "respread_sandbox")
EVERYWHERE: Final = "respread"
"""The package itself, which has only the version and is not a room."""
PARTS: Final = GeneratedParts("make architecture")


def rooms() -> dict[str, set[str]]:
    """Return each room's direct imports of other rooms. Examples of rooms: `respread.eviction`, `respread_sandbox`."""
    modules = dict(_modules())
    imports: dict[str, set[str]] = {_room(name): set() for name in modules}
    del imports[EVERYWHERE]
    for name, path in modules.items():
        here = _room(name)
        for target in _imported(path):
            there = _room(target)
            if target.split(".")[0] in PACKAGES and EVERYWHERE not in (here, there) and here != there:
                imports[here].add(there)
    return imports


def reduced(imports: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return the imports without transitive ones.

    Raises:
        ValueError: rooms import one another in a circle.
    """
    reached: dict[str, set[str]] = {}

    def reach(room: str, path: tuple[str, ...]) -> set[str]:
        if room in path:
            raise ValueError(f"rooms import one another in a circle: {' → '.join((*path, room))}")
        if room not in reached:
            below = [reach(each, (*path, room)) for each in sorted(imports[room])]
            reached[room] = imports[room].union(*below)
        return reached[room]

    for room in imports:
        reach(room, ())
    return {room: below - set().union(*(reached[each] for each in below)) for room, below in imports.items()}


def diagram() -> str:
    """Return the diagram."""
    lines = ["```mermaid", "flowchart TD"]
    edges = reduced(rooms())
    lines += [f'    {_short(room)}["{_short(room)}/"]' for room in sorted(edges)]
    lines += [f"    {_short(room)} --> {_short(each)}" for room in sorted(edges) for each in sorted(edges[room])]
    return "\n".join([*lines, "```", ""])


def table() -> str:
    """Return the purpose of each folder, from its docstring."""
    lines = ["| folder | what is in it |", "|---|---|"]
    for name, path in sorted(_modules()):
        if path.name == "__init__.py" and name != EVERYWHERE:
            text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8"))) or ""
            folder = "/".join(name.split(".")[1 if name.startswith("respread.") else 0 :])
            lines.append(f"| `{folder}/` | {text.splitlines()[0]} |")
    return "\n".join([*lines, ""])


def page(text: str) -> str:
    """Return the page with its generated parts updated."""
    for name, content in (("picture", diagram()), ("folders", table())):
        text = PARTS.write(text, name, content)
    return text


def _modules() -> Iterator[tuple[str, Path]]:
    for package in PACKAGES:
        for path in (ROOT / "operator" / package).rglob("*.py"):
            parts = path.relative_to(ROOT / "operator").with_suffix("").parts
            yield ".".join(parts[:-1] if parts[-1] == "__init__" else parts), path


def _imported(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (each.name for each in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{each.name}" for each in node.names)


def _room(module: str) -> str:
    """Return the room of a module. Modules directly in respread, such as `__init__`, have none."""
    first, *rest = module.split(".")
    if first != EVERYWHERE:
        return first
    return f"{first}.{rest[0]}" if rest and (ROOT / "operator" / first / rest[0]).is_dir() else EVERYWHERE


def _short(room: str) -> str:
    return room.removeprefix("respread.")


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
