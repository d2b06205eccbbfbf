"""Gauges: those of the current plan, replaced as a whole, and those of watches, computed at each scrape.

A scrape never sees a mixture of two states. The tables in docs/metrics.md and docs/operator-metrics.md are made from
the definitions here and in `respread.telemetry.metrics` (`make reference`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache
from typing import Final, Literal, TypeAlias

import msgspec
from immutables import Map
from prometheus_client.core import GaugeMetricFamily

from respread.api.policy import WhenUnsatisfiable
from respread.api.reasons import Reason

Samples: TypeAlias = Mapping[tuple[str, ...], float]
"""Values by the values of the labels, in the family's order."""


class MetricDefinition(msgspec.Struct, frozen=True):
    """A metric family's name, help text and label names."""

    name: str
    documentation: str
    labels: tuple[str, ...] = ()
    kind: Literal["counter", "gauge", "histogram"] = "gauge"
    buckets: tuple[float, ...] = ()
    """Of a histogram."""


class Gauges:
    """A prometheus_client collector of gauge families whose samples are read all at once, at a scrape, in its thread.

    Series that the new samples lack are gone at the next scrape, so no series of a deleted workload or policy remains.
    """

    def __init__(
        self, definitions: Iterable[MetricDefinition], read: Callable[[], Mapping[str, Samples]] = dict
    ) -> None:
        """Create it. `read` returns the samples by family name, at each scrape."""
        self._definitions = tuple(definitions)
        self._read = read

    def replace(self, read: Callable[[], Mapping[str, Samples]]) -> None:
        """Show other samples from now on, always the same; `read` is called once, at the first scrape, if there is one.

        Any thread may call it.
        """
        self._read = cache(read)

    def describe(self) -> Iterator[GaugeMetricFamily]:
        """Yield the families without samples, so that the registry knows their names."""
        return (_make_family(definition, {}) for definition in self._definitions)

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """Yield the families with the samples of one moment."""
        samples = self._read()
        return (_make_family(definition, samples.get(definition.name, {})) for definition in self._definitions)


def _make_family(definition: MetricDefinition, samples: Samples) -> GaugeMetricFamily:
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
    """Iterated once, at a scrape, in its thread."""
    policies: tuple[PolicyFigures, ...] = ()


def worst_skews(figures: Iterable[SkewFigure]) -> dict[tuple[str, ...], SkewFigure]:
    """Return the figure for each set of labels. If several share one, return the one furthest above maxSkew.

    Several figures share labels if a workload has two constraints on one topology key, if `matchLabelKeys` separates
    its revisions, and for the pods of a namespace without a controller.
    """
    worst: dict[tuple[str, ...], SkewFigure] = {}
    for figure in figures:
        known = worst.setdefault(figure.labels, figure)
        if (figure.skew - figure.max_skew, figure.skew) > (known.skew - known.max_skew, known.skew):
            worst[figure.labels] = figure
    return worst


_SKEW_LABELS: Final = ("namespace", "workload", "topology_key", "when_unsatisfiable")

MOST_DOMAINS: Final = 16
"""Constraints with more domains than this have no numbers of pods by domain."""
DOMAIN_PODS: Final = "respread_spread_pods"

POLICY: Final = ("policy_namespace", "policy")
"""The labels that name a policy; the namespace of a ClusterRebalancePolicy is empty."""

PLAN_GAUGES: Final = (
    MetricDefinition(
        "respread_spread_skew",
        "Pods of the constraint's fullest domain minus the global minimum. workload is Kind/name, and Pod for all pods "
        "without a controller. If a workload has several such constraints, the one furthest above its maxSkew.",
        _SKEW_LABELS,
    ),
    MetricDefinition(
        "respread_spread_max_skew",
        "The maxSkew of the same constraint. It is violated if the skew is greater.",
        _SKEW_LABELS,
    ),
    MetricDefinition(
        DOMAIN_PODS,
        "Pods that the same constraint counts in each domain, for keys with at most 16 domains, except "
        "kubernetes.io/hostname. respread run --no-domain-metrics leaves it out.",
        (*_SKEW_LABELS, "domain"),
    ),
    MetricDefinition(
        "respread_spread_blocked",
        "1 for a constraint that the last plan leaves violated, or short of an expected domain, by reason.",
        (*_SKEW_LABELS, "reason"),
    ),
    MetricDefinition(
        "respread_spread_groups", "Spread groups that the policy governs.", (*POLICY, "when_unsatisfiable")
    ),
    MetricDefinition(
        "respread_spread_groups_violated",
        "Spread groups that the policy governs and whose skew is above maxSkew; 0 when no group is.",
        (*POLICY, "when_unsatisfiable"),
    ),
    MetricDefinition(
        "respread_spread_groups_blocked",
        "Violated groups that the last plan leaves violated, by reason. DomainHasNoNode counts groups that would be "
        "violated if every expected domain had a node.",
        (*POLICY, "reason"),
    ),
    MetricDefinition(
        "respread_spread_groups_oscillating",
        "Violated groups that have had as many evictions within the last hour as limits.perHourPerGroup allows.",
        POLICY,
    ),
    MetricDefinition(
        "respread_spread_groups_unworkable",
        "Spread groups that the policy governs and that can't work: state is Unsatisfiable or Ineffective, when is "
        "Now, NextRollout or NextScaleUp, rule is the rule of the audit. At most 38 series for each policy.",
        (*POLICY, "state", "when", "rule"),
    ),
    MetricDefinition(
        "respread_prevention_contested_replica_sets",
        "ReplicaSets whose pod deletion costs somebody else removes or overwrites again and again.",
        POLICY,
    ),
    MetricDefinition(
        "respread_permissions_missing",
        "Namespaces in which a permission is missing that the policy needs. permission is as for kubectl auth can-i, "
        "such as patch pods.",
        (*POLICY, "permission"),
    ),
    MetricDefinition(
        "respread_evictions_planned",
        "Evictions in the last plan. In mode DryRun, the evictions that would be made.",
        POLICY,
    ),
    MetricDefinition(
        "respread_remaining_seconds",
        "About how long the evictions that are left take. bound_by is the limit that bounds it, such as "
        "inFlightPerWorkload or PodDisruptionBudget; empty, with the value 0, if nothing is left. No sample if it is "
        "unknown.",
        (*POLICY, "bound_by"),
    ),
    MetricDefinition(
        "respread_limits_used_ratio",
        "Of the evictions that limits and budgets allow in flight at once, the share that is. Only while evictions "
        "wait for nothing but limits. Below 0.9 for long, something else holds evictions: look at status.blocked.",
        POLICY,
    ),
    MetricDefinition(
        "respread_policy_paused",
        "1 while the policy is paused after failed evictions (limits.failuresInARow), or a single eviction is tried "
        "after the pause; otherwise 0.",
        POLICY,
    ),
)

LAST_EVENT: Final = MetricDefinition(
    "respread_watch_last_event_timestamp_seconds",
    "When the last event or bookmark of the kind's watch arrived, as Unix time.",
    ("kind",),
)
OBJECTS: Final = MetricDefinition("respread_cluster_objects", "Objects held in memory.", ("kind",))
WATCH_LAG: Final = MetricDefinition(
    "respread_watch_lag_seconds",
    "Upper bound for the delay of the watch: how long the oldest event has waited, or, while events arrive faster than "
    "they are read, the time since that began. 0 if every event is processed.",
    ("kind",),
)
DECISION_LAG: Final = MetricDefinition(
    "respread_decision_lag_seconds", "Age of the oldest change that the control loop has not processed yet."
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
