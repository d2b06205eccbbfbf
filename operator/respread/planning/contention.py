"""Whether everybody who looks for a node keeps one, whatever nodes the others take.

Somebody keeps a place if one of these can be shown, none of which depends on who comes first:

- *Spots*: to take all room from it the others would have to be more than there are. A node is spoilt only by as many of
  them as it takes to fill it, each requesting as much as the one that requests most.
- *A witness*: on some node it fits even if all others land there that may.

What one shows holds until more come who may land on the same nodes, and only then is it shown anew.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from heapq import heappop, heappush
from typing import Final, NamedTuple

from respread.cluster.meta import Labels
from respread.cluster.pod import Pod
from respread.planning.search.placement import Placement
from respread.planning.seekers import Leaving, Seeker, held_by, largest_of, wanted_by
from respread.scheduling.prepared_pod import PreparedPod
from respread.scheduling.view.node_sets import NodeSet, node_set, slots_of
from respread.scheduling.view.volume_usage import has_volumes

_MOST_LOOKS: Final = 20_000
"""So many looks, each at a node or at those who may land on the same nodes, are taken at whoever is there at first, and
as many at whoever joins. Where it takes more room is scarce, and whoever joins has to wait."""
_DOUBLINGS: Final = 7
_MOST_WITNESSES: Final = 16
"""So many nodes are tried as a witness, those with most room first."""
_MOST_PLACED: Final = 16
"""So many pods of a kind are placed on a node where it is not amounts alone that count."""


class Conflict(NamedTuple):
    """Why somebody can't come in."""

    who: Seeker
    """Who would be left without a node, or is one of those who may take it."""
    nodes: NodeSet
    """Where they meet."""


class _Takers:
    """All who may land on the same nodes."""

    __slots__ = ("amounts", "number")

    def __init__(self) -> None:
        self.number = 0
        self.amounts: Counter[str] = Counter()


class _Kept:
    """Somebody who keeps a place, and by what that is shown."""

    __slots__ = ("limits", "part", "seeker", "witness")

    def __init__(self, seeker: Seeker, part: NodeSet) -> None:
        self.seeker = seeker
        self.part = part
        """The nodes that it is to find room on."""
        self.limits = 0
        """It keeps a place as long as there are fewer seekers in all than this; 0 where that is not how it is shown."""
        self.witness = -1
        """The slot of a node that it fits beside all others; -1 where that is not how it is shown."""


class Contention:
    """Everybody who looks for a node, all of whom keep one."""

    __slots__ = (
        "_by_limit",
        "_by_witness",
        "_closed",
        "_fragile",
        "_fragile_nodes",
        "_kinds",
        "_largest",
        "_leaving",
        "_left",
        "_looks",
        "_number",
        "_opened",
        "_opened_number",
        "_placement",
        "_repelling",
        "_roomy",
        "_seeking",
        "_special",
        "_takers",
        "_waiting",
        "_with_terms",
        "_witnesses",
    )

    def __init__(
        self, placement: Placement, waiting: Sequence[Seeker], leaving: Leaving, largest: Mapping[str, int]
    ) -> None:
        """Begin with those who look for a node already.

        Args:
            placement: the cluster as it is.
            waiting: they are there whether or not they keep a place; who has none to lose loses none.
            leaving: what pods that are being deleted will leave.
            largest: of each resource at least as much as anyone requests who is yet to come.
        """
        self._placement = placement
        self._leaving = leaving
        self._waiting = waiting
        self._largest = dict(largest)
        for name, amount in largest_of(each.pod for each in waiting).items():
            self._largest[name] = max(amount, largest.get(name, 0))
        self._roomy = self._nodes_by_room()
        """The nodes that have room for two who request the most, for four, for eight and so on."""
        self._takers: dict[NodeSet, _Takers] = {}
        self._seeking = 0
        self._special: list[Seeker] = []
        """Those who take more of a node than an amount of something: ports, volumes."""
        self._with_terms: list[Seeker] = []
        self._kinds: dict[tuple[str, Labels], Seeker | None] = {}
        self._closed: NodeSet = 0
        """The nodes that would take someone of `waiting` if there were room."""
        self._by_limit: list[tuple[int, int, _Kept]] = []
        self._by_witness: dict[int, list[_Kept]] = {}
        self._witnesses: NodeSet = 0
        self._number = 0
        self._left: NodeSet = 0
        """The nodes that pods leave for those who have joined."""
        self._opened: dict[int, Seeker] = {}
        """Those of `waiting`, by identity, to whom such a node may open: each is one more who may land anywhere."""
        self._opened_number = 0
        self._looks = _MOST_LOOKS
        self._fragile_nodes: NodeSet = 0
        self._fragile: list[Seeker] = []
        """Those of `waiting` who may be left without a node by the others of `waiting`."""
        for each in waiting:
            self._closed |= each.may_open
        looking = [each for each in waiting if each.nodes]
        for each in looking:
            self._note(each, 1)
        self._repelling: list[PreparedPod] = []
        """Of pods that are being deleted, those that keep others away until they are gone."""
        for pod in leaving.pods:
            self._kinds.setdefault((pod.namespace, pod.labels), None)
            if pod.spec.pod_anti_affinity:
                self._repelling.append(placement.prepare(pod))
        for each in looking:
            shown = [self._show(each, part) for part in _parts(each)]
            kept = [one for one in shown if one is not None]
            if len(kept) < len(shown):
                self._fragile.append(each)
                self._fragile_nodes |= each.nodes
                continue
            for one in kept:
                self._keep(one)
        self._looks = _MOST_LOOKS

    @property
    def fragile(self) -> Sequence[Seeker]:
        """Those who were there at first and may be left without a node by others who were."""
        return self._fragile

    def join(self, seekers: Sequence[Seeker], left: Mapping[int, Sequence[Pod]]) -> Conflict | None:
        """Let some more look for nodes if all keep a place, and return None, or else who is in the way.

        Args:
            seekers: who comes.
            left: by slot, the pods that leave nodes for them.
        """
        for each in seekers:
            if (other := self._related(each)) is not None:
                return other
            if self._fragile_nodes & each.nodes:
                meeting = next(one for one in self._fragile if one.nodes & each.nodes)
                return Conflict(meeting, meeting.nodes & each.nodes)
        before = self._left, self._opened, self._opened_number
        self._come(seekers, left, 1)
        self._open(left)
        conflict, kept = self._all_keep(seekers, left)
        if conflict is not None:
            self._come(seekers, left, -1)
            self._left, self._opened, self._opened_number = before
            return conflict
        for one in kept:
            self._keep(one)
        return None

    def _open(self, left: Iterable[int]) -> None:
        """Count those in to whom nodes may open that are left: they may land there, and so are no longer elsewhere."""
        found: dict[int, Seeker] = {}
        for slot in left:
            self._left |= 1 << slot
            if self._closed >> slot & 1:
                for each in self._waiting:
                    if each.may_open >> slot & 1 and self._leaving.opens(slot, each.prepared):
                        found[id(each)] = each
        if found:
            self._opened = {**self._opened, **found}
            self._opened_number = sum(each.number for each in self._opened.values())

    def _all_keep(
        self, seekers: Sequence[Seeker], left: Mapping[int, Sequence[Pod]]
    ) -> tuple[Conflict | None, list[_Kept]]:
        """Show that those keep their places who have just come, and those whose places they might take."""
        by_limit: list[tuple[int, int, _Kept]] = []
        while self._by_limit and self._by_limit[0][0] <= self._in_all():
            by_limit.append(heappop(self._by_limit))
        touched = node_set(list(left))
        for each in seekers:
            touched |= each.nodes
        doubtful_witnesses = self._witnesses & touched
        by_witness = {slot: self._by_witness.pop(slot) for slot in slots_of(doubtful_witnesses)}
        doubtful = [*(kept for _, _, kept in by_limit), *(kept for each in by_witness.values() for kept in each)]
        wanted = [(each.seeker, each.part) for each in doubtful]
        wanted.extend((each, part) for each in seekers for part in _parts(each))
        found: list[_Kept] = []
        for seeker, part in wanted:
            if (shown := self._show(seeker, part)) is None:
                for entry in by_limit:
                    heappush(self._by_limit, entry)
                self._by_witness.update(by_witness)
                return self._conflict(seeker, seekers), []
            found.append(shown)
        self._witnesses &= ~doubtful_witnesses
        return None, found

    def _conflict(self, failed: Seeker, seekers: Sequence[Seeker]) -> Conflict:
        """Name one of those who were there first, if they have a part in it."""
        nodes = failed.nodes
        if not any(failed is each for each in seekers):
            for each in seekers:
                nodes &= each.nodes
            return Conflict(failed, nodes or failed.nodes)
        for each in self._waiting:
            if each.nodes & nodes:
                return Conflict(each, each.nodes & nodes)
        return Conflict(failed, nodes)

    # Who is there

    def _come(self, seekers: Iterable[Seeker], left: Mapping[int, Sequence[Pod]], times: int) -> None:
        for slot, pods in left.items():
            for pod in pods:
                self._leaving.add(slot, pod, times)
        for each in seekers:
            self._note(each, times)

    def _note(self, seeker: Seeker, times: int) -> None:
        takers = self._takers.setdefault(seeker.nodes, _Takers())
        takers.number += times * seeker.number
        for name, amount in wanted_by(seeker.pod).items():
            takers.amounts[name] += times * seeker.number * amount
        self._seeking += times * seeker.number
        if not takers.number:
            del self._takers[seeker.nodes]
        spec = seeker.pod.spec
        lists = []
        if spec.host_ports or has_volumes(spec):
            lists.append(self._special)
        if seeker.prepared.has_pod_terms:
            lists.append(self._with_terms)
        for each in lists:
            if times > 0:
                each.append(seeker)
            else:
                each.remove(seeker)
        if times > 0:
            self._kinds.setdefault((seeker.pod.namespace, seeker.pod.labels), seeker)
        elif self._kinds.get((seeker.pod.namespace, seeker.pod.labels)) is seeker:
            del self._kinds[seeker.pod.namespace, seeker.pod.labels]

    def _related(self, seeker: Seeker) -> Conflict | None:
        """Return somebody whose coming or going matters in other ways than by the room it takes, if there is anyone."""
        pod, prepared = seeker.pod, seeker.prepared
        for other in self._with_terms:
            if other.prepared.speaks_of(pod.namespace, pod.labels):
                return Conflict(other, other.nodes)
        if prepared.has_pod_terms:
            for (namespace, labels), kind in self._kinds.items():
                if prepared.speaks_of(namespace, labels):
                    return Conflict(seeker if kind is None else kind, seeker.nodes)
        if any(each.speaks_of(pod.namespace, pod.labels) for each in self._repelling):
            return Conflict(seeker, seeker.nodes)
        if prepared.wants_volume_alone:
            for other in self._special:
                if other.prepared.wants_volume_alone:
                    return Conflict(other, other.nodes)
        return None

    # Showing that somebody keeps a place

    def _keep(self, kept: _Kept) -> None:
        if kept.witness < 0:
            self._number += 1
            heappush(self._by_limit, (kept.limits, self._number, kept))
        else:
            self._by_witness.setdefault(kept.witness, []).append(kept)
            self._witnesses |= 1 << kept.witness

    def _show(self, seeker: Seeker, part: NodeSet) -> _Kept | None:
        """Return by what it is shown that a pod keeps a place on some nodes, or None if it is not."""
        kept = _Kept(seeker, part)
        others = self._in_all() - 1
        spots = self._spots_at_least(seeker, part)
        if spots > others:
            kept.limits = spots + 1
            return kept
        if self._looks <= 0:
            return None
        self._looks -= part.bit_count() + len(self._takers)
        room = [(here, slot) for slot in slots_of(part) if (here := self._spots(seeker, slot))]
        spots = sum(here for here, _ in room)
        rivals = sum(takers.number for nodes, takers in self._takers.items() if nodes & part) - 1 + self._opened_number
        if spots > rivals:
            kept.limits = spots + 1 + others - rivals
            return kept
        room.sort(reverse=True)
        for _, slot in room[:_MOST_WITNESSES]:
            if self._fits_beside_all(seeker, slot):
                kept.witness = slot
                return kept
        return None

    def _spots_at_least(self, seeker: Seeker, part: NodeSet) -> int:
        """Return how many others it takes at least to leave no room on some nodes, without a look at each of them.

        Each node with room is worth one, and as many as it has room for, rounded down to a power of two, if each of
        the others requested the most that any does.
        """
        part &= seeker.now
        spots = part.bit_count()
        if seeker.prepared.needs_only_amounts:
            for exponent, nodes in enumerate(self._roomy):
                spots += (part & nodes).bit_count() << exponent
        return spots

    def _in_all(self) -> int:
        return self._seeking + self._opened_number

    def _nodes_by_room(self) -> Sequence[NodeSet]:
        free = self._placement.view.free
        found = []
        for exponent in range(1, _DOUBLINGS):
            nodes = self._placement.table.every
            for name, most in self._largest.items():
                if most:  # rounded up to a power of two: what is asked for again is known already
                    nodes &= free.of(name).at_least(1 << (most - 1).bit_length() + exponent)
            found.append(nodes)
        return found

    def _credit(self, seeker: Seeker, slot: int) -> Mapping[str, int]:
        """Return what will be free on a node by the time that the seeker looks at it."""
        if seeker.counts_on_leaving:
            return self._leaving.of(slot)
        if seeker.own is not None and self._placement.table.slot_of.get(seeker.own.node_name) == slot:
            return held_by(seeker.own)
        return {}

    def _spots(self, seeker: Seeker, slot: int) -> int:
        """Return how many of the others it takes at least to leave no room on a node; 0 if there is none now."""
        credit = self._credit(seeker, slot)
        fewest = self._in_all() + 1
        for name, amounts, amount in seeker.prepared.needs:
            left = amounts.free[slot] + credit.get(name, 0) - amount
            if left < 0:
                return 0
            if most := self._largest.get(name):
                fewest = min(fewest, left // most + 1)
        return fewest if seeker.prepared.needs_only_amounts else min(fewest, 1)

    def _fits_beside_all(self, seeker: Seeker, slot: int) -> bool:
        """Tell whether there is room on a node for a seeker even if all others land there that may."""
        demand: Counter[str] = Counter()
        for nodes, takers in self._takers.items():
            if nodes >> slot & 1:
                demand.update(takers.amounts)
        if self._left >> slot & 1:
            for each in self._opened.values():
                if each.may_open >> slot & 1 and self._leaving.opens(slot, each.prepared):
                    for name, amount in wanted_by(each.pod).items():
                        demand[name] += each.number * amount
        demand.subtract(wanted_by(seeker.pod))
        credit = self._credit(seeker, slot)
        if any(
            amounts.free[slot] + credit.get(name, 0) < amount + demand[name]
            for name, amounts, amount in seeker.prepared.needs
        ):
            return False
        return seeker.prepared.needs_only_amounts or self._fits_beside_special(seeker, slot)

    def _fits_beside_special(self, seeker: Seeker, slot: int) -> bool:
        view = self._placement.view
        mark = view.mark()
        if seeker.own is not None:
            view.remove(seeker.own)
        for other in self._special:
            if other.nodes >> slot & 1:
                for _ in range(min(other.number - (other is seeker), _MOST_PLACED)):
                    view.place(other.pod, self._placement.table.names[slot])
        fits = seeker.prepared.lets_on(slot)
        view.revert(mark)
        return fits


def _parts(seeker: Seeker) -> Sequence[NodeSet]:
    return seeker.parts or (seeker.sure,)
