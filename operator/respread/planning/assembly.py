"""All that a plan depends on, put together: what operator, CLI, tests and benchmarks call alike."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Final

from respread.api.policy import Policy
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.planning.budgets import BudgetLedger
from respread.planning.placement import Placement
from respread.planning.plan import Plan
from respread.planning.planner import OnHold, PlanInput, never_on_hold, plan
from respread.planning.policies import PolicyIndex
from respread.planning.protection import SYSTEM_PRIORITY_CLASSES, OwnPods, Protection
from respread.scheduling.cluster_view import ClusterView
from respread.scheduling.predictor import Predictor
from respread.spread.index import Spread, spread_of

_ROOM_PER_LIMIT: Final = 4
"""How many times `limits.inFlight` moves of a policy are planned for the first turn: other limits may hold some."""


def plan_cluster(
    snapshot: ClusterSnapshot,
    policies: Collection[Policy],
    *,
    now: datetime,
    spread: Spread | None = None,
    predictor: Predictor | None = None,
    priority_classes: Mapping[str, int] = SYSTEM_PRIORITY_CLASSES,
    own_pods: OwnPods | None = None,
    namespaced_policies: bool = True,
    on_hold: OnHold = never_on_hold,
    in_flight: Iterable[Pod] = (),
) -> Plan:
    """Return the plan for a cluster under policies.

    Args:
        snapshot: the cluster.
        policies: of both kinds.
        now: the time, with a time zone.
        spread: the snapshot's spread groups, where they are at hand.
        predictor: of what the cluster's schedulers do, where one is at hand; its view is advanced to the snapshot.
        priority_classes: values of the cluster's PriorityClasses by name.
        own_pods: how to tell the operator's own pods.
        namespaced_policies: whether RebalancePolicies count.
        on_hold: which groups to leave alone for now, and why.
        in_flight: pods whose eviction the API server has accepted, as the snapshot shows them.
    """
    if predictor is None:
        predictor = Predictor(ClusterView())
    predictor.view.advance(snapshot)
    return plan(
        PlanInput(
            snapshot=snapshot,
            spread=spread_of(snapshot) if spread is None else spread,
            policies=PolicyIndex(policies, namespaced_policies=namespaced_policies),
            protections=protections_of(policies, priority_classes, own_pods),
            placement=Placement(predictor),
            budgets=BudgetLedger(snapshot, in_flight),
            now=now,
            on_hold=on_hold,
            idle=frozenset(policy.name for policy in policies if policy.spec.mode == "DryRun"),
            wave_sizes={policy.name: _ROOM_PER_LIMIT * policy.spec.limits.in_flight for policy in policies},
        )
    )


def protections_of(
    policies: Iterable[Policy],
    priority_classes: Mapping[str, int] = SYSTEM_PRIORITY_CLASSES,
    own_pods: OwnPods | None = None,
) -> dict[str, Protection]:
    """Return the rules for victims of every policy in which nothing is wrong, by the policies' names."""
    protections: dict[str, Protection] = {}
    for policy in policies:
        if policy.problems:
            continue
        try:
            protections[policy.name] = Protection.of(policy.spec.victims, priority_classes, own_pods)
        except ValueError:
            continue  # its PriorityClass does not exist: as long as that is so, the policy evicts nothing
    return protections
