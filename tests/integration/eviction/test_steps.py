"""The moves of a step are made together or not at all, and a started step is completed."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from respread.api.reasons import Held, Reason
from respread.cluster.pod import Pod
from respread.controller.follow_up import OWED_SECONDS
from respread.eviction.answers import EvictionResult
from respread.kube.requests import Requests, Response
from respread.moves.entry import MovePhase, Outcome
from respread.planning.plan import Move
from respread_sandbox import Sandbox
from tests.eviction_moves import move
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
from tests.integration.workloads import wait_until
from tests.virtual_time import Clock


@pytest.fixture
def web(sandbox: Sandbox, namespace: str) -> Look:
    return two_deployments(sandbox, namespace)


def together(*pods: Pod) -> list[Move]:
    return [move(each, component=7) for each in pods]


class Refusing(PassedOn):
    """Requests that answer the evictions of some pods as with an exhausted budget."""

    def __init__(self, requests: Counted) -> None:
        super().__init__(requests)
        self.refused: set[str] = set()
        """The names of the pods."""
        self.rehearsals_too = False
        self.evictions: list[str] = []

    async def pass_on(self, path: str, names: Mapping[str, str], send: Send, **options: Any) -> Response:
        if path.endswith("/eviction"):
            rehearsal = bool(options.get("query"))
            if not rehearsal:
                self.evictions.append(names["name"])
            if names["name"] in self.refused and (self.rehearsals_too or not rehearsal):
                causes = [{"reason": "DisruptionBudget", "message": "full for a moment"}]
                status = {"kind": "Status", "message": "no", "reason": "TooManyRequests", "details": {"causes": causes}}
                return Response(status_code=429, body=json.dumps(status).encode())
        return await super().pass_on(path, names, send, **options)


async def test_both_pods_of_a_step_are_evicted(sandbox: Sandbox, web: Look) -> None:
    async with counted_requests(sandbox) as requests:
        snapshot, pods = web()
        carrying = Carrying(requests)
        carried = await carrying.carry_out(together(pods[0], pods[1]), snapshot)
        assert results(carried) == [EvictionResult.EVICTED] * 2
        assert carrying.stages == [MovePhase.EVICTED] * 2


async def test_neither_pod_is_evicted_if_the_budget_allows_only_one(
    sandbox: Sandbox, namespace: str, web: Look
) -> None:
    budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web-0"}}}
    sandbox.api.request("POST", budgets, {"metadata": {"name": "web"}, "spec": spec})
    async with counted_requests(sandbox) as requests:
        snapshot, pods = web()
        moves = [*together(pods[0], pods[1]), move(pods[3])]
        carried = await Carrying(requests).carry_out(moves, snapshot)
        assert results(carried)[0] in {Reason.HELD_BY_BUDGET, Reason.BUDGET_OUT_OF_DATE}
        assert results(carried)[1:] == [results(carried)[0], EvictionResult.EVICTED]
        assert requests.evictions == [pods[3].name]


@pytest.mark.parametrize("why", ["policy", "written", "owner", "rehearsal"])
async def test_neither_pod_is_evicted_if_one_of_them_is_held(sandbox: Sandbox, web: Look, why: str) -> None:
    with without_controllers(sandbox):
        async with counted_requests(sandbox) as counted:
            snapshot, pods = web()
            first, second = pods[0], pods[3]
            refusing = Refusing(counted)
            refusing.rehearsals_too = True
            if why == "rehearsal":
                refusing.refused = {second.name}
            if why == "owner":
                sandbox.api.request("DELETE", f"/api/v1/namespaces/{pods[4].namespace}/pods/{pods[4].name}")
            stopped = Held(Reason.DRY_RUN, "switched")
            carrying = Carrying(
                refusing,
                may_evict=lambda each: stopped if why == "policy" and each.pod is second else None,
                unwritten={second.uid} if why == "written" else (),
            )

            carried = await carrying.carry_out(together(first, second), snapshot)
            held = {
                "policy": Reason.DRY_RUN,
                "written": Reason.API_UNAVAILABLE,
                "owner": Reason.IN_MOTION,
                "rehearsal": Reason.HELD_BY_BUDGET,
            }
            assert results(carried) == [held[why]] * 2
            assert refusing.evictions == []
            assert len(carrying.in_flight) == 0


async def test_the_second_pod_is_owed_once_the_first_is_evicted(sandbox: Sandbox, web: Look) -> None:
    async with counted_requests(sandbox) as counted:
        snapshot, pods = web()
        first, second = pods[0], pods[3]
        refusing, clock = Refusing(counted), Clock()
        refusing.refused = {second.name}
        carrying = Carrying(refusing, clock=clock)
        carried = await carrying.carry_out(together(first, second), snapshot)
        assert results(carried) == [EvictionResult.EVICTED, EvictionResult.HELD_BY_BUDGET]
        assert carrying.stages == [MovePhase.EVICTED, MovePhase.OWED]
        overlaid = carrying.in_flight.overlay(snapshot)
        assert overlaid.pods[second.key].terminating  # its group is not planned for meanwhile

        def ask() -> Any:
            return carrying.ask_again(snapshot, wanted=False)

        assert await ask() == ()  # too soon, the answer would be the same
        refusing.refused = set()
        clock.now = OWED_SECONDS
        # The refusal holds pods without a budget for 10 minutes, or until the pod has a budget.
        assert results(await ask()) == [Reason.HELD_BY_BUDGET]
        assert refusing.evictions == [first.name, second.name]
        clock.now = 74.9
        assert carrying.update(snapshot) == ()
        clock.now = 75
        (ended,) = carrying.update(snapshot)
        assert ended.move.pod is second
        assert ended.outcome is Outcome.UNKNOWN
        assert "refused, though others that it was to go with were made" in ended.message


async def test_an_owed_pod_is_evicted_once_its_budget_allows_it(sandbox: Sandbox, namespace: str, web: Look) -> None:
    budgets = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    spec = {"minAvailable": 2, "selector": {"matchLabels": {"app": "web-1"}}}
    sandbox.api.request("POST", budgets, {"metadata": {"name": "web"}, "spec": spec})

    def fill(pods_needed: int) -> None:
        """Change the budget, and wait until its status shows it."""
        sandbox.api.request("PATCH", f"{budgets}/web", {"spec": {"minAvailable": pods_needed}})
        wait_until(
            lambda: sandbox.api.get(f"{budgets}/web")["status"].get("disruptionsAllowed") == 3 - pods_needed,
            "the budget's status",
        )

    async with counted_requests(sandbox) as counted:
        fill(2)
        before, pods = web()
        first, second = pods[0], pods[3]
        clock = Clock()
        full_in_between = FullInBetween(counted, lambda: fill(3))
        carrying = Carrying(full_in_between, clock=clock)
        carried = await carrying.carry_out(together(first, second), before)
        assert results(carried) == [EvictionResult.EVICTED, EvictionResult.HELD_BY_BUDGET]

        for seconds in (1, 2, 3):
            clock.now = seconds
            asked = await carrying.ask_again(web()[0], wanted=False)
            assert results(asked) == [Reason.HELD_BY_BUDGET]
        assert counted.evictions.count(second.name) == 2  # a dry run, and the refused eviction
        fill(2)
        clock.now = 4
        asked = await carrying.ask_again(web()[0], wanted=False)
        assert results(asked) == [EvictionResult.EVICTED]
        assert carrying.stages == [MovePhase.EVICTED] * 2


class FullInBetween(PassedOn):
    """Requests that call a function after the first eviction."""

    def __init__(self, requests: Requests, happen: Any) -> None:
        super().__init__(requests)
        self._happen = happen
        self._happened = False

    async def pass_on(self, path: str, names: Mapping[str, str], send: Send, **options: Any) -> Response:
        response = await super().pass_on(path, names, send, **options)
        if path.endswith("/eviction") and not options.get("query") and not self._happened:
            self._happened = True
            await asyncio.to_thread(self._happen)
        return response
