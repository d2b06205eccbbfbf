"""From a snapshot and policies to a plan.

Groups that share pods form a component, and a component with a violated group that a policy restores is a task
(`task`). Tasks are solved one after the other on one view of the cluster (`solving`), and from their solutions come the
moves: those of the first turn may be made at once and all together (`wave`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

import msgspec

from respread.cluster.state import ClusterSnapshot
from respread.planning.budgets import BudgetLedger
from respread.planning.components import components_of
from respread.planning.describing import Place, moves_of
from respread.planning.held import Held
from respread.planning.placement import Placement
from respread.planning.plan import BlockedGroup, Move, Plan
from respread.planning.policies import PolicyIndex
from respread.planning.protection import Protection
from respread.planning.selection import Selection
from respread.planning.solving import Solution, Solver
from respread.planning.task import Task, Victims, in_motion, pods_of
from respread.planning.wave import Wave
from respread.spread.group import GroupKey, SpreadGroup
from respread.spread.index import Spread

OnHold: TypeAlias = Callable[[GroupKey, str], Held | None]
"""Given a violated group and the name of the policy that selects it, why it is left alone for now, such as that it
changed less than a quiet period ago; None if it is not."""


def never_on_hold(_key: GroupKey, _policy: str) -> None:
    """Hold no group."""


class PlanInput(msgspec.Struct, frozen=True, kw_only=True):
    """All that a plan depends on."""

    snapshot: ClusterSnapshot
    spread: Spread
    policies: PolicyIndex
    protections: Mapping[str, Protection]
    """By policy name; one that is missing here may not evict, being wrong somewhere."""
    placement: Placement
    budgets: BudgetLedger
    now: datetime
    on_hold: OnHold = never_on_hold
    idle: Collection[str] = ()
    """Policies in whose name nothing is done now: what is planned for them must not hold up the others."""
    wave_sizes: Mapping[str, int] = {}
    """By policy name, for how many moves there is room in the first turn."""
    search_limit: int = 4_000
    """How many steps to assess for one component before the best way found so far is taken."""


def plan(given: PlanInput) -> Plan:
    """Return the moves that restore the selected groups, and why some are not restored."""
    selection = Selection(given.policies, given.snapshot)
    selected = selection.selected(given.spread)
    tasks, blocked = _tasks(given, selection, selected)
    solver = Solver(given.placement, given.budgets.may_all_go, given.search_limit)
    solutions = solver.solve(tasks)
    wave = Wave(given.placement, given.budgets.fork(), given.wave_sizes)
    moves: list[Move] = []
    before: dict[GroupKey, Mapping[str, int]] = {}
    after: dict[GroupKey, Mapping[str, int]] = {}
    for number, solution in enumerate(solutions):
        moves.extend(_moves(number, solution, selection, wave))
        before.update(solution.counts_before)
        after.update(solution.counts_after)
        blocked.extend(_blocked(key, held, selected) for key, held in solution.stuck)
    return Plan(
        moves=tuple(sorted(moves, key=lambda move: (move.turn, move.component, move.step))),
        blocked=tuple(blocked),
        policies=selected,
        counts_before=before,
        counts_after=after,
        lower_bound=sum(solution.lower_bound for solution in solutions),
    )


def _tasks(
    given: PlanInput, selection: Selection, selected: Mapping[GroupKey, str]
) -> tuple[list[Task], list[BlockedGroup]]:
    """Return what is to be solved, and the violated groups that are left alone for now."""
    violated = {key for key in selected if given.spread.groups[key].violated}
    victims = Victims(selection, given.protections, given.budgets, given.now)
    tasks: list[Task] = []
    blocked: list[BlockedGroup] = []
    for component in _components_with(violated, given.spread):
        cure = sorted((group.key for group in component if group.key in violated), key=str)
        pods = pods_of(given.snapshot, component)
        reasons = (given.on_hold(key, selected[key]) for key in cure)
        held = next((reason for reason in reasons if reason is not None), None) or in_motion(pods)
        if held is None:
            tasks.append(victims.task(component, cure, pods))
        else:
            blocked.extend(_blocked(key, held, selected) for key in cure)
    tasks.sort(key=lambda task: selected[task.keys[0]] in given.idle)
    return tasks, blocked


def _components_with(keys: Iterable[GroupKey], spread: Spread) -> list[tuple[SpreadGroup, ...]]:
    """Return the components with any of the keys, the furthest from balanced first.

    Their order, and that of the groups in each, is the same in every process: so are the plans made from them.
    """
    wanted = frozenset(keys)
    components = [
        tuple(sorted(component, key=lambda group: str(group.key)))
        for namespace in {key.namespace for key in wanted}
        for component in components_of(spread.by_namespace[namespace].values())
        if any(group.key in wanted for group in component)
    ]

    def urgency(component: Sequence[SpreadGroup]) -> tuple[int, str]:
        violated = [group for group in component if group.key in wanted]
        return -max(group.excess for group in violated), str(violated[0].key)

    return sorted(components, key=urgency)


def _moves(number: int, solution: Solution, selection: Selection, wave: Wave) -> Iterable[Move]:
    """Yield a solution's moves; the view shows the cluster as it is."""
    board = solution.board
    start = board.mark()
    turn = 0
    for step, choice in enumerate(solution.way.choices):
        assessment = wave.join(board, choice, selection) if step == 0 else None
        turn = 0 if assessment is not None else turn + 1
        yield from moves_of(board, choice, assessment or choice.assessment, Place(number, step, turn), selection)
        board.play(choice.step, choice.outcome.placed)
    board.revert(start)


def _blocked(key: GroupKey, held: Held, selected: Mapping[GroupKey, str]) -> BlockedGroup:
    return BlockedGroup(group=key, policy=selected[key], reason=held.reason, message=held.message)
