"""How often each part of planning decides anything.

    python -m bench.deciding [--worlds 100] [--only loops scarce tight]

Plans are made and carried out in the clusters of bench.evictions ("loops"), in clusters with too little room for all
("scarce"), and in those of the tight loop, with other pods that come and go, priorities and slow terminations
("tight"). For each part it counts how often it was asked, and how often it improved what those before it had found. A
part that never decides anything, and is promised to nobody, can go (docs/decisions/measured-search.md).
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

from hypothesis import assume

from respread.planning import solution, solving
from respread.planning.planner import Planner
from respread.planning.search import search
from respread.planning.search.search import Beam
from tests.plans import plan_cluster
from tests.properties.instances import try_on
from tests.properties.planning import closed_loop, tight_loop
from tests.properties.planning.mixed_worlds import mixed_world
from tests.properties.planning.scarce_worlds import scarce_world
from tests.properties.planning.scheduler_model import SchedulerModel
from tests.properties.planning.small_worlds import NOW, SMALL, TINY, World, snapshot_of, worlds
from tests.properties.planning.tight_worlds import tight_world

SEED: Final = 7
WHAT: Final = ("groups of more important policies", "groups", "excess", "evictions")


class Counts:
    """How often parts were asked, and decided."""

    def __init__(self) -> None:
        self.asked = Counter[str]()
        self.decided = Counter[str]()
        self.gain = Counter[tuple[str, str]]()
        """Groups cured, else excess, else evictions: what each part gained first."""

    def note(self, name: str, *, decided: bool) -> None:
        """Note that a part was asked."""
        self.asked[name] += 1
        self.decided[name] += decided

    def compare(self, name: str, before: Any, after: Any) -> None:
        """Note whether a cost became less, and in what."""
        self.note(name, decided=after < before)
        if after < before:
            groups, excess, evictions = sum(before[0]) - sum(after[0]), before[1] - after[1], before[2] - after[2]
            gains = (("groups", groups), ("excess", excess), ("evictions", evictions))
            what, number = next((each for each in gains if each[1] > 0), ("groups of more important policies", 1))
            self.gain[name, what] += number


@contextmanager
def counting(counts: Counts) -> Iterator[None]:
    """Count what planning does in this process."""
    with ExitStack() as stack:

        def replace(owner: Any, name: str, by: Callable[[Any], Any]) -> None:
            stack.enter_context(patch.object(owner, name, by(getattr(owner, name))))

        replace(search, "_greedy", lambda real: _greedy(real, counts))
        replace(search, "beam_path", lambda real: _beam(real, counts))
        replace(search, "_exhaustive", lambda real: _exhaustive(real, counts))
        replace(solution.Finder, "find", lambda real: _find(real, counts))
        replace(solving.Solver, "_beside", lambda real: _beside(real, counts))
        replace(solving.Solver, "_in_turn", lambda real: _in_turn(real, counts))
        replace(Planner, "plan", lambda real: _plan(real, counts))
        yield


def _greedy(real: Any, counts: Counts) -> Any:
    def greedy(board: Any, options: Any) -> Any:
        path = real(board, options)
        counts.note("greedy steps (they suffice)", decided=path.cost <= board.reach())
        return path

    return greedy


def _beam(real: Any, counts: Counts) -> Any:
    def beam_path(board: Any, options: Any, beam: Beam, best: Any) -> Any:
        found = real(board, options, beam, best)
        counts.compare(f"beam {beam.width}{', several pods a step' * beam.jointly}", best.cost, found.cost)
        return found

    return beam_path


def _exhaustive(real: Any, counts: Counts) -> Any:
    def exhaustive(board: Any, options: Any, best: Any) -> Any:
        found = real(board, options, best)
        counts.compare("exhaustive search", best.cost, found.cost)
        counts.note("exhaustive search: ends within the budget", decided=not options.rules.search_budget.exhausted)
        return found

    return exhaustive


def _find(real: Any, counts: Counts) -> Any:
    def find(self: Any, *arguments: Any) -> Any:
        found = real(self, *arguments)
        if found.steps:
            counts.note("a step of several pods in a solution", decided=any(len(step) > 1 for step in found.steps))
            counts.note("several first steps at once", decided=len(found.together) > 1)
        return found

    return find


def _beside(real: Any, counts: Counts) -> Any:
    def beside(self: Any, tasks: Any, others: Any, known: Any = None) -> Any:
        found = real(self, tasks, others, known)
        if known is not None:
            counts.compare("rivals solved together", known, found.cost)
        return found

    return beside


def _in_turn(real: Any, counts: Counts) -> Any:
    def in_turn(self: Any, alone: Any) -> Any:
        ways: list[Any] = []
        one_after_another = self._one_after_another

        def recorded(*arguments: Any) -> Any:
            ways.append(one_after_another(*arguments))
            return ways[-1]

        with patch.object(solving.Solver, "_one_after_another", lambda _self, *arguments: recorded(*arguments)):
            found = real(self, alone)
        counts.note("solved again beside others", decided=any(a is not b for a, b in zip(alone, found, strict=False)))
        if len(ways) > 1:
            counts.note("those first that others left behind", decided=found is ways[1][0])
        return found

    return in_turn


def _plan(real: Any, counts: Counts) -> Any:
    def plan(self: Any, *arguments: Any, **keywords: Any) -> Any:
        planned = real(self, *arguments, **keywords)
        if planned.moves:
            reasons = [move.waits.message for move in planned.moves if move.waits is not None]
            counts.note("a plan with moves", decided=True)
            counts.note("preemption holds a move", decided=any("may delete pods" in each for each in reasons))
            counts.note("a move waits for others", decided=bool(reasons))
        return planned

    return plan


def _loops(number: int) -> None:
    for size, share in ((TINY, 1.0), (SMALL, 0.4)):
        for choice in ("random", "score", "adversarial"):

            def carry_out(world: World, choice: Any = choice) -> None:
                model = SchedulerModel(world)
                assume(model.to_restore(model.start()))
                closed_loop.run(world, choice, seed=SEED)

            try_on(worlds(size), max(1, int(number * share)), SEED, carry_out)


def _scarce(number: int) -> None:
    for draw in (scarce_world, mixed_world):
        for seed in range(number):
            scarce = draw(seed)
            plan_cluster(snapshot_of(scarce.world), scarce.policies, now=NOW)


def _tight(number: int) -> None:
    for seed in range(max(1, number // 5)):
        tight_loop.run(tight_world(seed), seed)


WORLDS: Final[dict[str, Callable[[int], None]]] = {"loops": _loops, "scarce": _scarce, "tight": _tight}


def main() -> int:
    """Print a table for each kind of clusters."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--worlds", type=int, default=100, help="clusters of each kind; a fifth as many tight ones")
    parser.add_argument("--only", nargs="+", choices=tuple(WORLDS), default=tuple(WORLDS))
    arguments = parser.parse_args()
    for name in arguments.only:
        counts = Counts()
        with counting(counts):
            WORLDS[name](arguments.worlds)
        print(f"\n{name}\n" + "\n".join(_rows(counts)), flush=True)
    return 0


def _rows(counts: Counts) -> Iterable[str]:
    yield "| part | asked | decided | gained |\n|---|---|---|---|"
    for name in sorted(counts.asked):
        gains = ((number, what) for what in WHAT if (number := counts.gain[name, what]))
        gained = ", ".join(f"{number} {what}" for number, what in gains)
        yield f"| {name} | {counts.asked[name]:,} | {counts.decided[name]:,} | {gained} |"


if __name__ == "__main__":
    sys.exit(main())
