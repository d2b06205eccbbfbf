"""The pages about the code match it: the diagram, every path and every term. No two public types share a name."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.package_imports import PACKAGES, PAGE, ROOT, package_imports, page, reduced

DOCS = ROOT / "docs"
CODE = ROOT / "operator"
MOST_MODULES = 21
"""The maximum number of modules in a folder, including `__init__`."""
DECISIONS = sorted(path for path in (DOCS / "decisions").glob("*.md") if path.name != "README.md")


def test_the_diagram_and_the_folders_match_the_code() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert page(text) == text, "docs/architecture.md is not current: run `make architecture`"


def test_the_diagram_omits_only_transitive_imports() -> None:
    imports = {"a": {"b", "c", "d"}, "b": {"c"}, "c": {"d"}, "d": set[str]()}
    assert reduced(imports) == {"a": {"b"}, "b": {"c"}, "c": {"d"}, "d": set()}
    with pytest.raises(ValueError, match="in a circle: a → b → a"):
        reduced({"a": {"b"}, "b": {"a"}})


def test_packages_are_found_with_their_imports() -> None:
    found = package_imports()
    assert {"respread.api", "respread.controller", "respread_sandbox"} <= found.keys()
    assert "respread.cluster" in found["respread.spread"]
    assert found["respread.api"] == set()


def test_no_folder_has_too_many_modules() -> None:
    modules = Counter(path.parent for package in PACKAGES for path in (CODE / package).rglob("*.py"))
    assert {folder: number for folder, number in modules.items() if number > MOST_MODULES} == {}


@pytest.mark.parametrize("name", ["architecture.md", "glossary.md", *(f"decisions/{each.name}" for each in DECISIONS)])
def test_every_documented_path_exists(name: str) -> None:
    text = (DOCS / name).read_text(encoding="utf-8")
    named = re.findall(r"`([\w./-]+(?:\.py|\.toml|/))`", text)
    missing = [each for each in named if not any((root / each).exists() for root in (CODE / "respread", CODE, ROOT))]
    assert not missing
    for target in re.findall(r"\]\(([^)#]+)(?:#[\w-]+)?\)", text):
        assert (DOCS / name).parent.joinpath(target).exists(), target


def test_glossary_terms_are_unique_and_sorted() -> None:
    first, search = (DOCS / "glossary.md").read_text(encoding="utf-8").split("## Inside the search")
    seen: list[str] = []
    for part in (first, search):
        terms = re.findall(r"^\| ([a-z][^|]*?) \| .* \| `[\w./]+` \|$", part, re.MULTILINE)
        assert terms == sorted(terms)
        seen += [word for term in terms for word in term.split(", or ")]
    assert len(seen) == len(set(seen))
    assert {"informer", "reconcile", "requeue", "snapshot", "wave"} <= set(seen)


def test_every_decision_is_listed_and_names_what_would_change_it() -> None:
    listed = (DOCS / "decisions" / "README.md").read_text(encoding="utf-8")
    assert DECISIONS
    for path in DECISIONS:
        assert f"({path.name})" in listed
        parts = re.findall(r"^\*\*(\w[\w ]*)\.\*\*", path.read_text(encoding="utf-8"), re.MULTILINE)
        assert parts == ["Context", "Decision", "Consequences", "What would change it"]


def public_types(path: Path) -> Iterator[str]:
    """Yield the public classes and type aliases of a module."""
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        match node:
            case ast.ClassDef(name=name):
                pass
            case ast.Assign(targets=[ast.Name(id=name)]) | ast.AnnAssign(target=ast.Name(id=name)):
                if isinstance(node.value, ast.Call):  # a TypeVar or a value
                    continue
            case _:
                continue
        if re.fullmatch(r"[A-Z]\w*[a-z]\w*", name):
            yield name


def test_no_two_public_types_share_a_name() -> None:
    places: defaultdict[str, list[Path]] = defaultdict(list)
    for package in PACKAGES:
        for path in sorted((CODE / package).rglob("*.py")):
            for name in public_types(path):
                places[name].append(path.relative_to(CODE))
    assert len(places) > 300
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}
