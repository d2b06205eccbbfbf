"""The board of the search: spread groups that share pods, the pods that may be evicted, and where they all are.

A step evicts pods. The scheduler then places their replacements on nodes that it finds feasible. The board holds one
position, which can be changed and restored. `safety` knows where replacements may land and which steps are safe, and
`search` chooses the steps.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from typing import NamedTuple, TypeAlias

from immutables import Map

from respread.cluster.meta import OwnerReference
from respread.cluster.pod import Pod
from respread.planning.placement import Placement
from respread.planning.room.demand import largest_of
from respread.planning.search.tally import Tally
from respread.scheduling.filters.taint_toleration import ShunnedNodes
from respread.scheduling.prepared_pod import PreparedPod
from respread.scheduling.view.cluster_view import ClusterView
from respread.scheduling.view.free_resources import POD_SLOTS
from respread.scheduling.view.node_table import NodeSet, node_set, nth_slot, slots_of, union
from respread.spread.group import Template


class Spot(NamedTuple):
    """The movable pods of one piece on one node. The one with the lowest disruption cost is evicted first."""

    piece: int
    slot: int
    """The slot of the node."""


class Piece(NamedTuple):
    """The pods of one template on the board."""

    template: Template
    sample: Pod
    """One of its pods."""
    replacement: PreparedPod
    """The prepared pod for replacements of its pods."""
    when_gone: bool
    """Whether a pod is replaced only after it is gone."""
    counted_by: tuple[int, ...]
    """The tallies that count its pods."""
    hard: tuple[int, ...]
    """The tallies of its own DoNotSchedule constraints."""
    soft: tuple[int, ...]
    """The tallies of its own ScheduleAnyway constraints."""
    shunned: ShunnedNodes = ShunnedNodes()
    """The nodes that its replacements get only if no better one is feasible."""


BoardMark: TypeAlias = tuple[int, int, tuple[Pod, ...]]
"""A position to return to: the number of moves, the moment of the view, and the terminating pods."""


class Potential(NamedTuple):
    """How far from cured."""

    lower_bound: float
    """The minimum number of moves of any plan that restores these groups; infinity if none can."""
    forms: float
    """The sum of the groups' closed forms."""
    excess: int
    violated: tuple[int, ...]
    """How many groups are violated, by the rank of their policies."""


class Ample(NamedTuple):
    """Nodes with room for all pods that a search may move: while that stays so, it finds the same."""

    nodes: NodeSet = 0
    needs: Mapping[str, int] = Map()
    """What all these pods request."""

    def is_on(self, slot: int, view: ClusterView) -> bool:
        """Whether a node has that room, of which none is kept for nominated pods."""
        return slot not in view.nominated and all(view.free.of(name).free[slot] >= n for name, n in self.needs.items())

    def remains(self, changed: NodeSet, view: ClusterView) -> bool:
        """Whether changed nodes had that room and still have it."""
        return not changed & ~self.nodes and all(self.is_on(slot, view) for slot in slots_of(changed))


class Board:
    """The groups and pods of one component, during changes."""

    def __init__(
        self,
        tallies: Sequence[Tally],
        pieces: Sequence[Piece],
        movable: Mapping[Spot, Sequence[Pod]],
        occupied: NodeSet,
        placement: Placement,
        *,
        components: Sequence[Sequence[int]],
        turn: int,
        ranks: int,
        leaving: NodeSet,
        waiting: Sequence[int],
    ) -> None:
        """Create the board.

        It has pieces for the pods that a tally counts, and for those of the replacements that are `waiting`: of moves
        in flight, without a node yet. At least one pod by spot is movable, those with the lowest disruption cost first.
        `occupied` are the nodes with a pod of the pieces, and `leaving` those that lose their pods anyway, which are
        distinguished from others. `components` are the tallies by their index, those together that share pods. `turn`
        is which of nodes that are alike is taken, counted round: so the plans of different boards don't crowd on the
        same few nodes. There are so many `ranks` of the policies that want groups cured.
        """
        self.tallies = tuple(tallies)
        self.pieces = tuple(pieces)
        self.placement = placement
        self.waiting = tuple(waiting)
        self.components = tuple(map(tuple, components))
        self._apart = tuple(map(self._sets_apart, self.components))
        """By component, sets of groups to be cured of which no two share pods."""
        self._turn, self._going = turn, leaving
        self.fine = False
        """Whether nodes are distinguished by everything that can matter, or only by what usually matters."""
        self._movable = {spot: tuple(pods) for spot, pods in movable.items()}
        self._evicted: Counter[Spot] = Counter()
        self._evicted_of: Counter[OwnerReference | None] = Counter()
        self._spots_on: defaultdict[int, dict[Spot, int]] = defaultdict(dict)
        """By slot, the spots with a pod now or in some position, and how many movable pods they have at first."""
        alike: dict[tuple[int, ...], set[OwnerReference | None]] = {}
        for spot, pods in movable.items():
            self._spots_on[spot.slot][spot] = len(pods)
            alike.setdefault(self.pieces[spot.piece].hard, set()).update(pod.controller for pod in pods)
        self._alike = {controller: those for those in alike.values() for controller in those}
        """The controllers of pods with the same DoNotSchedule constraints, by each of them."""
        self._landed: Counter[Spot] = Counter()
        self._leaving: tuple[Pod, ...] = ()
        self._history: list[tuple[Spot, int]] = []
        self._kinds_at_start: dict[int, tuple[object, ...]] = {}
        self.dividing = _dividing(self.tallies)
        self._accepting = tuple(dict.fromkeys(piece.replacement.statically_feasible for piece in self.pieces))
        """The different sets of nodes that accept a piece."""
        self._changed = {index for index, tally in enumerate(self.tallies) if tally.cure}
        """The groups to be cured that have changed since these numbers were taken over from them."""
        self._excess_of, self._moves_of = [0] * len(self.tallies), [0.0] * len(self.tallies)
        self._violated = [0] * ranks
        self._needs = needs_of((*chain(*movable.values()), *(self.pieces[number].sample for number in waiting)))
        self.occupied = occupied
        """The nodes that have, or had in some position, a pod of the pieces. Each is distinct from all others."""
        self.touched: NodeSet = 0
        """The nodes that pods were evicted from or placed on in any position so far."""

    # The position

    def position(self) -> Hashable:
        """Return a value that is equal for equal positions and for no others."""
        return frozenset(self._evicted.items()), frozenset(self._landed.items())

    def likeness(self) -> Hashable:
        """Return a value that is equal for two positions only if they differ just by an exchange of equivalent nodes.

        Use it for `fine` boards.
        """
        changed: dict[int, list[tuple[int, int, int]]] = {}
        for spot, count in self._evicted.items():
            changed.setdefault(spot.slot, []).append((spot.piece, count, -1))
        for spot, count in self._landed.items():
            changed.setdefault(spot.slot, []).append((spot.piece, count, 1))
        alike = Counter((self._kinds_at_start[slot], tuple(sorted(changes))) for slot, changes in changed.items())
        return frozenset(alike.items())

    def excess(self) -> int:
        """Return the total excess of the groups to be restored."""
        self._take_over()
        return sum(self._excess_of)

    def _take_over(self) -> None:
        """Take over from the changed groups what is asked for at each position."""
        for index in self._changed:
            tally = self.tallies[index]
            self._violated[tally.rank] += (tally.excess > 0) - (self._excess_of[index] > 0)
            self._excess_of[index], self._moves_of[index] = tally.excess, tally.fewest_moves()
        self._changed.clear()

    def cost(self, evictions: int = 0) -> Cost:
        """Return what there is to be cured, after so many evictions."""
        excess = self.excess()
        return Cost(tuple(self._violated), excess, evictions)

    def _in_all(self, moves: Mapping[int, float] | Sequence[float]) -> float:
        """Return the least number of moves that are as many as these for each group to be cured.

        The same moves can restore groups that share pods, but not groups that share none.
        """
        return sum(max((sum(map(moves.__getitem__, those)) for those in sets), default=0) for sets in self._apart)

    def _sets_apart(self, component: Iterable[int]) -> set[frozenset[int]]:
        """Return sets of groups to be cured of which no two share pods: one with each group, and small ones."""
        pieces = {
            index: {number for number, piece in enumerate(self.pieces) if index in piece.counted_by}
            for index in component
            if self.tallies[index].cure
        }
        smallest_first = sorted(pieces, key=lambda index: len(pieces[index]))
        found = set()
        for index in pieces:
            apart = [index]
            for other in smallest_first:
                if all(pieces[other].isdisjoint(pieces[each]) for each in apart):
                    apart.append(other)
            found.add(frozenset(apart))
        return found

    def reach(self, *, however_much_room: bool = False) -> Cost:
        """Return what no plan for these groups can cost less than, if they are as at the start.

        With `however_much_room`, it is assumed that pods outside the board leave theirs.
        """
        reaches = {
            index: tally.reach(however_much_room=however_much_room)
            for index, tally in enumerate(self.tallies)
            if tally.cure
        }
        violated = [0] * len(self._violated)
        for index, each in reaches.items():
            violated[self.tallies[index].rank] += each.excess > 0
        return Cost(
            tuple(violated),
            sum(each.excess for each in reaches.values()),
            int(self._in_all({index: each.moves for index, each in reaches.items()})),
        )

    def potential(self) -> Potential:
        """Return how far from cured the board is."""
        violated, excess, _ = self.cost()
        return Potential(self._in_all(self._moves_of), sum(self._moves_of), excess, violated)

    # Who may go

    def spots(self, *, overfull: bool) -> Iterator[Spot]:
        """Yield the spots from which pods may be evicted, one of each set of equivalent spots.

        With `overfull`, only those in domains that are too full in a group to be restored. This is nearly always
        enough, because any other eviction only helps if its replacement must land in a minimal domain.
        """
        violated = [tally if tally.cure and tally.excess else None for tally in self.tallies]
        seen: set[tuple[object, ...]] = set()
        for spot, pods in self._movable.items():
            if self._evicted[spot] == len(pods):
                continue
            piece, slot = spot
            counting = [tally for index in self.pieces[piece].counted_by if (tally := violated[index]) is not None]
            if overfull:
                if not any(tally.overfull(tally.domain_of[slot]) for tally in counting):
                    continue
            elif not counting:
                continue
            kind = (piece, *self.kind(slot))
            if kind not in seen:
                seen.add(kind)
                yield spot

    def left(self, spot: Spot) -> int:
        """Return how many pods of a spot may still be evicted."""
        return len(self._movable.get(spot, ())) - self._evicted[spot]

    def victim(self, spot: Spot, after: int = 0) -> Pod:
        """Return the next pod to evict from a spot, or the one after several others."""
        return self._movable[spot][self._evicted[spot] + after]

    def turn(self, spot: Spot) -> tuple[int, int]:
        """Return what is less for pods that go first if they cost as much: then limits bind late, and minimums stay.

        How many more pods of their controller are evicted than of another one whose pods are alike; then, negated, how
        many pods their node has of DoNotSchedule or restored groups with nodes as domains, all together.
        """
        of_each, controller, piece = self._evicted_of, self.victim(spot).controller, self.pieces[spot.piece]
        on_node = (
            tally.count(domain)
            for index in (*piece.hard, *piece.soft)
            if (tally := self.tallies[index]).single and (domain := tally.domain_of[spot.slot]) is not None
            if tally.cure or not tally.soft
        )
        return of_each[controller] - min(of_each[other] for other in self._alike[controller]), -sum(on_node)

    def movable_spots(self) -> Iterator[Spot]:
        """Yield every spot with a pod that may still be evicted."""
        return (spot for spot, pods in self._movable.items() if self._evicted[spot] < len(pods))

    # What tells nodes apart

    def kind(self, slot: int) -> tuple[object, ...]:
        """Return the kind of a node: nodes of one kind are equivalent.

        For groups, this is the domain, or the domain's count if the domain is the single node. On a fine board, the
        kind also contains the board's pods on the node, which pieces the node accepts, and its room, up to what all
        movable and waiting pods request.
        """
        kind: list[object] = [self._going >> slot & 1]
        for tally in self.dividing:
            domain = tally.domain_of[slot]
            kind.append(tally.count(domain) if tally.single and domain is not None else domain)
        if self.fine:
            kind.extend([nodes >> slot & 1 for nodes in self._accepting])
            evicted, landed = self._evicted.get, self._landed.get
            pods = [
                (spot.piece, movable - evicted(spot, 0), landed(spot, 0))
                for spot, movable in self._spots_on[slot].items()
            ]
            kind.append(tuple(sorted([each for each in pods if each[1] or each[2]])))
            free = self.placement.view.free
            kind.extend([min(free.of(name).free[slot], most) for name, most in self._needs.items()])
        return tuple(kind)

    def pick(self, nodes: NodeSet) -> int:
        """Return the slot of one of these nodes, to represent all of them."""
        return nth_slot(nodes, self._turn % nodes.bit_count())

    def ample(self) -> Ample:
        """Return the touched nodes with so much room that other pods there affected nothing, in the current position.

        None are returned if pods affect the replacements otherwise than by the room that they take.
        """
        if self.waiting or not all(piece.replacement.needs_only_room for piece in self.pieces):
            return Ample()
        found = Ample(needs=self._needs)
        slots = [slot for slot in slots_of(self.touched) if found.is_on(slot, self.placement.view)]
        return found._replace(nodes=node_set(slots))

    # Moves

    def mark(self) -> BoardMark:
        """Return the position, to `revert` to."""
        return len(self._history), self.placement.view.mark(), self._leaving

    def evict(self, spot: Spot) -> Pod:
        """Make the next pod of a spot terminating, and return it."""
        pod = self.victim(spot)
        self._touch(spot.slot)
        self.placement.view.evict(pod)
        self._leaving = (*self._leaving, pod)
        self._evicted[spot] += 1
        self._evicted_of[pod.controller] += 1
        self.count(spot, -1)
        self._history.append((spot, -1))
        return pod

    def finish_terminations(self) -> None:
        """Remove all terminating pods."""
        for pod in self._leaving:
            self.placement.view.remove(pod)
        self._leaving = ()

    def place(self, spot: Spot) -> None:
        """Place a replacement of a piece on a node."""
        piece, slot = spot
        self._touch(slot)
        self.placement.view.place(self.pieces[piece].sample, self.placement.table.names[slot])
        self._landed[spot] += 1
        self._spots_on[slot].setdefault(spot, 0)
        self.occupied |= 1 << slot
        self.count(spot, 1)
        self._history.append((spot, 1))

    def expect(self, spot: Spot, by: int) -> None:
        """Place a replacement of a move in flight before the first move, or take it back from the counts with -1.

        Its room is given back with the view's.
        """
        piece, slot = spot
        self.touched |= 1 << slot
        if by > 0:
            self.placement.view.place(self.pieces[piece].sample, self.placement.table.names[slot])
            self.occupied |= 1 << slot
        self.count(spot, by)

    def _touch(self, slot: int) -> None:
        self.touched |= 1 << slot
        if self.fine and slot not in self._kinds_at_start:
            # This is the first move on the node: all earlier attempts have been undone.
            self._kinds_at_start[slot] = self.kind(slot)

    def play(self, evicted: Iterable[Spot], placed: Iterable[Spot]) -> tuple[Pod, ...]:
        """Make a whole step with this placement of its replacements, and return the evicted pods."""
        pods = tuple(self.evict(spot) for spot in evicted)
        for spot in placed:
            self.place(spot)
        self.finish_terminations()
        return pods

    def revert(self, mark: BoardMark) -> None:
        """Undo every move since a mark, in reverse order."""
        moves, view, self._leaving = mark
        self.placement.view.revert(view)
        while len(self._history) > moves:
            spot, by = self._history.pop()
            counter = self._evicted if by < 0 else self._landed
            counter[spot] -= 1
            if not counter[spot]:
                del counter[spot]
            if by < 0:
                self._evicted_of[self.victim(spot).controller] -= 1
            self.count(spot, -by)

    @property
    def open_nodes(self) -> NodeSet:
        """The nodes that may accept some replacement if there is room."""
        known = (piece.replacement for piece in self.pieces if piece.replacement.unknown is None)
        return union(replacement.statically_feasible for replacement in known)

    @property
    def largest_request(self) -> Mapping[str, int]:
        """For each resource, the largest request of a piece."""
        return largest_of(piece.sample for piece in self.pieces)

    def count(self, spot: Spot, by: int) -> None:
        """Count a pod in or out, in the tallies only."""
        piece, slot = spot
        for index in self.pieces[piece].counted_by:
            tally = self.tallies[index]
            if (domain := tally.domain_of[slot]) is not None:
                tally.change(domain, by)
                if tally.cure:
                    self._changed.add(index)


def _dividing(tallies: Sequence[Tally]) -> tuple[Tally, ...]:
    """Return the tallies that tell nodes apart: one of those with the same domains, unless each domain is a node."""
    first = {id(tally.domains): tally for tally in reversed(tallies)}
    return tuple(tally for tally in tallies if tally.single or first[id(tally.domains)] is tally)


def needs_of(pods: Iterable[Pod]) -> dict[str, int]:
    """Return the sum of the requests of pods, and their number, without what none of them requests."""
    needs: Counter[str] = Counter()
    for pod in pods:
        needs.update(pod.spec.requests)
        needs[POD_SLOTS] += 1
    return {name: amount for name, amount in sorted(needs.items()) if amount}


class SearchBudget:
    """A budget of looks, each of some tens of microseconds."""

    __slots__ = ("_most", "_reserve", "drawn", "spent")

    def __init__(self, most: int, reserve: int = 0) -> None:
        """Create a budget of so many looks, and of a reserve of more after `draw_reserve`."""
        self._most = most
        self._reserve = reserve
        self.drawn = False
        self.spent = 0

    @property
    def exhausted(self) -> bool:
        """Whether the search must stop."""
        return self.spent >= self._most

    def spend(self, looks: int = 1) -> None:
        """Use some looks."""
        self.spent += looks

    def draw_reserve(self) -> None:
        """Add the reserve to the budget, once."""
        self.drawn = True
        self._most += self._reserve


class Cost(NamedTuple):
    """What decides between ways, the first that differs: groups left violated, then excess left, then evictions.

    One group within maxSkew and one as it was is better than two that are only nearer to it: who began a group that
    can't be finished has evicted pods and cured nothing.
    """

    violated: tuple[int, ...]
    """How many of the groups to be cured stay violated, by the rank of their policies, the most important first."""
    excess: int
    """What is left of the groups' total excess."""
    evictions: int


def total(costs: Sequence[Cost]) -> Cost:
    """Return what ways of different components cost together; there is one at least."""
    return Cost(
        tuple(map(sum, zip(*(cost.violated for cost in costs), strict=True))),
        sum(cost.excess for cost in costs),
        sum(cost.evictions for cost in costs),
    )
