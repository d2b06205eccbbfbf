"""The status says how long the rest takes, and this is how long it takes then."""

from __future__ import annotations

import asyncio
from typing import Any, NamedTuple

import pytest

from respread.controller.choosing import left_to_do
from respread.controller.records.status_writer import LEAST_INTERVAL_SECONDS
from respread.controller.waking import PlanningThread
from respread.planning.plan import Plan
from respread.planning.planner import Planner
from tests.unit.controller.simulated_cluster import NAMESPACE, SimulatedCluster
from tests.virtual_time import run_in_virtual_time

pytestmark = pytest.mark.virtual_time

READY_SECONDS = 30.0
WIDE: dict[str, Any] = dict.fromkeys(("inFlight", "inFlightPerNamespace", "inFlightPerNode"), 100)


class Said(NamedTuple):
    """What a status said."""

    at: float
    pace: dict[str, Any]


async def followed(cluster: SimulatedCluster) -> tuple[list[Said], float]:
    """Run a control loop until all is balanced, and return what the statuses said, and when it was."""
    async with cluster.running():
        now = asyncio.get_running_loop().time
        said: list[Said] = []
        async with asyncio.timeout(7200):
            while cluster.violated or len(cluster.ready) < len(cluster.evicted):
                await asyncio.sleep(0.1)
                for status in cluster.written[len(said) :]:
                    said.append(Said(now(), status["pace"]))
        done = now()
        await asyncio.sleep(10)
        said += [Said(now(), status["pace"]) for status in cluster.written[len(said) :]]
    return said, done


def test_the_pace_in_the_status_is_kept() -> None:
    """40 of 60 pods of one workload move, four at a time, 30 s each; nobody knows that before the first is Ready."""
    cluster = SimulatedCluster(1, limits={**WIDE, "inFlightPerWorkload": 4}, zones=["a" * 60])
    cluster.ready_seconds = READY_SECONDS
    said, done = run_in_virtual_time(followed(cluster))
    assert len(cluster.evicted) == 40
    first = said[0].pace
    assert (first["remaining"], first["seconds"], first["boundBy"]) == ("Unknown", None, "")
    known = [each for each in said if each.pace["seconds"] and each.at < done - 60]
    assert len(known) >= 5
    for each in known:
        assert each.pace["boundBy"] == "inFlightPerWorkload 4"
        assert abs(each.at + each.pace["seconds"] - done) <= 2 * READY_SECONDS + 10, (each, done)
    assert said[-1].pace == {"evictionsLeft": 0, "remaining": "0s", "seconds": 0, "boundBy": ""}
    # Ten rounds of four. A status that counted down would be written every 5 s: 60 times and more.
    assert len(cluster.written) <= 30, len(cluster.written)


def test_a_status_contains_an_estimate_of_that_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """While a reconcile computes, statuses become due for which nothing was estimated."""
    compute = PlanningThread.compute

    async def slow(self: PlanningThread, *given: Any, **named: Any) -> Any:
        await asyncio.sleep(0.05)
        return await compute(self, *given, **named)

    monkeypatch.setattr(PlanningThread, "compute", slow)
    cluster = SimulatedCluster(4, limits={**WIDE, "inFlightPerWorkload": 4}, zones=["a" * 60] * 4)
    cluster.ready_seconds = 7.0
    run_in_virtual_time(followed(cluster))
    for status in cluster.written:
        about_to_be = 160 - status["pace"]["evictionsLeft"] - status["summary"]["evicted"]
        assert 0 <= about_to_be <= status["summary"]["inFlight"], status


async def test_metrics_say_the_same_and_that_limits_are_used() -> None:
    cluster = SimulatedCluster(1, limits={**WIDE, "inFlightPerWorkload": 4}, zones=["a" * 30])
    cluster.ready_seconds = READY_SECONDS

    def metric(name: str, **labels: str) -> float | None:
        labels = {"policy_namespace": "", "policy": "default", **labels}
        return cluster.parts.registry.get_sample_value(name, labels)

    async with cluster.running():
        await asyncio.sleep(2.5 * READY_SECONDS)
        remaining = metric("respread_remaining_seconds", bound_by="inFlightPerWorkload")
        assert remaining is not None
        assert abs(remaining - 4 * READY_SECONDS) <= READY_SECONDS + 5
        assert (metric("respread_limits_used_ratio"), metric("respread_evictions_in_flight")) == (1.0, 4)
        assert metric("respread_spread_groups_oscillating") == 0, "fewer were made than the limit of an hour"
        await asyncio.sleep(600)
        assert metric("respread_remaining_seconds", bound_by="") == 0.0
        assert metric("respread_limits_used_ratio") is None
        shown = [metric(f"respread_{name}") for name in ("rebalance_duration_seconds_count", "evictions_in_flight")]
        assert shown == [1, 0]


def test_evictions_of_a_group_that_backs_off_are_left() -> None:
    cluster = SimulatedCluster(1, limits={**WIDE, "inFlightPerWorkload": "100%"}, zones=["a" * 15 + "b" * 15])
    cluster.ready_seconds = 1e6
    run_in_virtual_time(cluster.run(330))
    assert {each["reason"] for each in cluster.written[-1]["blocked"]} == {"BackingOff"}
    pace = cluster.written[-1]["pace"]
    assert (pace["evictionsLeft"], pace["remaining"]) == (5, "Unknown")


async def test_evictions_that_a_budget_holds_while_its_disruptions_are_used_count_as_left() -> None:
    """The plan has no move then, because no pod may be evicted."""
    cluster = SimulatedCluster(1, limits={**WIDE, "inFlightPerWorkload": "100%"}, zones=["a" * 30])
    cluster.ready_seconds = READY_SECONDS
    budget = {
        "metadata": {"name": "web", "namespace": NAMESPACE, "generation": 1},
        "spec": {"selector": {"matchLabels": {"app": "app-0"}}, "maxUnavailable": 3},
        "status": {
            "observedGeneration": 1,
            "disruptionsAllowed": 3,
            "currentHealthy": 30,
            "desiredHealthy": 27,
            "expectedPods": 30,
        },
    }
    async with cluster.running():
        cluster.parts.event("poddisruptionbudgets", budget)
        await asyncio.sleep(2.5 * READY_SECONDS)
        assert len(cluster.evicted) == 9
        pace = cluster.written[-1]["pace"]
        # 20 have to move in all.
        assert (pace["evictionsLeft"], pace["boundBy"]) == (11, f"PodDisruptionBudget 3 of {NAMESPACE}/web")
        assert pace["seconds"] == 180  # 14 in five rounds of 30.5 s


def test_the_rest_is_estimated_only_when_a_status_is_due(monkeypatch: pytest.MonkeyPatch) -> None:
    """In a storm a plan is made whenever some moves have ended."""
    cluster = SimulatedCluster(20, limits={**WIDE, "inFlightPerWorkload": 4}, zones=["a" * 12] * 20)
    cluster.ready_seconds = 7.0
    estimated: list[float] = []
    planned: list[float] = []

    def left(*given: Any) -> Any:
        estimated.append(asyncio.get_running_loop().time())
        return left_to_do(*given)

    def plan(self: Planner, *given: Any, **named: Any) -> Plan:
        planned.append(asyncio.get_running_loop().time())
        return make_plan(self, *given, **named)

    make_plan = Planner.plan
    monkeypatch.setattr("respread.controller.reporter.left_to_do", left)
    monkeypatch.setattr(Planner, "plan", plan)
    said, done = run_in_virtual_time(followed(cluster))
    in_the_storm = [at for at in estimated if at < done]
    assert len(in_the_storm) <= done / LEAST_INTERVAL_SECONDS + 2
    assert len(planned) >= 3 * len(in_the_storm)
    assert said[-1].pace == {"evictionsLeft": 0, "remaining": "0s", "seconds": 0, "boundBy": ""}
