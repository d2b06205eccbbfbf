"""Evictions wait for each other only because of limits, and a limit is fully used at all times."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from respread.controller.control_loop import LAST_SECONDS
from respread.eviction.standing import FEW
from respread.kube.requests import Response
from tests.unit.controller.simulated_cluster import SimulatedCluster
from tests.virtual_time import run_in_virtual_time, until

pytestmark = pytest.mark.virtual_time


def limits(in_flight: int) -> dict[str, Any]:
    """Return limits that allow this many moves in flight anywhere."""
    alike = dict.fromkeys(("inFlight", "inFlightPerNamespace", "inFlightPerNode"), in_flight)
    return {**alike, "inFlightPerWorkload": "100%"}


async def until_balanced(cluster: SimulatedCluster, most_seconds: float) -> float:
    """Run a control loop until all workloads are balanced and Ready, and return the duration."""
    async with cluster.running():
        started = asyncio.get_running_loop().time()
        async with asyncio.timeout(most_seconds):
            while cluster.violated or len(cluster.ready) < len(cluster.evicted):  # noqa: ASYNC110 - no event
                await asyncio.sleep(0.01)
        return asyncio.get_running_loop().time() - started


@pytest.mark.parametrize(
    ("in_flight", "workloads", "eviction_seconds", "ready_seconds", "most_plans"),
    [(10, 100, 2.0, 2.0, 22), pytest.param(50, 300, 0.3, 2.0, 23, marks=pytest.mark.long)],
)
def test_limits_stay_fully_used_while_moves_are_left(
    in_flight: int, workloads: int, eviction_seconds: float, ready_seconds: float, most_plans: int
) -> None:
    """Each move counts from its request until its replacement is Ready, here for a constant time.

    A look at moves that have ended, which is due a while after each, needs no plan.
    """
    cluster = SimulatedCluster(workloads, limits=limits(in_flight), eviction_seconds=eviction_seconds)
    cluster.ready_seconds = ready_seconds
    taken = run_in_virtual_time(until_balanced(cluster, 3600))
    assert len(cluster.evicted) == workloads
    ideal = workloads / in_flight * (eviction_seconds + 0.05 + ready_seconds)
    assert ideal / taken >= 0.8, (ideal, taken)
    assert most_at_once(cluster) <= in_flight
    assert cluster.sent_unwritten == []
    assert (cluster.parts.registry.get_sample_value("respread_plan_duration_seconds_count") or 0) <= most_plans


def most_at_once(cluster: SimulatedCluster) -> int:
    """Return the maximum number of moves in flight, from their arrival at the API server to their replacement."""
    changes = sorted([(at, 1) for at, _ in cluster.asked] + [(at, -1) for at in cluster.ready])
    now = most = 0
    for _, change in changes:
        now += change
        most = max(most, now)
    return most


class _SlowController(SimulatedCluster):
    """The first reads of the ReplicaSet `app-0` take long."""

    slow_reads = 3

    async def answer(self, method: str, path: str, names: Mapping[str, str], **options: Any) -> Response:
        if path.endswith("/replicasets/{name}") and names["name"] == "app-0" and self.slow_reads:
            self.slow_reads -= 1
            await asyncio.sleep(1.5)
        return await super().answer(method, path, names, **options)


def test_plans_between_the_choice_of_a_move_and_its_eviction_restart_no_quiet_period() -> None:
    """For plans, a pod is gone as soon as it is chosen. The watch shows it until it is evicted."""
    cluster = _SlowController(6, limits={**limits(10), "inFlightPerWorkload": 1}, zones=["aaaaaaabc"] * 6)
    cluster.policy["spec"]["quietPeriod"] = "30s"
    taken = run_in_virtual_time(until_balanced(cluster, 600))
    assert len(cluster.evicted) == 24
    assert taken < 30 + 25


def test_a_slow_eviction_does_not_delay_other_workloads() -> None:
    """A slow webhook for some pods takes 8 s, which is less than the timeout of an eviction."""
    cluster = SimulatedCluster(40, limits=limits(10))
    slow = {f"app-{number}" for number in range(4)}
    cluster.eviction_seconds.update(dict.fromkeys(slow, 8.0))
    run_in_virtual_time(until_balanced(cluster, 600))
    assert Counter(app for _, app in cluster.evicted) == Counter(f"app-{number}" for number in range(40))
    first = min(at for at, _ in cluster.asked)
    answered = min(at for at, app in cluster.evicted if app in slow)
    meanwhile = sum(first < at < answered for at, app in cluster.evicted if app not in slow)
    places, one = 10 - len(slow), 0.3 + 0.05 + cluster.ready_seconds
    assert meanwhile >= 0.8 * places * (answered - first - one) / one


@pytest.mark.parametrize("how", ["stopped", "DryRun"])
async def test_a_chosen_move_is_not_sent_after_the_permission_is_withdrawn(how: str) -> None:
    cluster = SimulatedCluster(100, limits=limits(50), eviction_seconds=3.0)
    async with cluster.running() as loop:
        await until(lambda: cluster.asked)
        assert len(cluster.acting.journal.ledger.chosen) > 0
        if how == "stopped":
            loop.stop()
        else:
            cluster.policy = switched(cluster.policy)
            cluster.parts.event("clusterrebalancepolicies", cluster.policy)
        sent = len(cluster.asked)
        await asyncio.sleep(30)
        assert len(cluster.asked) == sent
        assert len(cluster.evicted) == sent, "what was sent is answered"
        assert cluster.acting.journal.ledger.chosen == ()


@pytest.mark.parametrize("api_server", ["answers", "is silent"])
async def test_the_last_status_and_record_contain_answers_after_the_stop(api_server: str) -> None:
    cluster = SimulatedCluster(100, limits=limits(50), eviction_seconds=3.0)
    cluster.ready_seconds = 3600.0
    loop = cluster.control_loop()
    running = asyncio.create_task(loop.run())
    await until(lambda: cluster.asked)
    await asyncio.sleep(1)
    loop.stop()
    if api_server == "is silent":
        cluster.request_seconds = 3600.0
    stopped_at = asyncio.get_running_loop().time()
    await running
    taken = asyncio.get_running_loop().time() - stopped_at
    assert 0 < len(cluster.evicted) == len(cluster.asked)
    if api_server == "is silent":
        assert taken <= cluster.eviction_seconds["app-0"] + LAST_SECONDS + 1
        assert cluster.acting.statuses.uncertain
        assert cluster.acting.uncertain  # the Lease is not released
    else:
        assert cluster.written[-1]["summary"]["evicted"] == len(cluster.evicted)
        assert len(cluster.recorded[-1]["movesInFlight"]) == len(cluster.evicted)


def switched(policy: dict[str, Any]) -> dict[str, Any]:
    metadata = {**policy["metadata"], "generation": 2, "resourceVersion": "9000"}
    return {"metadata": metadata, "spec": {**policy["spec"], "mode": "DryRun"}}


async def test_the_status_shows_moves_in_flight_even_if_no_event_arrives() -> None:
    """The record before evictions does not overwrite the newer report of the reconcile."""
    cluster = SimulatedCluster(3, limits=limits(10))
    cluster.ready_seconds = 3600.0
    async with cluster.running():
        await asyncio.sleep(12)
        assert cluster.written[-1]["summary"]["inFlight"] == 3
        assert len(cluster.recorded[-1]["movesInFlight"]) == 3


@pytest.mark.parametrize("workloads", [1, 2])
async def test_a_workload_whose_replacements_are_never_ready_loses_no_more_pods_than_the_first(workloads: int) -> None:
    """Fewer workloads than pause a policy. Their back-offs end within these hours."""
    cluster = SimulatedCluster(workloads, zones=["a" * 15 + "b" * 15] * workloads, limits=limits(50))
    cluster.ready_seconds = 1e6
    await cluster.run(9 * 3600)
    assert len(cluster.evicted) == workloads * FEW


async def test_a_workload_of_which_half_the_replacements_are_not_ready_loses_few_pods() -> None:
    """There are 200 moves, of which 50 may be in flight. Respread gives up on the first after 300 s."""
    cluster = SimulatedCluster(1, zones=["a" * 300], limits=limits(50))
    cluster.broken = "c"
    await cluster.run(240)
    assert len(cluster.ready) >= FEW
    assert len(cluster.evicted) - len(cluster.ready) <= 3 * FEW
