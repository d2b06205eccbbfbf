"""The room loop requests and releases room in time. The API server is a list of objects."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

import msgspec
from immutables import Map

from respread.api.policy import ConstraintRules, ExpectedDomains, Policy
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.provisioning.room_loop import (
    AT_ONCE,
    PATIENCE_SECONDS,
    REFUSED_SECONDS,
    REST_SECONDS,
    TAKEN_UP_SECONDS,
    WITHOUT_BUFFERS_SECONDS,
    RoomLoop,
    RoomView,
)
from respread.provisioning.room_objects import PLACEHOLDER_LABEL, READY_FOR_PROVISIONING, ROOM_CLASS, Result, RoomAnswer
from respread.provisioning.rooms import WantedRoom
from tests.informer_parts import Parts
from tests.spreads import spread_of
from tests.unit.planning.blocked_plans import WEB, default_policy, plan_of
from tests.worlds import ZONE, cluster, constraint, node, pod, pods, spec

OWN = "respread-system"
QUIET_SECONDS = 30.0


def asking(**fields: Any) -> Policy:
    expected = ExpectedDomains(topology_key=ZONE, values=("a", "b"), provision="Request", priority_class_name="low")
    spec = {"mode": "Enforce", "quiet_period": timedelta(seconds=QUIET_SECONDS), **fields}
    return default_policy(constraints=ConstraintRules(expected_domains=(expected,)), **spec)


class FakeObjects:
    """The objects of one kind that request room, in the API server."""

    def __init__(self) -> None:
        self.there: dict[str, str] = {}
        self.asked: list[str] = []
        self.result = Result.DONE
        self.message = ""
        self.conditions: frozenset[str] = frozenset()
        """The conditions of each object."""

    async def list(self, namespace: str) -> RoomAnswer:
        conditions = dict.fromkeys(self.there, self.conditions)
        return self._answer("list", namespace, uids=dict(self.there), conditions=conditions)

    async def create(self, room: WantedRoom, namespace: str) -> RoomAnswer:
        answer = self._answer("create", namespace, uids={room.key.id: f"uid-{room.key.id}"})
        if answer.result is Result.DONE:
            self.there[room.key.id] = f"uid-{room.key.id}"
        return answer

    async def delete(self, room_id: str, uid: str, namespace: str) -> RoomAnswer:
        answer = self._answer("delete", namespace)
        if answer.result is Result.DONE:
            assert self.there.pop(room_id) == uid
        return answer

    def _answer(self, what: str, namespace: str, **found: Any) -> RoomAnswer:
        assert namespace == OWN
        self.asked.append(what)
        if self.result is not Result.DONE:
            return RoomAnswer(result=self.result, message=self.message)
        return RoomAnswer(result=Result.DONE, **found)


class Scenario:
    """A loop, its API server, which does not serve CapacityBuffers, and a clock."""

    def __init__(self) -> None:
        self.api = FakeObjects()
        self.buffers = FakeObjects()
        self.buffers.result = Result.NOT_SERVED
        self.seconds = 0.0
        self.term: int | None = 1
        self.classes = Map(low=-1)
        self.parts = Parts()
        self.loop = RoomLoop(
            self.api,  # type: ignore[arg-type]  # what it does of one
            self.buffers,  # type: ignore[arg-type]  # likewise
            namespace=lambda: OWN,
            leads=lambda: self.term is not None,
            may_evict=lambda policy: policy.spec.mode == "Enforce",
            metrics=self.parts.metrics,
            clock=lambda: self.seconds,
        )

    def see(self, world: ClusterSnapshot, *policies: Policy) -> dict[str, str]:
        """Show the loop a plan for a cluster, run it once, and return the Deployments."""
        by_name = Map({each.name: each for each in policies})
        plan = plan_of(world, policies[0]) if policies else plan_of(world)
        self.loop.observe(RoomView(world, spread_of(world), by_name, self.classes, plan), self.term)
        return self.go_on()

    def go_on(self, seconds: float = 0.0) -> dict[str, str]:
        """Advance the time, and run the loop."""
        self.seconds += seconds
        asyncio.run(self._run())
        return dict(self.api.there)

    async def _run(self) -> None:
        running = asyncio.create_task(self.loop.run())
        for _ in range(20):
            await asyncio.sleep(0)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    def serve_buffers(self, *conditions: str) -> None:
        """Let the API server serve CapacityBuffers, and an autoscaler set these conditions of each."""
        self.buffers.result, self.buffers.conditions = Result.DONE, frozenset(conditions)

    def buffered(self, *conditions: str) -> None:
        """Let a buffer request room, of which an autoscaler sets these conditions."""
        self.serve_buffers(*conditions)
        self.see(zone_a(), asking())
        self.go_on(QUIET_SECONDS)

    def asked(self, *policies: Policy) -> str:
        """Let a placeholder request room, and return the ID of its room."""
        self.see(zone_a(), *policies or (asking(),))
        (room_id,) = self.go_on(QUIET_SECONDS)
        return room_id


def zone_a(*more: Pod) -> ClusterSnapshot:
    return cluster([node("a1", "a")], [*pods({"a1": 4}, WEB), *more])


def zone_b(*more: Pod, moved: int = 0) -> ClusterSnapshot:
    counts = {"a1": 4 - moved, "b1": moved}
    return cluster([node("a1", "a"), node("b1", "b")], [*pods(counts, WEB), *more])


def full_zone_b() -> ClusterSnapshot:
    """Return a node of zone b that takes no pod."""
    return cluster([node("a1", "a"), node("b1", "b", unschedulable=True)], pods({"a1": 4}, WEB))


def of_placeholder(room_id: str, ready: int, count: int = 2) -> Iterable[Pod]:
    for number in range(count):
        on = "b1" if number < ready else ""
        labels = Map({PLACEHOLDER_LABEL: room_id})
        made = pod(f"placeholder-{number}", on, msgspec.structs.replace(WEB, priority=-1), labels=labels, namespace=OWN)
        yield msgspec.structs.replace(made, controller=None)


def test_room_is_requested_after_the_quiet_period_and_released_once_it_exists() -> None:
    scenario = Scenario()
    assert scenario.see(zone_a(), asking()) == {}
    assert scenario.go_on(QUIET_SECONDS - 1) == {}
    (room_id,) = scenario.go_on(1)
    assert scenario.loop.missing["default"].reason == "Requested"
    assert "2 pods of ReplicaSet/web in default in b" in scenario.loop.missing["default"].about
    for ready in (0, 1):
        assert scenario.see(zone_b(*of_placeholder(room_id, ready)), asking()) == {room_id: f"uid-{room_id}"}
    assert scenario.see(zone_b(*of_placeholder(room_id, 2)), asking()) == {}
    assert scenario.loop.missing == {}
    assert scenario.api.asked == ["list", "create", "delete"]


def test_without_a_policy_that_requests_nodes_no_request_is_sent() -> None:
    scenario = Scenario()
    scenario.see(zone_a(), default_policy(mode="Enforce"))
    scenario.go_on(2 * QUIET_SECONDS)
    scenario.see(zone_a())
    assert scenario.api.asked == []


def test_an_interruption_restarts_the_quiet_period() -> None:
    scenario = Scenario()
    scenario.see(zone_a(), asking())
    scenario.go_on(QUIET_SECONDS - 1)
    scenario.see(zone_b(moved=2), asking())
    assert scenario.see(zone_a(), asking()) == {}
    assert scenario.go_on(QUIET_SECONDS - 1) == {}
    assert len(scenario.go_on(1)) == 1


def test_a_placeholder_that_is_not_needed_is_deleted() -> None:
    for world, policies in (
        (zone_b(moved=2), [asking()]),
        (zone_a(), [asking(mode="DryRun")]),
        (zone_a(), [default_policy(mode="Enforce")]),
        (zone_a(), []),
    ):
        scenario = Scenario()
        scenario.asked()
        assert scenario.see(world, *policies) == {}
        assert scenario.loop.missing == {}


def test_a_placeholder_that_gets_no_node_is_deleted_and_requested_again_later() -> None:
    scenario = Scenario()
    scenario.asked()
    assert len(scenario.go_on(PATIENCE_SECONDS - 1)) == 1
    assert scenario.go_on(1) == {}
    assert scenario.loop.missing["default"].reason == "NoNodeCame"
    assert scenario.go_on(REST_SECONDS - 1) == {}
    assert len(scenario.go_on(1)) == 1


def test_the_same_room_is_not_requested_again_at_once() -> None:
    """Otherwise an autoscaler that removes the node before a pod uses it would add it repeatedly."""
    scenario = Scenario()
    room_id = scenario.asked()
    assert scenario.see(zone_b(*of_placeholder(room_id, 2)), asking()) == {}
    scenario.see(zone_a(), asking())
    assert scenario.go_on(QUIET_SECONDS) == {}
    assert scenario.loop.missing["default"].reason == "RequestedLater"
    assert len(scenario.go_on(REST_SECONDS)) == 1


def test_a_rejected_placeholder_is_reported_and_retried() -> None:
    scenario = Scenario()
    scenario.api.result, scenario.api.message = Result.REFUSED, "deployments.apps is forbidden"
    assert scenario.see(zone_a(), asking()) == {}
    assert scenario.loop.missing["default"] == ("Refused", "deployments.apps is forbidden")
    scenario.go_on(REFUSED_SECONDS - 1)
    assert scenario.api.asked == ["list"]
    scenario.api.result = Result.DONE
    scenario.go_on(1)
    assert len(scenario.go_on(QUIET_SECONDS)) == 1
    assert scenario.loop.missing["default"].reason == "Requested"


def test_a_priority_that_takes_room_from_others_is_not_used() -> None:
    for classes in (Map(), Map(low=0), Map(low=1000)):
        scenario = Scenario()
        scenario.classes = classes
        scenario.see(zone_a(), asking())
        assert scenario.go_on(QUIET_SECONDS) == {}
        assert scenario.loop.missing["default"].reason == "PriorityNotNegative"


def test_a_policy_has_at_most_ten_placeholders_at_once() -> None:
    placed: list[Pod] = []
    for number in range(AT_ONCE + 2):
        app = Map(app=f"web-{number}")
        placed += pods({"a1": 2}, spec(constraint(selector=app)), labels=app, prefix=f"web-{number}")
    world = cluster([node("a1", "a")], placed)
    scenario = Scenario()
    scenario.see(world, asking())
    asked = scenario.go_on(QUIET_SECONDS)
    assert len(asked) == AT_ONCE
    assert scenario.see(world, asking()) == asked


def test_the_next_leader_keeps_what_it_wants_and_deletes_the_rest() -> None:
    scenario = Scenario()
    room_id = scenario.asked()
    scenario.api.there["of-a-policy-that-is-gone"] = "uid"
    scenario.term = None
    scenario.see(zone_a(), asking())
    assert len(scenario.api.there) == 2
    scenario.term = 2
    assert scenario.see(zone_a(*of_placeholder(room_id, 0)), asking()) == {room_id: f"uid-{room_id}"}
    assert scenario.see(zone_b(*of_placeholder(room_id, 2)), asking()) == {}


def test_the_next_leader_deletes_placeholders_even_if_no_policy_requests_nodes() -> None:
    scenario = Scenario()
    room_id = scenario.asked()
    scenario.term = 2
    assert scenario.see(zone_a(*of_placeholder(room_id, 0))) == {}


def test_the_next_leader_deletes_a_buffer_even_if_no_policy_requests_nodes() -> None:
    """No pod shows a buffer. The PriorityClass of the room component shows that there may be one."""
    scenario = Scenario()
    scenario.serve_buffers(READY_FOR_PROVISIONING)
    scenario.buffers.there["of-a-policy-that-is-gone"] = "uid"
    scenario.classes = Map({ROOM_CLASS: -1})
    scenario.see(zone_a())
    assert scenario.buffers.there == {}
    assert (scenario.api.asked, scenario.buffers.asked) == (["list"], ["list", "delete"])


def test_without_the_permission_the_next_leader_looks_for_leftovers_once() -> None:
    scenario = Scenario()
    scenario.api.result = Result.REFUSED
    scenario.classes = Map({ROOM_CLASS: -1})
    for _ in range(2):
        scenario.see(zone_a())
        scenario.go_on(REFUSED_SECONDS)
    assert scenario.api.asked == ["list"]
    scenario.see(zone_a(), asking())
    assert scenario.loop.missing["default"].reason == "Refused"


def test_a_policy_that_is_created_again_requests_its_own_room() -> None:
    """The garbage collector may have deleted the placeholder of the earlier policy."""
    scenario = Scenario()
    before = scenario.asked()
    namesake = msgspec.structs.replace(asking(), uid="created-again")
    assert scenario.see(zone_a(), namesake) == {}
    (after,) = scenario.go_on(QUIET_SECONDS)
    assert after != before


def test_a_used_capacity_buffer_is_deleted_when_the_first_pod_can_move() -> None:
    scenario = Scenario()
    scenario.serve_buffers(READY_FOR_PROVISIONING)
    scenario.see(zone_a(), asking())
    assert scenario.go_on(QUIET_SECONDS) == {}
    assert len(scenario.buffers.there) == 1
    assert scenario.loop.missing["default"].reason == "Requested"
    scenario.go_on(TAKEN_UP_SECONDS)
    scenario.see(full_zone_b(), asking())
    assert len(scenario.buffers.there) == 1
    scenario.see(zone_b(), asking())
    assert scenario.buffers.there == {}
    assert scenario.loop.missing == {}
    assert scenario.buffers.asked == ["list", "create", "list", "delete"]
    assert scenario.api.asked == ["list"]


def test_a_placeholder_requests_room_if_no_autoscaler_uses_the_buffer() -> None:
    scenario = Scenario()
    scenario.buffered()
    assert scenario.go_on(TAKEN_UP_SECONDS - 1) == {}
    assert len(scenario.buffers.there) == 1
    assert len(scenario.go_on(1)) == 1
    assert scenario.buffers.there == {}
    assert scenario.loop.missing["default"].reason == "Requested"
    assert len(scenario.go_on(PATIENCE_SECONDS - 1)) == 1
    assert scenario.go_on(1) == {}
    assert len(scenario.go_on(REST_SECONDS)) == 1
    assert scenario.buffers.asked.count("create") == 1


def test_a_buffer_that_brings_no_node_is_replaced_by_a_placeholder() -> None:
    """An autoscaler may read buffers without launching nodes. Cluster Autoscaler has a flag for each."""
    scenario = Scenario()
    scenario.buffered(READY_FOR_PROVISIONING)
    assert scenario.go_on(TAKEN_UP_SECONDS) == {}
    assert scenario.go_on(PATIENCE_SECONDS - TAKEN_UP_SECONDS) == {}
    assert scenario.buffers.there == {}
    assert scenario.loop.missing["default"].reason == "NoNodeCame"
    assert len(scenario.go_on(REST_SECONDS)) == 1
    assert scenario.buffers.there == {}


def test_a_buffer_keeps_its_node_for_a_limited_time_while_moves_are_held() -> None:
    scenario = Scenario()
    scenario.buffered(READY_FOR_PROVISIONING)
    scenario.go_on(TAKEN_UP_SECONDS)
    scenario.see(full_zone_b(), asking())
    scenario.go_on(PATIENCE_SECONDS - TAKEN_UP_SECONDS - 1)
    assert len(scenario.buffers.there) == 1
    scenario.go_on(1)
    assert scenario.buffers.there == {}
    assert scenario.loop.missing == {}
    assert scenario.see(zone_a(), asking()) == {}
    assert scenario.loop.missing["default"].reason == "RequestedLater"


def test_buffers_are_tried_again_later() -> None:
    scenario = Scenario()
    scenario.asked()
    scenario.see(zone_b(moved=2), asking())
    scenario.serve_buffers(READY_FOR_PROVISIONING)
    scenario.go_on(WITHOUT_BUFFERS_SECONDS)
    scenario.see(zone_a(), asking())
    assert scenario.go_on(QUIET_SECONDS) == {}
    assert len(scenario.buffers.there) == 1


def test_a_placeholder_requests_room_if_a_buffer_is_rejected() -> None:
    """An admission policy may forbid buffers, or the permission for them may be missing."""
    scenario = Scenario()
    scenario.buffers.result = Result.REFUSED
    scenario.asked()
    assert scenario.loop.missing["default"].reason == "Requested"


def test_the_next_leader_keeps_the_buffer_that_it_wants_and_deletes_the_rest() -> None:
    scenario = Scenario()
    scenario.buffered(READY_FOR_PROVISIONING)
    scenario.buffers.there["of-a-policy-that-is-gone"] = "uid"
    scenario.term = 2
    scenario.see(zone_a(), asking())
    assert len(scenario.buffers.there) == 1
    scenario.see(zone_b(), asking())
    assert scenario.buffers.there == {}
