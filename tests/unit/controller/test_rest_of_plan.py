"""A plan goes on as places become free, without another plan, until anybody else changes something."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from itertools import cycle
from typing import Any

import msgspec
import pytest
from immutables import Map

from respread.api.fields import LabelSelector, LabelSelectorRequirement
from respread.api.policy import ClusterPolicySpec, Policy
from respread.api.reasons import Held, Reason
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot, ClusterState
from respread.controller.observation import Observation
from respread.controller.rest_of_plan import RestOfPlan
from respread.moves.entry import PLACED_SECONDS
from respread.moves.following import compared
from respread.moves.ledger import Ledger
from respread.planning.moving_pods import OnHold, never_on_hold
from respread.planning.planner import Planner
from respread.planning.victims.policies import PolicySetting
from respread.timing import ClockReading
from tests.spreads import spread_of
from tests.unit.controller.observations import observation
from tests.unit.controller.simulated_cluster import NAMESPACE, ZONE, SimulatedCluster
from tests.worlds import NOW, cluster, constraint, node, pod, pods, spec

PODS, IN_FLIGHT, MOVES = 120, 8, 80


class Staggered(SimulatedCluster):
    """A workload in one zone, whose replacements are Ready one after another."""

    def __init__(self) -> None:
        limits = {"inFlight": IN_FLIGHT, "inFlightPerNode": IN_FLIGHT, "inFlightPerWorkload": "100%"}
        super().__init__(1, zones=["a" * PODS], limits=limits)
        self.policy["spec"]["victims"] = {"minAge": "0s"}
        self._late_seconds = cycle(0.3 * turn for turn in range(8))

    async def _replace(self, app: str) -> None:
        await asyncio.sleep(next(self._late_seconds))
        await super()._replace(app)

    @property
    def plans(self) -> float:
        """How many plans were made."""
        return self.parts.registry.get_sample_value("respread_plan_duration_seconds_count") or 0


async def until(condition: Callable[[], bool]) -> None:
    """Wait, but not forever: some changes leave nothing that may be evicted."""
    while not condition() and asyncio.get_running_loop().time() < 60:  # noqa: ASYNC110 - no event
        await asyncio.sleep(0.01)


async def until_all_places_are_used(cluster: Staggered) -> None:
    """Wait until all replacements exist, in the middle of the moves."""
    await asyncio.sleep(12)
    await until(lambda: len(cluster.evicted) - len(cluster.ready) == IN_FLIGHT and len(cluster.pods) == PODS)


@pytest.mark.virtual_time
async def test_places_are_used_without_another_plan_while_only_our_moves_change_the_cluster() -> None:
    cluster = Staggered()
    async with cluster.running():
        most = 0
        while len(cluster.ready) < MOVES:
            await asyncio.sleep(0.05)
            most = max(most, len(cluster.asked) - len(cluster.ready))
        taken = asyncio.get_running_loop().time()
        await asyncio.sleep(20)
    assert (len(cluster.evicted), cluster.violated) == (MOVES, 0), "as few as if each had been planned"
    assert most == IN_FLIGHT, "no limit is exceeded"
    assert taken < 1.2 * MOVES / IN_FLIGHT * (0.3 + 0.05 + 1.05 + 2.0)
    assert cluster.plans < 0.8 * MOVES


def another_pod(cluster: Staggered) -> None:
    cluster._bring(cluster._create("app-0", "b", ready=True))


def pod_of_another_workload(cluster: Staggered) -> None:
    pod = cluster._create("app-0", "c", ready=True)
    del cluster.pods[pod["metadata"]["name"]]
    pod["metadata"] |= {"labels": {"app": "other"}, "ownerReferences": []}
    cluster._bring(pod)


def deleted_pod(cluster: Staggered) -> None:
    cluster._bring(next(pod for pod in cluster.pods.values() if pod["spec"]["nodeName"] == "node-a"), deleted=True)


def deleted_replacement(cluster: Staggered) -> None:
    cluster._bring(next(pod for pod in cluster.pods.values() if pod["spec"]["nodeName"] == "node-c"), deleted=True)


def cordoned_node(cluster: Staggered) -> None:
    labels = {ZONE: "c", "kubernetes.io/hostname": "node-c"}
    metadata = {"name": "node-c", "labels": labels, "resourceVersion": "9000"}
    status = {"allocatable": {"pods": "10000"}}
    cluster.parts.event("nodes", {"metadata": metadata, "spec": {"unschedulable": True}, "status": status})


def changed_policy(cluster: Staggered) -> None:
    metadata = {**cluster.policy["metadata"], "generation": 2, "resourceVersion": "9000"}
    cluster.policy = {"metadata": metadata, "spec": {**cluster.policy["spec"], "victims": {"minAge": "1s"}}}
    cluster.parts.event("clusterrebalancepolicies", cluster.policy)


def other_service(cluster: Staggered) -> None:
    metadata = {"namespace": NAMESPACE, "name": "web", "uid": "uid-web", "resourceVersion": "9000"}
    cluster.parts.event("services", {"metadata": metadata, "spec": {"selector": {"app": "app-0"}}})


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    "change",
    [
        another_pod,
        pod_of_another_workload,
        deleted_pod,
        deleted_replacement,
        cordoned_node,
        changed_policy,
        other_service,
    ],
)
async def test_nothing_is_evicted_without_another_plan_after_somebody_else_has_changed_something(
    change: Callable[[Staggered], Any],
) -> None:
    cluster = Staggered()
    async with cluster.running():
        await until_all_places_are_used(cluster)
        change(cluster)
        plans, asked = cluster.plans, len(cluster.asked)
        await until(lambda: len(cluster.asked) > asked)
        assert cluster.plans > plans


@pytest.mark.virtual_time
async def test_all_is_planned_again_before_more_is_evicted_when_a_replacement_improves_nothing() -> None:
    cluster = Staggered()
    create, other_plans = cluster._create, list[float]()

    def created(app: str, _zone: str, *, ready: bool) -> dict[str, Any]:
        other_plans.append(cluster.plans)
        return create(app, "a", ready=ready)

    async with cluster.running():
        await until_all_places_are_used(cluster)
        cluster._create = created  # type: ignore[method-assign,assignment] # as by a scheduler that nobody knows
        await until(lambda: bool(other_plans))
        asked = len(cluster.asked)
        await until(lambda: len(cluster.asked) > asked)
        assert cluster.plans > other_plans[0]


ANY_APP = LabelSelector(match_expressions=(LabelSelectorRequirement("app", "Exists"),))
SPEC = spec(constraint(), constraint(selector=ANY_APP))
SETTING = PolicySetting((Policy(kind="ClusterRebalancePolicy", object_name="default", spec=ClusterPolicySpec()),))
NODES = [node("node-a", "a"), node("node-a2", "a"), node("node-b", "b"), node("node-c", "c")]
REPLACEMENT = pod("web-new", "node-b", SPEC, creation_timestamp=NOW)


def with_pods(snapshot: ClusterSnapshot, *changed: Pod, gone: Pod | None = None) -> ClusterSnapshot:
    state = ClusterState(snapshot)
    removed = [] if gone is None else [(gone.key, None)]
    state.apply("pods", [*removed, *((each.key, each) for each in changed)])
    return state.snapshot


class GoingOn:
    """A plan of four moves, of which the first is made, and its replacement as a test says."""

    def __init__(self, *, seconds: float = 1.0, replacement: Pod | None = REPLACEMENT) -> None:
        before = cluster(NODES, pods({"node-a": 6}, SPEC))
        self.plan = Planner().plan(before, spread_of(before), SETTING, now=NOW)
        first = self.plan.moves[0]
        self.rest = RestOfPlan(self.plan, observation(before, setting=SETTING), Counter(default=1))
        self.left = [move.pod.uid for move in self.plan.moves[1:]]
        sent = Ledger().with_chosen([first], before, 0.0).recorded(first).sent(first, before, 0.0)
        self.snapshot = with_pods(before, *filter(None, [replacement]), gone=first.pod)
        self.ledger, _ = sent.answered(first, True, 0.0).updated(self.snapshot, 0.0, self.compare)
        self.seconds = seconds

    def compare(self, move: Any, of: Pod) -> Any:
        return compared(spread_of(self.snapshot), move, of)

    def observed(self, snapshot: ClusterSnapshot | None = None, **fields: Any) -> Observation:
        snapshot = self.snapshot if snapshot is None else snapshot
        ledger, _ = self.ledger.updated(snapshot, self.seconds, self.compare)
        moment = ClockReading(self.seconds, NOW.timestamp() + self.seconds)
        given = {"setting": SETTING, "ledger": ledger, "moment": moment, **fields}
        return observation(snapshot, **given)

    def rest_at(self, now: Observation, on_hold: OnHold = never_on_hold) -> list[str] | None:
        plan = self.rest.at(now, on_hold)
        return None if plan is None else [move.pod.uid for move in plan.moves]


def test_the_rest_of_a_plan_is_what_is_not_begun_while_all_is_as_expected() -> None:
    going_on = GoingOn()
    assert len(going_on.left) == 3
    now = going_on.observed()
    assert going_on.rest_at(now) == going_on.left, "its replacement is Ready"
    assert [going_on.rest.uses_all_places(going_on.plan.moves[1:end], now) for end in (1, 2, 3)] == [False, True, True]
    for fields in ({"node_name": ""}, {"ready": False}, {"labels": Map({"app": "web", ZONE: "b"})}):
        coming = GoingOn(replacement=msgspec.structs.replace(REPLACEMENT, **fields))
        assert coming.rest_at(coming.observed()) == coming.left
    bereft = GoingOn(replacement=None)
    assert bereft.rest_at(bereft.observed()) == bereft.left


@pytest.mark.parametrize(
    "fields",
    [
        {"node_name": "node-a2"},
        {"labels": Map(app="other")},
        {"deletion_timestamp": NOW},
        {"phase": "Failed", "ready": False},
    ],
)
def test_another_plan_is_due_if_a_replacement_is_not_as_expected(fields: dict[str, Any]) -> None:
    going_on = GoingOn()
    now = going_on.observed()
    changed = with_pods(going_on.snapshot, msgspec.structs.replace(REPLACEMENT, **fields))
    assert going_on.rest_at(msgspec.structs.replace(now, snapshot=changed, spread=spread_of(changed))) is None


def test_another_plan_is_due_if_a_replacement_is_gone_or_another_one() -> None:
    going_on = GoingOn()
    now, other = going_on.observed(), msgspec.structs.replace(REPLACEMENT, uid="uid-other")
    gone = with_pods(going_on.snapshot, gone=REPLACEMENT)
    seen = GoingOn()
    seen.rest = seen.rest._replace(observation=now)
    assert seen.rest_at(now) == seen.left
    for snapshot in (gone, with_pods(going_on.snapshot, other)):
        assert seen.rest_at(msgspec.structs.replace(now, snapshot=snapshot)) is None
    coming = GoingOn(replacement=msgspec.structs.replace(REPLACEMENT, ready=False))
    coming.rest = coming.rest._replace(observation=coming.observed())
    again = coming.observed(with_pods(coming.snapshot, msgspec.structs.replace(other, ready=False)))
    assert coming.rest_at(again) is None, "somebody has deleted the first, and its successor counts for the move"


@pytest.mark.parametrize("replacement", [None, msgspec.structs.replace(REPLACEMENT, node_name="", ready=False)])
def test_another_plan_is_due_if_a_replacement_is_late(replacement: Pod | None) -> None:
    for seconds, is_late in ((PLACED_SECONDS - 0.1, False), (PLACED_SECONDS + 0.1, True)):
        going_on = GoingOn(seconds=seconds, replacement=replacement)
        assert (going_on.rest_at(going_on.observed()) is None) == is_late


def test_another_plan_is_due_in_another_term_with_other_policies_and_for_groups_that_are_gone_or_on_hold() -> None:
    going_on = GoingOn()
    now, groups = going_on.observed(), going_on.plan.moves[1].groups
    assert going_on.rest_at(msgspec.structs.replace(now, term=2)) is None
    assert going_on.rest_at(msgspec.structs.replace(now, setting=PolicySetting(SETTING.policies))) is None
    bereft = GoingOn(replacement=None)
    seen = bereft.observed()
    without = msgspec.structs.replace(seen.spread, groups=Map(seen.spread.groups).delete(groups[0]))
    assert bereft.rest_at(msgspec.structs.replace(seen, spread=without)) is None
    held = Held(Reason.QUIET_PERIOD, "it changed")
    assert going_on.rest_at(now, lambda key, policy: held if (key, policy) == (groups[1], "default") else None) is None
    ours = {(key, "default") for key in groups}
    assert going_on.rest_at(now, lambda *of: None if of in ours else held) is not None
