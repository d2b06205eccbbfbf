"""How many moves of one component may be in flight at the same time, by a bound that holds for any order.

Take one group of a DoNotSchedule constraint with maxSkew s. The scheduler places a replacement into a domain only if
its count stays within the minimum plus s at that moment, and placements never lower the minimum. So if no eviction
lowers the minimum either, whichever domains the scheduler picks and in whatever order,

- no group gets more excess: in the end, a domain has at most what its evictions leave, or at most the minimum plus s;
- no replacement stays Pending while the domain with the fewest pods has room for it, because that domain always passes.

The minimum never exceeds a level that follows from the number of pods (`Filling`). An eviction that leaves its domain
at that level or above does not lower the minimum. A domain takes at most as many replacements as bring it to that level
plus s. So it is enough that each domain below the level has room for as many pods as it lacks, beside everything of
others that may land there: its own take no more before one of them can go nowhere else. `contention` proves that.

If every replacement goes to a domain with the fewest pods, as it must if s is 1, no group gets more excess, whatever is
evicted. Let y be the minimum in the end. Suppose a domain came to y + 2 or more, and take the last such time. Every
domain had y + 1 or more then, and came to y + 1 at most later. So none has more in the end than then, and all together
have no fewer, so each has as many as then: more than y. That can't be. The same reasoning from the start shows that y
is no less than the minimum was. So in the end a domain has at most y + 1, or at most what its evictions left.

A group of two domains without excess has none in the end either: a domain that is allowed one more has at most s more
than the other, of the same number of pods in the end.

With several constraints, the domains with the fewest pods of each may be the only ones that it allows, so each node set
that they have in common must have room. Where a constraint allows some domains whatever happens, these are enough. If
each domain is a node, a node counts only while it passes whatever happens elsewhere, as so many places.

The scheduler's score is best where each ScheduleAnyway constraint has the fewest pods, so replacements go there as long
as the nodes that the DoNotSchedule constraints allow there have room. A domain to which one has to go has got only as
many others as it now has more than its evictions leave, so no more have taken a node there.

An eviction from a domain with more than the minimum plus s takes one from the excess, and a landing adds at most one.
So a group gets no more excess from it, wherever its replacement lands: it is *paid for* in this group. Groups of other
workloads' constraints, which let a replacement land anywhere, need that of each eviction. ScheduleAnyway constraints
don't matter to a replacement that is paid for in all of them. If it lands where another one would have added nothing,
it adds nothing itself, and that one may add what this one has taken. All of this holds while no eviction leaves less
than the minimum. If all are paid for, each group has lost as much excess as it gets, so their ScheduleAnyway
constraints may differ.

Something must get better, too. A group of an own DoNotSchedule constraint does. Otherwise one replacement must not be
taken as paid for, and find a domain with the fewest pods of each ScheduleAnyway constraint: where the first to land
adds to the excess of one, the score is worse.

If nodes are the domains of the only ScheduleAnyway constraint in which not all are paid for, they take more than one.
Where the other constraints have their fewest pods, a node has the best score, or one with no more pods of this
constraint has. So while that has less than the minimum plus s, none that adds to the excess gets a pod.

Zones and their racks have no node in common except within a zone. Let z be the zone with the fewest pods, and r its
rack with the fewest, so that r has at most its share of the level. If r is not allowed, a rack of another zone has m,
the minimum, and all racks of z have m + s or more. The other zone has no fewer pods than z. So it has more racks, or
one with more than m + s, which had too many from the start if no eviction has lowered the minimum to m. So r is allowed
if no eviction leaves less than that share and one minus s, and no rack of such zones has less. If the racks are nodes,
r is not full either, if each of them has room for one pod more than the share, beside everything of others.

None of this needs replacements that are alike. They may be of several kinds, as those of workloads that share one
constraint and have others, if each constraint that a kind has counts no replacement of a kind without it.

The bound is valid for every part of a set too, so any of the moves may be held, late, or lost. For replacements of one
kind, what is shown for the last one to join serves for all, so none has to reckon with moves that may join later. The
bound is sufficient and not necessary: a set without it may be safe, and `safety` finds that out for up to three pods.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from functools import reduce
from operator import and_
from sys import maxsize
from typing import Final, NamedTuple, TypeAlias

from respread.planning.room.demand import Demand, Part
from respread.planning.search.board import Board, Piece, Spot
from respread.planning.search.safety import scored_by_groups
from respread.planning.search.tally import Filling, Tally
from respread.scheduling.view.node_table import NodeSet

_MOST_PARTS: Final = 64
"""In groups with up to this many domains, room is looked for in each, and in as many parts that domains share."""
_Domains: TypeAlias = tuple[str | None, ...]
"""A domain of each constraint, the leading one first; None for all that it allows whatever happens."""
_Parts: TypeAlias = Mapping[_Domains, NodeSet]
"""The nodes that domains have in common."""


def places_together(
    board: Board, waiting: Sequence[int], evicted: Sequence[Spot]
) -> tuple[tuple[Demand, ...] | None, dict[int, Demand]]:
    """Return where replacements without a node may land, and those of moves that are safe beside them.

    `waiting` are the pieces of the replacements that have no node yet, and on the board they are on none. The moves
    `evicted` are to join them, those of each kind in this order.

    Returns:
        The demand of each of `waiting`, None if the bound can't be shown for them; and those of some of `evicted`, by
        their number: of each kind up to the first for which it can't. Each replaces the sample of its piece.
    """
    kinds: dict[Hashable, _Replacements] = {}
    of_pieces: dict[int, _Replacements] = {}
    for number in dict.fromkeys((*waiting, *(spot.piece for spot in evicted))):
        found = _Replacements.of(board, board.pieces[number])
        of_pieces[number] = kinds.setdefault(found.kind, found)
    joining = list(range(len(evicted)))
    """The moves that may join, by their number."""
    of_waiting: dict[int, Demand] = {}
    of_evicted: dict[int, Demand] = {}
    for these in (*kinds.values(), *list(kinds.values())[:-1]):  # Again beside those of the kinds that follow.
        own = [at for at in joining if of_pieces[evicted[at].piece] is these]
        beside = [evicted[at] for at in of_evicted if of_pieces[evicted[at].piece] is not these]
        course = _Course(
            board,
            of_pieces,
            these,
            _Coming([each for each in waiting if of_pieces[each] is these], [evicted[at] for at in own]),
            _Coming([each for each in waiting if of_pieces[each] is not these], beside),
        )
        for at, number in enumerate(waiting):
            if of_pieces[number] is these:
                if (demand := course.wait(number)) is None:
                    return None, {}
                of_waiting[at] = demand
        for at in own:
            if course.is_over or (demand := course.move(evicted[at])) is None:
                joining.remove(at)
                of_evicted.pop(at, None)
            else:
                of_evicted[at] = demand
    return tuple(of_waiting[at] for at in range(len(waiting))), {at: of_evicted[at] for at in joining}


class _Coming(NamedTuple):
    """What may happen in any order."""

    waiting: Sequence[int]
    """The pieces of replacements without a node."""
    evicted: Sequence[Spot]
    """Moves."""

    @property
    def pieces(self) -> tuple[int, ...]:
        """Return those of all replacements."""
        return (*self.waiting, *(spot.piece for spot in self.evicted))


class _Course:
    """Replacements of one kind without a node, and evictions for more, that may happen in any order, beside others.

    They are alike for constraints and room. Those of other kinds count for the constraints that they share.
    """

    def __init__(
        self, board: Board, of_pieces: Mapping[int, _Replacements], these: _Replacements, own: _Coming, beside: _Coming
    ) -> None:
        """Begin with those `beside`. Of its `own`, none has joined yet."""
        self._board = board
        self._own = own
        self._beside = beside
        self._of_pieces = of_pieces
        self._these = these
        self._kinds_beside = list({id(each): each for each in map(of_pieces.__getitem__, beside.pieces)}.values())
        self._are_apart = any(
            these.piece.replacement.keys_apart_from(sample.namespace, sample.labels)
            for sample in [board.pieces[number].sample for number in {*own.pieces, *beside.pieces}]
        )
        """Whether they have anti-affinity to one another, or to others with the same terms."""
        self._ends: dict[int, Filling | None] = {}
        self._levels: dict[int, Filling] = {}
        self._number = 0
        """How many of its own have joined."""
        self._reaching: Counter[str] = Counter()
        """How many of these may land in each domain of the leading constraint."""
        self.is_over = False
        """Whether the bound can't be shown for any more."""
        self._improves = False
        """Whether some of the evictions improve something, wherever all replacements land."""
        self._not_paid_for = 0
        """How many of the replacements are not paid for."""
        self._unpaid_in: set[int] = set()
        """The groups in which not all are paid for."""
        self._paid_in: set[int] = set()
        """The groups in which all have to be."""
        self._keeps_minimums = False
        """Whether no eviction may leave less than the minimum of a ScheduleAnyway constraint."""
        self._shown: set[tuple[_Domains, Part]] = set()
        """For what room is looked for already."""
        self._inside: dict[_Own, Mapping[_Domains, tuple[NodeSet, ...]]] = {}
        """What `_taking_inside` has found."""
        constraints = these.own
        is_only_hard = constraints is not None and constraints == these.own_hard
        self._expected = 0 if is_only_hard and self._closing(constraints) else len(own.evicted)
        """How many of the evictions are expected: few where they close nodes to each other, because what is shown for
        the last one serves all. Elsewhere that would only be more to show."""
        self._considered = 0
        """How many of the evictions `move` was asked about."""
        for number in beside.waiting:
            self._count(board.pieces[number], board.pieces[number].counted_by)
        for spot in beside.evicted:
            _, unpaid_in, improved = self._effect(spot)
            self._improves = self._improves or not all(tally.soft for tally in improved)
            self._evict(spot)
            self._count(board.pieces[spot.piece], unpaid_in)
            self._improves = True

    def _level(self, index: int) -> Filling:
        if (found := self._levels.get(index)) is None:
            found = self._levels[index] = Filling(self._board.tallies[index])
        return found

    def _effect(self, spot: Spot) -> tuple[set[int], set[int], list[Tally]]:
        """Return where an eviction is paid for, in which ScheduleAnyway groups it is not, and what it improves."""
        levels = {index: self._level(index) for index in self._board.pieces[spot.piece].counted_by}
        paid_in = {index for index, level in levels.items() if level.is_too_full(spot.slot)}
        unpaid_in = {index for index, level in levels.items() if level.tally.soft} - paid_in
        own = paid_in - self._of_pieces[spot.piece].others
        return paid_in, unpaid_in, [levels[index].tally for index in own if levels[index].tally.cure]

    def _evict(self, spot: Spot) -> None:
        for level in map(self._level, self._board.pieces[spot.piece].counted_by):
            level.evict(spot.slot)

    def _count(self, piece: Piece, unpaid_in: Collection[int]) -> None:
        """Count a replacement."""
        for index in piece.counted_by:
            self._level(index).coming += 1
        self._unpaid_in.update(unpaid_in)
        is_paid_for = self._improves and not unpaid_in
        self._not_paid_for += not is_paid_for
        self._keeps_minimums = self._keeps_minimums or is_paid_for

    def _deciding(self, *, is_paid_for: bool) -> _Own | None:
        """Return the constraints that decide where replacements go, beside those so far.

        None if the bound does not cover them, or not beside others: DoNotSchedule ones alone, if all are paid for.
        """
        these = self._these
        hard = these.own_hard if is_paid_for else None
        are_paid_for = hard is not None and not self._not_paid_for
        if not all(these.go_beside(other, are_paid_for=are_paid_for) for other in self._kinds_beside):
            return None
        return hard if are_paid_for or these.own is None else hard or these.own

    def move(self, spot: Spot) -> Demand | None:
        """Count an eviction and its replacement, and return where that may land.

        None if the eviction does not improve a group to be restored at once, whatever follows, or is not covered beside
        others; and if the bound can't be shown. Then it `is_over`.
        """
        self._considered += 1
        if self._considered > self._expected:  # In few steps, so that what is known serves for most of the next ones.
            self._expected = min(self._expected * 5 // 4 + 1, len(self._own.evicted))
            self._ends, self._inside = {}, {}
        paid_in, unpaid_in, improved = self._effect(spot)
        if not (improved and self._these.others <= paid_in) or unpaid_in & self._paid_in:
            return None
        improves = self._improves or not all(tally.soft for tally in improved)
        own = self._deciding(is_paid_for=improves and not unpaid_in)
        if own is None:
            return None
        self._improves = improves
        self._evict(spot)
        demand = self._add(spot.piece, own, unpaid_in)
        self._improves = True
        self.is_over = demand is None
        return demand

    def wait(self, number: int) -> Demand | None:
        """Count a replacement that has no node, and return where it may land; None if the bound can't be shown."""
        own = None if self._these.others else self._deciding(is_paid_for=False)
        return None if own is None else self._add(number, own, self._board.pieces[number].counted_by)

    def _add(self, number: int, own: _Own, unpaid_in: Collection[int]) -> Demand | None:
        """Count a replacement of which these constraints decide where it goes, and return where, as `wait`."""
        piece, these = self._board.pieces[number], self._these
        closing = self._closing(own)
        if these.own_hard is not None and not self._closing(these.own_hard) and not self._kinds_beside:
            closing = min(closing, self._not_paid_for)
        self._number += 1
        self._count(piece, unpaid_in)
        if not all(level.is_kept for index, level in self._levels.items() if index not in these.others):
            return None
        if self._keeps_minimums and self._falls:
            return None
        return self._demand(piece, own, closing)

    def _closing(self, own: _Own | None) -> int:
        """Return how many others may keep one off a node if these constraints decide where they go: all or none."""
        return maxsize if own is not None and (own.of_nodes or self._are_apart) else 0

    @property
    def _falls(self) -> bool:
        """Whether an eviction so far leaves less than the minimum of a ScheduleAnyway constraint."""
        return any(level.falls for level in self._levels.values() if level.tally.soft)

    def _demand(self, piece: Piece, own: _Own, closing: int) -> Demand | None:
        nodes = piece.replacement.statically_feasible
        passing, *more = self._accepting(piece, own)
        roomy = () if self._are_apart else tuple(more)
        for level in map(self._level, own.of_nodes):
            if not level.tally.soft:
                nodes &= level.tally.domains.eligible
        demand = Demand(
            piece.sample,
            piece.replacement,
            nodes,
            parts=(Part(passing, roomy=roomy),),
            is_replacement=True,
            closing=closing,
        )
        if own.lead is None:
            return demand if passing else None
        needed: _Parts = {(): piece.replacement.statically_feasible}
        lead = self._level(own.lead)
        larger = own.lead, *own.beside
        for index in larger:
            level, counts = self._level(index), index in piece.counted_by
            around = lead if counts and own.lead in piece.counted_by else None
            needed = self._within(needed, passing, level, around, counts=counts, leads=index == own.lead)
        found = dict[_Domains, Part]()
        for domains, within in needed.items():
            part = Part(within & passing, self._siblings(larger, domains), roomy)
            found[domains] = self._part(own, domains, within, part)
        parts = tuple(
            part
            for domains, part in found.items()
            if (domains, part) not in self._shown or None in domains or 0 < closing < maxsize
        )
        if not needed or not all(part.nodes or part.unless_full for part in found.values()) or len(parts) > _MOST_PARTS:
            return None
        self._shown.update(found.items())
        if lead.tally.soft:
            return demand._replace(parts=parts)
        reachable = self._reachable(lead, counts=own.lead in piece.counted_by)
        return None if reachable is None else demand._replace(nodes=nodes & reachable, parts=parts)

    def _part(self, own: _Own, domains: _Domains, within: NodeSet, part: Part) -> Part:
        """Return a part with the nodes that take more while none is full, if it takes fewer than may come there."""
        if self._are_apart or len(own.of_nodes) != 1 or part.nodes.bit_count() > part.siblings:
            return part
        taking = self._taking_inside(own).get(domains, ())
        return part if not taking or taking[0] & ~within else part._replace(unless_full=taking)

    def _taking_inside(self, own: _Own) -> Mapping[_Domains, tuple[NodeSet, ...]]:
        """Return the nodes in each domain of the leading constraint that take one, two or more replacements.

        One with the fewest pods there is open before they have them.
        """
        if own not in self._inside:
            lead, of_nodes = (None if index is None else self._end(index) for index in (own.lead, *own.of_nodes))
            known: dict[_Domains, tuple[NodeSet, ...]] = {}
            if lead is not None and of_nodes is not None:
                known.update(((domain,), of_nodes.nodes_taking(each)) for domain, each in of_nodes.inside(lead).items())
            self._inside[own] = known
        return self._inside[own]

    def _siblings(self, constraints: Iterable[int], domains: _Domains) -> int:
        """Return how many others at most have landed where domains meet when one can go nowhere else."""
        gained = (
            max(0, end.most(end.coming - 1) - end.left(domain))
            for index, domain in zip(constraints, domains, strict=True)
            if domain is not None and (end := self._end(index)) is not None
        )
        return min(gained, default=maxsize)

    def _end(self, index: int) -> Filling | None:
        """Return a constraint when those that are expected have come; None if it does not count all of them."""
        if index not in self._ends:
            end = Filling(self._board.tallies[index])
            expected = self._own._replace(evicted=self._own.evicted[: self._expected])
            coming = (*self._beside.pieces, *expected.pieces)
            end.coming = len(coming)
            counted = all(index in self._board.pieces[piece].counted_by for piece in coming)
            for spot in (*self._beside.evicted, *expected.evicted):
                end.evict(spot.slot)
            self._ends[index] = end if counted and not end.tally.too_few else None
        return self._ends[index]

    def _accepting(self, piece: Piece, own: _Own) -> list[NodeSet]:
        """Return the nodes that constraints with nodes as their domains allow, or prefer, whatever happens elsewhere.

        First those that take one replacement, then those that take two, and so on.
        """
        feasible = piece.replacement.statically_feasible
        of_levels = [
            self._level(index).accepting_nodes(is_limited=index in piece.hard or self._counts_alone(piece, index))
            for index in own.of_nodes
        ]
        return [reduce(and_, those, feasible) for those in zip(*of_levels, strict=False)] or [feasible]

    def _counts_alone(self, piece: Piece, index: int) -> bool:
        """Whether all are paid for in a piece's other ScheduleAnyway constraints, as they have to be from now on."""
        others = {*piece.soft} - {index}
        if not self._improves or self._falls or others & self._unpaid_in:
            return False
        self._paid_in |= others
        self._keeps_minimums = True
        return True

    def _within(
        self, parts: _Parts, passing: NodeSet, level: Filling, around: Filling | None, *, counts: bool, leads: bool
    ) -> _Parts:
        """Return parts of node sets in each of which a constraint may leave the only nodes that it allows, or prefers.

        If all of them have nodes of `passing` that a DoNotSchedule constraint allows whatever happens, these alone.
        `around` is the leading one, of whose domains this one's may be parts, if both count the replacement.
        """
        nodes = level.tally.domains.nodes
        if not (leads or level.tally.soft):
            never_closing = level.never_closing()
            open_ = {(*domains, None): part & never_closing for domains, part in parts.items()}
            if all(part & passing for part in open_.values()):
                return open_
            inside = {} if around is None else level.inside(around)
            if all(outer in inside for outer, *_ in parts):
                return {
                    (outer, *others, each): part & nodes[each]
                    for (outer, *others), part in parts.items()
                    for each in inside[outer or ""]
                }
        needed = level.needed(counts=counts)
        return {(*domains, each): part & nodes[each] for domains, part in parts.items() for each in needed}

    def _reachable(self, level: Filling, *, counts: bool) -> NodeSet | None:
        """Return the nodes of the domains in which one more replacement may land, besides those before it."""
        tally = level.tally
        nodes: NodeSet = 0
        limit = level.most(level.coming) + tally.max_skew
        for domain, there in tally.domains.nodes.items():
            most = min(self._number, limit - level.left(domain)) if counts else maxsize
            more = most - self._reaching[domain]
            if more > 1 and counts:
                return None
            if more > 0:
                self._reaching[domain] += 1
                nodes |= there
        return nodes


class _Own(NamedTuple):
    """A piece's own constraints, by the indices of their tallies."""

    lead: int | None
    """The one in whose domains room is looked for one by one; None if each domain is a node."""
    beside: tuple[int, ...]
    """Others with larger domains than a node."""
    of_nodes: tuple[int, ...]
    """Those with a node as each domain."""


class _Replacements(NamedTuple):
    """What is known of the replacements of a piece."""

    piece: Piece
    own: _Own | None
    """None if the bound does not cover them."""
    own_hard: _Own | None
    """The same of the DoNotSchedule constraints alone, if they are all that decides."""
    others: frozenset[int]
    """Groups of other workloads' constraints, which don't keep one from landing where it makes them worse."""
    hard_constraints: Hashable
    """The same as the next, but for the ScheduleAnyway constraints."""
    constraints: Hashable
    """Equal for those that are alike for constraints and, where more than amounts decide about room, for room."""
    are_only_hard: bool
    """Whether they have no affinity, and no ScheduleAnyway constraint counts them."""

    @classmethod
    def of(cls, board: Board, piece: Piece) -> _Replacements:
        replacement, spec, tallies = piece.replacement, piece.template.spec, board.tallies
        room = spec.requests, replacement.statically_feasible
        terms = spec.pod_affinity, spec.pod_anti_affinity
        soft = {index for index in piece.counted_by if tallies[index].soft}
        hard = piece.hard, tuple(index for index in piece.counted_by if index not in soft)
        alike = hard, terms, None if replacement.needs_only_amounts else room
        own = _own_of(board, piece, (*piece.hard, *piece.soft))
        own_hard = _own_of(board, piece, piece.hard, is_paid_for=True)
        others = frozenset(
            index
            for index in {*piece.counted_by} - {*piece.hard, *piece.soft}
            if not any(tallies[hard].implies(tallies[index]) for hard in piece.hard)
        )
        are_only_hard = not (soft or replacement.has_pod_terms)
        return cls(piece, own, own_hard, others, alike, (alike, piece.counted_by, piece.soft), are_only_hard)

    @property
    def kind(self) -> Hashable:
        """Equal for those that are alike for constraints and for room."""
        room = self.piece.template.spec.requests, self.piece.replacement.statically_feasible
        return self.own, self.own_hard, self.constraints, room

    def go_beside(self, other: _Replacements, *, are_paid_for: bool) -> bool:
        """Whether the bound covers them beside others, which have the same constraints, or other DoNotSchedule ones.

        If all `are_paid_for`, ScheduleAnyway constraints may differ.
        """
        if self.hard_constraints == other.hard_constraints if are_paid_for else self.constraints == other.constraints:
            return True
        ignored = {*self.piece.hard} & other.others | {*other.piece.hard} & self.others
        return self.are_only_hard and other.are_only_hard and not ignored


def _own_of(board: Board, piece: Piece, own: Sequence[int], *, is_paid_for: bool = False) -> _Own | None:
    """Return some of a piece's constraints; None if the bound does not cover it.

    If replacements are paid for, ScheduleAnyway constraints don't matter.
    """
    if not (own or is_paid_for) or piece.replacement.unknown is not None or board.placement.view.uncertain:
        return None
    constraints = piece.replacement.constraints
    if len(piece.hard) != len(constraints.hard):
        return None
    if not (is_paid_for or scored_by_groups(board, piece, piece.replacement.statically_feasible)):
        return None
    return _own_in(board, own)


def _own_in(board: Board, own: Sequence[int]) -> _Own | None:
    """Return these constraints of a piece; None if there are too many domains."""
    tallies, needed = board.tallies, _without_implied(board, own)
    of_nodes = [index for index in needed if tallies[index].single]
    larger = [index for index in needed if not tallies[index].single]
    if not larger and len(of_nodes) == 1:
        larger, of_nodes = of_nodes, []
    larger.sort(key=lambda index: (tallies[index].soft, tallies[index].domains.size))
    if not larger or (not of_nodes and tallies[larger[0]].domains.size > _MOST_PARTS):
        return _Own(None, (), (*of_nodes, *larger)) if all(tallies[index].single for index in larger) else None
    if tallies[larger[0]].domains.size > _MOST_PARTS:
        return None
    return _Own(larger[0], tuple(larger[1:]), tuple(of_nodes))


def _without_implied(board: Board, own: Sequence[int]) -> list[int]:
    """Return constraints, except those that another one of the same pods in the same domains implies.

    What a ScheduleAnyway constraint prefers matters beside what another one does, even if it can't get worse.
    """
    tallies, kept = board.tallies, list[int]()
    for index in own:
        if not any(tallies[other].implies(tallies[index]) for other in kept):
            kept = [other for other in kept if not tallies[index].implies(tallies[other])]
            kept.append(index)
    if any(tallies[index].soft for index in kept):
        return [index for index in own if index in kept or tallies[index].soft]
    return kept
