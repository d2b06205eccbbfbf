"""Plans avoid pods whose eviction the API server has refused recently, and evict others if that is as good."""

from __future__ import annotations

from collections.abc import Collection

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from respread.api.policy import ClusterPolicySpec, Policy, TrustedController, VictimRules
from respread.api.reasons import Held, Reason
from respread.cluster.meta import OwnerReference
from respread.cluster.objects import Workload
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot, ClusterState
from respread.eviction.answers import Answer, EvictionResult
from respread.holds.refusals import Refusals
from respread.planning.plan import Plan
from respread.planning.planner import Planner
from respread.planning.victims.policies import PolicySetting
from respread.planning.victims.selection import NOTHING_REFUSED, Refused
from respread.spread.index import SpreadIndex
from tests.plans import plan_cluster
from tests.unit.planning.test_budgets import budget
from tests.worlds import NOW, cluster, constraint, node, pods, spec

SPEC = spec(constraint())
NODES = [node("a1", "a"), node("b1", "b")]
ENFORCING = Policy(kind="ClusterRebalancePolicy", object_name="default", spec=ClusterPolicySpec(mode="Enforce"))
WHY = Held(Reason.EVICTION_REFUSED, "a webhook says no")


class Planning:
    """A planner for several snapshots."""

    def __init__(self) -> None:
        self._planner = Planner()
        self._index = SpreadIndex()

    def plan(self, snapshot: ClusterSnapshot, refused: Refused = NOTHING_REFUSED) -> Plan:
        return self._planner.plan(
            snapshot, self._index.update(snapshot), PolicySetting((ENFORCING,)), now=NOW, refused=refused
        )


def refusing(names: Collection[str]) -> Refused:
    return Refused(lambda pod, _: WHY if pod.name in names else None, frozenset({"default"}))


def moved(plan: Plan) -> set[str]:
    return {move.pod.name for move in plan.moves}


def test_other_pods_are_evicted_instead_until_the_refusal_expires() -> None:
    snapshot, planning = cluster(NODES, pods({"a1": 3}, SPEC)), Planning()
    before = moved(planning.plan(snapshot))
    assert len(before) == 1
    (first,) = before
    assert moved(planning.plan(snapshot, refusing({first}))).isdisjoint({first})
    assert len(moved(planning.plan(snapshot, refusing({first})))) == 1
    assert moved(planning.plan(snapshot)) == before


def test_a_refusal_by_a_budget_holds_all_its_pods_until_it_changes() -> None:
    snapshot = cluster(NODES, pods({"a1": 3}, SPEC), poddisruptionbudgets=[budget()])
    planning, refusals = Planning(), Refusals(lambda: 0.0)
    (move,) = planning.plan(snapshot, refusals.for_planning()).moves
    answer = Answer(result=EvictionResult.HELD_BY_BUDGET, message="full")
    refusals.note(move.pod, (snapshot.disruption_budgets["default"]["web"],), answer)
    for _ in range(3):
        assert planning.plan(snapshot, refusals.for_planning()).moves == ()
    state = ClusterState(snapshot)
    state.replace("poddisruptionbudgets", [budget(allowed=2)])
    assert planning.plan(state.snapshot, refusals.for_planning()).moves != ()


@given(st.integers(0, 5), st.integers(0, 5), st.lists(st.sets(st.integers(0, 9)), max_size=4))
def test_a_refused_pod_is_never_planned_for(at_a: int, at_b: int, refused: list[set[int]]) -> None:
    found: list[Pod] = pods({"a1": at_a, "b1": at_b}, SPEC)
    snapshot, planning = cluster(NODES, found), Planning()
    for numbers in [*refused, set()]:
        names = {each.name for number, each in enumerate(found) if number in numbers}
        plan = planning.plan(snapshot, refusing(names))
        assert moved(plan).isdisjoint(names)
        assert moved(plan) == moved(Planning().plan(snapshot, refusing(names)))  # equal to the plan of a new planner


def test_pods_of_an_unknown_owner_are_not_planned_for() -> None:
    """A plan knows the owner if its controller was read before. A policy may trust the owner."""
    above = OwnerReference("example.org/v1", "Rollout", "web", "uid-rollout")
    snapshot = cluster(NODES, pods({"a1": 3}, SPEC))
    controller = next(iter(snapshot.pods.values())).controller
    assert controller is not None
    state = ClusterState(snapshot)
    owned = Workload(namespace="default", name=controller.name, uid=controller.uid, controller=above)
    planning = Planning()
    assert planning.plan(snapshot).moves
    state.apply("replicasets", [(owned.key, owned)])
    plan = planning.plan(state.snapshot)
    assert plan.moves == ()
    (blocked,) = plan.blocked
    assert blocked.reason == Reason.UNKNOWN_OWNER
    assert "Rollout web" in blocked.message
    rules = VictimRules(trusted_controllers=(TrustedController(group="example.org", kind="Rollout"),))
    trusting = msgspec.structs.replace(ENFORCING, spec=ClusterPolicySpec(mode="Enforce", victims=rules))
    assert plan_cluster(state.snapshot, [trusting], now=NOW).moves
