"""Whether pods that need a node affect each other in other ways than by the room they take: terms, and volumes."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import NamedTuple

from respread.cluster.meta import Labels
from respread.cluster.pod import Pod
from respread.planning.placement import Placement
from respread.planning.room.demand import Conflict, Demand
from respread.scheduling.prepared_pod import PreparedPod
from respread.scheduling.view.node_table import NodeTable
from respread.scheduling.view.volumes import has_volumes


class Relations:
    """The pods that need a node, and the terminating ones that others may depend on."""

    __slots__ = ("_kinds", "_leaving", "_shut_out", "_table", "_with_terms", "special")

    def __init__(self, table: NodeTable) -> None:
        self._table = table
        self.special: list[Demand] = []
        """Pods that use more of a node than resource amounts: ports, volumes."""
        self._kinds: dict[Hashable, list[Demand]] = {}
        """All, those together that are alike here."""
        self._with_terms: dict[Hashable, list[Demand]] = {}
        """Those among them that have terms."""
        self._leaving: dict[tuple[str, Labels, int], _Leaving] = {}
        self._shut_out: list[Demand] = []
        """Pods that no node accepts now."""

    def leave(self, pod: Pod, placement: Placement) -> None:
        """Add a terminating pod."""
        key = pod.namespace, pod.labels, id(pod.spec)
        if (known := self._leaving.get(key)) is None:
            known = _Leaving(pod, placement.prepare(pod) if pod.spec.pod_anti_affinity else None, set())
            self._leaving[key] = known
        if (slot := self._table.slot_of.get(pod.node_name)) is not None:
            known.slots.add(slot)

    def shut_out(self, demand: Demand) -> None:
        """Add pods that no node accepts now."""
        self._shut_out.append(demand)

    def let_in_by(self, demands: Iterable[Demand]) -> list[Demand]:
        """Return pods that no node accepts now, but some may once others have left their nodes and landed.

        They have affinity to these, or one of them repels the other.

        Args:
            demands: the replacements of the pods that leave.
        """
        found: dict[int, Demand] = {}
        for each in demands:
            pod, prepared = each.pod, each.prepared
            repels = bool(pod.spec.pod_anti_affinity)
            for other in self._shut_out:
                if (other.prepared.has_pod_terms and other.prepared.speaks_of(pod.namespace, pod.labels)) or (
                    repels and prepared.speaks_of(other.pod.namespace, other.pod.labels)
                ):
                    found[id(other)] = other
        return [
            each._replace(nodes=nodes, sure=nodes, now=nodes, may_open=0)
            for each in found.values()
            if (nodes := each.prepared.admitted(spread=False, terms=False))
        ]

    def let_in(self, demands: Sequence[Demand]) -> None:
        """Record that pods are among those that need a node now."""
        if demands:
            pods = {id(each.pod) for each in demands}
            self._shut_out = [each for each in self._shut_out if id(each.pod) not in pods]

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
        pod, prepared = demand.pod, demand.prepared
        if leaving.prepared is None and not prepared.has_pod_terms:
            return False
        gone = leaving.pod
        if prepared.is_drawn_by(gone.namespace, gone.labels):
            return True
        keys = set(prepared.keys_apart_from(gone.namespace, gone.labels))
        if leaving.prepared is not None:
            keys.update(leaving.prepared.keys_apart_from(pod.namespace, pod.labels))
        columns = [self._table.column(key) for key in keys]
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
