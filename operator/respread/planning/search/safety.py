"""Which steps are safe: whatever the scheduler does, something improves and nothing gets worse.

A step evicts one pod, or two or three together of which none could be evicted alone. Its outcome is unknown: the
evictions happen in any order, the scheduler places each replacement at any time on any node that it finds feasible
then, and the evicted pods keep their resources until they have stopped. A step is *safe* if, in every such course,

1. every replacement gets a node, even while all the evicted pods are still there;
2. no group of a DoNotSchedule constraint, selected by a policy or not, has more excess in the end;
3. and, if all replacements go to nodes that the score of their ScheduleAnyway constraints makes likely, no group has
more excess, and some group to be restored has less.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import inf, log, prod
from typing import Final, NamedTuple, TypeAlias, TypeVar

from immutables import Map

from respread.planning.room.demand import Part
from respread.planning.search.board import Board, Piece, SearchBudget, Spot, needs_of
from respread.planning.search.tally import Tally
from respread.scheduling.filters.topology_spread_score import HOSTNAME
from respread.scheduling.view.free_resources import FreeResources
from respread.scheduling.view.node_table import NodeSet, slots_of, union

_T = TypeVar("_T")

MOST_TOGETHER: Final = 3
"""The largest number of pods whose every course is followed: of steps of several pods, and beside those in flight."""

BoardStep: TypeAlias = tuple[Spot, ...]
"""The spots from which pods are evicted together, sorted."""


class StepOutcome(NamedTuple):
    """A possible outcome of a step."""

    placed: tuple[Spot, ...]
    """Where the replacements are, by piece and node."""
    nodes: tuple[NodeSet, ...]
    """For each of them, all equivalent nodes."""
    likely: bool

    @property
    def weight(self) -> int:
        """The number of outcomes that it represents."""
        return prod(nodes.bit_count() for nodes in self.nodes)


class Assessment(NamedTuple):
    """The possible outcomes of a safe step."""

    outcomes: tuple[StepOutcome, ...]
    certain: bool
    """Whether every outcome improves something, including unlikely ones."""

    @property
    def likely(self) -> list[StepOutcome]:
        """The outcomes that a plan considers."""
        return [outcome for outcome in self.outcomes if outcome.likely]

    def nodes(self, piece: int) -> NodeSet:
        """Return all nodes on which replacements of a piece may land."""
        found = 0
        for outcome in self.outcomes:
            for spot, nodes in zip(outcome.placed, outcome.nodes, strict=True):
                if spot.piece == piece:
                    found |= nodes
        return found

    def parts(self, piece: int) -> tuple[Part, ...]:
        """Return where a replacement of a piece must find room, whatever others take.

        Of a replacement that lands alone, on one of the nodes with the best score, because others may be worse. Where
        it lands beside others, each set of equivalent nodes may be the only one that these leave it.
        """
        if all(len(outcome.placed) == 1 for outcome in self.outcomes):
            return (Part(union(nodes for outcome in self.likely for nodes in outcome.nodes)),)
        siblings: dict[NodeSet, int] = {}
        for outcome in self.outcomes:
            for spot, nodes in zip(outcome.placed, outcome.nodes, strict=True):
                if spot.piece == piece:
                    there = sum(bool(nodes & other) for other in outcome.nodes) - 1
                    siblings[nodes] = max(there, siblings.get(nodes, 0))
        return tuple(Part(nodes, most) for nodes, most in siblings.items())


def assess(
    board: Board, step: BoardStep, search_budget: SearchBudget, waiting: Sequence[int] = ()
) -> Assessment | None:
    """Return the possible outcomes of a step, or None if it is not, or not provably, safe.

    The board is left as it was. `waiting` are the pieces of replacements of earlier steps that have no node yet, and
    are on none of the board. The step is safe beside them.
    """
    before = [tally.excess for tally in board.tallies]
    mark = board.mark()
    try:
        if len(step) == 1 and not waiting:
            return _assess_one(board, step[0], before)
        pieces = (*(spot.piece for spot in step), *waiting)
        if len(pieces) > MOST_TOGETHER or any(board.pieces[piece].when_gone for piece in pieces):
            return None
        courses = _Courses(board, before, search_budget, _apart(board, step, pieces))
        if not courses.follow(step, tuple(sorted(waiting)), likely=True):
            return None
        return Assessment(tuple(courses.outcomes.values()), courses.certain)
    finally:
        board.revert(mark)


def _assess_one(board: Board, spot: Spot, before: Sequence[int]) -> Assessment | None:
    board.evict(spot)
    landings = _landings(board, spot)
    certain = True
    for landing in landings:
        verdict = _verdict(board, (Spot(spot.piece, landing.slot),), before)
        if verdict.hard_worse or (landing.likely and (verdict.worse or not verdict.better)):
            return None
        certain = certain and verdict.hard_better
    outcomes = [StepOutcome((Spot(spot.piece, each.slot),), (each.nodes,), each.likely) for each in landings]
    return Assessment(tuple(outcomes), certain) if outcomes else None


def _landings(board: Board, evicted: Spot) -> tuple[Landing, ...]:
    """Return where the replacement of a pod that was just evicted may land, whether the pod still exists then or not.

    Return none if it may be left without a node. On the board, terminations may be finished then.
    """
    piece = evicted.piece
    if board.pieces[piece].when_gone:
        board.finish_terminations()
        return landings_of(board, piece, feasible_nodes(board, piece))
    held = feasible_nodes(board, piece)
    if not held:
        return ()
    landings = landings_of(board, piece, held)
    board.finish_terminations()
    gone = feasible_nodes(board, piece)
    if gone != held:
        landings = united(landings, landings_of(board, piece, gone)) if gone else ()
    return landings


class _Verdict(NamedTuple):
    better: bool
    """A group to be restored has less excess."""
    hard_better: bool
    """As `better`, for a group of a DoNotSchedule constraint."""
    worse: bool
    """A group has more excess, whether it is to be restored or not."""
    hard_worse: bool
    """As `worse`, for a group of a DoNotSchedule constraint."""


def _verdict(board: Board, placed: Sequence[Spot], before: Sequence[int]) -> _Verdict:
    """Compare the excess of every group with the earlier one, with the replacements placed."""
    for spot in placed:
        board.count(spot, 1)
    changed = [(tally, tally.excess - was) for tally, was in zip(board.tallies, before, strict=True)]
    for spot in placed:
        board.count(spot, -1)
    better = [not tally.soft for tally, more in changed if more < 0 and tally.cure]
    worse = [not tally.soft for tally, more in changed if more > 0]
    return _Verdict(bool(better), any(better), bool(worse), any(worse))


_Placed: TypeAlias = tuple[tuple[Spot, NodeSet], ...]


class _Courses:
    """Follows every course that evictions of one step may take, until one ends badly."""

    __slots__ = ("_apart", "_before", "_board", "_search_budget", "_seen", "certain", "outcomes")

    def __init__(self, board: Board, before: Sequence[int], search_budget: SearchBudget, apart: Apart) -> None:
        self._search_budget = search_budget
        self._apart = apart
        self._board = board
        self._before = before
        self._seen: set[object] = set()
        self.outcomes: dict[object, StepOutcome] = {}
        self.certain = True

    def follow(self, to_evict: BoardStep, waiting: tuple[int, ...], placed: _Placed = (), *, likely: bool) -> bool:
        """Return whether every course from here ends well.

        `waiting` are the pieces of the replacements without a node, sorted. The others are `placed`: all on likely
        nodes or not.
        """
        situation = (to_evict, waiting, tuple(sorted(spot for spot, _ in placed)), likely)
        if situation in self._seen:
            return True
        if self._search_budget.exhausted:
            return False
        self._search_budget.spend()
        self._seen.add(situation)
        if not to_evict and not waiting:
            return self._end(placed, likely=likely)
        board = self._board
        for spot in dict.fromkeys(to_evict):
            mark = board.mark()
            board.evict(spot)
            well = self.follow(_without(to_evict, spot), tuple(sorted((*waiting, spot.piece))), placed, likely=likely)
            board.revert(mark)
            if not well:
                return False
        placeable = False
        for piece in dict.fromkeys(waiting):
            landings, certainly = self._landings(piece)
            placeable = placeable or certainly
            for landing in landings:
                spot = Spot(piece, landing.slot)
                mark = board.mark()
                board.place(spot)
                well = self.follow(
                    to_evict,
                    _without(waiting, piece),
                    (*placed, (spot, landing.nodes)),
                    likely=likely and landing.likely,
                )
                board.revert(mark)
                if not well:
                    return False
        return placeable or bool(to_evict)

    def _landings(self, piece: int) -> tuple[tuple[Landing, ...], bool]:
        """Return where a replacement may land, and whether it can while all the evicted pods still exist."""
        board = self._board
        held = feasible_nodes(board, piece)
        landings = landings_of(board, piece, held, self._apart)
        mark = board.mark()
        board.finish_terminations()
        gone = feasible_nodes(board, piece)
        if gone != held:
            landings = united(landings, landings_of(board, piece, gone, self._apart))
        board.revert(mark)
        return landings, bool(held)

    def _end(self, placed: _Placed, *, likely: bool) -> bool:
        verdict = _verdict(self._board, (), self._before)
        if verdict.hard_worse or (likely and (verdict.worse or not verdict.better)):
            return False
        self.certain = self.certain and verdict.hard_better
        ordered = sorted(placed)
        key = tuple(spot for spot, _ in ordered)
        if key not in self.outcomes or likely:
            self.outcomes[key] = StepOutcome(key, tuple(nodes for _, nodes in ordered), likely)
        return True


def _without(items: tuple[_T, ...], item: _T) -> tuple[_T, ...]:
    """Return a tuple without the first item that equals the given one."""
    at = items.index(item)
    return items[:at] + items[at + 1 :]


class Apart(NamedTuple):
    """What tells nodes apart on which one of several replacements may land, besides groups: what the others find then.

    Without anything, there are no others.
    """

    sets: tuple[NodeSet, ...] = ()
    """Nodes that differ from all others."""
    needs: Mapping[str, int] = Map()
    """What all these replacements request: where more is free, they all have room."""

    def split(self, parts: Sequence[NodeSet], free: FreeResources) -> list[NodeSet]:
        """Split parts of nodes, each of which has nodes that are alike otherwise."""
        for nodes in self.sets:
            parts = [part for each in parts for part in (each & nodes, each & ~nodes) if part]
        if not self.needs:
            return list(parts)
        needs = [(free.of(name), need) for name, need in self.needs.items()]
        found: list[NodeSet] = []
        for part in parts:
            roomy = part
            for amounts, need in needs:
                roomy &= amounts.at_least(need)
            tight: dict[tuple[int, ...], NodeSet] = {}
            for slot in slots_of(part & ~roomy):
                left = tuple(min(amounts.free[slot], need) for amounts, need in needs)
                tight[left] = tight.get(left, 0) | 1 << slot
            found.extend((*((roomy,) if roomy else ()), *tight.values()))
        return found


_ALONE: Final = Apart()


def _apart(board: Board, step: BoardStep, numbers: Sequence[int]) -> Apart:
    """Return what tells nodes apart for the replacements of some pieces, of which those of a step are evicted."""
    keys: set[str] = set()
    pieces = [board.pieces[number] for number in numbers]
    for piece in pieces:
        replacement = piece.replacement
        for other in pieces:
            pod = other.sample
            keys.update(replacement.keys_apart_from(pod.namespace, pod.labels))
            if replacement.is_drawn_by(pod.namespace, pod.labels):
                keys.update(replacement.affinity_keys)
        if len(piece.soft) != len(replacement.constraints.soft):
            keys.update(each.topology_key for each in replacement.constraints.soft)
    column = board.placement.table.column
    # Evicted pods leave their nodes sooner or later. Nodes differ as domains of hostnames by their pods only.
    domains = (nodes for key in sorted(keys - {HOSTNAME}) for nodes in column(key).nodes_with.values())
    slots = dict.fromkeys(spot.slot for spot in step)
    return Apart((*domains, *(1 << slot for slot in slots)), needs_of(piece.sample for piece in pieces))


_MOST_LOOKED_AT: Final = 64
"""An exact search examines up to this many feasible nodes one by one."""


class Landing(NamedTuple):
    """A node on which a replacement may land, which represents all equivalent nodes."""

    slot: int
    nodes: NodeSet
    """All nodes that it represents, including itself."""
    likely: bool
    """Whether the scheduler's score for soft constraints puts it among the best."""


def feasible_nodes(board: Board, piece: int) -> NodeSet:
    """Return the nodes that the scheduler finds feasible now for a piece's replacement; none if that is unknown."""
    replacement = board.pieces[piece].replacement
    return 0 if replacement.unknown is not None else replacement.admitted()


def landings_of(board: Board, piece: int, feasible: NodeSet, apart: Apart = _ALONE) -> tuple[Landing, ...]:
    """Return where a piece's replacement may land now: on none without feasible nodes.

    A node with an object that can't be decoded may or may not accept it, and the likely landings are computed for both
    cases.
    """
    if not feasible:
        return ()
    landings = _landings_on(board, piece, feasible, apart)
    if board.placement.view.uncertain:
        possible = board.pieces[piece].replacement.admitted(certainly=False)
        if possible != feasible:
            return united(landings, _landings_on(board, piece, possible, apart))
    return landings


def _landings_on(board: Board, piece: int, nodes: NodeSet, apart: Apart) -> tuple[Landing, ...]:
    """Group the feasible nodes of a piece's replacement by equivalence."""
    if not board.fine:
        parts = _split(nodes, board.dividing)
    else:
        alike: dict[tuple[object, ...], NodeSet] = {}
        looked_at = nodes if nodes.bit_count() <= _MOST_LOOKED_AT else nodes & board.occupied
        for part in (*_split(nodes & ~looked_at, board.dividing), *(1 << slot for slot in slots_of(looked_at))):
            kind = board.kind(board.pick(part))
            alike[kind] = alike.get(kind, 0) | part
        parts = list(alike.values())
    parts = apart.split(parts, board.placement.view.free)
    return tuple(
        Landing(board.pick(board.pieces[piece].shunned.preferred(part)), part, likely)
        for part, likely in zip(parts, _likely(board, board.pieces[piece], nodes, parts), strict=True)
    )


def united(one: Sequence[Landing], other: Sequence[Landing]) -> tuple[Landing, ...]:
    """Return the landings of both, with landings of the same nodes only once."""
    likely: dict[tuple[int, NodeSet], bool] = {}
    for landing in (*one, *other):
        key = landing.slot, landing.nodes
        likely[key] = likely.get(key, False) or landing.likely
    return tuple(Landing(slot, nodes, each) for (slot, nodes), each in likely.items())


def _split(nodes: NodeSet, tallies: Sequence[Tally]) -> list[NodeSet]:
    """Split nodes by their domains, or by their domain's count if every node is a domain of its own."""
    parts = [nodes] if nodes else []
    for tally in tallies:
        eligible = tally.domains.eligible
        parts = [
            part for each in parts for part in (each & ~eligible, *_split_counting(each & eligible, tally)) if part
        ]
    return parts


def _split_counting(nodes: NodeSet, tally: Tally) -> list[NodeSet]:
    parts: list[NodeSet] = []
    if tally.single:
        by_count = tally.nodes_by_count()
        return [nodes & by_count[count] for count in sorted(by_count)]
    while nodes:
        together = nodes & tally.domains.nodes[tally.domain_of[_lowest(nodes)] or ""]
        parts.append(together)
        nodes &= ~together
    return parts


def _likely(board: Board, piece: Piece, nodes: NodeSet, parts: Sequence[NodeSet]) -> list[bool]:
    """Return, for each part of the feasible nodes, whether PodTopologySpread gives it the highest score."""
    if not scored_by_groups(board, piece, nodes):
        best = board.placement.likely_nodes(piece.replacement, nodes)
        return [bool(part & best) for part in parts]
    scores = _soft_scores(board, piece, parts)
    best_score = min(scores)
    return [score <= best_score for score in scores]


def scored_by_groups(board: Board, piece: Piece, nodes: NodeSet) -> bool:
    """Return whether the scheduler scores nodes only by the counts of spread groups.

    Default constraints are not always spread groups. Of the built-in ones, those whose key a node has count.
    """
    constraints = piece.replacement.constraints
    if len(piece.soft) != len(constraints.soft):
        return False
    return constraints.soft_need_all_keys or not any(
        nodes & ~board.tallies[index].domains.eligible for index in piece.soft
    )


def _soft_scores(board: Board, piece: Piece, parts: Sequence[NodeSet]) -> list[float]:
    """Return PodTopologySpread's raw score of each part, but for what all get; lower is better (`SpreadScores.raw`)."""
    tallies = [board.tallies[index] for index in piece.soft]
    slots = [_lowest(part) for part in parts]
    ignored = [any(tally.domain_of[slot] is None for tally in tallies) for slot in slots]
    scored = [at for at, without in enumerate(ignored) if not without]
    scores = [0.0] * len(parts)
    for tally in tallies:
        domains = [tally.domain_of[slot] for slot in slots]
        size = sum(parts[at].bit_count() for at in scored) if tally.single else len({domains[at] for at in scored})
        weight = log(size + 2)
        for at in scored:
            scores[at] += tally.count(domains[at] or "") * weight
    return [inf if without else round(score) for without, score in zip(ignored, scores, strict=True)]


def _lowest(nodes: NodeSet) -> int:
    """Return the first slot of a set of nodes that is not empty."""
    return (nodes & -nodes).bit_length() - 1
