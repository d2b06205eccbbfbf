"""Nothing is evicted by what is stale or has changed; what is evicted was written down before, and is counted."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import partial
from typing import Any

import pytest
from aiohttp import web
from immutables import Map

from respread.api.decoding import decode_policy
from respread.api.policy import Policy
from respread.cluster.meta import OwnerReference
from respread.cluster.state import ClusterSnapshot
from respread.controller.announcements import Announcements
from respread.controller.limiters import Limiters
from respread.controller.permission import Permission
from respread.controller.policy_versions import PolicyReader
from respread.controller.record import Record
from respread.controller.status_writer import StatusWriter
from respread.controller.waves import CUT_SECONDS, STALE_SECONDS, Waves
from respread.eviction.answers import Answer, EvictionResult
from respread.eviction.carry_out import Carried, Carrier, Flights
from respread.eviction.eviction_api import EvictionApi
from respread.eviction.owners.last_look import Owners
from respread.eviction.refusals import Refusals
from respread.eviction.steps import FIRST_PORTION
from respread.kube.requests import Requests
from respread.planning.plan import Move
from respread.stores.watched_kinds import CLUSTER_POLICIES, NAMESPACED_POLICIES
from tests.eviction_moves import SPEC, move
from tests.intake import Parts
from tests.integration.stub_api_server import Answering, StubApiServer, answering, hanging
from tests.worlds import NOW, cluster, node, pod

A, B = pod("a", "node-1", SPEC), pod("b", "node-1", SPEC)
EVICTION = "/pods/a/eviction"


def policy(generation: int = 1, **spec: Any) -> Policy:
    metadata = {"name": "default", "uid": "uid-default", "generation": generation}
    return decode_policy("ClusterRebalancePolicy", {"metadata": metadata, "spec": {"mode": "Enforce", **spec}})


class Cluster:
    """Two pods of a ReplicaSet, one policy, and an API server that knows them."""

    def __init__(self, present: Policy) -> None:
        self.present = present
        """The policy as the watch brought it."""
        self.generation = present.generation
        """Of the policy that the API server has."""
        self.seconds = 1000.0
        self.waves: Waves | None = None
        self.parts = Parts()
        self.stub = StubApiServer()
        self.snapshot: ClusterSnapshot = cluster([node("node-1", "a")], [A, B])
        replica_set = {
            "metadata": {"name": "web", "uid": "uid-web", "generation": 1},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": {"app": "web"}},
                "template": {"metadata": {"labels": {"app": "web"}}, "spec": {}},
            },
            "status": {"observedGeneration": 1, "replicas": 2},
        }
        owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "uid-web", "controller": True}
        listed = [
            {
                "metadata": {
                    "name": each.name,
                    "namespace": "default",
                    "uid": each.uid,
                    "labels": {"app": "web"},
                    "ownerReferences": [owner],
                },
                "spec": {"nodeName": "node-1"},
                "status": {"phase": "Running"},
            }
            for each in (A, B)
        ]
        self.stub.on("GET", CLUSTER_POLICIES.path, self._policies)
        self.stub.on("GET", self.own_policies("default"), answering({"metadata": {}, "items": []}))
        self.stub.on("GET", "/replicasets/web", answering(replica_set))
        self.stub.on("GET", "/namespaces/default/pods", answering({"metadata": {}, "items": listed}))
        self.stub.on("GET", "/pods/a", answering(listed[0]))
        for rules in ("limitranges", "resourcequotas"):
            self.stub.on("GET", f"/namespaces/default/{rules}", answering({"metadata": {}, "items": []}))
        self.stub.on("PATCH", "/status", answering({}))
        self.stub.on("POST", EVICTION, answering({"kind": "Status", "status": "Success"}, status=201))

    def own_policies(self, namespace: str) -> str:
        return NAMESPACED_POLICIES.path_in_namespace.format(namespace=namespace)

    async def _policies(self, _: web.Request) -> web.StreamResponse:
        metadata = {"name": "default", "uid": "uid-default", "generation": self.generation}
        return web.json_response({"metadata": {}, "items": [{"metadata": metadata}]})

    def evict(self, *others: Move) -> tuple[bool, Record]:
        """Make a wave of the move of pod a and others; return whether all were made, and what was counted."""

        async def scenario() -> tuple[bool, Record]:
            async with self.stub.running() as requests:
                waves, record = self._waves(requests)
                policies = Map({"default": self.present})
                limiters = Limiters().of(policies)
                moves = [move(A), *others]
                try:
                    made = await waves.make(moves, self.snapshot, policies, limiters=limiters, planned_at=self.seconds)
                finally:
                    await waves.aclose()
                return made, record

        return asyncio.run(scenario())

    def _waves(self, requests: Requests) -> tuple[Waves, Record]:
        def clock() -> float:
            return self.seconds

        permission = Permission(
            lambda: True, lambda: Map({"default": self.present}), clock=clock, now=lambda: datetime.now(UTC)
        )
        owners, flights, refusals = Owners(requests, clock), Flights(clock), Refusals(clock)
        carrier = Carrier(EvictionApi(requests), owners, flights, refusals, may_evict=permission)
        record = Record(NOW.timestamp)
        self.waves = waves = Waves(
            carrier,
            permission,
            record,
            StatusWriter(requests, clock),
            PolicyReader(requests, clock),
            announcements=Announcements(lambda _: None, lambda _: self.present),
            metrics=self.parts.metrics,
            intake=self.parts.intake,
        )
        return waves, record

    @property
    def asked(self) -> list[str]:
        """The requests that change something, in their order."""
        return [f"{method} {path.rpartition('/')[2]}" for method, path in self.stub.requests if method != "GET"]

    def counted(self, result: str) -> float | None:
        labels = {"policy": "default", "namespace": "default", "result": result}
        return self.parts.registry.get_sample_value("respread_evictions_total", labels)


@pytest.mark.parametrize(
    ("path", "answer"),
    [
        ("/pods/a", {}),
        ("/pods/a", {"metadata": {"uid": A.uid}, "spec": {"containers": "none"}}),
        ("/pods/a", {"metadata": {"uid": A.uid}, "spec": {"containers": [{"resources": {"limits": 7}}]}}),
        ("/namespaces/default/limitranges", {"items": 1}),
        ("/namespaces/default/resourcequotas", {"items": [{}]}),
    ],
    ids=str,
)
def test_what_no_api_server_answers_holds_the_move(path: str, answer: dict[str, Any]) -> None:
    world = Cluster(policy())
    world.stub.on("GET", path, answering(answer))
    made, _ = world.evict()
    assert not made
    assert world.asked == []


def test_a_move_is_written_down_then_made_then_counted() -> None:
    world = Cluster(policy(limits={"perHour": 5}))
    made, record = world.evict()
    assert made
    assert world.asked == ["PATCH status", "POST eviction"]
    ahead = next(body for body in world.stub.bodies if body is not None)["status"]
    assert [each["pod"] for each in ahead["movesInFlight"]] == ["a"]
    assert sum(each["evictions"] for each in ahead["recentEvictions"]) == 1
    assert record.history.count_in_last_hour("default", 0) == 1  # and not twice, for having been written down
    assert record.evicted == {"default": 1}
    assert world.counted("Evicted") == 1


@pytest.mark.parametrize("answer", [answering({"message": "no"}, status=500), answering("not now", status=503)])
def test_what_can_t_be_written_down_is_not_made(answer: Answering) -> None:
    world = Cluster(policy())
    world.stub.on("PATCH", "/status", answer)
    made, record = world.evict()
    assert not made
    assert "POST eviction" not in world.asked
    assert record.evicted == {}


def test_nothing_is_evicted_by_what_nothing_was_heard_of_for_long(caplog: pytest.LogCaptureFixture) -> None:
    world = Cluster(policy())
    now = [0.0]
    health = type(world.parts.health)(world.parts.health.kinds, lambda: now[0])
    world.parts.intake.health = health
    now[0] = STALE_SECONDS + 1
    made, _ = world.evict()
    assert not made
    assert world.stub.requests == []
    assert "nothing was heard of" in caplog.text


def test_nothing_is_evicted_by_a_policy_that_has_changed_unseen(caplog: pytest.LogCaptureFixture) -> None:
    world = Cluster(policy())
    world.generation = 2
    made, _ = world.evict()
    assert not made
    assert world.asked == []
    assert "the policies have changed, and the watch has not brought it yet" in caplog.text


def test_nothing_is_evicted_while_the_policies_can_t_be_read(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    world = Cluster(policy())
    world.stub.on("GET", CLUSTER_POLICIES.path, answering({"message": "etcd is away"}, status=500))
    made, _ = world.evict()
    assert not made
    assert world.asked == []
    assert "etcd is away" in caplog.text


def test_a_policy_that_changes_unseen_in_mid_wave_stops_it() -> None:
    """While the eviction is made ready the API server is asked again."""
    world = Cluster(policy())

    async def slowly(_: web.Request) -> web.StreamResponse:
        world.generation = 2
        await asyncio.sleep(1.3)
        return web.json_response({})

    world.stub.on("PATCH", "/status", slowly)
    made, record = world.evict()
    assert not made
    assert world.asked == ["PATCH status"]
    assert record.evicted == {}


def test_a_refusal_counts_for_nothing_but_the_metric() -> None:
    world = Cluster(policy(limits={"perHour": 5}))
    refusal = {"kind": "Status", "message": "no", "details": {"causes": [{"reason": "DisruptionBudget"}]}}
    world.stub.on("POST", EVICTION, answering(refusal, status=429))
    made, record = world.evict()
    assert not made
    assert record.evicted == {}
    assert not record.history.minutes.get("default")
    assert world.counted("HeldByBudget") == 1


ELSEWHERE = pod("c", "node-1", SPEC, namespace="greedy")


@pytest.mark.parametrize("answer", [hanging, answering({"message": "too large"}, status=500)])
def test_a_namespace_whose_policies_can_t_be_read_holds_its_own_moves_alone(
    answer: Answering, caplog: pytest.LogCaptureFixture
) -> None:
    """A tenant with thousands of fat policies makes them slow to read, or impossible."""
    world = Cluster(policy())
    world.snapshot = cluster([node("node-1", "a")], [A, B, ELSEWHERE])
    world.stub.on("GET", world.own_policies("greedy"), answer)
    started = time.monotonic()
    made, record = world.evict(move(ELSEWHERE))
    assert time.monotonic() - started < 2.5  # it is not waited for until it times out
    assert not made
    assert world.asked == ["PATCH status", "POST eviction"]
    assert record.evicted == {"default": 1}
    assert "the policies of greedy could not be read yet" in caplog.text


def test_only_the_policies_are_read_that_may_have_a_say_in_the_wave() -> None:
    world = Cluster(policy())
    made, _ = world.evict()
    assert made
    read = {path for _, path in world.stub.requests if path.endswith("policies")}
    assert read == {CLUSTER_POLICIES.path, world.own_policies("default")}


class Tiring(Carrier):
    """Takes a fifth of a second for each move, and makes all of them."""

    def __init__(self, world: Cluster, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.world = world
        self.portions: list[float] = []

    async def carry_out(self, moves: Sequence[Move], *_: Any) -> tuple[Carried, ...]:
        self.portions.append(self.world.seconds)
        self.world.seconds += 0.2 * len(moves)
        return tuple(Carried(each, Answer(result=EvictionResult.EVICTED)) for each in moves)


def test_a_wave_that_takes_too_long_is_cut_and_what_was_made_of_it_stays_made(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All together would take 60 s: what they were planned on would be too old for most of them."""
    monkeypatch.setattr(f"{__name__}.Carrier", partial(Tiring, world := Cluster(policy())))
    victims = [
        pod(f"web-{number}", "node-1", SPEC, controller=OwnerReference("apps/v1", "ReplicaSet", "x", f"uid-{number}"))
        for number in range(300)
    ]
    world.snapshot = cluster([node("node-1", "a")], [A, *victims])
    started = world.seconds
    made, record = world.evict(*map(move, victims))
    assert not made
    assert 0 < record.evicted["default"] < 300
    assert world.waves is not None
    assert world.waves.cut
    assert world.seconds - started < CUT_SECONDS + FIRST_PORTION * 0.2
