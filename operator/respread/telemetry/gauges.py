"""Gauges: those of the current plan, replaced as a whole, and those of watches, computed at each scrape.

A scrape never sees a mixture of two states.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import cache
from time import time
from typing import Final, TypeAlias

import msgspec
from immutables import Map
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily

from respread.api.policy import WhenUnsatisfiable
from respread.api.reasons import Reason

Samples: TypeAlias = Mapping[tuple[str, ...], float]
"""Values by the values of the labels, in the family's order."""


class GaugeDefinition(msgspec.Struct, frozen=True):
    """A gauge family's name, help text and label names."""

    name: str
    documentation: str
    labels: tuple[str, ...]


class ReplacedGauges:
    """A prometheus_client collector of gauge families whose samples are replaced all at once.

    Series that the new samples lack are gone at the next scrape, so no series of a deleted workload or policy remains.
    It may be replaced in one thread and scraped in another. Samples that are replaced before a scrape are never
    computed.
    """

    __slots__ = ("_definitions", "_read")

    def __init__(self, definitions: Sequence[GaugeDefinition]) -> None:
        self._definitions = tuple(definitions)
        self._read: Callable[[], Mapping[str, Samples]] = dict

    def replace(self, read: Callable[[], Mapping[str, Samples]]) -> None:
        """Show other samples from now on.

        Args:
            read: Returns the samples by family name, always the same. It is called once, at the first scrape, in its
                thread.
        """
        self._read = cache(read)

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Yield the families without samples, so that the registry knows their names."""
        return (_make_family(definition, {}) for definition in self._definitions)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the families with the samples of one moment."""
        samples = self._read()
        return (_make_family(definition, samples.get(definition.name, {})) for definition in self._definitions)


class ComputedGauge:
    """A prometheus_client collector of one gauge family whose samples are computed at each scrape, in its thread."""

    __slots__ = ("_definition", "_read")

    def __init__(self, definition: GaugeDefinition, read: Callable[[], Samples]) -> None:
        self._definition = definition
        self._read = read

    def describe(self) -> Iterable[GaugeMetricFamily]:
        """Return the family without samples, so that the registry knows its name."""
        return (_make_family(self._definition, {}),)

    def collect(self) -> Iterable[GaugeMetricFamily]:
        """Return the current family."""
        return (_make_family(self._definition, self._read()),)


def _make_family(definition: GaugeDefinition, samples: Samples) -> GaugeMetricFamily:
    family = GaugeMetricFamily(definition.name, definition.documentation, labels=definition.labels)
    for label_values, value in samples.items():
        family.add_metric(label_values, value)
    return family


class SkewFigure(msgspec.Struct, frozen=True, kw_only=True):
    """The skew of one constraint of one workload."""

    namespace: str
    workload: str
    """`Kind/name`. A pod without a controller is its own workload."""
    topology_key: str
    when_unsatisfiable: WhenUnsatisfiable
    skew: int
    max_skew: int
    pods: Mapping[str, int] = Map()
    """By domain; empty if it has more domains than are shown."""
    blocked: str = ""
    """Why the plan leaves it violated; empty if it does not."""

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
    unworkable: Mapping[tuple[str, str, str], int] = Map()
    """Groups that can't work, by state, when, and the rule of the audit."""
    blocked: Mapping[Reason, int] = Map()
    planned_evictions: int = 0
    paused: bool = False
    """Whether evictions have failed in a row, so that none, or only a single one, is made now."""
    oscillating: int = 0
    """Violated groups that have had as many evictions as an hour allows."""
    remaining_seconds: float | None = 0.0
    """About how long the rest takes within limits; None if that is not known."""
    bound_by: str = ""
    """The name of the limit that bounds it."""
    limits_used: float | None = None
    """Of the evictions that limits allow in flight at once, the share that is; None if none can be made now."""
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


_SKEW_LABELS: Final = ("namespace", "workload", "topology_key", "when_unsatisfiable")

MOST_DOMAINS: Final = 16
"""Constraints with more domains than this have no numbers of pods by domain."""
DOMAIN_PODS: Final = "respread_spread_pods"

POLICY: Final = ("policy_namespace", "policy")
"""The labels that name a policy; the namespace of a ClusterRebalancePolicy is empty."""

PLAN_GAUGES: Final = (
    GaugeDefinition(
        "respread_spread_skew",
        "Skew of a topology spread constraint: the pods of its fullest domain minus the global minimum.",
        _SKEW_LABELS,
    ),
    GaugeDefinition("respread_spread_max_skew", "The maxSkew that the constraint allows.", _SKEW_LABELS),
    GaugeDefinition(
        DOMAIN_PODS, "Pods that the constraint counts in a domain, for at most 16 domains.", (*_SKEW_LABELS, "domain")
    ),
    GaugeDefinition(
        "respread_spread_blocked",
        "1 for a constraint that the last plan leaves violated, by why.",
        (*_SKEW_LABELS, "reason"),
    ),
    GaugeDefinition(
        "respread_spread_groups", "Spread groups that the policy governs.", (*POLICY, "when_unsatisfiable")
    ),
    GaugeDefinition(
        "respread_spread_groups_violated",
        "Spread groups that the policy governs whose skew exceeds maxSkew.",
        (*POLICY, "when_unsatisfiable"),
    ),
    GaugeDefinition(
        "respread_spread_groups_unworkable",
        "Spread groups that the policy governs and that keep pods Pending or have no effect, by the rule of the audit.",
        (*POLICY, "state", "when", "rule"),
    ),
    GaugeDefinition(
        "respread_spread_groups_blocked",
        "Spread groups that the last plan leaves violated, or short of an expected domain, by why.",
        (*POLICY, "reason"),
    ),
    GaugeDefinition(
        "respread_spread_groups_oscillating",
        "Violated spread groups for which as many evictions were made within the last hour as may be.",
        POLICY,
    ),
    GaugeDefinition(
        "respread_prevention_contested_replica_sets",
        "ReplicaSets whose pod deletion costs somebody else removes or replaces again and again.",
        POLICY,
    ),
    GaugeDefinition(
        "respread_permissions_missing",
        "Namespaces in which a permission is missing that the policy needs.",
        (*POLICY, "permission"),
    ),
    GaugeDefinition("respread_evictions_planned", "Evictions that the last plan holds.", POLICY),
    GaugeDefinition(
        "respread_remaining_seconds",
        "About how long the evictions that are left take within limits, by the limit that bounds it.",
        (*POLICY, "bound_by"),
    ),
    GaugeDefinition(
        "respread_limits_used_ratio",
        "Of the evictions that limits allow in flight at once, the share that is, while more can be made.",
        POLICY,
    ),
    GaugeDefinition(
        "respread_policy_paused", "1 while evictions that failed in a row pause the policy, 0 if not.", POLICY
    ),
)


def plan_samples(figures: PlanFigures) -> Mapping[str, Samples]:
    """Return the samples of `PLAN_GAUGES` for a plan, by the gauges' names."""
    skews, policies = worst_skews(figures.skews), [(policy_labels(each.policy), each) for each in figures.policies]
    return {
        "respread_spread_skew": {labels: figure.skew for labels, figure in skews.items()},
        "respread_spread_max_skew": {labels: figure.max_skew for labels, figure in skews.items()},
        DOMAIN_PODS: {
            (*labels, domain): pods for labels, figure in skews.items() for domain, pods in figure.pods.items()
        },
        "respread_spread_blocked": {(*labels, figure.blocked): 1 for labels, figure in skews.items() if figure.blocked},
        "respread_spread_groups": {(*name, when): n for name, p in policies for when, n in p.groups.items()},
        "respread_spread_groups_violated": {
            (*name, when): p.violated.get(when, 0) for name, p in policies for when in p.groups
        },
        "respread_spread_groups_unworkable": {
            (*name, *why): n for name, p in policies for why, n in p.unworkable.items()
        },
        "respread_spread_groups_blocked": {(*name, why): n for name, p in policies for why, n in p.blocked.items()},
        "respread_spread_groups_oscillating": {name: p.oscillating for name, p in policies},
        "respread_prevention_contested_replica_sets": {name: p.contested for name, p in policies},
        "respread_permissions_missing": {
            (*name, which): n for name, p in policies for which, n in p.missing_permissions.items()
        },
        "respread_evictions_planned": {name: p.planned_evictions for name, p in policies},
        "respread_remaining_seconds": {
            (*name, p.bound_by): p.remaining_seconds for name, p in policies if p.remaining_seconds is not None
        },
        "respread_limits_used_ratio": {name: p.limits_used for name, p in policies if p.limits_used is not None},
        "respread_policy_paused": {name: float(p.paused) for name, p in policies},
    }


def policy_labels(name: str) -> tuple[str, ...]:
    """Return the values of `POLICY` for a policy that is called `namespace/name`, or `name` alone."""
    namespace, _, object_name = name.rpartition("/")
    return namespace, object_name


def register_watch_gauges(
    registry: CollectorRegistry,
    *,
    ages_seconds: Callable[[], Mapping[str, float]],
    object_counts: Callable[[], Mapping[str, int]],
    lags_seconds: Callable[[], Mapping[str, float]],
    decision_lag_seconds: Callable[[], float],
) -> None:
    """Register the gauges.

    Args:
        registry: where to register.
        ages_seconds: returns for each kind the time since the last event or bookmark.
        object_counts: returns for each kind the number of objects held.
        lags_seconds: returns for each kind how long the oldest event waits to be taken over, at most.
        decision_lag_seconds: returns how long the oldest change waits that the control loop has not looked at.
    """

    def add(name: str, documentation: str, read: Callable[[], Samples], *labels: str) -> None:
        registry.register(ComputedGauge(GaugeDefinition(name, documentation, labels), read))

    add(
        "respread_watch_last_event_timestamp_seconds",
        "When the last event or bookmark of the kind's watch came, as Unix time.",
        lambda: {(kind,): time() - age for kind, age in ages_seconds().items()},
        "kind",
    )
    add(
        "respread_cluster_objects",
        "Objects held in memory.",
        lambda: {(kind,): count for kind, count in object_counts().items()},
        "kind",
    )
    add(
        "respread_watch_lag_seconds",
        "How long the oldest event of the kind's watch has waited to be taken over, at most.",
        lambda: {(kind,): lag for kind, lag in lags_seconds().items()},
        "kind",
    )
    add(
        "respread_decision_lag_seconds",
        "How long the oldest change has waited that the control loop has not decided on.",
        lambda: {(): decision_lag_seconds()},
    )
