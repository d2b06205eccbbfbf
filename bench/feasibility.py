"""bench/feasibility: the cost of predicting where pods may be placed, by the number of nodes.

As in a plan, all predictions use one view. Each node has 30 pods, and there is one workload for every 30 pods. Times
are CPU time of this process, with the median for repeated operations.
"""

from __future__ import annotations

import argparse
import gc
import random
import sys
from collections.abc import Callable
from functools import partial
from statistics import median
from time import process_time
from typing import Final, NamedTuple, TypeVar

import msgspec

from bench.feasibility_world import World, world
from respread.cluster.pod import Pod
from respread.scheduling.predictor import Predictor
from respread.scheduling.view.cluster_view import ClusterView

_T = TypeVar("_T")

SIZES: Final = (500, 5_000, 15_000)
MANY: Final = 1_000
TARGET_SIZE: Final = 5_000


class Measure(NamedTuple):
    """One row: a figure for each size."""

    what: str
    unit: str
    target: float | None = None
    """The target for 5,000 nodes."""


MEASURES: Final = {
    "build": Measure("view of a whole snapshot", "ms"),
    "advance": Measure("view after one pod's change", "ms", 50),
    "cold": Measure("all feasible nodes, pod never seen", "ms", 2),
    "warm": Measure("all feasible nodes, asked again", "ms", 2),
    "many": Measure("all feasible nodes of 1,000 distinct pods", "ms", 1_000),
    "scores": Measure("spread scores of all feasible nodes", "ms"),
    "explain": Measure("every rule that rejects one node", "µs"),
    "step": Measure("evict, remove, place, and take back", "µs"),
}


def measure(nodes: int) -> dict[str, float]:
    """Return the figures for one size."""
    filled = world(nodes)
    snapshot = filled.state.snapshot
    gc.collect()
    gc.freeze()
    view, build = _timed(partial(ClusterView, snapshot))
    predictor = Predictor(view)
    return {
        "build": build * 1e3,
        "advance": _advance(filled, view) * 1e3,
        "cold": _cold(filled, predictor) * 1e3,
        "warm": _warm(filled, predictor) * 1e3,
        "many": _many(filled) * 1e3,
        "scores": _scores(filled, predictor) * 1e3,
        **{what: figure * 1e6 for what, figure in _single(predictor).items()},
    }


def _timed(what: Callable[[], _T]) -> tuple[_T, float]:
    start = process_time()
    result = what()
    return result, process_time() - start


def _advance(filled: World, view: ClusterView) -> float:
    """Make one pod at a time not ready, and update the view."""
    times = []
    for pod in random.Random(2).sample(list(filled.state.snapshot.pods.values()), 20):
        filled.state.apply("pods", [(pod.key, msgspec.structs.replace(pod, ready=False))])
        times.append(_timed(partial(view.advance, filled.state.snapshot))[1])
    return median(times)


def _cold(filled: World, predictor: Predictor) -> float:
    workloads = random.Random(3).sample(filled.workloads, min(MANY, len(filled.workloads)))
    return median(_timed(partial(_ask, predictor, each.replacement))[1] for each in workloads)


def _warm(filled: World, predictor: Predictor) -> float:
    return median(_timed(partial(_ask, predictor, each.replacement))[1] for each in filled.workloads[:MANY])


def _ask(predictor: Predictor, pod: Pod) -> list[str]:
    return predictor.prepare(pod).feasible_nodes()


def _many(filled: World) -> float:
    predictor = Predictor(ClusterView(filled.state.snapshot))
    pods = _distinct(filled)

    def ask() -> None:
        for pod in pods:
            _ask(predictor, pod)

    return _timed(ask)[1]


def _distinct(filled: World) -> list[Pod]:
    """Return 1,000 pods of different templates, with copies if there are fewer."""
    pods = [each.replacement for each in filled.workloads[:MANY]]
    while len(pods) < MANY:
        more = [msgspec.structs.replace(pod, spec=msgspec.structs.replace(pod.spec)) for pod in pods]
        pods.extend(more[: MANY - len(pods)])
    return pods


def _scores(filled: World, predictor: Predictor) -> float:
    times = []
    for workload in filled.workloads:
        prepared = predictor.prepare(workload.replacement)
        if prepared.constraints.soft and (nodes := prepared.admitted()):
            times.append(_timed(partial(prepared.scores, nodes))[1])
        if len(times) == 50:  # noqa: PLR2004 - enough for a median
            break
    return median(times)


def _single(predictor: Predictor) -> dict[str, float]:
    rng, view = random.Random(4), predictor.view
    names = [name for name in view.table.names if name]
    pods = rng.sample(list(view.snapshot.pods.values()), MANY)
    questions = [
        (predictor.prepare(_replacement(pod)), pod, names[rng.randrange(len(names))], names[rng.randrange(len(names))])
        for pod in pods
    ]

    def explain() -> None:
        for prepared, _, node, _ in questions:
            prepared.rejections(node)

    def step() -> None:
        for _, pod, node, _ in questions:
            mark = view.mark()
            view.evict(pod)
            view.remove(pod)
            view.place(pod, node)
            view.revert(mark)

    return {what.__name__: _timed(what)[1] / len(questions) for what in (explain, step)}


def _replacement(pod: Pod) -> Pod:
    return msgspec.structs.replace(pod, name="", uid="", node_name="", controller=None)


def main() -> int:
    """Measure, print the table, and return 1 if a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nodes", type=int, nargs="+", default=SIZES, help="the numbers of nodes")
    sizes = parser.parse_args().nodes
    figures = {size: measure(size) for size in sizes}
    print(f"{'nodes':<44}" + "".join(f"{size:>12,}" for size in sizes) + "    target at 5,000")
    print(f"{'pods':<44}" + "".join(f"{size * 30:>12,}" for size in sizes))
    missed = False
    for key, row in MEASURES.items():
        cells = "".join(f"{figures[size][key]:>9,.2f} {row.unit}" for size in sizes)
        goal = ""
        if row.target is not None and TARGET_SIZE in figures:
            met = figures[TARGET_SIZE][key] <= row.target
            missed = missed or not met
            goal = f"    ≤ {row.target:,g} {row.unit} {'ok' if met else 'MISSED'}"
        print(f"{row.what:<44}{cells}{goal}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
