"""Whether there is room somewhere: claims on nodes beside one another.

Whether there is room whatever the scheduler does is the question of `contention`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from respread.cluster.pod import Pod
from respread.planning.placement import Placement
from respread.planning.room.demand import wanted_by
from respread.scheduling.view.free_resources import POD_SLOTS, FreeResources
from respread.scheduling.view.node_sets import NodeSet, slots_of
from respread.scheduling.view.volumes import has_volumes


class Taken(NamedTuple):
    """Room that a solution uses on a node."""

    slot: int
    pod: Pod
    """A pod like the replacement that is placed there."""


class Claim(NamedTuple):
    """Room that is kept for somebody."""

    taken: tuple[Taken, ...]
    holder: str
    """Whose it is, for people."""
    is_waiting: bool
    """Whether it is for pods that wait for a node, rather than for moves that are still to be planned."""


class RoomBook:
    """What claims take of nodes."""

    __slots__ = ("_taken", "_unclear")

    def __init__(self, claims: Iterable[Claim] = ()) -> None:
        self._taken: dict[int, Counter[str]] = {}
        """By slot and resource."""
        self._unclear: Counter[int] = Counter()
        """By slot, how many pods are placed there that may need more than resource amounts."""
        for claim in claims:
            self.take(claim.taken)

    def take(self, taken: Iterable[Taken], by: int = 1) -> None:
        """Note what a claim takes, or with -1 that it takes it no more."""
        for each in taken:
            _take(self._taken.setdefault(each.slot, Counter()), each.pod, by)
            if _may_want_more(each.pod):
                self._unclear[each.slot] += by

    def taken(self, slot: int, name: str) -> int:
        """Return how much of a resource of a node is taken."""
        return self._taken[slot][name] if slot in self._taken else 0

    def holds(self, taken: Sequence[Taken], free: FreeResources) -> bool:
        """Whether there is room for a claim beside the others, if it has room without them."""
        together: dict[int, Counter[str]] = {}
        for each in taken:
            if (others := self._taken.get(each.slot)) is None:
                continue
            if _may_want_more(each.pod):
                return False
            _take(together.setdefault(each.slot, others.copy()), each.pod)
        return all(_fits(amounts, slot, free) for slot, amounts in together.items())

    def is_certain(self, slot: int, free: FreeResources) -> bool:
        """Whether a node has room for all that is taken of it, if it has for each claim alone."""
        amounts = self._taken.get(slot)
        if amounts is None or amounts[POD_SLOTS] <= 1:
            return True
        return not self._unclear[slot] and _fits(amounts, slot, free)


class RoomForAll:
    """Whether nodes have room for all claims of a plan, at the cost of what has changed since the last one."""

    __slots__ = ("_book", "_claims", "_short")

    def __init__(self) -> None:
        self._claims: dict[int, Claim] = {}
        """By identity."""
        self._book = RoomBook()
        self._short: set[int] = set()
        """The slots where it is not certain that all fit."""

    def holds(self, claims: Iterable[Claim], changed: NodeSet, placement: Placement) -> bool:
        """Whether it is certain that there is room for all claims beside one another.

        Args:
            claims: each of which has room if it is alone.
            changed: the nodes that are not as they were when this was called last.
            placement: the current cluster.
        """
        before = self._claims
        self._claims = {id(each): each for each in claims}
        touched = set(slots_of(changed))
        for one, other, by in ((before, self._claims, -1), (self._claims, before, 1)):
            for claim in (each for identity, each in one.items() if identity not in other):
                self._book.take(claim.taken, by)
                touched.update(taken.slot for taken in claim.taken)
        free = placement.view.free
        self._short -= touched
        self._short.update(slot for slot in touched if not self._book.is_certain(slot, free))
        return not self._short


def _fits(amounts: Mapping[str, int], slot: int, free: FreeResources) -> bool:
    return all(amount <= free.of(name).free[slot] for name, amount in amounts.items())


def _may_want_more(pod: Pod) -> bool:
    """Whether a pod may need more of a node than resource amounts."""
    return bool(pod.spec.host_ports) or has_volumes(pod.spec)


def _take(amounts: Counter[str], pod: Pod, by: int = 1) -> None:
    for name, amount in wanted_by(pod).items():
        amounts[name] += by * amount
