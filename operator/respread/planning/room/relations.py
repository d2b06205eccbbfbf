"""Whether pods that need a node affect each other in other ways than by the room they take: terms, and volumes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from respread.cluster.meta import Labels
from respread.cluster.pod import Pod
from respread.planning.placement import Placement
from respread.planning.room.demand import Conflict, Demand
from respread.scheduling.prepared_pod import PreparedPod
from respread.scheduling.view.volumes import has_volumes


class Relations:
    """The pods that need a node, and the terminating ones that others may depend on."""

    __slots__ = ("_kinds", "_repelling", "_shut_out", "_with_terms", "special")

    def __init__(self) -> None:
        self.special: list[Demand] = []
        """Pods that use more of a node than resource amounts: ports, volumes."""
        self._with_terms: list[Demand] = []
        self._kinds: dict[tuple[str, Labels], Demand | None] = {}
        self._repelling: list[PreparedPod] = []
        """Terminating pods that repel others until they are gone."""
        self._shut_out: list[Demand] = []
        """Pods that no node accepts now."""

    def repel(self, pod: Pod, placement: Placement) -> None:
        """Add a terminating pod."""
        self._kinds.setdefault((pod.namespace, pod.labels), None)
        if pod.spec.pod_anti_affinity:
            self._repelling.append(placement.prepare(pod))

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
        spec = demand.pod.spec
        lists = []
        if spec.host_ports or has_volumes(spec):
            lists.append(self.special)
        if demand.prepared.has_pod_terms:
            lists.append(self._with_terms)
        for each in lists:
            if times > 0:
                each.append(demand)
            else:
                _remove(each, demand)
        if times > 0:
            self._kinds.setdefault((demand.pod.namespace, demand.pod.labels), demand)
        elif self._kinds.get((demand.pod.namespace, demand.pod.labels)) is demand:
            del self._kinds[demand.pod.namespace, demand.pod.labels]

    def of(self, demand: Demand) -> Conflict | None:
        """Return a pod that affects these in other ways than by the room it takes, if there is one."""
        pod, prepared = demand.pod, demand.prepared
        for other in self._with_terms:
            if other.prepared.speaks_of(pod.namespace, pod.labels):
                return Conflict(other, other.nodes)
        if prepared.has_pod_terms:
            for (namespace, labels), kind in self._kinds.items():
                if prepared.speaks_of(namespace, labels):
                    return Conflict(demand if kind is None else kind, demand.nodes)
        if any(each.speaks_of(pod.namespace, pod.labels) for each in self._repelling):
            return Conflict(demand, demand.nodes)
        if prepared.wants_volume_alone:
            for other in self.special:
                if other.prepared.wants_volume_alone:
                    return Conflict(other, other.nodes)
        return None


def _remove(demands: list[Demand], gone: Demand) -> None:
    """Remove pods from a list, which may contain them as a part of more that are alike."""
    for at, each in enumerate(demands):
        if each.number >= gone.number and each._replace(number=gone.number) == gone:
            left = each._replace(number=each.number - gone.number)
            demands[at : at + 1] = (left,) if left.number else ()
            return
    raise ValueError(f"{gone} is not among the pods that need a node")
