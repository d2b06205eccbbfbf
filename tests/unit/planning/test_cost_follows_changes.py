"""The cost of a reconcile grows at most linearly with the cluster. It is counted in calls, not in time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple

import msgspec
import pytest
from immutables import Map

from respread.api.fields import LabelSelector
from respread.api.policy import Limits
from respread.cluster.meta import ObjectKey, OwnerReference
from respread.cluster.objects import Namespace, PodDisruptionBudget
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterState
from respread.controller.records.history import History
from respread.controller.reporter import Reconciled, figures_of, outcomes_of
from respread.eviction.limiter import Limiter
from respread.eviction.pacing import Pace, Paced
from respread.eviction.remaining import PresentLimits, lots_of
from respread.eviction.standing import Trust
from respread.moves.codec import RecordedMoves
from respread.moves.entry import Outcome
from respread.moves.ledger import Ledger
from respread.planning.audit.auditor import Auditor, Findings
from respread.planning.moving_pods import UnderWay
from respread.planning.plan import Plan
from respread.planning.planner import Planner
from respread.planning.victims.budgets import BudgetBook, BudgetIndex
from respread.planning.victims.policies import PolicyIndex, PolicySetting, reach
from respread.scheduling.predictor import Predictor
from respread.scheduling.view.cluster_view import ClusterView
from respread.spread.index import Spread, SpreadIndex
from tests.counting import LINEAR, calls
from tests.unit.planning.blocked_plans import default_policy
from tests.worlds import NOW, constraint, node, pod, spec

SIZES: Final = (60, 120, 240)
"""The number of Deployments in one namespace. One of ten is violated, and every second one has a budget."""
PODS: Final = 6
HOSTS: Final = [(f"{zone}{number}", zone) for zone in "abc" for number in range(4)]
POLICY: Final = default_policy()
SETTING: Final = PolicySetting((POLICY,))
MOST: Final = 10_000
MOST_CALLS_OF_AN_AUDIT: Final = 1_000_000
UNBOUND: Final = default_policy(
    limits=Limits(in_flight=MOST, in_flight_per_namespace=MOST, in_flight_per_node=MOST, in_flight_per_workload=MOST)
)
"""Limits that allow all moves at once."""


def world(deployments: int) -> ClusterState:
    state = ClusterState()
    state.replace("nodes", [node(name, zone, pods=100_000) for name, zone in HOSTS])
    state.replace("namespaces", [Namespace(name="default")])
    state.replace("poddisruptionbudgets", [budget(number) for number in range(0, deployments, 2)])
    state.replace("pods", [each for number in range(deployments) for each in pods_of(number)])
    return state


def budget(number: int) -> PodDisruptionBudget:
    return PodDisruptionBudget(
        namespace="default",
        name=f"web-{number}",
        selector=LabelSelector(match_labels=Map(app=f"web-{number}")),
        current_healthy=PODS,
        desired_healthy=PODS - 2,
        expected_pods=PODS,
        disruptions_allowed=2,
    )


def pods_of(number: int) -> list[Pod]:
    of = spec(constraint(selector={"app": f"web-{number}"}))
    astray = number % 10 == 0
    hosts = [HOSTS[(number + 4 * replica) % 8 if astray else (number + 4 * replica) % 12][0] for replica in range(PODS)]
    return [
        pod(
            f"web-{number}-{replica}",
            host,
            of,
            labels=Map({"app": f"web-{number}", "pod-template-hash": f"{number:x}"}),
            controller=OwnerReference("apps/v1", "ReplicaSet", f"web-{number}-{number:x}", f"uid-{number}"),
        )
        for replica, host in enumerate(hosts)
    ]


class PlannedCluster(NamedTuple):
    """A planned cluster, with a move in flight for each workload to restore."""

    state: ClusterState
    spread_index: SpreadIndex
    planner: Planner
    spread: Spread
    plan: Plan
    in_flight: Ledger

    @classmethod
    def of(cls, deployments: int) -> PlannedCluster:
        state, index, planner = world(deployments), SpreadIndex(), Planner()
        spread = index.update(state.snapshot)
        plan = planner.plan(state.snapshot, spread, SETTING, now=NOW)
        in_flight = Ledger()
        for move in plan.moves:
            in_flight = in_flight.sent(move, state.snapshot, 0.0)
        return cls(state, index, planner, spread, plan, in_flight)

    def plan_again(self, name: str = "web-1-0") -> None:
        """Plan again after a pod has become unready or ready, and a budget another, while all moves are in flight."""
        changed = self.state.snapshot.pods[ObjectKey("default", name)]
        self.state.apply("pods", [(changed.key, msgspec.structs.replace(changed, ready=not changed.ready))])
        other = msgspec.structs.replace(budget(2), disruptions_allowed=1 + changed.ready)
        self.state.apply("poddisruptionbudgets", [(other.key, other)])
        self.planner.plan(
            self.in_flight.overlay(self.state.snapshot),
            self.spread_index.update(self.state.snapshot),
            SETTING,
            now=NOW,
            under_way=UnderWay(in_flight=self.in_flight.pods(self.state.snapshot)),
        )

    def plan_all_at_once(self) -> Plan:
        """Plan from scratch, with unlimited evictions."""
        return Planner().plan(self.state.snapshot, self.spread, PolicySetting((UNBOUND,)), now=NOW)

    def pace(self) -> Paced:
        """Choose the moves for now, with unlimited evictions."""
        first = [move for move in self.plan.moves if move.wave == 0]
        return Pace(snapshot=self.state.snapshot, limiters=(Limiter.of(UNBOUND),), now=0.0).of(first)

    def count_what_is_left(self) -> None:
        """Compute how long the moves take that are left."""
        lots = lots_of(self.state.snapshot, BudgetIndex(), self.plan.moves, self.in_flight.moves)
        limiters = (Limiter.of(POLICY),)
        PresentLimits(snapshot=self.state.snapshot, limiters=limiters, now=0.0, trust=Trust()).remaining(lots)

    def tell(self) -> None:
        """Compute status and metrics."""
        history = History(lambda: 0.0)
        reconciled = Reconciled(
            contested_costs={},
            other_evictors={},
            room_missing={},
            missing_permissions={},
            findings={},
            spread=self.spread,
            plan=self.plan,
            reach=reach(PolicyIndex([POLICY]), self.state.snapshot),
            held=(),
            in_flight=self.in_flight.of_policies,
            remaining={},
            recorded_moves=RecordedMoves().of(self.in_flight, self.state.snapshot),
            time=NOW,
        )
        figures_of([POLICY], reconciled, outcomes_of([POLICY], reconciled, history))

    def audit(self) -> Findings:
        """Find the constraints that can't work, also for want of room."""
        return Auditor().update(self.state.snapshot, self.spread, Predictor(ClusterView()))

    def ask_budgets(self) -> None:
        """Check the budgets of every pod."""
        book = BudgetBook(self.state.snapshot, self.in_flight.pods(self.state.snapshot))
        for each in self.state.snapshot.pods.values():
            book.verdict(each)


STEPS: Final[dict[str, Callable[[PlannedCluster], object]]] = {
    "groups from nothing": lambda scene: SpreadIndex().update(scene.state.snapshot),
    "a plan from nothing": lambda scene: Planner().plan(scene.state.snapshot, scene.spread, SETTING, now=NOW),
    "a plan after a pod's change": PlannedCluster.plan_again,
    "a plan of all at once": PlannedCluster.plan_all_at_once,
    "what is made now": PlannedCluster.pace,
    "budgets": PlannedCluster.ask_budgets,
    "the audit": PlannedCluster.audit,
    "moves under way": lambda scene: scene.in_flight.updated(scene.state.snapshot, 1.0, lambda *_: Outcome.UNKNOWN),
    "what is left": PlannedCluster.count_what_is_left,
    "status and metrics": PlannedCluster.tell,
}


@pytest.mark.parametrize("step", STEPS)
def test_twice_the_cluster_costs_at_most_about_twice_as_much(step: str) -> None:
    scenes = [PlannedCluster.of(size) for size in SIZES]
    assert [len(scene.in_flight) * 10 >= size for scene, size in zip(scenes, SIZES, strict=True)] == [True] * 3
    small, medium, large = (calls(partial(STEPS[step], scene)) for scene in scenes)
    assert medium <= LINEAR * small, (small, medium, large)
    assert large <= LINEAR * medium, (small, medium, large)


def test_the_audit_of_two_thousand_workloads_takes_less_than_a_second() -> None:
    """A call costs less than a millionth of a second on average. What has not changed is not audited again."""
    scene, auditor, predictor = PlannedCluster.of(SIZES[-1]), Auditor(foresees_room=False), Predictor(ClusterView())
    assert calls(scene.audit) * 2000 / SIZES[-1] < MOST_CALLS_OF_AN_AUDIT
    snapshot, spread = scene.state.snapshot, scene.spread
    auditor.update(snapshot, spread, predictor)
    assert calls(lambda: auditor.update(snapshot, spread, predictor)) < 5 * SIZES[-1]


@pytest.mark.parametrize("name", ["web-0-0", "web-1-0", "web-2-3", "web-149-5"])
def test_the_change_of_one_pod_costs_a_small_part_of_a_whole_namespace(name: str) -> None:
    # A pod of a violated workload, and pods of other workloads that share nodes with most of these.
    scene = PlannedCluster.of(SIZES[-1])
    calm = scene._replace(in_flight=Ledger())
    calm.plan_again(name)  # after this, only changes differ
    from_scratch = sum(calls(partial(STEPS[step], calm)) for step in ("groups from nothing", "a plan from nothing"))
    assert calls(lambda: calm.plan_again(name)) * 9 <= from_scratch


def test_the_cost_of_a_pod_grows_at_most_linearly_with_its_constraints() -> None:
    """The API server accepts ten thousand of them, on labels that no node has."""

    def cost(number: int) -> int:
        state = world(1)
        of = spec(*(constraint(f"example.com/key-{each}", selector={"app": "fat"}) for each in range(number)))
        state.apply(
            "pods", [(each.key, each) for name, on in (("fat", ""), ("on", "a0")) for each in [pod(name, on, of)]]
        )
        snapshot = state.snapshot
        return calls(lambda: Planner().plan(snapshot, SpreadIndex().update(snapshot), SETTING, now=NOW))

    assert cost(400) < LINEAR * cost(200)


def test_the_cost_of_pending_pods_grows_at_most_linearly_with_their_kinds() -> None:
    """Whether the constraints of each may count all others is not asked for each pair of many."""

    def cost(kinds: int) -> int:
        state, of = world(1), spec(constraint(selector={"pending": "yes"}))
        pending = [
            pod(f"p-{each}", "", of, labels=Map(pending="yes", of=str(each)), creation_timestamp=NOW)
            for each in range(kinds)
        ]
        state.apply("pods", [(each.key, each) for each in pending])
        spread = SpreadIndex().update(state.snapshot)
        return calls(lambda: Planner().plan(state.snapshot, spread, SETTING, now=NOW))

    assert cost(200) < LINEAR * cost(100)


def test_groups_that_budgets_hold_are_not_searched_again_beside_those_that_use_room() -> None:
    """Nothing that others do about room would let their pods go. It took 350 times as many calls as without budgets."""

    def calls_of_a_plan(budgets: int) -> int:
        state = ClusterState()
        state.replace("nodes", [node(name, zone, pods=60) for name, zone in HOSTS])
        state.replace("namespaces", [Namespace(name="default")])
        none = [msgspec.structs.replace(budget(number), disruptions_allowed=0) for number in range(budgets)]
        state.replace("poddisruptionbudgets", none)
        state.replace("pods", [each for number in range(12) for each in crowded(number)])
        spread = SpreadIndex().update(state.snapshot)
        return calls(lambda: Planner().plan(state.snapshot, spread, PolicySetting((UNBOUND,)), now=NOW))

    def crowded(number: int) -> list[Pod]:
        of = spec(constraint(selector={"app": f"web-{number}"}))
        return [
            msgspec.structs.replace(
                each, node_name=HOSTS[(number + replica) % 8][0], spec=of, name=f"{each.name}-{copy}"
            )
            for copy in range(4)
            for replica, each in enumerate(pods_of(number))
        ]

    assert calls_of_a_plan(budgets=4) < 1.5 * calls_of_a_plan(budgets=0)


def test_groups_do_not_crowd_on_one_node_of_a_zone_that_is_back() -> None:
    """Of equal nodes, each group begins with another one. Most began with the zone's first one: 1.4 times the calls."""

    def calls_of_a_plan(room: int) -> int:
        """Return them for 24 groups with 6 pods in each of two zones, and a third one with room for all their moves."""
        hosts = [(f"node-{zone}{number}", zone) for zone in "abc" for number in range(8)]
        state = ClusterState()
        state.replace("nodes", [node(name, zone, pods=room if zone == "c" else 60) for name, zone in hosts])
        state.replace("namespaces", [Namespace(name="default")])
        pods = [
            pod(f"web-{number}-{at}", hosts[(number * 3 + at) % 16][0], spec(constraint(selector={"app": f"{number}"})))
            for number in range(24)
            for at in range(12)
        ]
        labelled = [msgspec.structs.replace(each, labels=Map(app=each.name.split("-")[1])) for each in pods]
        state.replace("pods", labelled)
        spread = SpreadIndex().update(state.snapshot)
        return calls(lambda: Planner().plan(state.snapshot, spread, PolicySetting((UNBOUND,)), now=NOW))

    assert calls_of_a_plan(room=24) < 1.1 * calls_of_a_plan(room=400)
