"""Whether every pod that needs a node keeps one, whatever nodes the others take.

A pod keeps a place if one of these can be shown. Neither depends on the order:

- *Spots*: the others are too few to take all its room. To close a node, it takes as many of them as fill it, if each
  requests as much as the largest request.
- *A witness*: there is a node on which it fits even if all others that may land there do.

If constraints or anti-affinity let it land only on a node with few other pods of its component, or none, these close a
node, whatever room that has. Pods of other components only take room.

A proof is valid until more pods may land on the same nodes, and is only repeated then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from math import inf
from sys import maxsize
from typing import Final, NamedTuple

from immutables import Map

from respread.cluster.pod import Pod
from respread.planning.placement import Placement
from respread.planning.room.demand import (
    Conflict,
    Demand,
    Leaving,
    Part,
    Relations,
    counts_for,
    held_by,
    largest_of,
    wanted_by,
)
from respread.scheduling.view.node_table import NodeSet, node_set, slots_of, union

_MOST_LOOKS: Final = 20_000
"""The maximum number of looks, each at a node or at the pods that may land on the same nodes, for the initial pods,
again for those that join, and again for those that come later. If more are necessary, room is scarce, and the pods that
join must wait."""
_DOUBLINGS: Final = 7
_MOST_WITNESSES: Final = 16
"""The number of nodes tried as a witness, those with most room first."""
_MOST_PLACED: Final = 16
"""The number of pods of a kind that are placed on a node if more than resource amounts matter."""


class _Takers:
    """All pods that may land on the same nodes."""

    __slots__ = ("amounts", "number", "of_components")

    def __init__(self) -> None:
        self.number = 0
        self.of_components: Counter[int | None] = Counter()
        """The same by component."""
        self.amounts: Counter[str] = Counter()


class _Kept(NamedTuple):
    """A pod that keeps a place, and the proof."""

    demand: Demand
    part: Part
    """Where it needs room."""
    limits: float = inf
    """It keeps a place while there are fewer pods in total than this."""
    witness: int | None = None
    """The slot of a node on which it fits beside all others, if that is the proof."""


class _Opened(NamedTuple):
    """The pods of `waiting` to which nodes open that pods leave for those that have joined."""

    demands: Mapping[int, Demand] = Map()
    """These pods, by identity. Each may then land anywhere."""
    number: int = 0
    """How many they are."""
    places: Mapping[int, int] = Map()
    """How many of them each left node can take, by slot."""

    def beside(self, left: NodeSet, found: Mapping[int, Demand], leaving: Leaving) -> _Opened:
        """Return it with more nodes that are left, and the pods to which these open."""
        demands = {**self.demands, **found}
        if not demands:
            return self
        # Pods to which a node does not open when it is left can't land there later.
        places = {
            slot: max(leaving.places(slot, each.prepared) for each in demands.values()) for slot in slots_of(left)
        }
        number = sum(each.number for each in demands.values())
        return _Opened(demands, number, {**self.places, **places})

    def landing(self, demand: Demand) -> int:
        """Return how many of these pods may land on a node that opens to them, at most.

        Without a node that takes one, and with one constraint, they land elsewhere only as those that are let in raise
        the minimum: by one with each.
        """
        if demand.nodes or len(demand.prepared.hard_constraints) != 1:
            return demand.number
        return min(demand.number, sum(self.places.values()))


class Contention:
    """All pods that need a node. Each of them keeps one."""

    def __init__(
        self,
        placement: Placement,
        waiting: Sequence[Demand],
        leaving: Leaving,
        largest: Mapping[str, int],
        siblings: Mapping[int | None, NodeSet],
    ) -> None:
        """Start with the pods that already need a node, whether or not they keep a place: one without can't lose it.

        `leaving` is the room that terminating pods will leave, and `largest`, for each resource, at least the largest
        request of pods that may join later. `siblings` has, by component, where those of `waiting` that belong to it
        may land: beside its moves, which can let them land on more nodes than without.
        """
        self._placement = placement
        self._leaving = leaving
        self._waiting = waiting
        self._largest = dict(largest)
        for name, amount in largest_of(each.pod for each in waiting).items():
            self._largest[name] = max(amount, largest.get(name, 0))
        self._roomy = self._nodes_by_room()
        """The nodes with room for two pods of the largest request, for four, for eight and so on."""
        self._takers: dict[NodeSet, _Takers] = {}
        self._seeking = 0
        self._relations = Relations(placement.table, (each for each in waiting if not each.nodes))
        self._closed = union(each.may_open for each in waiting)
        """The nodes that would accept a pod of `waiting` if there were room."""
        self._by_limit: list[tuple[float, int, _Kept]] = []
        self._by_component: dict[int | None, list[_Kept]] = {}
        """Where others may close nodes. Another pod of the component makes each of these proofs doubtful."""
        self._by_witness: dict[int, list[_Kept]] = {}
        self._witnesses: NodeSet = 0
        self._number = 0
        self._opened = _Opened()
        self._widened = 0
        """How many may land on more nodes than were reserved for them: there, they are as many more."""
        self._looks = self._looks_for_later = _MOST_LOOKS
        self.fragile: list[Demand] = []
        """The pods of `waiting` that other pods of `waiting` may leave without a node."""
        self._without_room: list[Demand] = []
        """The pods that come later and for which no room could be reserved."""
        looking = [each for each in waiting if each.nodes]
        for each in looking:
            self._note(each, 1)
        for pod in leaving.pods:
            self._relations.leave(pod, placement)
        for each in looking:
            shown = [self._show(each, part) for part in each.must_hold]
            kept = [one for one in shown if one is not None]
            if len(kept) < len(shown):
                self.fragile.append(each)
                continue
            for one in kept:
                self._keep(one)
        self._looks = _MOST_LOOKS
        self._siblings = siblings
        self._contested = _in_several(each.nodes | each.may_open for each in waiting)
        """The nodes on which several of `waiting` may land. Room that is left there may let in one that takes more."""

    def join(self, demands: Sequence[Demand], left: Mapping[int, Sequence[Pod]]) -> Conflict | None:
        """Add pods if all keep a place, and return None, or else return the conflict.

        `left` has, by slot, the pods that leave nodes for them.
        """
        slots_left = node_set(list(left))
        if (conflict := self._in_the_way(demands, slots_left)) is not None:
            return conflict
        let_in = self._relations.let_in_by(demands)
        for each in let_in:
            if (other := self._relations.of(each) or self._relations.between(each, demands)) is not None:
                return other
        before = self._opened
        self._come((*demands, *let_in), left, 1)
        self._open(slots_left)
        conflict, kept = self._all_keep(demands, let_in, left)
        if conflict is not None:
            self._come((*demands, *let_in), left, -1)
            self._opened = before
            return conflict
        for one in kept:
            self._keep(one)
        return None

    def reserve(self, demand: Demand) -> bool:
        """Reserve room for pods that come only after those that have joined, and return whether they count now.

        If room can't be shown for them beside these, no pod of another component joins that may land on their nodes.
        """
        if self._relations.of(demand) is not None:
            return False  # It would keep all others away, whether or not there is room.
        looks, self._looks = self._looks, self._looks_for_later
        has_room = self.join((demand,), {}) is None
        is_shown = has_room or self._looks > 0
        if not has_room and is_shown:
            self._without_room.append(demand)
        self._looks_for_later, self._looks = self._looks, looks
        return is_shown

    def replace(self, before: Demand, demand: Demand, left: Mapping[int, Sequence[Pod]]) -> Conflict | None:
        """Let a pod take the place of one for which room is reserved, as `join` does."""
        if any(each is before for each in self._without_room):  # They do not count.
            return self.join((demand,), left)
        one = before._replace(number=1)
        self._note(one, -1)
        more = int(bool(demand.nodes & ~before.nodes))
        self._widened += more
        conflict = self.join((demand,), left)
        if conflict is not None:
            self._note(one, 1)
            self._widened -= more
        return conflict

    def _in_the_way(self, demands: Sequence[Demand], slots_left: NodeSet) -> Conflict | None:
        """Return a pod beside which pods that leave some nodes can't join, whatever room there is."""
        for each in demands:
            if (other := self._relations.of(each)) is not None:
                return other
        component, theirs = demands[0].component, union(each.nodes for each in demands)
        contested = theirs | self._contested & slots_left | self._siblings.get(component, 0)
        for without in self.fragile:
            if nodes := without.nodes & contested:
                return Conflict(without, nodes)
        for later in self._without_room:
            if later.component != component and (nodes := later.nodes & theirs):
                return Conflict(later, nodes)
        return None

    def _open(self, left: NodeSet) -> None:
        """Count the pods to which the left nodes may open, and those that may then land elsewhere."""
        found: dict[int, Demand] = {}
        for slot in slots_of(left & self._closed):
            for each in self._waiting:
                if each.may_open >> slot & 1 and self._leaving.places(slot, each.prepared):
                    found[id(each)] = each
        new = list(found.values())
        while new:
            shut_out = (each for each in self._waiting if not each.nodes and id(each) not in found)
            new = [each for each in shut_out if any(counts_for(each, one.pod) for one in new)]
            found.update((id(each), each) for each in new)
        self._opened = self._opened.beside(left, found, self._leaving)

    def _all_keep(
        self, demands: Sequence[Demand], let_in: Sequence[Demand], left: Mapping[int, Sequence[Pod]]
    ) -> tuple[Conflict | None, list[_Kept]]:
        """Prove that the new pods keep places, and so do those whose places they, or those they let in, might take."""
        by_limit: list[tuple[float, int, _Kept]] = []
        while self._by_limit and self._by_limit[0][0] <= self._in_all():
            by_limit.append(heappop(self._by_limit))
        touched = node_set(list(left)) | union(each.nodes for each in (*demands, *let_in))
        doubtful_witnesses = self._witnesses & touched
        by_witness = {slot: self._by_witness.pop(slot) for slot in slots_of(doubtful_witnesses)}
        components = {each.component for each in demands}
        by_component = {
            component: found
            for component, found in self._by_component.items()
            if component in components or any(each.limits <= self._in_all() for each in found)
        }
        doubtful = [
            *(kept for _, _, kept in by_limit),
            *(kept for each in (*by_witness.values(), *by_component.values()) for kept in each),
        ]
        wanted = [(each.demand, each.part) for each in doubtful]
        wanted.extend((each, part) for each in demands for part in each.must_hold)
        found: list[_Kept] = []
        for demand, part in wanted:
            if (shown := self._show(demand, part)) is None:
                for entry in by_limit:
                    heappush(self._by_limit, entry)
                self._by_witness.update(by_witness)
                return self._conflict(demand, demands, let_in), []
            found.append(shown)
        self._witnesses &= ~doubtful_witnesses
        for component in by_component:
            del self._by_component[component]
        return None, found

    def _conflict(self, failed: Demand, demands: Sequence[Demand], let_in: Sequence[Demand]) -> Conflict:
        """Name one of the initial pods, or of those that are let in, if they are involved."""
        nodes = failed.nodes
        if not any(failed is each for each in demands):
            for each in demands:
                nodes &= each.nodes
            return Conflict(failed, nodes or failed.nodes)
        for each in (*let_in, *self._waiting):
            if each.nodes & nodes:
                return Conflict(each, each.nodes & nodes)
        return Conflict(failed, nodes)

    # The pods

    def _come(self, demands: Iterable[Demand], left: Mapping[int, Sequence[Pod]], times: int) -> None:
        for slot, pods in left.items():
            for pod in pods:
                self._leaving.add(slot, pod, times)
        for each in demands:
            self._note(each, times)

    def _note(self, demand: Demand, times: int) -> None:
        takers = self._takers.setdefault(demand.nodes, _Takers())
        takers.number += times * demand.number
        takers.of_components[demand.component] += times * demand.number
        for name, amount in wanted_by(demand.pod).items():
            takers.amounts[name] += times * demand.number * amount
        self._seeking += times * demand.number
        if not takers.number:
            del self._takers[demand.nodes]
        self._relations.note(demand, times)

    # Proofs that a pod keeps a place

    def _keep(self, kept: _Kept) -> None:
        if kept.demand.closing:
            self._by_component.setdefault(kept.demand.component, []).append(kept)
        elif kept.witness is None:
            self._number += 1
            heappush(self._by_limit, (kept.limits, self._number, kept))
        else:
            self._by_witness.setdefault(kept.witness, []).append(kept)
            self._witnesses |= 1 << kept.witness

    def _show(self, demand: Demand, part: Part) -> _Kept | None:
        """Return the proof that a pod keeps a place in a part, or None."""
        others = self._in_all() - 1
        spots = self._spots_at_least(demand, part.nodes)
        if spots > others:
            return _Kept(demand, part, limits=spots + 1)
        if self._looks <= 0:
            return None
        self._looks -= part.nodes.bit_count() + len(self._takers)
        room = [(here, slot) for slot in slots_of(part.nodes) if (here := self._spots(demand, slot))]
        rivals, may_close = self._meeting(demand, part, part.nodes)
        if demand.closing:
            enough = _enough_to_close(room, part.roomy, min(demand.closing, may_close))
            limits = self._in_all() + enough - rivals
            return _Kept(demand, part, limits=limits) if enough > rivals else self._show_unless_full(demand, part)
        spots = sum(here for here, _ in room)
        if spots > rivals:
            return _Kept(demand, part, limits=spots + 1 + others - rivals)
        room.sort(reverse=True)
        for _, slot in room[:_MOST_WITNESSES]:
            if self._fits_beside_all(demand, slot):
                return _Kept(demand, part, witness=slot)
        return None

    def _show_unless_full(self, demand: Demand, part: Part) -> _Kept | None:
        """Return the proof that a constraint closes each node before it is full, and that too few come to close all.

        To fill a node that is open, it takes more of others than may land there.
        """
        if not part.unless_full or part.unless_full[0] & ~demand.now:
            return None
        nodes = part.unless_full[0]
        rivals, may_close = self._meeting(demand, part, nodes)
        closing = {slot: sum(those >> slot & 1 for those in part.unless_full) for slot in slots_of(nodes)}
        left = min(self._spots(demand, slot) - number for slot, number in closing.items()) - (rivals - may_close)
        if left < 0 or sum(closing.values()) <= min(demand.closing, may_close):
            return None
        return _Kept(demand, part, limits=self._in_all() + left + 1)

    def _meeting(self, demand: Demand, part: Part, nodes: NodeSet) -> tuple[int, int]:
        """Return how many others may land on some nodes before it, and how many of these may close one."""
        meeting = [takers for theirs, takers in self._takers.items() if theirs & nodes]
        of_component = sum(takers.of_components[demand.component] for takers in meeting)
        itself = min(1, of_component)  # None of them may land where no node has room now.
        rivals = sum(takers.number for takers in meeting) - itself + self._opened.number
        if demand.component is None:
            return rivals, rivals
        siblings = of_component - itself
        may_close = min(siblings, part.siblings)
        return rivals - (siblings - may_close), may_close

    def _spots_at_least(self, demand: Demand, part: NodeSet) -> int:
        """Return a lower bound for the number of pods that leave no room on some nodes, without examining each node.

        Each node with room counts one, and in addition as many pods of the largest request as fit, rounded down to a
        power of two.
        """
        part &= demand.now
        spots = part.bit_count()
        if demand.prepared.needs_only_amounts and not demand.closing:
            for exponent, nodes in enumerate(self._roomy):
                spots += (part & nodes).bit_count() << exponent
        return spots

    def _in_all(self) -> int:
        return self._seeking + self._opened.number + self._widened

    def _nodes_by_room(self) -> Sequence[NodeSet]:
        free = self._placement.view.free
        found = []
        for exponent in range(1, _DOUBLINGS):
            nodes = self._placement.table.every
            for name, most in self._largest.items():
                if most:  # Rounded up to a power of two, so that repeated questions have known answers.
                    nodes &= free.of(name).at_least(1 << (most - 1).bit_length() + exponent)
            found.append(nodes)
        return found

    def _credit(self, demand: Demand, slot: int) -> Mapping[str, int]:
        """Return what will be free on a node when the pod looks for one."""
        if demand.counts_on_leaving:
            return self._leaving.of(slot)
        if demand.own is not None and self._placement.table.slot_of.get(demand.own.node_name) == slot:
            return held_by(demand.own)
        return {}

    def _spots(self, demand: Demand, slot: int) -> int:
        """Return how many of the others leave no room on a node; 0 if it has none now."""
        credit = self._credit(demand, slot)
        fitting = (  # Nobody else wants a resource without a largest request.
            (amounts.free[slot] + credit.get(name, 0) - amount) // (self._largest.get(name) or amount) + 1
            for name, amounts, amount in demand.prepared.needs
        )
        fewest = min(fitting, default=maxsize)
        return max(0, fewest if demand.prepared.needs_only_amounts else min(fewest, 1))

    def _fits_beside_all(self, demand: Demand, slot: int) -> bool:
        """Return whether a node has room for a pod even if all others that may land there do."""
        used: Counter[str] = Counter()
        for nodes, takers in self._takers.items():
            if nodes >> slot & 1:
                used.update(takers.amounts)
        for each in self._opened.demands.values():
            if each.may_open >> slot & 1 and self._leaving.places(slot, each.prepared):
                number = self._opened.landing(each)
                for name, amount in wanted_by(each.pod).items():
                    used[name] += number * amount
        used.subtract(wanted_by(demand.pod))
        credit = self._credit(demand, slot)
        if any(
            amounts.free[slot] + credit.get(name, 0) < amount + used[name]
            for name, amounts, amount in demand.prepared.needs
        ):
            return False
        return demand.prepared.needs_only_amounts or self._fits_beside_special(demand, slot)

    def _fits_beside_special(self, demand: Demand, slot: int) -> bool:
        view = self._placement.view
        with view.fork():
            if demand.own is not None:
                view.remove(demand.own)
            for other in self._relations.special:
                if other.nodes >> slot & 1:
                    for _ in range(min(other.number - (other is demand), _MOST_PLACED)):
                        view.place(other.pod, self._placement.table.names[slot])
            return demand.prepared.lets_on(slot)


def _in_several(sets: Iterable[NodeSet]) -> NodeSet:
    """Return the nodes that are in more than one of some sets."""
    found = several = 0
    for nodes in sets:
        several |= found & nodes
        found |= nodes
    return several


def _enough_to_close(room: Sequence[tuple[int, int]], roomy: Sequence[NodeSet], closing: int) -> int:
    """Return a lower bound for the number of pods that close all nodes to a pod.

    `room` has how many pods fill each node, and its slot, and `roomy` the nodes that it takes more than one of its
    component to close, more than two, and so on, of whom `closing` there are at most.
    """
    fewest = sorted(min(here, 1 + sum(nodes >> slot & 1 for nodes in roomy)) for here, slot in room)
    closed = used = 0
    for number in fewest:
        if used + number > closing:
            break
        closed, used = closed + 1, used + number
    # At worst, these close the nodes with most room, and the others fill the rest.
    return max(sum(fewest), used + sum(sorted(here for here, _ in room)[: len(room) - closed]))
