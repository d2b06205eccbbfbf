"""The lower bound for larger clusters: a final placement with the fewest moved pods, whatever the order of moves.

An exact mixed-integer program, solved by HiGHS. No sequence of safe steps that restores all groups can have fewer
evictions, because it ends in such a state.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

import highspy
import numpy as np

from tests.properties.planning.scheduler_model import Kind, Position, SchedulerModel


class Bound(NamedTuple):
    """A final placement with every selected group within maxSkew, and no other with more excess than at the start."""

    evictions: int
    evicted: tuple[Kind, ...]
    """The shape and host of each evicted pod."""
    placed: tuple[Kind, ...]
    """The shape and host of each replacement."""


def bound_of(model: SchedulerModel) -> Bound | None:
    """Return a final placement with the fewest evictions, or None if there is none."""
    program = _Program()
    ends = _Ends(model, program)
    to_restore = model.to_restore(model.start())
    for at in range(len(model.groups)):
        over = [(excess, 1.0) for excess in ends.excesses(at, None if at not in to_restore else 0)]
        program.row(over, None, model.excess(model.groups[at], model.start()))
    values = program.solve()
    if values is None:
        return None
    evicted = tuple(kind for kind, column in ends.leaving.items() for _ in range(round(values[column])))
    placed = tuple(kind for kind, column in ends.coming.items() for _ in range(round(values[column])))
    return Bound(len(evicted), evicted, placed)


def fewest_violated(model: SchedulerModel, ranks: Mapping[int, int], ranks_in_all: int) -> tuple[int, ...]:
    """Return the minimum number of groups that stay violated for each rank: first the fewest of rank 0, then of rank 1.

    No sequence of safe steps can leave fewer. It ends in a state in which all pods have room and no group has more
    excess than at the start.

    Args:
        model: the cluster.
        ranks: the ranks of the groups to restore. Rank 0 is the most important one.
        ranks_in_all: the number of ranks.
    """
    start = model.start()
    program = _Program(eviction_cost=0)
    ends = _Ends(model, program)
    violated = {}
    for at, group in enumerate(model.groups):
        before = model.excess(group, start)
        over = [(excess, 1.0) for excess in ends.excesses(at, None)]
        if at in ranks:
            weight = (len(model.groups) + 1) ** (ranks_in_all - 1 - ranks[at])
            violated[at] = program.variable(0, 1, cost=weight, integer=True)
            program.row([*over, (violated[at], -before)], None, 0)
        else:
            program.row(over, None, before)
    values = program.solve()
    assert values is not None, "to evict nothing is an end"
    return tuple(
        sum(round(values[column]) for at, column in violated.items() if ranks[at] == rank)
        for rank in range(ranks_in_all)
    )


class _Ends:
    """The possible final placements, as rows of a program: each replacement is on a node with room."""

    def __init__(self, model: SchedulerModel, program: _Program) -> None:
        self._model, self._program, self._start = model, program, model.start()
        hosts, shapes = range(len(model.world.hosts)), range(len(model.world.shapes))
        self.leaving = {
            (shape, host): program.variable(
                0, self._start.movable[shape][host], cost=program.eviction_cost, integer=True
            )
            for shape in shapes
            for host in hosts
        }
        self.coming = {
            (shape, host): program.variable(0, None if model.allows(shape, host) else 0, integer=True)
            for shape in shapes
            for host in hosts
        }
        for shape in shapes:
            out = [(self.leaving[shape, h], 1) for h in hosts] + [(self.coming[shape, h], -1) for h in hosts]
            program.row(out, 0, 0)
        for host in hosts:
            sizes = [model.world.shapes[shape].size for shape in shapes]
            net = [(self.coming[shape, host], sizes[shape]) for shape in shapes]
            net += [(self.leaving[shape, host], -sizes[shape]) for shape in shapes]
            program.row(net, None, model.free(host, self._start, []))

    def excesses(self, at: int, most: float | None) -> list[int]:
        """Return a variable for each domain of a group: at least its excess pods, and at most `most`."""
        model, program, group = self._model, self._program, self._model.groups[at]
        counts = model.counts(group, self._start)
        minimum = program.variable(0, 0 if group.at_least_zero else None)
        columns = []
        for domain in sorted(counts):
            inside = [kind for kind in self.leaving if group.counts[kind[0]] and group.domain_of[kind[1]] == domain]
            net = [(self.coming[kind], 1) for kind in inside] + [(self.leaving[kind], -1) for kind in inside]
            if not group.at_least_zero:
                program.row([*net, (minimum, -1)], -counts[domain], None)
            columns.append(program.variable(0, most))
            program.row([*net, (minimum, -1), (columns[-1], -1)], None, group.max_skew - counts[domain])
        return columns


def order_of(model: SchedulerModel, bound: Bound) -> list[tuple[Kind, ...]] | None:
    """Return safe steps with the bound's moves that lead to its placement; None if there are none."""
    dead: set[Position] = set()

    def search(
        position: Position, evicted: tuple[Kind, ...], placed: tuple[Kind, ...]
    ) -> list[tuple[Kind, ...]] | None:
        if not evicted:
            return []
        if position in dead:
            return None
        for step, outcomes in model.safe_steps(position, kinds=evicted):
            rest = _without(evicted, step)
            if rest is None:
                continue
            for after in outcomes:
                left = _without(placed, model.placed(position, after))
                if left is not None and (order := search(after, rest, left)) is not None:
                    return [step, *order]
        dead.add(position)
        return None

    return search(model.start(), bound.evicted, bound.placed)


def _without(items: tuple[Kind, ...], gone: Iterable[Kind]) -> tuple[Kind, ...] | None:
    left = list(items)
    for item in gone:
        if item not in left:
            return None
        left.remove(item)
    return tuple(left)


class _Program:
    """A mixed-integer program, built row by row."""

    def __init__(self, eviction_cost: float = 1) -> None:
        self.eviction_cost = eviction_cost
        self._cost: list[float] = []
        self._lower: list[float] = []
        self._upper: list[float] = []
        self._integer: list[bool] = []
        self._rows: list[tuple[Sequence[tuple[int, float]], float, float]] = []

    def variable(self, least: float, most: float | None, *, cost: float = 0, integer: bool = False) -> int:
        self._cost.append(cost)
        self._lower.append(least)
        self._upper.append(highspy.kHighsInf if most is None else most)
        self._integer.append(integer)
        return len(self._cost) - 1

    def row(self, terms: Sequence[tuple[int, float]], least: float | None, most: float | None) -> None:
        lower = -highspy.kHighsInf if least is None else least
        upper = highspy.kHighsInf if most is None else most
        self._rows.append((terms, lower, upper))

    def solve(self) -> list[float] | None:
        """Return the values of an optimal solution, or None if there is no solution."""
        lp = highspy.HighsLp()
        lp.num_col_ = len(self._cost)
        lp.num_row_ = len(self._rows)
        lp.col_cost_ = np.array(self._cost)
        lp.col_lower_ = np.array(self._lower)
        lp.col_upper_ = np.array(self._upper)
        lp.row_lower_ = np.array([lower for _, lower, _ in self._rows])
        lp.row_upper_ = np.array([upper for _, _, upper in self._rows])
        lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
        lp.a_matrix_.start_ = np.cumsum([0, *(len(terms) for terms, _, _ in self._rows)])
        lp.a_matrix_.index_ = np.array([column for terms, _, _ in self._rows for column, _ in terms])
        lp.a_matrix_.value_ = np.array([float(value) for terms, _, _ in self._rows for _, value in terms])
        lp.integrality_ = [
            highspy.HighsVarType.kInteger if integer else highspy.HighsVarType.kContinuous for integer in self._integer
        ]
        solver = highspy.Highs()  # type: ignore[no-untyped-call]  # highspy has no annotations there
        solver.setOptionValue("output_flag", False)
        solver.setOptionValue("threads", 1)
        solver.setOptionValue("mip_rel_gap", 0.0)
        solver.setOptionValue("presolve", "off")  # the presolve of HiGHS 1.15.1 loses the best end of scarce world 408
        solver.passModel(lp)
        solver.run()
        status = solver.getModelStatus()
        if status == highspy.HighsModelStatus.kInfeasible:
            return None
        if status != highspy.HighsModelStatus.kOptimal:
            raise RuntimeError(f"HiGHS ended with {solver.modelStatusToString(status)}")
        return list(solver.getSolution().col_value)
