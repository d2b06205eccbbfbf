"""Judge conformance data: `python -m tests.conformance FOLDER`, or the file of one family.

Prints a line for each family, the first differences of each, and `N passed, N failed` at the end. The exit code is 1
if a case differs or can't be read, and 2 if there is no case.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.conformance.cases import NoCasesError, families_of
from tests.conformance.families import DATA_VERSION, run_family

SHOWN_DIFFERENCES = 10


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("folder", type=Path, help="folder with files <family>.jsonl.gz, or one of these")
    parser.add_argument("--differences", type=int, default=SHOWN_DIFFERENCES, help="how many to show of each family")
    parser.add_argument(
        "--kubernetes-version", default=DATA_VERSION, help="of the scheduler that answered (%(default)s)"
    )
    arguments = parser.parse_args()
    try:
        families = families_of(arguments.folder)
    except NoCasesError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    width = max(map(len, families))
    passed = failed = 0
    for name, path in families.items():
        result = run_family(name, path, arguments.kubernetes_version)
        right = result.verdicts - result.wrong_verdicts
        _say(
            f"{name:{width}}  {result.cases:5} cases, {result.failed_cases:4} failed;"
            f"  {right:6} verdicts right, {result.wrong_verdicts:5} wrong"
        )
        for difference in result.differences[: arguments.differences]:
            _say(f"    {difference}")
        if len(result.differences) > arguments.differences:
            _say(f"    and {len(result.differences) - arguments.differences} more differences")
        passed += result.cases - result.failed_cases
        failed += result.failed_cases
    _say(f"{passed} passed, {failed} failed")
    return 1 if failed else 0


def _say(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main())
