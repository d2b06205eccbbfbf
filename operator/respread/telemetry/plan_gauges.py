"""The gauges that describe the current plan, and their samples."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from respread.telemetry.figures import PlanFigures, worst_skews
from respread.telemetry.gauges import GaugeDefinition, Samples

_SKEW_LABELS: Final = ("namespace", "workload", "topology_key", "when_unsatisfiable")

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
        "respread_spread_groups", "Spread groups that the policy governs.", (*POLICY, "when_unsatisfiable")
    ),
    GaugeDefinition(
        "respread_spread_groups_violated",
        "Spread groups that the policy governs whose skew exceeds maxSkew.",
        (*POLICY, "when_unsatisfiable"),
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
        "respread_policy_paused", "1 while evictions that failed in a row pause the policy, 0 if not.", POLICY
    ),
)


def plan_samples(figures: PlanFigures) -> Mapping[str, Samples]:
    """Return the samples of `PLAN_GAUGES` for a plan, by the gauges' names."""
    skews, policies = worst_skews(figures.skews), [(policy_labels(each.policy), each) for each in figures.policies]
    return {
        "respread_spread_skew": {labels: figure.skew for labels, figure in skews.items()},
        "respread_spread_max_skew": {labels: figure.max_skew for labels, figure in skews.items()},
        "respread_spread_groups": {(*name, when): n for name, p in policies for when, n in p.groups.items()},
        "respread_spread_groups_violated": {
            (*name, when): p.violated.get(when, 0) for name, p in policies for when in p.groups
        },
        "respread_spread_groups_blocked": {(*name, why): n for name, p in policies for why, n in p.blocked.items()},
        "respread_spread_groups_oscillating": {name: p.oscillating for name, p in policies},
        "respread_prevention_contested_replica_sets": {name: p.contested for name, p in policies},
        "respread_permissions_missing": {
            (*name, which): n for name, p in policies for which, n in p.missing_permissions.items()
        },
        "respread_evictions_planned": {name: p.planned_evictions for name, p in policies},
        "respread_policy_paused": {name: float(p.paused) for name, p in policies},
    }


def policy_labels(name: str) -> tuple[str, ...]:
    """Return the values of `POLICY` for a policy that is called `namespace/name`, or `name` alone."""
    namespace, _, object_name = name.rpartition("/")
    return namespace, object_name
