"""Checks that the fast tests detect faults: changes the imported code, one fault after another.

    python -m tests.mutants [--only WORD] [--random NUMBER] [--seed SEED]

The faults are those of `faults.txt`, and as many as `--random` says that are drawn from the operators of the code in
the packages on which safety depends (`operators.py`). For each, the fast tests run that enter the changed function,
until one fails. Prints which test caught which fault, the faults that none caught, and the share of the drawn ones that
were caught by package. The exit code is 1 if a fault of `faults.txt` was not caught, or less than 95% of the others.
"""

from __future__ import annotations

import argparse
import random
from collections.abc import Sequence
from typing import Final, NamedTuple

from tests.mutants.change import Change
from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.faults import FAULTS
from tests.mutants.operators import drawn, package_of
from tests.mutants.trials import CODE, ROOT, Trials, trials

LEAST_SHARE: Final = 0.95


class Result(NamedTuple):
    """What became of a change."""

    change: Change
    by: str
    """The test that caught it."""
    why: str
    """Why none can."""


def main() -> int:
    """Try all faults, print a table, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--only", default="", metavar="WORD", help="faults that have it in their name or file")
    parser.add_argument("--random", default=100, type=int, metavar="NUMBER", help="faults to draw (%(default)s)")
    parser.add_argument("--only-random", action="store_true", help="leave those of faults.txt out")
    parser.add_argument("--seed", default=random.randrange(10**6), type=int, help="for those; by default another each")
    parser.add_argument("--seconds", default=60, type=float, help="the longest time of tests of a fault (%(default)s)")
    options = parser.parse_args()
    others = drawn(ROOT / CODE, options.random, options.seed, options.only)
    with trials(options.seconds) as tried:
        named = [] if options.only_random else [each for each in FAULTS if options.only in f"{each.file} {each.name}"]
        listed = [_try(tried, each.change(tried.code(each.file))) for each in named]
        results = [_try(tried, each) for each in others]
    missed = [each for each in listed if not each.by]
    print(f"\n{len(listed) - len(missed)} of {len(listed)} faults of faults.txt are caught.")
    print(f"Of those drawn with seed {options.seed}:")
    caught = _print_shares([each for each in results if not each.why])
    return 1 if missed or caught < LEAST_SHARE else 0


def _try(tried: Trials, change: Change) -> Result:
    code = tried.code(change.file)
    by = tried.caught_by(change)
    why = "" if by else EQUIVALENT.get((change.file, change.function(code), change.name), "")
    word = "caught" if by else "equal " if why else "MISSED"
    print(f"{word}  {change.file}:{change.line(code)}  {change.name}\n        {by or why}", flush=True)
    return Result(change, by, why)


def _print_shares(results: Sequence[Result]) -> float:
    """Print how many changes were caught by package, and return the share of all."""
    packages = [*dict.fromkeys(package_of(each.change.file) for each in results), ""]
    share = 1.0
    for package in packages:
        those = [each for each in results if package_of(each.change.file).startswith(package)]
        caught = [each for each in those if each.by]
        properties = sum(each.by.startswith("tests/properties") for each in caught)
        share = len(caught) / max(1, len(those))
        print(
            f"{package or 'all':20} {len(caught):4} of {len(those):4} caught ({share:.1%}), {properties} of these by "
            "properties"
        )
    return share


if __name__ == "__main__":
    raise SystemExit(main())
