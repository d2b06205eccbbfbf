"""The best path found for a component, or for several that compete for room, with everything that the plan needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, islice, takewhile
from typing import Final, NamedTuple

from immutables import Map

from respread.api.reasons import Held, Reason
from respread.cluster.pod import Pod
from respread.planning.explaining import moves_of, why_blocked
from respread.planning.leaving_nodes import LeavingNodes
from respread.planning.placement import Placement
from respread.planning.plan import Move, in_turns
from respread.planning.room.book import Claim, Taken
from respread.planning.room.demand import Demand
from respread.planning.search.board import Ample, Board, Cost, Potential, SearchBudget, Spot
from respread.planning.search.board_builder import set_up
from respread.planning.search.safety import assess, feasible_nodes, landings_of
from respread.planning.search.search import Path, SearchRules, best_path
from respread.planning.search.together import places_together
from respread.planning.tasks import Task
from respread.planning.victims.protection import VictimOrder, victim_order
from respread.planning.victims.selection import Selection
from respread.scheduling.prepared_pod import PreparedPod
from respread.scheduling.view.free_resources import POD_SLOTS, FreeResources
from respread.scheduling.view.node_table import NodeSet, node_set, union
from respread.spread.group import GroupKey

_MOST_COURSES: Final = 1_000
"""How many courses of a first step are examined."""
_NOT_EXPECTED: Final = Held(
    Reason.IN_MOTION, "the replacement of an earlier move finds no node now: it is left alone until it has one"
)
_MOST_LATER: Final = 16
"""For so many moves after the first step room is kept while that is made."""


class OpenNodes(NamedTuple):
    """Which nodes accepted a replacement when a solution was found, not considering the spread itself."""

    replacement: PreparedPod
    nodes: NodeSet

    sample: Pod
    """A pod that it replaces."""

    @property
    def unchanged(self) -> bool:
        """Whether they are still the same."""
        return self.replacement.admitted(spread=False) == self.nodes


class Solution(NamedTuple):
    """The best path for some tasks, usually one."""

    number: int
    """It tells its moves and replacements from those of others: their component."""
    tasks: tuple[Task, ...]
    steps: tuple[tuple[Move, ...], ...]
    """Its moves. Moves of one step are together; step n has wave n."""
    claim: Claim
    """The room that it uses."""
    before: Cost
    """What there is without it."""
    cost: Cost
    """What it leaves, and its evictions."""
    lower_bound: int
    """No path that leaves as little has fewer evictions."""
    proven: bool
    """Whether it is proven to be the best."""
    finished: bool
    """Whether the search for it was allowed to run as long as a search may."""
    ideal: bool
    """Whether nothing better would exist even if other pods left their room."""
    open_nodes: tuple[OpenNodes, ...]
    touched: NodeSet
    """The nodes whose room made a difference to the search."""
    landing: NodeSet
    """The nodes that its replacements may land on."""
    vacated: NodeSet
    """The nodes that its pods may leave."""
    wanted: NodeSet
    """The nodes that would accept its replacements if there were room."""
    pods: int
    """The number of movable pods."""
    may_use: Mapping[str, int]
    """An estimate of the room that it may use on a node, for each resource."""
    ample: Ample = Ample()
    """Those of the touched nodes on which a change makes no difference while they have that room."""
    stuck: tuple[tuple[GroupKey, Held], ...] = ()
    """The groups that stay violated, with the reason."""
    counts_before: Mapping[GroupKey, Mapping[str, int]] = Map()
    """Matching pods per domain before the path, for every group that it changes."""
    counts_after: Mapping[GroupKey, Mapping[str, int]] = Map()
    first: tuple[Demand, ...] | None = None
    """The replacements of the first step, with the nodes on which each may land if it is made now on its own; None if
    there is no step, or it is not safe then."""
    later: tuple[Demand, ...] = ()
    """The moves after the first step."""
    together: tuple[Demand, ...] = ()
    """The replacements of first steps, each of one pod, that are safe at the same time, beside the replacements that
    wait, in any order; none if that can't be shown. They may land on more nodes than that of the first step alone."""
    waiting: tuple[Demand, ...] = ()
    """The replacements of moves in flight that have no node, where that is known of all; none otherwise."""
    share: float = 0
    """How much it takes of what is free on its nodes, in nodes: that of the scarcest resource."""

    @property
    def taken(self) -> tuple[Taken, ...]:
        """The room that its replacements use: of those that wait, and then of its moves as the search found them."""
        return self.claim.taken

    @property
    def taken_by_moves(self) -> tuple[Taken, ...]:
        """The same of its moves alone, in the order of its steps."""
        return self.taken[len(self.taken) - sum(map(len, self.steps)) :]

    @property
    def cured(self) -> tuple[int, ...]:
        """How many groups it cures, by the rank of their policies."""
        return tuple(before - after for before, after in zip(self.before.violated, self.cost.violated, strict=True))

    @property
    def rank(self) -> int:
        """That of the most important policy of which it cures a group; greater than all ranks if it cures none."""
        return next((rank for rank, cured in enumerate(self.cured) if cured), len(self.before.violated))

    @property
    def is_begun(self) -> bool:
        """Whether replacements of earlier moves for it have no node yet."""
        return any(task.coming for task in self.tasks)

    @property
    def namespace(self) -> str:
        """The namespace of its moves; the first one if several were solved together."""
        return self.tasks[0].namespace

    def follows_same_rules(self, placement: Placement) -> bool:
        """Whether the scheduler's rules for its pods are still the same."""
        return all(placement.prepare(each.sample) is each.replacement for each in self.open_nodes)


class Finder:
    """Finds solutions on the current cluster."""

    def __init__(
        self,
        placement: Placement,
        selection: Selection,
        together: Callable[[Sequence[Pod]], bool],
        ranks: Mapping[str, int],
        leaving: LeavingNodes,
        numbers: Iterator[int],
    ) -> None:
        """Create it.

        `together` tells whether pods may be evicted at the same time. The most important policy has rank 0. Each
        solution has a new number.
        """
        self._placement = placement
        self._selection = selection
        self._together = together
        self._ranks = ranks
        self._leaving = leaving
        self._sets: dict[NodeSet, NodeSet] = {}
        """Sets of nodes that solutions keep, which are mostly equal: each once."""
        self._numbers = numbers

    def find(
        self, tasks: tuple[Task, ...], search_budget: SearchBudget, others: Sequence[Claim], known: Cost | None
    ) -> Solution:
        """Return the best path for tasks that are solved together, or any path if none costs less than what is known.

        The cluster is left as it was. Others take room before. What is `known` is the cost of the best path if the
        tasks, mostly one, are not solved together.
        """
        coming = [pod for task in tasks for pod in task.coming]
        with self._placement.view.fork():
            holders = self._make_room_for(others)
            board = set_up(tasks, self._placement, self._ranks, self._leaving.names)
            counts, expected = _counts(board), _expected(board, coming)
            if len(expected) < len(coming):
                path = Path((), board.cost(), proven=True)
            else:
                path = best_path(board, SearchRules(self._disruption_cost, self._together, search_budget, known))
            stuck, after = _what_it_comes_to(board, path, tasks, holders)
            solution = self._described(board, path, tasks, expected)
            changed = [key for key in after if after[key] != counts[key]]
            solution = solution._replace(
                ample=Ample() if others else board.ample(),
                stuck=stuck if len(expected) == len(coming) else tuple((key, _NOT_EXPECTED) for key, _ in stuck),
                counts_before={key: counts[key] for key in changed},
                counts_after={key: after[key] for key in changed},
            )
            for spot in expected:
                board.expect(spot, -1)
        return self._made_now(solution, board, path, coming)

    def _make_room_for(self, others: Sequence[Claim]) -> Mapping[int, str]:
        """Place what others take, and return by slot who takes room there first."""
        holders: dict[int, str] = {}
        for other in others:
            for taken in other.taken:
                self._placement.view.place(taken.pod, self._placement.table.names[taken.slot])
                holders.setdefault(taken.slot, other.holder)
        return holders

    def _described(self, board: Board, path: Path, tasks: tuple[Task, ...], expected: Sequence[Spot]) -> Solution:
        """Return what a path comes to, except for what it leaves, and what of it may be made now."""
        before, potential = board.cost(), board.potential()
        placed = chain(expected, *(choice.outcome.placed for choice in path.choices))
        taken = tuple(Taken(spot.slot, board.pieces[spot.piece].sample) for spot in placed)
        return Solution(
            number=next(self._numbers),
            tasks=tasks,
            steps=_steps(board, path, self._selection),
            claim=Claim(taken, tasks[0].holder, is_waiting=False),
            before=before,
            cost=path.cost,
            lower_bound=path.cost.evictions if path.proven else 0 if path.cost.excess else int(potential.lower_bound),
            proven=path.proven,
            finished=path.proven,
            ideal=path.proven and path.cost <= board.reach(however_much_room=True),
            open_nodes=tuple(
                OpenNodes(piece.replacement, self._once(piece.replacement.admitted(spread=False)), piece.sample)
                for piece in board.pieces
            ),
            touched=board.touched,
            landing=self._once(union(nodes for of_step in _landings(path) for nodes in of_step)),
            vacated=node_set([spot.slot for spot in board.movable_spots()]),
            wanted=self._once(board.open_nodes),
            pods=sum(board.left(spot) for spot in board.movable_spots()),
            may_use={name: amount * before.excess for name, amount in board.largest_request.items()},
        )

    def _made_now(self, solution: Solution, board: Board, path: Path, coming: Sequence[Pod]) -> Solution:
        """Return a solution with what of it may be made now, on the cluster as it is."""
        waiting, together = self._together_now(board, path, coming)
        if not path.choices:
            return solution._replace(waiting=waiting)
        order = [*together, *(at for at in range(len(path.choices)) if at not in together)]
        path = path._replace(choices=tuple(path.choices[at] for at in order))
        first_steps = tuple(together[at] for at in order[: len(together)])
        places = iter(solution.taken_by_moves)
        of_steps = [tuple(islice(places, len(step))) for step in solution.steps]
        taken = chain(solution.taken[: len(coming)], *(of_steps[at] for at in order))
        return solution._replace(
            steps=tuple(solution.steps[at] for at in order),
            claim=solution.claim._replace(taken=tuple(taken)),
            first=self._first_step(board, path),
            together=first_steps,
            waiting=waiting,
            later=self._later(board, path, first_steps),
            share=_share(solution.taken, self._placement.view.free),
        )

    def _once(self, nodes: NodeSet) -> NodeSet:
        return self._sets.setdefault(nodes, nodes)

    def _disruption_cost(self, pod: Pod, turn: tuple[int, int]) -> tuple[bool, VictimOrder]:
        """Return what puts those first that are about to lose their node anyway."""
        return self._leaving.why(pod) is None, victim_order(pod, turn)

    def _first_step(self, board: Board, path: Path) -> tuple[Demand, ...] | None:
        choice = path.choices[0]
        # Without the others' room, as the cluster is now: the scheduler may place pods there until the others have used
        # it.
        assessment = assess(board, choice.step, SearchBudget(_MOST_COURSES), board.waiting)
        if assessment is None:
            return None
        members = []
        for pod, spot in zip(choice.victims, choice.step, strict=True):
            replacement, nodes = board.pieces[spot.piece].replacement, assessment.nodes(spot.piece)
            open_now, parts = replacement.admitted(spread=False), assessment.parts(spot.piece)
            # Nodes that only terminating pods open are not needed, unless the pod's own node is all that there is.
            parts = tuple(part for part in parts if part.nodes & open_now) or parts
            closed = replacement.statically_feasible & ~open_now & ~nodes
            members.append(Demand(pod, replacement, nodes, may_open=closed, is_replacement=True, parts=parts))
        if len(members) == 1 and not board.waiting:
            members = [each._replace(may_open=each.may_open & _allowed(board, *choice.step)) for each in members]
        return tuple(members)

    def _together_now(
        self, board: Board, path: Path, coming: Sequence[Pod]
    ) -> tuple[tuple[Demand, ...], dict[int, Demand]]:
        """Return the replacements that wait, and those of steps that are safe at the same time, by their number.

        They are safe in any order. These are in turns of nodes, so that limits of a node bind late.
        """
        alone = [choice.step[0] for choice in takewhile(lambda choice: len(choice.step) == 1, path.choices)]
        turns = in_turns(range(len(alone)), lambda at: alone[at].slot)
        of_waiting, found = places_together(board, board.waiting, [alone[at] for at in turns])
        if of_waiting is None:
            return (), {}
        of_evicted = {turns[number]: demand for number, demand in found.items()}
        waiting = tuple(self._kept(demand, pod) for demand, pod in zip(of_waiting, coming, strict=True))
        return waiting, {at: self._kept(each, path.choices[at].victims[0]) for at, each in of_evicted.items()}

    def _kept(self, demand: Demand, pod: Pod) -> Demand:
        parts = tuple(part._replace(nodes=self._once(part.nodes)) for part in demand.must_hold)
        return demand._replace(pod=pod, nodes=self._once(demand.nodes), parts=parts)

    def _later(self, board: Board, path: Path, together: Sequence[Demand]) -> tuple[Demand, ...]:
        later = (
            Demand(pod, board.pieces[spot.piece].replacement, self._once(nodes), is_replacement=True)
            for choice, of_step in islice(zip(path.choices, _landings(path), strict=True), max(1, len(together)), None)
            for pod, spot, nodes in zip(choice.victims, choice.step, of_step, strict=True)
        )
        return tuple(islice(chain(together[1:], later), _MOST_LATER))


def _allowed(board: Board, spot: Spot) -> NodeSet:
    """Return the nodes that constraints allow for the replacement of a pod, whatever room they have."""
    mark = board.mark()
    board.evict(spot)
    allowed = board.pieces[spot.piece].replacement.admitted_by_spread()
    board.revert(mark)
    return allowed


def _share(taken: Iterable[Taken], free: FreeResources) -> float:
    share = 0.0
    for each in taken:
        wanted = ((POD_SLOTS, 1), *each.pod.spec.requests.items())
        share += max(amount / max(free.of(name).free[each.slot], 1) for name, amount in wanted)
    return share


def _steps(board: Board, path: Path, selection: Selection) -> tuple[tuple[Move, ...], ...]:
    """Describe each step of a path."""
    start = board.mark()
    steps = []
    for step, choice in enumerate(path.choices):
        steps.append(tuple(moves_of(board, choice, step, selection)))
        board.play(choice.step, choice.outcome.placed)
    board.revert(start)
    return tuple(steps)


def _expected(board: Board, coming: Sequence[Pod]) -> list[Spot]:
    """Place the replacements that wait where the search would expect them, up to the first that finds no node.

    The board is changed. `coming` are the pods that they replace, or the replacements themselves, in the order of the
    board's `waiting`.
    """
    placed: list[Spot] = []
    for piece, pod in zip(board.waiting, coming, strict=True):
        if (own := board.placement.own(pod)) is not None:
            board.placement.view.remove(own)
        landings = [each for each in landings_of(board, piece, feasible_nodes(board, piece)) if each.likely]
        if not landings:
            break
        spots = [Spot(piece, each.slot) for each in landings]
        potentials: list[tuple[Potential, Spot]] = []
        for spot in spots:
            board.count(spot, 1)
            potentials.append((board.potential(), spot))
            board.count(spot, -1)
        _, best = min(potentials)
        board.expect(best, 1)
        placed.append(best)
    return placed


def _landings(path: Path) -> Sequence[Sequence[NodeSet]]:
    """Return for each pod of each step where its replacement may land."""
    return [[choice.assessment.nodes(spot.piece) for spot in choice.step] for choice in path.choices]


def _counts(board: Board) -> dict[GroupKey, dict[str, int]]:
    """Return the matching pods by group and domain, without empty domains."""
    return {
        tally.group.key: {domain: count for domain, count in tally.counts.items() if count} for tally in board.tallies
    }


def _what_it_comes_to(
    board: Board, path: Path, tasks: Sequence[Task], holders: Mapping[int, str]
) -> tuple[tuple[tuple[GroupKey, Held], ...], dict[GroupKey, dict[str, int]]]:
    """Return what a path leaves violated, and all counts after it."""
    protected = [pair for task in tasks for pair in task.protected]
    start = board.mark()
    for choice in path.choices:
        board.play(choice.step, choice.outcome.placed)
    stuck = tuple(
        (tally.group.key, why_blocked(tally, board, protected, path, holders))
        for tally in board.tallies
        if tally.cure and tally.excess
    )
    after = _counts(board)
    board.revert(start)
    return stuck, after
