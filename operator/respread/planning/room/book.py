"""Whether nodes have room for the replacements of several solutions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from respread.cluster.pod import Pod
from respread.planning.placement import Placement
from respread.scheduling.view.free_resources import POD_SLOTS
from respread.scheduling.view.node_sets import NodeSet, slots_of
from respread.scheduling.view.volume_usage import has_volumes


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


class Room:
    """The room that solutions use on nodes, one after another."""

    __slots__ = ("_free", "_taken")

    def __init__(self, placement: Placement) -> None:
        self._free = placement.view.free
        self._taken: dict[int, dict[str, int]] = {}

    def holds(self, taken: Sequence[Taken]) -> bool:
        """Whether there is room for a solution beside those that have reserved theirs."""
        own: dict[int, dict[str, int]] = {}
        for each in taken:
            if (others := self._taken.get(each.slot)) is None:
                continue  # It was solved with all the room of this node.
            if _may_want_more(each.pod):
                return False
            together = own.setdefault(each.slot, others.copy())
            _take(together, each.pod)
        return all(
            amount <= self._free.of(name).free[slot]
            for slot, amounts in own.items()
            for name, amount in amounts.items()
        )

    def take(self, taken: Iterable[Taken]) -> None:
        """Reserve the room that a solution takes."""
        for each in taken:
            _take(self._taken.setdefault(each.slot, {}), each.pod)

    def taken(self, slot: int, name: str) -> int:
        """Return how much of a resource of a node is reserved."""
        return self._taken.get(slot, {}).get(name, 0)


class RoomForAll:
    """What is taken by a plan in all, kept from plan to plan at the cost of those claims that are new or gone."""

    __slots__ = ("_amounts", "_claims", "_short", "_unclear")

    def __init__(self) -> None:
        self._claims: dict[int, Claim] = {}
        """By identity."""
        self._amounts: dict[int, dict[str, int]] = {}
        """By slot."""
        self._unclear: dict[int, int] = {}
        """By slot, how many pods are placed there that may need more than resource amounts."""
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
        touched = set(slots_of(changed)) & self._amounts.keys()
        for identity, each in before.items():
            if identity not in self._claims:
                touched.update(self._count(each, -1))
        for identity, each in self._claims.items():
            if identity not in before:
                touched.update(self._count(each, 1))
        for slot in touched:
            if self._is_certain(slot, placement):
                self._short.discard(slot)
            else:
                self._short.add(slot)
        return not self._short

    def _count(self, claim: Claim, by: int) -> Iterable[int]:
        for each in claim.taken:
            _take(self._amounts.setdefault(each.slot, {}), each.pod, by)
            if _may_want_more(each.pod):
                self._unclear[each.slot] = self._unclear.get(each.slot, 0) + by
        return (each.slot for each in claim.taken)

    def _is_certain(self, slot: int, placement: Placement) -> bool:
        amounts = self._amounts[slot]
        if amounts[POD_SLOTS] <= 1:
            return True
        free = placement.view.free
        return not self._unclear.get(slot) and all(
            amount <= free.of(name).free[slot] for name, amount in amounts.items()
        )


def _may_want_more(pod: Pod) -> bool:
    """Whether a pod may need more of a node than resource amounts."""
    return bool(pod.spec.host_ports) or has_volumes(pod.spec)


def _take(amounts: dict[str, int], pod: Pod, by: int = 1) -> None:
    for name, amount in pod.spec.requests.items():
        amounts[name] = amounts.get(name, 0) + by * amount
    amounts[POD_SLOTS] = amounts.get(POD_SLOTS, 0) + by
