"""Plans that can't restore a group, and their messages."""

from __future__ import annotations

from typing import Any, NamedTuple

from immutables import Map

from respread.api.fields import LabelSelector
from respread.api.policy import ClusterPolicySpec, Policy
from respread.api.reasons import Reason
from respread.cluster.objects import Node
from respread.cluster.pod import Pod, PodSpec
from respread.cluster.state import ClusterSnapshot
from respread.controller.reporter import Reconciled
from respread.planning.audit.auditor import Findings
from respread.planning.plan import Plan
from respread.planning.victims.policies import PolicyIndex, reach
from tests.plans import plan_cluster
from tests.spreads import spread_of
from tests.worlds import NOW, constraint, node, pods, spec

OF_WEB = LabelSelector(match_labels=Map(app="web"))
WEB = spec(constraint())


class Blocked(NamedTuple):
    """The report of a plan about the only group that it can't restore."""

    reason: Reason
    message: str
    topology_key: str


def default_policy(**spec_fields: Any) -> Policy:
    return Policy(kind="ClusterRebalancePolicy", object_name="default", spec=ClusterPolicySpec(**spec_fields))


def plan_of(snapshot: ClusterSnapshot, policy: Policy | None = None, **options: Any) -> Plan:
    return plan_cluster(snapshot, [default_policy() if policy is None else policy], now=NOW, **options)


def blocked(snapshot: ClusterSnapshot, policy: Policy | None = None, *, moves: int = 0, **options: Any) -> Blocked:
    plan = plan_of(snapshot, policy, **options)
    assert len(plan.moves) == moves
    (blocked,) = plan.blocked
    assert blocked.policy == "default"
    return Blocked(blocked.reason, blocked.message, blocked.group.topology_key)


def two_zones(**of_b: Any) -> list[Node]:
    return [node("a1", "a"), node("b1", "b", **of_b)]


def three_in_a(of: PodSpec = WEB, **fields: Any) -> list[Pod]:
    """Return three pods on a1, one too many for a maxSkew of 1 without pods in b."""
    return pods({"a1": 3}, of, **fields)


def reconciled_of(world: ClusterSnapshot, policy: Policy, findings: Findings | None = None) -> Reconciled:
    """Return a reconcile that made a plan and nothing else, with what was found about constraints that can't work."""
    return Reconciled(
        spread=spread_of(world),
        plan=plan_of(world, policy),
        reach=reach(PolicyIndex([policy]), world),
        held=(),
        in_flight={},
        remaining={},
        recorded_moves={},
        other_evictors={},
        contested_costs={},
        room_missing={},
        missing_permissions={},
        findings=findings or {},
        time=NOW,
    )
