"""Pods that have no node yet and will take room on one: those of a snapshot, and those that moves under way bring.

A move under way keeps its claim to a place until its replacement has a node: a pod may take long to stop, and the
replacement of a StatefulSet's pod comes only when that is gone. Pods that others made wait for a node too, and the
scheduler may place them before ours.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from respread.cluster.meta import Labels
from respread.cluster.pod import Pod
from respread.planning.search.placement import Placement, is_replaced_when_gone
from respread.scheduling.prepared_pod import PreparedPod
from respread.scheduling.view.free_resources import POD_SLOTS
from respread.scheduling.view.node_sets import NodeSet, node_set, slots_of

_MOST_SIBLINGS: Final = 64
"""Of so many different kinds of pods in a namespace it is asked whether they count for each other's constraints."""


PLACED_WITHIN: Final = timedelta(minutes=10)
"""How old a pod may be that the scheduler is still expected to do for it what it may do. It tries pods that it could
not place again every five minutes at least: what it has not done by then it has a reason not to do."""


class Seeker(NamedTuple):
    """Pods, all alike, that look for a node each."""

    pod: Pod
    """One of them, or the pod whose replacement it is."""
    prepared: PreparedPod
    """What answers for where they may go."""
    nodes: NodeSet
    """All nodes that they may land on."""
    sure: NodeSet
    """Those of them that they may count on, as far as nobody else takes the room."""
    now: NodeSet
    """Those that have room for one of them as things are."""
    may_open: NodeSet = 0
    """Nodes that would take one of them too if there were room."""
    number: int = 1
    counts_on_leaving: bool = False
    """Whether they count on the room of pods that are being deleted: there is no other for them."""
    own: Pod | None = None
    """The pod that is gone by the time that this one comes, so that its room is there."""
    parts: tuple[NodeSet, ...] = ()
    """Sets of nodes in each of which they must find room, since it is not known which they are let into, if any."""
    is_replacement: bool = False
    """Whether `pod` is the one that it replaces, and not itself."""


class Leaving:
    """What pods that are being deleted will leave, by the slots of their nodes."""

    __slots__ = ("_amounts", "pods", "slots")

    def __init__(self, placement: Placement, pods: Iterable[Pod] = ()) -> None:
        """Sum up pods; those whose node is not there leave nothing."""
        self._amounts: dict[int, Counter[str]] = {}
        self.pods: list[Pod] = []
        """Those that it began with."""
        for pod in pods:
            if (slot := placement.table.slot_of.get(pod.node_name)) is not None:
                self.add(slot, pod)
                self.pods.append(pod)
        self.slots: NodeSet = node_set(self._amounts.keys())
        """The nodes that those leave that it began with."""

    def add(self, slot: int, pod: Pod, times: int = 1) -> None:
        """Let one more pod leave; -1 times: one less."""
        amounts = self._amounts.setdefault(slot, Counter())
        for name, amount in held_by(pod).items():
            amounts[name] += times * amount

    def of(self, slot: int) -> Mapping[str, int]:
        """Return what is left on a node."""
        return self._amounts.get(slot, {})

    def opens(self, slot: int, prepared: PreparedPod) -> bool:
        """Tell whether a node may have room for a pod once all are gone, as far as amounts of resources go."""
        amounts = self.of(slot)
        return all(free.free[slot] + amounts.get(name, 0) >= amount for name, free, amount in prepared.needs)


def held_by(pod: Pod) -> Mapping[str, int]:
    """Return what a pod holds of its node, of each resource, its place as a pod among them."""
    return {**pod.requests_on_node, POD_SLOTS: 1}


def wanted_by(pod: Pod) -> Mapping[str, int]:
    """Return what a pod, or its replacement, will take of a node."""
    return {**pod.spec.requests, POD_SLOTS: 1}


def largest_of(pods: Iterable[Pod]) -> Mapping[str, int]:
    """Return the most that the replacement of one of the pods wants, of each resource."""
    largest = {POD_SLOTS: 1}
    for requests in {id(pod.spec): pod.spec.requests for pod in pods}.values():
        for name, amount in requests.items():
            if amount > largest.get(name, 0):
                largest[name] = amount
    return largest


def seekers_in(placement: Placement, coming: Iterable[Pod], leaving: Leaving, now: datetime) -> tuple[Seeker, ...]:
    """Return the pods of a snapshot that look for a node, and replacements that are to come, those alike as one.

    Pods whose scheduling gates keep them from being scheduled are none. Of those of which it is not known where they
    may go, as with another scheduler, it is taken for some time that they may go where kube-scheduler would let them.

    Args:
        placement: the cluster as it is, its pods that are being deleted included.
        coming: pods that are being evicted and whose replacements don't exist yet.
        leaving: what pods of the snapshot that are being deleted will leave.
        now: the time, with a time zone.
    """
    alike: dict[int, tuple[PreparedPod, list[Pod]]] = {}
    for pod in placement.view.snapshot.waiting_pods.values():
        if pod.spec.has_scheduling_gates:
            continue
        prepared = placement.prepare_waiting(pod)
        if prepared.unknown is None or is_recent(pod, now):
            alike.setdefault(id(prepared), (prepared, []))[1].append(pod)
    found = [_waiting(placement, prepared, pods, leaving) for prepared, pods in alike.values()]
    found.extend(_replacing(placement, coming, leaving))
    return tuple(_reckoning_with_each_other(placement, found))


def is_recent(pod: Pod, now: datetime) -> bool:
    """Tell whether a pod is so young that something may still come of it that can't be foretold."""
    return pod.creation_timestamp is None or now - pod.creation_timestamp < PLACED_WITHIN


def _waiting(placement: Placement, prepared: PreparedPod, pods: list[Pod], leaving: Leaving) -> Seeker:
    nodes = prepared.admitted()
    nominated = placement.table.slot_of.get(pods[0].nominated_node_name)
    if not nodes and nominated is not None:
        here = 1 << nominated
        return Seeker(min(pods, key=lambda pod: pod.key), prepared, here, here, 0, counts_on_leaving=True)
    return _seeker(min(pods, key=lambda pod: pod.key), prepared, nodes, leaving, number=len(pods))


def _replacing(placement: Placement, coming: Iterable[Pod], leaving: Leaving) -> Iterator[Seeker]:
    alike: dict[int, tuple[PreparedPod, list[Pod]]] = {}
    view = placement.view
    for pod in coming:
        prepared = placement.prepare(pod)
        if not is_replaced_when_gone(pod):
            alike.setdefault(id(prepared), (prepared, []))[1].append(pod)
            continue
        there = view.snapshot.pods.get(pod.key)
        mark = view.mark()
        if there is not None and there.uid == pod.uid:
            view.remove(there)
        nodes = prepared.admitted()
        view.revert(mark)
        own = there if there is not None and there.uid == pod.uid else None
        yield _seeker(pod, prepared, nodes, leaving, is_replacement=True)._replace(own=own)
    for prepared, pods in alike.values():
        yield _seeker(pods[0], prepared, prepared.admitted(), leaving, number=len(pods), is_replacement=True)


def _seeker(
    pod: Pod, prepared: PreparedPod, nodes: NodeSet, leaving: Leaving, *, number: int = 1, is_replacement: bool = False
) -> Seeker:
    opened = node_set(
        [slot for slot in slots_of(prepared.settled & leaving.slots & ~nodes) if leaving.opens(slot, prepared)]
    )
    return Seeker(
        pod,
        prepared,
        nodes | opened,
        nodes or opened,
        nodes,
        prepared.settled & ~(nodes | opened),
        number,
        counts_on_leaving=not nodes,
        is_replacement=is_replacement,
    )


def _reckoning_with_each_other(placement: Placement, seekers: list[Seeker]) -> Iterator[Seeker]:
    """Yield the seekers, each with the nodes that are open to it once others have landed that its constraints count.

    One of them that lands where the fewest pods are lets the next one in elsewhere. Where a pod lands its domain may
    close, and no other does.
    """
    kinds: dict[str, Counter[Labels]] = {}
    for each in seekers:
        if each.nodes:
            kinds.setdefault(each.pod.namespace, Counter())[each.pod.labels] += each.number
    for each in seekers:
        if not _may_be_let_in_by(each, kinds.get(each.pod.namespace, Counter())):
            yield each
            continue
        open_now = each.prepared.admitted(spread=False)
        nodes = each.nodes | open_now
        yield each._replace(
            nodes=nodes,
            now=each.now | open_now,
            sure=each.sure or nodes,
            may_open=each.prepared.settled & ~nodes,
            parts=_by_domain(placement, each.prepared, nodes),
        )


def _may_be_let_in_by(seeker: Seeker, kinds: Counter[Labels]) -> bool:
    """Whether other seekers, of which there are so many of each kind, may change what the constraints of one allow."""
    constraints = [each.constraint for each in seeker.prepared.hard_constraints]
    own = seeker.pod.labels
    if not constraints or not kinds:
        return False
    if len(kinds) > _MOST_SIBLINGS:
        return True
    itself = 1 if seeker.nodes else 0
    return any(
        count > (itself if labels == own else 0) and constraint.selector.matches(labels)
        for constraint in constraints
        for labels, count in kinds.items()
    )


def _by_domain(placement: Placement, prepared: PreparedPod, nodes: NodeSet) -> tuple[NodeSet, ...]:
    """Return nodes by the domains of the pod's first hard constraint that has domains of several nodes."""
    for each in prepared.hard_constraints:
        by_domain = placement.table.column(each.constraint.topology_key).nodes_with
        if len(by_domain) < nodes.bit_count():
            return tuple(part for domain in by_domain.values() if (part := domain & nodes))
    return ()
