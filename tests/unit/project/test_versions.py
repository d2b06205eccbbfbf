"""The matrix of Kubernetes versions in docs/versions.md and the README."""

from __future__ import annotations

from pathlib import Path

import pytest

from respread_sandbox.binaries import kubernetes_versions
from tests.versions import DATE, PAGE, PARTS, README, Matrix, read, results, suites, summary, table

MATRIX: Matrix = {
    "1.33": {DATE: "2026-11-22", "planning": "9 of 9 passed", "eviction": "3 of 4 passed", "demo": "1 of 1 passed"},
    "1.36": {DATE: "2026-11-21", **dict.fromkeys(suites(), "2 of 2 passed")},
}


def test_the_page_and_the_readme_agree_on_versions() -> None:
    page = PAGE.read_text()
    matrix = read(page)
    assert PARTS.read("matrix", page) == table(matrix)
    assert PARTS.read("versions", README.read_text()) == summary(matrix)


def test_a_matrix_survives_a_round_trip() -> None:
    page = PARTS.write(PAGE.read_text(), "matrix", table(MATRIX))
    kept = read(page)
    assert {version: cells for version, cells in kept.items() if cells} == MATRIX


def test_results_of_another_patch_version_are_dropped() -> None:
    page = PARTS.write(PAGE.read_text(), "matrix", table(MATRIX).replace(kubernetes_versions()["1.33"], "1.33.0"))
    assert "1.33" not in read(page)


def test_the_summary_names_what_was_left_out() -> None:
    rows = {line.split("|")[1].strip(): line for line in summary(MATRIX).splitlines()}
    folders = len(suites()) - 2
    assert (
        f"12 of 13 passed, in 2 of {folders} folders | not run | 1 of 1 passed" in rows[kubernetes_versions()["1.33"]]
    )
    newest = f"{2 * folders} of {2 * folders} passed | 2 of 2 passed | 2 of 2 passed | 2026-11-21"
    assert newest in rows[kubernetes_versions()["1.36"]]
    assert rows[kubernetes_versions()["1.34"]].count("not run") == 4


def test_reports_of_earlier_runs_count_as_a_run(tmp_path: Path) -> None:
    whole, again = tmp_path / "whole.xml", tmp_path / "again.xml"
    whole.write_text(
        """<testsuites><testsuite>
        <testcase classname="tests.integration.planning.test_a" name="test_1"/>
        <testcase classname="tests.integration.planning.test_a" name="test_2"><failure>no</failure></testcase>
        <testcase classname="tests.integration.planning.test_a" name="test_3"><skipped/></testcase>
        <testcase classname="tests.faults.test_b" name="test_4"><error>no</error></testcase>
        <testcase classname="tests.unit.planning.test_c" name="test_5"/>
        </testsuite></testsuites>"""
    )
    again.write_text('<testsuite><testcase classname="tests.integration.planning.test_a" name="test_2"/></testsuite>')
    assert results([whole])["planning"] == (1, 2)
    assert results([whole, again])["planning"] == (2, 2)
    assert results([whole])["faults"] == (0, 1)


def test_a_page_without_the_matrix_markers_is_an_error() -> None:
    with pytest.raises(ValueError, match="0 places for the matrix"):
        read("# Nothing")
