"""bench/compare: Respread and the descheduler restore the spread of the same small clusters, and of a large one.

    python -m bench.compare [--worlds scale-down soft] [--only respread] [--print-only]

The small clusters (bench/compare/worlds.py) are set up one after another on one real control plane, in the same state
for both programs. The result is judged by the pods that the API server shows. The fewest evictions are found by trying
all final placements (bench/compare/spread.py). 6000-pods is bench/busy, with a control plane for each program.

The results of each world are written to docs/compare.md, beside those of the same day and versions. --print-only and
runs of one program do not change the page.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from bench.balancing import Outcome, Patience, watch
from bench.busy import measure
from bench.busy_world import World as BusyWorld
from bench.compare.page import PAGE, merged, read, report_of, row, table, written
from bench.compare.spread import fewest
from bench.compare.stage import Stage
from bench.compare.world import World
from bench.compare.worlds import WORLDS
from bench.peer import find_or_build
from bench.rows import tell
from bench.sides import FAST_LIMITS, HARD, HARD_AND_SOFT, SIDES, Side, running

BIG: Final = "6000-pods"
SMALL: Final = {world.name: world for world in WORLDS}
ABOUT: Final = {world.name: world.about for world in WORLDS} | {
    BIG: "400 Deployments on 300 nodes are scaled down from 15 to 5…9 pods at once (`make bench-busy`)."
}
LONGEST_SECONDS: Final = 25.0
LEAST_SECONDS: Final = 8.0


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the requested benches, and print a table."""
    asked = _parser().parse_args(arguments)
    sides = [SIDES[asked.only]] if asked.only else list(SIDES.values())
    if "descheduler" in sides:
        find_or_build()
    writes = len(sides) == len(SIDES) and not asked.print_only
    report = report_of({})
    for name, outcomes in compare(asked.worlds, sides, asked.longest):
        report = merged(report, report_of({name: outcomes}))
        if writes:
            page = PAGE.read_text(encoding="utf-8")
            PAGE.write_text(written(page, merged(read(page), report), ABOUT), encoding="utf-8")
    sys.stdout.write(table(report, report.results))
    return 0


def compare(names: Sequence[str], sides: Sequence[Side], longest_seconds: float) -> Iterator[tuple[str, list[Outcome]]]:
    """Yield the outcome of each side in each world, with the world's name.

    Args:
        names: the names of the worlds.
        sides: the programs.
        longest_seconds: the maximum time of a program in a small world.
    """
    patience = Patience(longest_seconds, least_seconds=LEAST_SECONDS)
    worlds = [SMALL[name] for name in names if name != BIG]
    if worlds:
        with Stage.started() as stage, tempfile.TemporaryDirectory(prefix="bench-compare-") as directory:
            for world in worlds:
                yield world.name, [run(stage, world, side, patience, Path(directory)) for side in sides]
    if BIG in names:
        yield BIG, [measure(side, BusyWorld()).outcome for side in sides]


def run(stage: Stage, world: World, side: Side, patience: Patience, directory: Path) -> Outcome:
    """Set up a world, let one side restore the spread, and return the outcome.

    Args:
        stage: the control plane.
        world: the world.
        side: the program.
        patience: how long the program is watched.
        directory: for its log and its configuration.
    """
    best = fewest(world)
    restored = HARD_AND_SOFT if world.soft else HARD
    with (
        stage.set_up(world) as judge,
        running(side, stage.sandbox, directory, limits=FAST_LIMITS, constraints=restored) as process,
    ):
        outcome = watch(side, process, judge, patience, tell, fewest=best.evictions, least_violated=best.violated)
    tell(row(world.name, outcome).rstrip())
    return outcome


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", nargs="+", choices=list(ABOUT), default=list(ABOUT))
    parser.add_argument("--only", choices=tuple(SIDES), help="one program alone")
    parser.add_argument("--longest", type=float, default=LONGEST_SECONDS, help="seconds until a program is given up on")
    parser.add_argument("--print-only", action="store_true", help="leave docs/compare.md as it is")
    return parser


if __name__ == "__main__":
    sys.exit(main())
