"""The tests on the control plane and the demo, on each Kubernetes version: `make test-versions`.

    python -m tests.versions [--versions 1.33 1.36] [--only planning faults demo] [--print-only]
    python -m tests.versions --versions 1.36 --reports junit.xml

Prints a matrix of the passed tests, and writes it with the date to docs/versions.md and a summary to the README. The
control planes are first built into the cache, which takes some minutes for each version. A run with `--only` keeps the
results of the other suites from the same day. `--reports` runs nothing and takes the results of earlier runs, such as
`make test` with `--junitxml`. The exit code is 1 if anything failed.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

from respread_sandbox import Binaries
from respread_sandbox.binaries import VERSION_VARIABLE, kubernetes_versions
from tests.generated_parts import GeneratedParts

ROOT: Final = Path(__file__).parents[1]
PAGE: Final = ROOT / "docs" / "versions.md"
README: Final = ROOT / "README.md"
DATE: Final = "run on (UTC)"
DEMO: Final = "demo"
FAULTS: Final = "faults"
NOT_RUN: Final = "not run"
PARTS: Final = GeneratedParts("make test-versions")
_CELL: Final = re.compile(r"(\d+) of (\d+) passed")

Matrix = dict[str, dict[str, str]]
"""The results of each suite and their time, for each minor version."""
Passed = tuple[int, int]
"""The numbers of passed tests and of all tests."""


def suites() -> dict[str, Path | None]:
    """Return the folder of each suite by its name, which is that of a package. The demo has none."""
    integration = sorted(path for path in (ROOT / "tests" / "integration").iterdir() if any(path.glob("test_*.py")))
    return {path.name: path for path in (*integration, ROOT / "tests" / FAULTS)} | {DEMO: None}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the requested suites."""
    parser = _parser()
    asked = parser.parse_args(arguments)
    if asked.reports and len(asked.versions) != 1:
        parser.error("--reports needs the one version on which they were made: --versions 1.36")
    only: list[str] = asked.only or list(suites())
    matrix = read(PAGE.read_text(encoding="utf-8"))
    today = datetime.now(UTC).date().isoformat()
    failed = False
    for version in asked.versions:
        if asked.reports:
            found = results(asked.reports)
            given = {name: found[name] for name in only if name in found}
        else:
            given = _run(version, only)
        failed |= any(passed < run for passed, run in given.values())
        before = matrix.get(version, {})
        kept = before if (asked.only or asked.reports) and before.get(DATE) == today else {}
        cells = {name: f"{passed} of {run} passed" for name, (passed, run) in given.items()}
        matrix[version] = kept | cells | {DATE: today}
        if asked.print_only:
            continue
        for file, name, content in ((PAGE, "matrix", table(matrix)), (README, "versions", summary(matrix))):
            text = file.read_text(encoding="utf-8")
            file.write_text(PARTS.write(text, name, content), encoding="utf-8")
    sys.stdout.write(table(matrix))
    return 1 if failed else 0


def table(matrix: Mapping[str, Mapping[str, str]]) -> str:
    """Return the matrix, a row for each suite."""
    versions = kubernetes_versions()
    lines = [_row("Kubernetes", versions.values()), _row("---", ["---"] * len(versions))]
    for name in (DATE, *suites()):
        lines.append(_row(name, (matrix.get(version, {}).get(name, NOT_RUN) for version in versions)))
    return "".join(lines)


def summary(matrix: Mapping[str, Mapping[str, str]]) -> str:
    """Return a row for each version, with the sums over the packages' integration tests."""
    lines = [_row("Kubernetes", ("integration", FAULTS, DEMO, DATE)), _row("---", ["---"] * 4)]
    for version, patch in kubernetes_versions().items():
        cells = matrix.get(version, {})
        packages = [name for name, folder in suites().items() if folder and name != FAULTS]
        found = [_CELL.fullmatch(cells.get(name, "")) for name in packages]
        passed, run = (sum(int(each[group]) for each in found if each) for group in (1, 2))
        partly = "" if all(found) else f", in {sum(map(bool, found))} of {len(found)} folders"
        lines.append(
            _row(
                patch,
                (
                    f"{passed} of {run} passed{partly}" if run else NOT_RUN,
                    *(cells.get(name, NOT_RUN) for name in (FAULTS, DEMO, DATE)),
                ),
            )
        )
    return "".join(lines)


def read(page: str) -> Matrix:
    """Return the matrix on a page, without results of outdated patch versions."""
    minors = {patch: minor for minor, patch in kubernetes_versions().items()}
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in PARTS.read("matrix", page).splitlines()]
    if not rows:
        return {}
    (_, *versions), _, *lines = rows
    return {
        minors[version]: {name: cells[index] for name, *cells in lines if cells[index] != NOT_RUN}
        for index, version in enumerate(versions)
        if version in minors
    }


def results(reports: Iterable[Path]) -> dict[str, Passed]:
    """Return the results in JUnit files for each suite. If several files have a test, the last result counts."""
    last: dict[tuple[str, str], bool] = {}
    for report in reports:
        for case in ET.parse(report).iter("testcase"):  # noqa: S314  # our own pytest wrote it
            told = {child.tag for child in case}
            if "skipped" not in told:
                last[case.attrib["classname"], case.attrib["name"]] = not told & {"failure", "error"}
    run, passed = Counter[str](), Counter[str]()
    for (classname, _), well in last.items():
        package = classname.removeprefix("tests.").removeprefix("integration.").partition(".")[0]
        run[package] += 1
        passed[package] += well
    return {package: (passed[package], run[package]) for package in run}


def _run(version: str, only: Sequence[str]) -> dict[str, Passed]:
    """Run these suites on a version, which is built first if necessary."""
    environment = {**os.environ, VERSION_VARIABLE: version}
    Binaries.find_or_build(environment)
    known = suites()
    given = _tests(version, [folder for name in only if (folder := known[name])], environment)
    if DEMO in only:
        given[DEMO] = _demo(environment)
    return given


def _tests(version: str, folders: Sequence[Path], environment: Mapping[str, str]) -> dict[str, Passed]:
    """Run the tests on a control plane in these folders."""
    if not folders:
        return {}
    with tempfile.TemporaryDirectory() as directory:
        report = Path(directory) / "junit.xml"
        spread = ["-n", "auto", "--dist", "loadfile", "--no-loadscope-reorder"]
        options = ["-q", *spread, "-m", "controlplane and not long", f"--junitxml={report}"]
        command = [sys.executable, "-m", "pytest", *options, *map(str, folders)]
        sys.stderr.write(f"Kubernetes {version}: {' '.join(folder.name for folder in folders)}\n")
        subprocess.run(command, cwd=ROOT, env=environment, check=False)
        found = results([report])
    return {folder.name: found.get(folder.name, (0, 0)) for folder in folders}


def _demo(environment: Mapping[str, str]) -> Passed:
    done = subprocess.run([sys.executable, "-m", "respread_cli.main", "demo"], env=environment, check=False)
    return int(done.returncode == 0), 1


def _row(name: str, cells: Iterable[str]) -> str:
    return f"| {' | '.join([name, *cells])} |\n"


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--versions", nargs="*", choices=list(kubernetes_versions()), default=list(kubernetes_versions())
    )
    parser.add_argument("--print-only", action="store_true", help="Leave docs/versions.md and the README as they are.")
    parser.add_argument("--only", nargs="*", choices=list(suites()), default=[])
    parser.add_argument(
        "--reports", nargs="+", type=Path, default=[], help="JUnit files of earlier runs; runs nothing."
    )
    return parser


if __name__ == "__main__":
    sys.exit(main())
