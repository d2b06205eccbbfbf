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
PACKAGES: Final = ("respread", "respread_cli", "respread_sandbox")
EVERYWHERE: Final = "respread"
"""The top package, which has only the version and no place in the diagram."""
PARTS: Final = GeneratedParts("make architecture")


def package_imports() -> dict[str, set[str]]:
    """Return the direct imports between packages such as `respread.eviction` and `respread_cli`."""
    modules = dict(_modules())
    imports: dict[str, set[str]] = {_package(name): set() for name in modules}
    del imports[EVERYWHERE]
    for name, path in modules.items():
        here = _package(name)
        for target in _imported(path):
            there = _package(target)
            if target.split(".")[0] in PACKAGES and EVERYWHERE not in (here, there) and here != there:
                imports[here].add(there)
    return imports


def reduced(imports: Mapping[str, set[str]]) -> dict[str, set[str]]:
    """Return the imports without transitive ones.

    Raises:
        ValueError: packages import one another in a circle.
    """
    reached: dict[str, set[str]] = {}

    def reach(package: str, path: tuple[str, ...]) -> set[str]:
        if package in path:
            raise ValueError(f"packages import one another in a circle: {' → '.join((*path, package))}")
        if package not in reached:
            below = [reach(each, (*path, package)) for each in sorted(imports[package])]
            reached[package] = imports[package].union(*below)
        return reached[package]

    for package in imports:
        reach(package, ())
    return {package: below - set().union(*(reached[each] for each in below)) for package, below in imports.items()}


def diagram() -> str:
    """Return the diagram."""
    lines = ["```mermaid", "flowchart TD"]
    edges = reduced(package_imports())
    lines += [f'    {_short(package)}["{_short(package)}/"]' for package in sorted(edges)]
    lines += [
        f"    {_short(package)} --> {_short(each)}" for package in sorted(edges) for each in sorted(edges[package])
    ]
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


def _package(module: str) -> str:
    """Return the package of a module; `EVERYWHERE` for modules directly in respread, such as `__init__`."""
    first, *rest = module.split(".")
    if first != EVERYWHERE:
        return first
    return f"{first}.{rest[0]}" if rest and (ROOT / "operator" / first / rest[0]).is_dir() else EVERYWHERE


def _short(package: str) -> str:
    return package.removeprefix("respread.")


if __name__ == "__main__":
    PAGE.write_text(page(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
