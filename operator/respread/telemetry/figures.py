"""The numbers of a plan for the metrics."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec
from immutables import Map

from respread.api.policy import WhenUnsatisfiable
from respread.api.reasons import Reason


class SkewFigure(msgspec.Struct, frozen=True, kw_only=True):
    """The skew of one constraint of one workload."""

    namespace: str
    workload: str
    """`Kind/name`. A pod without a controller is its own workload."""
    topology_key: str
    when_unsatisfiable: WhenUnsatisfiable
    skew: int
    max_skew: int

    @property
    def labels(self) -> tuple[str, str, str, str]:
        """The label values, in the order of the metrics' labels. They contain no pod names."""
        workload = "Pod" if self.workload.startswith("Pod/") else self.workload
        return self.namespace, workload, self.topology_key, self.when_unsatisfiable


class PolicyFigures(msgspec.Struct, frozen=True, kw_only=True):
    """The spread groups that one policy governs, in numbers."""

    policy: str
    """`namespace/name`, or the name of a cluster policy."""
    namespaces: frozenset[str] = frozenset()
    """Those of the groups."""
    groups: Mapping[WhenUnsatisfiable, int] = Map()
    violated: Mapping[WhenUnsatisfiable, int] = Map()
    blocked: Mapping[Reason, int] = Map()
    planned_evictions: int = 0
    paused: bool = False
    """Whether evictions have failed in a row, so that none, or only a single one, is made now."""
    oscillating: int = 0
    """Violated groups that have had as many evictions as an hour allows."""
    contested: int = 0
    """ReplicaSets whose pod deletion costs somebody else removes or replaces again and again."""
    missing_permissions: Mapping[str, int] = Map()
    """In how many namespaces a permission is missing that the policy needs, by permission."""


class PlanFigures(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the metrics show of one plan."""

    skews: Iterable[SkewFigure] = ()
    """Iterated at a scrape, in its thread."""
    policies: tuple[PolicyFigures, ...] = ()


def worst_skews(figures: Iterable[SkewFigure]) -> dict[tuple[str, ...], SkewFigure]:
    """Return the figure for each set of labels. If several share one, return the one furthest above maxSkew.

    Several figures share labels if a workload has two constraints on one topology key, if `matchLabelKeys` separates
    its revisions, and for the pods of a namespace without a controller.
    """
    worst: dict[tuple[str, ...], SkewFigure] = {}
    for figure in figures:
        known = worst.get(figure.labels)
        if known is None or _badness(figure) > _badness(known):
            worst[figure.labels] = figure
    return worst


def _badness(figure: SkewFigure) -> tuple[int, int]:
    return figure.skew - figure.max_skew, figure.skew
