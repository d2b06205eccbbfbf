"""docs/promises.md and docs/real-clusters.md name existing tests, and the former has all promises of the README."""

from __future__ import annotations

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "promises.md").read_text(encoding="utf-8")
ROWS = [line.strip("| ").split(" | ") for line in PAGE.splitlines() if line.startswith("| ") and "`test_" in line]
REAL_CLUSTERS = (ROOT / "docs" / "real-clusters.md").read_text(encoding="utf-8")


def names_of_tests() -> set[str]:
    """Return the names of all tests, including those in classes."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in (ROOT / "tests").rglob("test_*.py"))
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return {node.name for tree in trees for node in ast.walk(tree) if isinstance(node, functions)}


def test_every_promise_has_tests_that_exist() -> None:
    there = names_of_tests()
    for promise, tests in ROWS:
        named = re.findall(r"`(\w+)`", tests)
        assert named, promise
        assert not set(named) - there, promise


def test_the_page_on_real_clusters_names_tests_that_exist() -> None:
    named = set(re.findall(r"`(test_\w+)`", REAL_CLUSTERS))
    assert len(named) > 40
    assert not named - names_of_tests()


def test_every_never_sentence_of_the_readme_is_a_promise() -> None:
    """Each line of the list begins with the verb and the object of its promise."""
    promised = [promise for promise, _ in ROWS]
    section = (ROOT / "README.md").read_text(encoding="utf-8").partition("## What it never does\n")[2]
    lines = re.findall(r"^- (\w+ \w+)", section.partition("\n## ")[0], re.MULTILINE)
    assert len(lines) >= 5
    for begins in lines:
        assert any(promise.startswith(begins) for promise in promised), begins
