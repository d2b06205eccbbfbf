"""Checks that the fast tests detect faults: puts faults into a copy of the code, one after another.

    python -m tests.mutants [--only WORD] [--random NUMBER] [--seed SEED] [--tests TEST …] [--with-control-plane]

The faults are those of `faults.py`, and as many as `--random` says that are drawn from the operators of the code in the
packages on which safety depends (`operators.py`). For each, the fast tests run that enter the changed function, until
one fails. Prints which test caught which fault, the faults that none caught, and the share of the drawn ones that were
caught by package. The exit code is 1 if a fault of `faults.py` was not caught, or less than 95% of the others.
"""

from __future__ import annotations

import argparse
import random
from collections import Counter
from collections.abc import Iterable
from typing import Final

from tests.mutants.change import Change
from tests.mutants.equivalent import EQUIVALENT
from tests.mutants.faults import FAULTS
from tests.mutants.operators import drawn, package_of
from tests.mutants.trials import CODE, ROOT, Trials, trials

LEAST_SHARE: Final = 0.95


def main() -> int:
    """Try all faults, print a table, and return the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    parser.add_argument("--only", default="", metavar="WORD", help="faults that have it in their name or file")
    parser.add_argument("--random", default=100, type=int, metavar="NUMBER", help="faults to draw (%(default)s)")
    parser.add_argument("--only-random", action="store_true", help="leave those of faults.py out")
    parser.add_argument("--seed", default=random.randrange(10**6), type=int, help="for those; by default another each")
    parser.add_argument("--tests", nargs="+", default=[], metavar="TEST", help="try these tests alone")
    parser.add_argument("--with-control-plane", action="store_true", help="then run tests on the control plane, too")
    options = parser.parse_args()
    with trials(options.tests) as tried:
        named = [] if options.only_random else [each for each in FAULTS if options.only in f"{each.file} {each.name}"]
        listed = [each.change(tried.code(each.file)) for each in named]
        others = drawn(ROOT / CODE, options.random, options.seed, options.only)
        missed = _try(tried, listed, with_control_plane=options.with_control_plane)
        survived = _try(tried, others, with_control_plane=options.with_control_plane)
    print(f"\n{len(listed) - len(missed)} of {len(listed)} faults of faults.py are caught.")
    print(f"Drawn with seed {options.seed}:")
    lived = Counter(package_of(each.file) for each in survived)
    for package, number in Counter(package_of(each.file) for each in others).items():
        print(f"{package:24} {number - lived[package]:4} of {number:4}")
    caught = 1 - len(survived) / max(1, len(others))
    print(f"{'all':24} {len(others) - len(survived):4} of {len(others):4}, {caught:.1%}")
    return 1 if missed or caught < LEAST_SHARE else 0


def _try(tried: Trials, changes: Iterable[Change], *, with_control_plane: bool) -> list[Change]:
    """Return the changes that no test catches, except for those that change no behavior."""
    survived: list[Change] = []
    for change in changes:
        by = tried.caught_by(change, with_control_plane=with_control_plane)
        code = tried.code(change.file)
        why = EQUIVALENT.get((change.file, change.function(code), change.name), "")
        word = "caught" if by else "equal " if why else "MISSED"
        print(f"{word}  {change.file}:{change.line(code)}  {change.name}\n        {by or why}", flush=True)
        if not by and not why:
            survived.append(change)
    return survived


if __name__ == "__main__":
    raise SystemExit(main())
