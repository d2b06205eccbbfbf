"""Pods without a node that will take room on one: those in a snapshot, and replacements of moves in flight.

A move in flight reserves a place until its replacement has a node, because a pod can take long to stop, and a
StatefulSet creates the replacement only after that. Pods that others created need a node too, and the scheduler may
place them first. Some affect each other in other ways than by the room they take: by terms and volumes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from functools import reduce
from operator import and_
from sys import maxsize
from typing import Final, NamedTuple

from respread.cluster.meta import Labels
from respread.cluster.pod import Pod
from respread.planning.placement import Placement, is_replaced_when_gone
from respread.scheduling.prepared_pod import PreparedPod
from respread.scheduling.view.free_resources import POD_SLOTS
from respread.scheduling.view.node_table import LabelColumn, NodeSet, NodeTable, node_set, slots_of
from respread.scheduling.view.volumes import has_volumes

_MOST_SIBLINGS: Final = 64
"""For up to this many different kinds of pods in a namespace, it is checked whether they count for each other's
constraints."""

_MOST_PARTS: Final = 64
"""In up to this many domains of an affinity term, room is looked for in each."""


PLACED_WITHIN: Final = timedelta(minutes=10)
"""The maximum age of a pod for which the scheduler is still expected to act. It retries unschedulable pods at least
every five minutes, so after this time it has a reason not to."""


class Part(NamedTuple):
    """Nodes on which pods must find room."""

    nodes: NodeSet
    siblings: int = maxsize
    """How many others of their component may at most be on these when they can go nowhere else."""
    roomy: tuple[NodeSet, ...] = ()
    """The nodes that it takes two of their component to close, three, and so on."""
    unless_full: tuple[NodeSet, ...] = ()
    """Where one of the nodes is open while none of these is full: those that take one of their component before it must
    be another one, two, and so on. None where that is not known."""


class Demand(NamedTuple):
    """Equivalent pods that each need a node."""

    pod: Pod
    """One of them, or the pod whose replacement it is."""
    prepared: PreparedPod
    """The prepared pod."""
    nodes: NodeSet
    """All nodes on which they may land."""
    sure: NodeSet = 0
    """The nodes among these that accept them as long as no other pod takes the room. Of a solution's demands, this and
    `now` are not known before it joins others (`Current`)."""
    now: NodeSet = 0
    """The nodes that have room for one of them now."""
    may_open: NodeSet = 0
    """Nodes that would also accept one of them if there were room. If one of them opens to a replacement before it has
    landed, its step has to be assessed again."""
    number: int = 1
    counts_on_leaving: bool = False
    """Whether only terminating pods leave room for them."""
    own: Pod | None = None
    """The pod that is gone when this one is created, so that its room is free."""
    parts: tuple[Part, ...] | None = None
    """Nodes in each of which they must find room, because it is not known which part accepts them; none if the proof
    for others of their component serves them too. They need not be among `nodes`, which are those where they add to the
    others of their component that may land there. None: any of `sure` will do."""
    is_replacement: bool = False
    """Whether `pod` is the pod that it replaces, and not itself."""
    component: int | None = None
    """The number of the solution that they belong to, for whose constraints no others count; None: of none."""
    closing: int = 0
    """How many others may at most take a whole node from each of them, however much room that has. These are of the
    same solution; for pods of none they may be any."""

    def __str__(self) -> str:
        """Return whose it is, for people."""
        return f"the replacement of pod {self.pod.key}" if self.is_replacement else f"pod {self.pod.key}"

    @property
    def must_hold(self) -> Sequence[Part]:
        """The parts in each of which they must find room."""
        return (Part(self.sure),) if self.parts is None else self.parts


class Current:
    """Completes demands of solutions on the current cluster. What is open to one template is found once."""

    __slots__ = ("_open", "placement")

    def __init__(self, placement: Placement) -> None:
        self.placement = placement
        self._open: dict[int, NodeSet] = {}
        """By the identity of the replacement."""

    def of(self, demand: Demand, *, component: int | None = None, number: int = 1) -> Demand:
        """Return so many like a demand of a solution, with what is open to them now."""
        own = self.placement.own(demand.pod)
        open_now = self._open_to(demand.prepared, own)
        parts = demand.parts and tuple(part._replace(nodes=part.nodes & open_now) for part in demand.parts)
        sure = demand.nodes & open_now
        return demand._replace(sure=sure, now=open_now, number=number, own=own, parts=parts, component=component)

    def _open_to(self, replacement: PreparedPod, own: Pod | None) -> NodeSet:
        if own is None:
            if (known := self._open.get(id(replacement))) is None:
                known = self._open[id(replacement)] = replacement.admitted(spread=False)
            return known
        with self.placement.view.fork():
            self.placement.view.remove(own)
            return replacement.admitted(spread=False)


class Conflict(NamedTuple):
    """Why a pod can't join."""

    who: Demand | None
    """The pod that would be left without a node, or one that may take it. None: pods that terminate decide where it may
    land."""
    nodes: NodeSet
    """The nodes for which they compete."""


class Leaving:
    """The room that terminating pods will leave, by the slots of their nodes."""

    __slots__ = ("_amounts", "pods", "slots")

    def __init__(self, placement: Placement, pods: Iterable[Pod] = ()) -> None:
        """Sum the room of pods. Pods whose node does not exist leave nothing."""
        self._amounts: dict[int, Counter[str]] = {}
        self.pods: list[Pod] = []
        """The initial pods."""
        for pod in pods:
            if (slot := placement.table.slot_of.get(pod.node_name)) is not None:
                self.add(slot, pod)
                self.pods.append(pod)
        self.slots: NodeSet = node_set(self._amounts.keys())
        """The nodes that the initial pods leave."""

    def add(self, slot: int, pod: Pod, times: int = 1) -> None:
        """Add a leaving pod, or remove one with -1 times."""
        amounts = self._amounts.setdefault(slot, Counter())
        for name, amount in held_by(pod).items():
            amounts[name] += times * amount

    def of(self, slot: int) -> Mapping[str, int]:
        """Return the room that is left on a node."""
        return self._amounts.get(slot, {})

    def places(self, slot: int, prepared: PreparedPod) -> int:
        """Return for how many such pods a node may have room after all of these are gone, by resource amounts only."""
        amounts = self.of(slot)
        fitting = ((free.free[slot] + amounts.get(name, 0)) // amount for name, free, amount in prepared.needs)
        return max(0, min(fitting, default=maxsize))


def held_by(pod: Pod) -> Mapping[str, int]:
    """Return what a pod holds on its node, of each resource, including its place as a pod."""
    return {**pod.requests_on_node, POD_SLOTS: 1}


def wanted_by(pod: Pod) -> Mapping[str, int]:
    """Return what a pod, or its replacement, will use on a node."""
    return {**pod.spec.requests, POD_SLOTS: 1}


def largest_of(pods: Iterable[Pod]) -> Mapping[str, int]:
    """Return the largest request of a replacement of these pods, for each resource."""
    largest = {POD_SLOTS: 1}
    for requests in {id(pod.spec): pod.spec.requests for pod in pods}.values():
        for name, amount in requests.items():
            largest[name] = max(amount, largest.get(name, 0))
    return largest


def demands_in(
    placement: Placement,
    pending: Iterable[Pod],
    coming: Iterable[Pod],
    leaving: Leaving,
    now: datetime,
    beside: Iterable[Pod] = (),
) -> tuple[Demand, ...]:
    """Return pods that need a node, and replacements to come, with equivalent ones combined.

    Pods with scheduling gates are excluded. If it is unknown where a pod may go, for example with another scheduler, it
    is assumed for some time that it may go wherever kube-scheduler would place it.

    `coming` are pods whose replacements look for a node, or replacements, and so are those `beside` these, whose places
    may matter to them. `leaving` is the room that terminating pods of the snapshot will leave.
    """
    alike: dict[int, tuple[PreparedPod, list[Pod]]] = {}
    for pod in pending:
        if pod.spec.has_scheduling_gates:
            continue
        prepared = placement.predictor.prepare(pod)
        if prepared.unknown is None or is_recent(pod, now):
            alike.setdefault(id(prepared), (prepared, []))[1].append(pod)
    found = [_waiting(placement, prepared, pods, leaving) for prepared, pods in alike.values()]
    found.extend(_replacing(placement, coming, leaving))
    return tuple(_reckoning_with_each_other(placement, found, beside))


def is_recent(pod: Pod, now: datetime) -> bool:
    """Return whether a pod is so young that something unpredictable may still happen to it."""
    return pod.creation_timestamp is None or now - pod.creation_timestamp < PLACED_WITHIN


def _waiting(placement: Placement, prepared: PreparedPod, pods: list[Pod], leaving: Leaving) -> Demand:
    nodes = prepared.admitted()
    nominated = placement.table.slot_of.get(pods[0].nominated_node_name)
    if not nodes and nominated is not None:
        here = 1 << nominated
        return Demand(min(pods, key=lambda pod: pod.key), prepared, here, here, 0, counts_on_leaving=True)
    return _demand(min(pods, key=lambda pod: pod.key), prepared, nodes, leaving, number=len(pods))


def _replacing(placement: Placement, coming: Iterable[Pod], leaving: Leaving) -> Iterator[Demand]:
    alike: dict[int, tuple[PreparedPod, list[Pod]]] = {}
    view = placement.view
    for pod in coming:
        prepared = placement.prepare(pod)
        if not is_replaced_when_gone(pod):
            alike.setdefault(id(prepared), (prepared, []))[1].append(pod)
            continue
        own = placement.own(pod)
        with view.fork():
            if own is not None:
                view.remove(own)
            nodes = prepared.admitted()
        yield _demand(pod, prepared, nodes, leaving, is_replacement=True)._replace(own=own)
    for prepared, pods in alike.values():
        yield _demand(pods[0], prepared, prepared.admitted(), leaving, number=len(pods), is_replacement=True)


def _demand(
    pod: Pod, prepared: PreparedPod, nodes: NodeSet, leaving: Leaving, *, number: int = 1, is_replacement: bool = False
) -> Demand:
    left = slots_of(prepared.statically_feasible & leaving.slots & ~nodes)
    opened = node_set([slot for slot in left if leaving.places(slot, prepared)])
    return Demand(
        pod,
        prepared,
        nodes | opened,
        nodes or opened,
        nodes,
        prepared.statically_feasible & ~(nodes | opened),
        number,
        counts_on_leaving=not nodes,
        is_replacement=is_replacement,
    )


def _reckoning_with_each_other(placement: Placement, demands: list[Demand], beside: Iterable[Pod]) -> Iterator[Demand]:
    """Yield the pods, each with the nodes that may open to it after others have landed that its constraints count.

    A pod that lands where the fewest pods are can open other domains for the next one. The domain where a pod lands may
    close, and no other one does. A pod that others have affinity to opens its domain to them. So room is looked for in
    each domain of an affinity term, or of the first hard constraint with several of the nodes in a domain, and there on
    the nodes that the other hard constraints allow now.
    """
    kinds: dict[str, Counter[Labels]] = {}
    for pod in beside:
        kinds.setdefault(pod.namespace, Counter())[pod.labels] += 1
    looking = [each for each in demands if each.nodes]
    repelling = [each for each in looking if each.pod.spec.pod_anti_affinity]
    for each in looking:
        kinds.setdefault(each.pod.namespace, Counter())[each.pod.labels] += each.number
    for each in demands:
        follows = _may_follow(each, kinds)
        others = _counted(each, kinds.get(each.pod.namespace, Counter()))
        apart, closing_more = _keeping_off(placement, each, looking, repelling)
        if not follows and not others:
            yield each._replace(closing=apart, parts=_by_domain(each.sure, closing_more))
            continue
        open_now = each.prepared.admitted(spread=False, terms=not follows)
        nodes = each.nodes | open_now
        hard = [(placement.table.column(one.constraint.topology_key), one) for one in each.prepared.hard_constraints]
        larger = [column for column, _ in hard if not _is_of_one_each(column, nodes)]
        affinity = map(placement.table.column, each.prepared.affinity_keys if follows else ())
        opening = (*(one for one in affinity if len(one.nodes_with) <= _MOST_PARTS), *larger)[:1]
        open_by_others = reduce(and_, (one.admitted() for column, one in hard if column not in opening), nodes)
        closing = apart + (others if len(larger) < len(hard) else 0)
        yield each._replace(
            nodes=nodes,
            now=each.now | open_now,
            sure=each.sure or nodes,
            may_open=each.prepared.statically_feasible & ~nodes,
            parts=_by_domain(nodes, (*opening, *closing_more), open_by_others),
            closing=closing,
        )


def _may_follow(demand: Demand, kinds: Mapping[str, Counter[Labels]]) -> bool:
    """Whether other waiting pods, with this many of each kind, decide where the affinity of one lets it go."""
    pod, prepared = demand.pod, demand.prepared
    if not pod.spec.pod_affinity or (demand.nodes and not prepared.is_first_of_its_set):
        return False
    if sum(map(len, kinds.values())) > _MOST_SIBLINGS:
        return True
    itself = 1 if demand.nodes else 0
    return any(
        count > (itself if (namespace, labels) == (pod.namespace, pod.labels) else 0)
        and prepared.is_drawn_by(namespace, labels)
        for namespace, there in kinds.items()
        for labels, count in there.items()
    )


def _counted(demand: Demand, kinds: Counter[Labels]) -> int:
    """Return how many of other waiting pods, with this many of each kind, the constraints of one may count."""
    if not demand.prepared.hard_constraints:
        return 0
    itself = 1 if demand.nodes else 0
    if len(kinds) > _MOST_SIBLINGS:
        return kinds.total() - itself
    return sum(
        count - (itself if labels == demand.pod.labels else 0)
        for labels, count in kinds.items()
        if _counts_labels(demand, labels)
    )


def counts_for(demand: Demand, pod: Pod) -> bool:
    """Return whether a pod that lands may open other nodes to pods, because their constraints count it."""
    return demand.pod.namespace == pod.namespace and _counts_labels(demand, pod.labels)


def _counts_labels(demand: Demand, labels: Labels) -> bool:
    return any(each.constraint.selector.matches(labels) for each in demand.prepared.hard_constraints)


def _keeping_off(
    placement: Placement, demand: Demand, demands: Sequence[Demand], repelling: Sequence[Demand]
) -> tuple[int, Sequence[LabelColumn]]:
    """Return how many other waiting pods may keep one off a node by anti-affinity, whichever of both has it.

    And the labels of which they may close a domain with several nodes to it.
    """
    others = demands if demand.pod.spec.pod_anti_affinity else repelling
    number, larger = 0, dict[str, LabelColumn]()
    for other in others:
        more = other.number - (other is demand)
        columns = {key: placement.table.column(key) for key in _keys_apart(demand, other)} if more else {}
        if len(others) > _MOST_SIBLINGS or any(column.is_of_nodes for column in columns.values()):
            number += more
        larger.update((key, column) for key, column in columns.items() if not column.is_of_nodes)
    return number, [larger[key] for key in sorted(larger)]


def _keys_apart(one: Demand | _Leaving, other: Demand | _Leaving) -> set[str]:
    """Return the topology keys of the anti-affinity of either pod to the other."""
    return {
        key
        for each, about in ((one, other.pod), (other, one.pod))
        if each.prepared is not None
        for key in each.prepared.keys_apart_from(about.namespace, about.labels)
    }


def _by_domain(nodes: NodeSet, columns: Sequence[LabelColumn], first: NodeSet = 0) -> tuple[Part, ...] | None:
    """Return nodes by their values of labels, of each value only the `first` if some are; None without any."""
    if not columns:
        return None
    parts = [nodes]
    for column in columns:
        parts = [there for part in parts for domain in column.nodes_with.values() if (there := part & domain)]
    return tuple(Part(part & first or part) for part in parts) or None


def _is_of_one_each(column: LabelColumn, nodes: NodeSet) -> bool:
    """Whether no two of some nodes have the same value of a label."""
    if column.is_of_nodes:
        return True
    return all((domain & nodes).bit_count() <= 1 for domain in column.nodes_with.values())


class Relations:
    """The pods that need a node, and the terminating ones that others may depend on."""

    __slots__ = ("_kinds", "_leaving", "_shut_out", "_table", "_with_terms", "special")

    def __init__(self, table: NodeTable, shut_out: Iterable[Demand] = ()) -> None:
        self._table = table
        self.special: list[Demand] = []
        """Pods that use more of a node than resource amounts: ports, volumes."""
        self._kinds: dict[Hashable, list[Demand]] = {}
        """All, those together that are alike here."""
        self._with_terms: dict[Hashable, list[Demand]] = {}
        """Those among them that have terms."""
        self._leaving: dict[tuple[str, Labels, int], _Leaving] = {}
        self._shut_out = list(shut_out)
        """Pods that no node accepts now."""

    def leave(self, pod: Pod, placement: Placement) -> None:
        """Add a terminating pod."""
        key = pod.namespace, pod.labels, id(pod.spec)
        if (known := self._leaving.get(key)) is None:
            known = _Leaving(pod, placement.prepare(pod) if pod.spec.pod_anti_affinity else None, set())
            self._leaving[key] = known
        if (slot := self._table.slot_of.get(pod.node_name)) is not None:
            known.slots.add(slot)

    def let_in_by(self, demands: Iterable[Demand]) -> list[Demand]:
        """Return pods that no node accepts now, but some may once others have left their nodes and landed.

        They have affinity to these, or one of them repels the other.
        """
        found: dict[int, Demand] = {}
        for each in demands:
            pod, prepared = each.pod, each.prepared
            repels = bool(pod.spec.pod_anti_affinity)
            for other in self._shut_out:
                if other.prepared.speaks_of(pod.namespace, pod.labels) or (
                    repels and prepared.speaks_of(other.pod.namespace, other.pod.labels)
                ):
                    found[id(other)] = other
        return [
            each._replace(nodes=nodes, sure=nodes, now=nodes, may_open=0)
            for each in found.values()
            if (nodes := each.prepared.admitted(spread=False, terms=False))
        ]

    def note(self, demand: Demand, times: int) -> None:
        """Add pods, or remove them if `times` is negative."""
        spec, prepared = demand.pod.spec, demand.prepared
        alike = demand.pod.namespace, demand.pod.labels, id(prepared), demand.component, bool(demand.closing)
        kinds = [self._kinds, self._with_terms] if prepared.has_pod_terms else [self._kinds]
        lists = [each.setdefault(alike, []) for each in kinds]
        if spec.host_ports or has_volumes(spec):
            lists.append(self.special)
        for each in lists:
            if times > 0:
                each.append(demand)
            else:
                _remove(each, demand)
        for of_kind in kinds:
            if not of_kind[alike]:
                del of_kind[alike]

    def of(self, demand: Demand) -> Conflict | None:
        """Return a pod that affects these in other ways than by the room it takes, if there is one."""
        prepared = demand.prepared
        for other, *_ in self._with_terms.values():
            if self._affects(other, demand):
                return Conflict(other, other.nodes)
        if prepared.has_pod_terms:
            for other, *_ in self._kinds.values():
                if self._affects(demand, other):
                    return Conflict(other, demand.nodes)
        if any(self._lets_in(leaving, demand) for leaving in self._leaving.values()):
            return Conflict(None, demand.nodes)
        if prepared.wants_volume_alone:
            for other in self.special:
                if other.prepared.wants_volume_alone:
                    return Conflict(other, other.nodes)
        return None

    def between(self, let_in: Demand, demands: Iterable[Demand]) -> Conflict | None:
        """Return that a pod that is let in may land where it keeps off those that let it in; None if it may not."""
        for each in demands:
            columns = map(self._table.column, _keys_apart(let_in, each))
            if any(there & let_in.nodes and there & each.nodes for one in columns for there in one.nodes_with.values()):
                return Conflict(let_in, let_in.nodes)
        return None

    def _affects(self, one: Demand, other: Demand) -> bool:
        """Return whether the terms of one are about another, except that they don't share a node if that counts."""
        namespace, labels = other.pod.namespace, other.pod.labels
        if one.prepared.is_drawn_by(namespace, labels):
            return True
        keys = one.prepared.keys_apart_from(namespace, labels)
        is_counted = one.component == other.component and one.closing and other.closing
        return bool(keys) and not (is_counted and all(self._table.column(key).is_of_nodes for key in keys))

    def _lets_in(self, leaving: _Leaving, demand: Demand) -> bool:
        """Return whether a demand may land elsewhere than it was assessed for, once terminating pods are gone."""
        if leaving.prepared is None and not demand.prepared.has_pod_terms:
            return False
        if demand.prepared.is_drawn_by(leaving.pod.namespace, leaving.pod.labels):
            return True
        columns = [self._table.column(key) for key in _keys_apart(leaving, demand)]
        domains = {
            (at, value) for slot in leaving.slots for at, each in enumerate(columns) if (value := each.values[slot])
        }
        return any(columns[at].nodes_with[value] & demand.may_open for at, value in domains)


class _Leaving(NamedTuple):
    """Terminating pods of one template."""

    pod: Pod
    prepared: PreparedPod | None
    """None if they have no anti-affinity."""
    slots: set[int]


def _remove(demands: list[Demand], gone: Demand) -> None:
    """Remove pods from a list, which may contain them as a part of more that are alike."""
    for at, each in enumerate(demands):
        if each.number >= gone.number and each._replace(number=gone.number) == gone:
            left = each._replace(number=each.number - gone.number)
            demands[at : at + 1] = (left,) if left.number else ()
            return
    raise ValueError(f"{gone} is not among the pods that need a node")
