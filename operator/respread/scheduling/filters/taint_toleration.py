"""TaintToleration: a pod must tolerate the taints of a node."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import msgspec

from respread.cluster.objects import Taint
from respread.cluster.pod import Toleration
from respread.scheduling.verdict import FixedFilter
from respread.scheduling.view.node_table import NodeSet, NodeTable, union

DELETION_CANDIDATE: Final = "DeletionCandidateOfClusterAutoscaler"
"""With the effect PreferNoSchedule on nodes that cluster-autoscaler deletes if they stay unneeded."""


def tolerates(tolerations: Iterable[Toleration], taint: Taint) -> bool:
    """Return whether a toleration tolerates a taint (`Toleration.ToleratesTaint`).

    An empty effect or key matches all; an empty operator means Equal. Lt and Gt need a feature gate that is off in
    1.36, and tolerate nothing.
    """
    return toleration_of(tolerations, taint) is not None


def toleration_of(tolerations: Iterable[Toleration], taint: Taint) -> Toleration | None:
    """Return the first toleration that tolerates a taint; None if none does."""
    for each in tolerations:
        if (
            (not each.effect or each.effect == taint.effect)
            and (not each.key or each.key == taint.key)
            and (each.operator == "Exists" or (each.operator in {"", "Equal"} and each.value == taint.value))
        ):
            return each
    return None


def for_scheduling(tolerations: Sequence[Toleration]) -> tuple[Toleration, ...]:
    """Return tolerations as the scheduler compares them: how long they hold makes no difference to it."""
    return tuple(
        each if each.toleration_seconds is None else msgspec.structs.replace(each, toleration_seconds=None)
        for each in tolerations
    )


def untolerated_taint(tolerations: Sequence[Toleration], taints: Iterable[Taint]) -> Taint | None:
    """Return the first taint of a node that a pod with these tolerations does not tolerate.

    PreferNoSchedule is ignored.
    """
    for taint in taints:
        if taint.effect != "PreferNoSchedule" and not tolerates(tolerations, taint):
            return taint
    return None


class ShunnedNodes(NamedTuple):
    """The nodes that the scheduler gives a pod only if no better one is feasible."""

    doomed: NodeSet = 0
    """Those that cluster-autoscaler is about to delete."""
    with_more: tuple[NodeSet, ...] = ()
    """Those with more than 0, 1, 2 and so on PreferNoSchedule taints that the pod does not tolerate; none is empty."""

    def preferred(self, nodes: NodeSet) -> NodeSet:
        """Return those of some nodes that TaintToleration's score prefers: with the fewest such taints."""
        for more in self.with_more:
            if best := nodes & ~more:
                return best
        return nodes

    def taints_on(self, nodes: NodeSet) -> int:
        """Return how many such taints each of some nodes has at least."""
        return sum(not nodes & ~more for more in self.with_more)


def shunned_nodes(table: NodeTable, tolerations: tuple[Toleration, ...]) -> ShunnedNodes:
    """Return the nodes to which TaintToleration's score gives a pod with these tolerations fewer points."""
    return table.derived(("shunned", tolerations), lambda: _shunned_nodes(table, tolerations))


def _shunned_nodes(table: NodeTable, tolerations: tuple[Toleration, ...]) -> ShunnedNodes:
    doomed: NodeSet = 0
    with_more: list[NodeSet] = []
    for taints, tainted in table.by_taints().items():
        shunned = shunned_taints(tolerations, taints)
        if DELETION_CANDIDATE in shunned:
            doomed |= tainted
        with_more.extend([0] * (len(shunned) - len(with_more)))
        for fewer in range(len(shunned)):
            with_more[fewer] |= tainted
    return ShunnedNodes(doomed, tuple(with_more))


def shunned_taints(tolerations: Sequence[Toleration], taints: Iterable[Taint]) -> list[str]:
    """Return the keys of PreferNoSchedule taints that a pod with these tolerations does not tolerate."""
    return [taint.key for taint in taints if taint.effect == "PreferNoSchedule" and not tolerates(tolerations, taint)]


def tolerated_nodes(table: NodeTable, tolerations: tuple[Toleration, ...]) -> NodeSet:
    """Return the nodes without a taint that a pod with these tolerations does not tolerate."""
    return table.derived(
        ("tolerated", tolerations),
        lambda: union(
            tainted for taints, tainted in table.by_taints().items() if untolerated_taint(tolerations, taints) is None
        ),
    )


def prepare(table: NodeTable, tolerations: tuple[Toleration, ...]) -> FixedFilter:
    """Return the filter for a pod with these tolerations."""

    def why(slot: int) -> str:
        node = table.nodes[slot]
        taint = None if node is None else untolerated_taint(tolerations, node.taints)
        return f"has the taint {taint}, which the pod does not tolerate"

    return FixedFilter("TaintToleration", tolerated_nodes(table, tolerations), why)
