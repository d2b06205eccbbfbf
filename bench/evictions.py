"""The number of evictions until every constraint holds, compared with the fewest possible.

    python -m bench.evictions [--tiny 400] [--small 150]

In random clusters (`tests/properties/planning/small_worlds`), plans are made and carried out until no move is planned.
The scheduler chooses any feasible node, or one with the best PodTopologySpread score, or of these the worst one for the
plan. The fewest evictions are those of an exact mixed-integer program, which ignores the order of moves and chooses the
nodes of replacements. Clusters that it can't restore, and clusters with soft constraints to restore, are not compared.
`violated` counts the clusters that it can restore and that safe steps did not. The exit code is 1 if a loop does not
end, a pod is left without a node, or a DoNotSchedule constraint gets worse.
"""

from __future__ import annotations

import argparse
import sys
from typing import Final, NamedTuple

from hypothesis import assume

from tests.properties.instances import try_on
from tests.properties.planning.bound import bound_of
from tests.properties.planning.closed_loop import EndlessError, PendingError, SchedulerChoice, WorseError, run
from tests.properties.planning.scheduler_model import SchedulerModel
from tests.properties.planning.small_worlds import SMALL, TINY, Size, World, worlds

CHOICES: Final[tuple[SchedulerChoice, ...]] = ("random", "score", "adversarial")
SEED: Final = 7


class Row(NamedTuple):
    """The results for the clusters of one size with one scheduler."""

    clusters: int
    compared: int
    evictions: int
    fewest: int
    most_extra: int
    most_rounds: int
    violated: int

    def __str__(self) -> str:
        ratio = self.evictions / self.fewest if self.fewest else 1.0
        return (
            f"{self.clusters:>8,} {self.compared:>8,} {self.evictions:>9,} {self.fewest:>7,} {ratio:>6.3f} "
            f"{self.most_extra:>10} {self.most_rounds:>11} {self.violated:>8}"
        )


def main() -> int:
    """Print a row for each size and scheduler."""
    arguments = _arguments()
    print(f"{'':<18} clusters compared evictions  fewest  ratio most extra most rounds violated")
    for name, size, number in (("tiny", TINY, arguments.tiny), ("small", SMALL, arguments.small)):
        for choice in CHOICES:
            try:
                print(f"{name:<6} {choice:<11} {_measure(size, choice, number)}", flush=True)
            except (EndlessError, PendingError, WorseError) as error:
                print(f"{name:<6} {choice:<11} {type(error).__name__}: {error}", file=sys.stderr)
                return 1
    return 0


def _measure(size: Size, choice: SchedulerChoice, number: int) -> Row:
    rows: list[Row] = []

    def carry_out(world: World) -> None:
        model = SchedulerModel(world)
        assume(model.to_restore(model.start()))
        ended = run(world, choice, seed=SEED)
        bound = None if world.restores_soft else bound_of(model)
        if bound is None or ended.excess:
            rows.append(Row(1, 0, 0, 0, 0, ended.rounds, int(bound is not None)))
        else:
            extra = ended.evictions - bound.evictions
            rows.append(Row(1, 1, ended.evictions, bound.evictions, extra, ended.rounds, 0))

    try_on(worlds(size), number, SEED, carry_out)
    return Row(
        clusters=len(rows),
        compared=sum(row.compared for row in rows),
        evictions=sum(row.evictions for row in rows),
        fewest=sum(row.fewest for row in rows),
        most_extra=max(row.most_extra for row in rows),
        most_rounds=max(row.most_rounds for row in rows),
        violated=sum(row.violated for row in rows),
    )


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tiny", type=int, default=400, help="clusters of up to 9 pods")
    parser.add_argument("--small", type=int, default=150, help="clusters of up to 30 pods")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
