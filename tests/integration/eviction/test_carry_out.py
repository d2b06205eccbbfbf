"""Moves on a real cluster: which evictions are sent, and what is recorded."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final

import pytest

from respread.api.reasons import Held, Reason
from respread.controller.follow_up import UNANSWERED_SECONDS
from respread.eviction.answers import Answer, EvictionResult
from respread.kube.requests import NoResponseError, Requests, Response
from respread.moves.entry import MovePhase, Outcome
from respread_sandbox import Sandbox
from tests.eviction_moves import SPEC, move, send
from tests.fake_requests import PassedOn, Send
from tests.integration.eviction.carrying import (
    Carrying,
    Counted,
    Look,
    counted_requests,
    results,
    two_deployments,
    without_controllers,
)
from tests.integration.eviction_cluster import requests_to
from tests.integration.snapshots import take_snapshot
from tests.integration.stub_api_server import StubApiServer, answering, hanging
from tests.integration.workloads import create_deployment, deployment, wait_for_ready_pods, wait_until
from tests.virtual_time import Clock
from tests.worlds import cluster, pod


@pytest.fixture
def web(sandbox: Sandbox, namespace: str) -> Look:
    """Two Deployments, web-0 and web-1, with three Ready pods each; call the value for their current state."""
    return two_deployments(sandbox, namespace)


async def test_moves_of_two_workloads_are_followed_from_eviction_to_replacement(
    sandbox: Sandbox, namespace: str, web: Look
) -> None:
    async with counted_requests(sandbox) as requests:
        snapshot, pods = web()
        moves = [move(pods[0]), move(pods[3])]
        carrying = Carrying(requests)
        carried = await carrying.carry_out(moves, snapshot)
        assert [each.move for each in carried] == moves
        assert results(carried) == [EvictionResult.EVICTED] * 2
        assert sorted(requests.evictions) == [pods[0].name, pods[3].name]
        assert carrying.stages == [MovePhase.EVICTED] * 2
        for name in ("web-0", "web-1"):
            await asyncio.to_thread(wait_for_ready_pods, sandbox, namespace, name, 3)
        ended = carrying.update(web()[0])
        assert len(ended) == 2
        assert len(carrying.in_flight) == 0


async def test_two_moves_of_one_workload_in_one_wave_are_made(sandbox: Sandbox, web: Look) -> None:
    with without_controllers(sandbox):
        async with counted_requests(sandbox) as requests:
            snapshot, pods = web()
            carrying = Carrying(requests)
            carried = await carrying.carry_out([move(pods[0]), move(pods[1])], snapshot)
            assert results(carried) == [EvictionResult.EVICTED] * 2
            # the last look would hold the third pod if it did not know the operator's own eviction
            forgetful = Carrying(requests)
            assert results(await forgetful.carry_out([move(pods[2])], snapshot)) == [Reason.IN_MOTION]


async def test_a_policy_changed_to_dry_run_stops_its_wave(sandbox: Sandbox, web: Look) -> None:
    async with counted_requests(sandbox) as requests:
        snapshot, pods = web()
        stopped = Held(Reason.DRY_RUN, "switched")
        carrying = Carrying(requests, lambda _: stopped if requests.evictions else None)
        carried = await carrying.carry_out([move(each) for each in pods[:3]], snapshot)
        assert results(carried) == [EvictionResult.EVICTED, Reason.DRY_RUN, Reason.DRY_RUN]
        assert requests.evictions == [pods[0].name]
        assert len(carrying.in_flight) == 1


class TestBudget:
    """A budget of web-0, and a wave with more evictions than it allows."""

    @pytest.fixture
    def set_min_available(self, sandbox: Sandbox, namespace: str, web: Look) -> Callable[[int], None]:
        assert len(web()[1]) == 6
        budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
        spec = {"minAvailable": 3, "selector": {"matchLabels": {"app": "web-0"}}}
        sandbox.api.request("POST", budgets, {"metadata": {"name": "web"}, "spec": spec})

        def set_it(pods: int) -> None:
            sandbox.api.request("PATCH", f"{budgets}/web", {"spec": {"minAvailable": pods}})

            def is_counted() -> bool:
                budget = sandbox.api.get(f"{budgets}/web")
                status, generation = budget["status"], budget["metadata"]["generation"]
                return bool(status.get("observedGeneration") == generation and status["disruptionsAllowed"] == 3 - pods)

            wait_until(is_counted, "the budget's status")

        return set_it

    async def test_evictions_beyond_the_budget_are_not_requested(
        self, sandbox: Sandbox, web: Look, set_min_available: Callable[[int], None]
    ) -> None:
        async with counted_requests(sandbox) as requests:
            set_min_available(2)
            snapshot, pods = web()
            moves = [move(each) for each in pods]
            carried = await Carrying(requests).carry_out(moves, snapshot)
            assert results(carried) == [
                EvictionResult.EVICTED,
                Reason.HELD_BY_BUDGET,
                Reason.HELD_BY_BUDGET,
                *[EvictionResult.EVICTED] * 3,
            ]
            assert set(requests.evictions) == {each.name for each in (pods[0], *pods[3:])}

    async def test_a_budget_that_refused_is_not_tried_again_until_it_changes(
        self, sandbox: Sandbox, web: Look, set_min_available: Callable[[int], None]
    ) -> None:
        async with counted_requests(sandbox) as requests:
            set_min_available(2)
            before, pods = web()
            set_min_available(3)
            carrying = Carrying(requests)
            for _ in range(5):
                carried = await carrying.carry_out([move(pods[0]), move(pods[1])], before)
                assert results(carried)[1] is Reason.HELD_BY_BUDGET
            assert len(requests.evictions) == 1
            assert len(carrying.in_flight) == 0
            set_min_available(2)
            carried = await carrying.carry_out([move(pods[0])], web()[0])
            assert results(carried) == [EvictionResult.EVICTED]


async def test_a_cancelled_eviction_counts_as_possibly_made() -> None:
    victim, other = pod("a", "node-1", SPEC), pod("b", "node-1", SPEC)
    stub = StubApiServer()
    owner = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web", "uid": "uid-web", "controller": True}
    listed = [
        {
            "metadata": {"name": each.name, "uid": each.uid, "ownerReferences": [owner]},
            "spec": {"nodeName": "node-1"},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
        }
        for each in (victim, other)
    ]
    stub.on(
        "GET", "/replicasets/web", answering({"metadata": {"name": "web", "uid": "uid-web"}, "spec": {"replicas": 2}})
    )
    stub.on("GET", "/namespaces/default/pods", answering({"metadata": {}, "items": listed}))
    stub.on("GET", "/pods/a", answering(listed[0]))
    for rules in ("limitranges", "resourcequotas"):
        stub.on("GET", f"/namespaces/default/{rules}", answering({"metadata": {}, "items": []}))
    stub.on("POST", "/pods/a/eviction", hanging)
    async with stub.running() as requests:
        carrying = Carrying(requests)
        making = asyncio.create_task(carrying.carry_out([move(victim)], cluster([], [victim, other])))
        while ("POST", "/api/v1/namespaces/default/pods/a/eviction") not in stub.requests:
            assert not making.done(), making.result()
            await asyncio.sleep(0.01)
        making.cancel()
        await asyncio.wait([making])
        (flight,) = carrying.in_flight.in_flight
        assert flight.phase is MovePhase.SENT


async def test_a_late_replacement_is_looked_up_until_it_appears_or_is_not_wanted() -> None:
    a, b = pod("a", "node-1", SPEC), pod("b", "node-2", SPEC)
    before, after = cluster([], [a, b]), cluster([], [b])
    stub = StubApiServer()
    now = 0.0

    def wanting(replicas: int) -> None:
        found = {"metadata": {"name": "web", "uid": "uid-web"}, "spec": {"replicas": replicas}}
        stub.on("GET", "/replicasets/web", answering(found))

    async def reconcile(carrying: Carrying, at: float) -> list[Outcome]:
        nonlocal now
        now = at
        await carrying.look_after(after)
        return [each.outcome for each in carrying.update(after)]

    async with stub.running() as requests:
        carrying = Carrying(requests, clock=lambda: now)
        send(carrying.journal, move(a), before)
        carrying.journal.answered(move(a), Answer(result=EvictionResult.EVICTED), again=False)
        wanting(2)
        for at in (1, 5.9, 6, 7, 15.9, 16):
            assert await reconcile(carrying, at) == []
        assert len(stub.requests) == 2  # after 5 s without it, and after as much time as before, and 5 s
        wanting(1)
        assert await reconcile(carrying, 35.9) == []
        assert await reconcile(carrying, 36) == [Outcome.UNKNOWN]
        assert await reconcile(carrying, 60) == []
        assert len(stub.requests) == 3


async def test_a_replacement_that_a_scale_down_has_deleted_is_looked_up_at_once() -> None:
    a, b, c = pod("a", "node-1", SPEC), pod("b", "node-2", SPEC), pod("c", "", SPEC)
    controller = a.controller
    assert controller is not None
    stub, now = StubApiServer(), 0.0
    stub.on(
        "GET",
        "/replicasets/web",
        answering({"metadata": {"name": controller.name, "uid": controller.uid}, "spec": {"replicas": 1}}),
    )

    before, replaced, scaled_down = cluster([], [a, b]), cluster([], [b, c]), cluster([], [b])
    async with stub.running() as requests:
        carrying = Carrying(requests, clock=lambda: now)
        send(carrying.journal, move(a), before)
        carrying.journal.answered(move(a), Answer(result=EvictionResult.EVICTED), again=False)
        for now, there in ((1.0, scaled_down), (2.0, replaced)):  # noqa: B007 - the clock
            carrying.update(there)
            await carrying.look_after(there)
            assert not stub.requests
        now = 3.0
        carrying.update(scaled_down)
        await carrying.look_after(scaled_down)
        assert [each.outcome for each in carrying.update(scaled_down)] == [Outcome.UNKNOWN]


class Losing(Counted):
    """Requests whose first eviction gets no answer, whether or not it arrives."""

    def __init__(self, requests: Requests, *, arrives: bool) -> None:
        super().__init__(requests)
        self._arrives = arrives

    async def pass_on(self, path: str, names: Mapping[str, str], send: Send, **options: Any) -> Response:
        lost = path.endswith("/eviction") and not self.evictions
        if lost and not self._arrives:
            self.evictions.append(names["name"])
            raise NoResponseError("lost", sent=True)
        response = await super().pass_on(path, names, send, **options)
        if lost:
            raise NoResponseError("lost", sent=True)
        return response


async def test_a_lost_eviction_is_sent_again_and_made_once(sandbox: Sandbox, web: Look) -> None:
    async with requests_to(sandbox.kubeconfig) as requests:
        snapshot, pods = web()
        losing, clock = Losing(requests, arrives=False), Clock()
        carrying = Carrying(losing, clock=clock)
        assert results(await carrying.carry_out([move(pods[0])], snapshot)) == [EvictionResult.UNKNOWN]
        assert await carrying.ask_again(snapshot) == ()  # too soon
        clock.now = UNANSWERED_SECONDS
        assert await carrying.ask_again(snapshot, wanted=False) == ()
        assert results(await carrying.ask_again(snapshot)) == [EvictionResult.EVICTED]
        assert losing.evictions == [pods[0].name] * 2
        assert carrying.stages == [MovePhase.EVICTED]
        clock.now *= 3
        assert await carrying.ask_again(snapshot) == ()
        after = {each.uid for each in web()[1] if not each.terminating}
        assert {each.uid for each in pods} - after == {pods[0].uid}


async def test_an_eviction_whose_answer_was_lost_is_not_made_twice(sandbox: Sandbox, web: Look) -> None:
    async with requests_to(sandbox.kubeconfig) as requests:
        snapshot, pods = web()
        losing, clock = Losing(requests, arrives=True), Clock()
        carrying = Carrying(losing, clock=clock)
        await carrying.carry_out([move(pods[0])], snapshot)
        clock.now = UNANSWERED_SECONDS
        # the watch is behind and still shows the old pod
        (again,) = results(await carrying.ask_again(snapshot))
        assert again in {Reason.IN_MOTION, EvictionResult.GONE, EvictionResult.CHANGED}
        assert losing.evictions == [pods[0].name]
        assert len(carrying.in_flight) == 1


WORKLOADS: Final = 10


class Kinds(PassedOn):
    """Requests, counted by what they request."""

    def __init__(self, requests: Requests) -> None:
        super().__init__(requests)
        self.counts: Counter[str] = Counter()

    async def pass_on(self, path: str, names: Mapping[str, str], send: Send, **options: Any) -> Response:
        self.counts[path.rpartition("/namespaces/{namespace}/")[2]] += 1
        return await super().pass_on(path, names, send, **options)


async def test_moves_of_different_workloads_share_all_reads_but_two(sandbox: Sandbox, namespace: str) -> None:
    for number in range(WORKLOADS):
        create_deployment(sandbox, namespace, deployment(f"web-{number}", replicas=3, cpu="1m"))
    for number in range(WORKLOADS):
        wait_for_ready_pods(sandbox, namespace, f"web-{number}", 3)
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    wait_until(
        lambda: all(each["status"].get("updatedReplicas") == 3 for each in sandbox.api.get(path)["items"]),
        "the Deployments' statuses",
    )
    snapshot = take_snapshot(sandbox)
    pods = [each for key, each in snapshot.pods.items() if key.namespace == namespace]
    one_each = list({pod.controller: pod for pod in pods}.values())
    async with requests_to(sandbox.kubeconfig) as requests:
        kinds = Kinds(requests)
        # Time stands still, so that what is read is fresh for all moves, however slow the machine is.
        carried = await Carrying(kinds, clock=lambda: 0.0).carry_out(
            [move(pod, groups=(), from_domains=(), to_domains=()) for pod in one_each], snapshot
        )
        assert results(carried) == [EvictionResult.EVICTED] * WORKLOADS
    lists = kinds.counts.pop("pods")
    assert lists <= WORKLOADS // 2
    assert kinds.counts == {
        "limitranges": 1,
        "resourcequotas": 1,
        "replicasets/{name}": WORKLOADS,
        "deployments/{name}": WORKLOADS,
        "pods/{name}/eviction": WORKLOADS,
    }
