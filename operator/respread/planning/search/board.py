"""The game that planning plays: spread groups that share pods, the pods that may be evicted, and where they all are.

A step evicts pods; the scheduler then places their replacements on nodes that it finds feasible. The board holds one
position of this game: it can be moved on, piece by piece, and taken back. Where replacements may land is asked of
`landings`, which steps are safe of `safety`, and which of them to take of `search`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple, TypeAlias

from respread.cluster.pod import Pod
from respread.planning.search.closed_form import Reach
from respread.planning.search.placement import Placement
from respread.planning.search.tally import Tally
from respread.scheduling.prepared_pod import PreparedPod
from respread.scheduling.view.free_resources import POD_SLOTS
from respread.scheduling.view.node_sets import NodeSet
from respread.spread.group import Template


class Spot(NamedTuple):
    """Where pods of one piece are that may be evicted; of several there, the gentlest goes first."""

    piece: int
    slot: int
    """Of the node."""


class Piece(NamedTuple):
    """The pods of one template on the board."""

    template: Template
    sample: Pod
    """Any of its pods."""
    replacement: PreparedPod
    """What answers for where replacements of its pods may go."""
    when_gone: bool
    """Whether a pod is replaced only when it is gone."""
    counted_by: tuple[int, ...]
    """The tallies that count its pods."""
    hard: tuple[int, ...]
    """The tallies of its own DoNotSchedule constraints."""
    soft: tuple[int, ...]
    """The tallies of its own ScheduleAnyway constraints."""


class Mark(NamedTuple):
    """A position to go back to."""

    moves: int
    view: int
    leaving: tuple[Pod, ...]


Potential: TypeAlias = tuple[float, float, int]


class Board:
    """The groups and pods of one component, under change."""

    __slots__ = (
        "_evicted",
        "_first_slot",
        "_history",
        "_kinds_at_start",
        "_landed",
        "_leaving",
        "_movable",
        "_needs",
        "_spots_of",
        "components",
        "fine",
        "occupied",
        "pieces",
        "placement",
        "tallies",
        "touched",
    )

    def __init__(
        self,
        tallies: Sequence[Tally],
        pieces: Sequence[Piece],
        movable: Mapping[Spot, Sequence[Pod]],
        occupied: NodeSet,
        placement: Placement,
        components: Sequence[Sequence[int]] = (),
        first_slot: int = 0,
    ) -> None:
        """Set the board up.

        Args:
            tallies: the groups.
            pieces: the templates of the pods that some tally counts.
            movable: the pods that may be evicted, the gentlest first.
            occupied: the nodes that hold any pod of the pieces.
            placement: the rest of the cluster.
            components: the tallies by their index, those together that share pods; empty if all do.
            first_slot: of nodes that are alike the first one from here on is taken. Where each board has another one,
                their plans don't crowd on the same few nodes.
        """
        self.tallies = tuple(tallies)
        self.pieces = tuple(pieces)
        self.placement = placement
        self.components = tuple(map(tuple, components)) or (tuple(range(len(self.tallies))),)
        self._first_slot = first_slot
        self.fine = False
        """Whether nodes are told apart by everything that may ever matter, or only by what mostly does."""
        self._movable = {spot: tuple(pods) for spot, pods in movable.items() if pods}
        self._evicted: Counter[Spot] = Counter()
        self._landed: Counter[Spot] = Counter()
        self._leaving: tuple[Pod, ...] = ()
        self._history: list[tuple[Spot, int]] = []
        self._kinds_at_start: dict[int, tuple[object, ...]] = {}
        self._spots_of: dict[int, Sequence[tuple[Spot, int, int]]] = {}
        self._needs = _needs_of(pod for pods in movable.values() for pod in pods)
        self.occupied = occupied
        """The nodes that hold, or held in some position, any pod of the pieces: each is one of its kind."""
        self.touched: NodeSet = 0
        """The nodes that pods were evicted from or placed on in any position so far."""

    # The position

    def position(self) -> Hashable:
        """Return a value that is equal for equal positions and for no others."""
        return frozenset(self._evicted.items()), frozenset(self._landed.items())

    def likeness(self) -> Hashable:
        """Return a value that is equal for positions only if they differ in no more than which of alike nodes is which.

        It is for `fine` boards.
        """
        changed: dict[int, list[tuple[int, int, int]]] = {}
        for spot, count in self._evicted.items():
            changed.setdefault(spot.slot, []).append((spot.piece, count, -1))
        for spot, count in self._landed.items():
            changed.setdefault(spot.slot, []).append((spot.piece, count, 1))
        alike = Counter((self._kinds_at_start[slot], tuple(sorted(changes))) for slot, changes in changed.items())
        return frozenset(alike.items())

    def excess(self) -> int:
        """Return the total excess of the groups to be cured."""
        return sum(tally.excess() for tally in self.tallies if tally.cure)

    def excesses(self) -> list[int]:
        """Return the excess of every group."""
        return [tally.excess() for tally in self.tallies]

    def lower_bound(self) -> float:
        """Return the moves that every plan which cures these groups needs at least; infinity where none can.

        Groups that share pods may be cured by the same moves, those that don't can't.
        """
        tallies = self.tallies
        return sum(
            max((tallies[index].fewest_moves() for index in component if tallies[index].cure), default=0)
            for component in self.components
        )

    def reach(self, *, however_much_room: bool = False) -> Reach:
        """Return how near to cured any plan can bring these groups, if they are as at the start.

        Args:
            however_much_room: whether pods that are not on the board may leave the room they take.
        """
        tallies = self.tallies
        reaches = [
            [tallies[index].reach(however_much_room=however_much_room) for index in component if tallies[index].cure]
            for component in self.components
        ]
        return Reach(
            sum(each.excess for component in reaches for each in component),
            sum(max((each.moves for each in component), default=0) for component in reaches),
        )

    def potential(self) -> Potential:
        """Return how far from cured: the lower bound, the sum of the groups' closed forms, the total excess."""
        forms = sum(tally.fewest_moves() for tally in self.tallies if tally.cure)
        return self.lower_bound(), forms, self.excess()

    # Who may go

    def spots(self, *, overfull: bool) -> Iterator[Spot]:
        """Yield where pods may be evicted, one of the spots that are alike.

        Args:
            overfull: whether only from domains that are too full in some group to be cured: nearly always that is
                enough, since any other eviction helps only if its replacement can go nowhere but to the minimum.
        """
        violated = [tally if tally.cure and tally.excess() else None for tally in self.tallies]
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
        """Return the pod that is evicted next from a spot, or after so many others."""
        return self._movable[spot][self._evicted[spot] + after]

    def movable_spots(self) -> Iterator[Spot]:
        """Yield every spot with a pod that may still be evicted."""
        return (spot for spot, pods in self._movable.items() if self._evicted[spot] < len(pods))

    # What tells nodes apart

    def kind(self, slot: int) -> tuple[object, ...]:
        """Return what tells a node from others: nodes of one kind are as good as each other.

        For the groups that is the domain, or the domain's count where it is the node alone. Where it has to be exact,
        the board's pods on the node count too, whom it lets on, and its room up to what all that may move request.
        """
        kind: list[object] = []
        for tally in self.tallies:
            domain = tally.domain_of[slot]
            kind.append(tally.count(domain) if tally.single and domain is not None else domain)
        if self.fine:
            evicted, landed = self._evicted.get, self._landed.get
            for spot, movable, lets_on in self._spots_on(slot):
                kind.append((movable - evicted(spot, 0), landed(spot, 0), lets_on))
            free = self.placement.view.free
            kind.extend([min(free.of(name).free[slot], most) for name, most in self._needs.items()])
        return tuple(kind)

    def _spots_on(self, slot: int) -> Sequence[tuple[Spot, int, int]]:
        """Return a node's spots, with how many pods of each may be evicted in all, and 1 if it lets the piece on."""
        if (found := self._spots_of.get(slot)) is None:
            found = self._spots_of[slot] = [
                (spot := Spot(number, slot), len(self._movable.get(spot, ())), piece.replacement.settled >> slot & 1)
                for number, piece in enumerate(self.pieces)
            ]
        return found

    def pick(self, nodes: NodeSet) -> int:
        """Return the slot of one of some nodes, to stand for all of them."""
        following = nodes >> self._first_slot
        if following:
            return self._first_slot + (following & -following).bit_length() - 1
        return (nodes & -nodes).bit_length() - 1

    # Moves

    def mark(self) -> Mark:
        """Return the position, to `revert` to."""
        return Mark(len(self._history), self.placement.view.mark(), self._leaving)

    def evict(self, spot: Spot) -> Pod:
        """Let the next pod of a spot begin to terminate, and return it."""
        pod = self.victim(spot)
        self._touch(spot.slot)
        self.placement.view.evict(pod)
        self._leaving = (*self._leaving, pod)
        self._evicted[spot] += 1
        self.count(spot, -1)
        self._history.append((spot, -1))
        return pod

    def settle(self) -> None:
        """Let all pods that are terminating be gone."""
        for pod in self._leaving:
            self.placement.view.remove(pod)
        self._leaving = ()

    def place(self, spot: Spot) -> None:
        """Place a replacement of a piece on a node."""
        piece, slot = spot
        self._touch(slot)
        self.placement.view.place(self.pieces[piece].sample, self.placement.table.names[slot])
        self._landed[spot] += 1
        self.occupied |= 1 << slot
        self.count(spot, 1)
        self._history.append((spot, 1))

    def _touch(self, slot: int) -> None:
        self.touched |= 1 << slot
        if self.fine and slot not in self._kinds_at_start:
            # This is the first move there is on the node: whatever was tried before has been taken back.
            self._kinds_at_start[slot] = self.kind(slot)

    def play(self, evicted: Iterable[Spot], placed: Iterable[Spot]) -> tuple[Pod, ...]:
        """Make a whole step with the outcome that its replacements are placed so, and return the pods evicted."""
        pods = tuple(self.evict(spot) for spot in evicted)
        for spot in placed:
            self.place(spot)
        self.settle()
        return pods

    def revert(self, mark: Mark) -> None:
        """Take back every move since a mark, the last one first."""
        self.placement.view.revert(mark.view)
        self._leaving = mark.leaving
        while len(self._history) > mark.moves:
            spot, by = self._history.pop()
            counter = self._evicted if by < 0 else self._landed
            counter[spot] -= 1
            if not counter[spot]:
                del counter[spot]
            self.count(spot, -by)

    @property
    def settled(self) -> NodeSet:
        """The nodes that may take any replacement at all, if there is room."""
        nodes = 0
        for piece in self.pieces:
            if piece.replacement.unknown is None:
                nodes |= piece.replacement.settled
        return nodes

    @property
    def largest_request(self) -> dict[str, int]:
        """The most that one of the pieces requests, of each resource."""
        largest = {POD_SLOTS: 1}
        for piece in self.pieces:
            for name, amount in piece.template.spec.requests.items():
                largest[name] = max(amount, largest.get(name, 0))
        return largest

    def count(self, spot: Spot, by: int) -> None:
        """Count a pod more or less, in the tallies alone."""
        piece, slot = spot
        for index in self.pieces[piece].counted_by:
            tally = self.tallies[index]
            if (domain := tally.domain_of[slot]) is not None:
                tally.change(domain, by)


def _needs_of(movable: Iterable[Pod]) -> dict[str, int]:
    """Return what all pods that may be evicted request together."""
    needs: Counter[str] = Counter()
    for pod in movable:
        needs.update(pod.spec.requests)
        needs[POD_SLOTS] += 1
    return {name: amount for name, amount in sorted(needs.items()) if amount}
