"""A plan goes on as places become free, without another plan, until anybody else changes something."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from itertools import cycle
from typing import Any

import pytest

from tests.unit.controller.simulated_cluster import NAMESPACE, ZONE, SimulatedCluster

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
@pytest.mark.parametrize("difference", ["zone", "labels"])
async def test_all_is_planned_again_before_more_is_evicted_when_a_replacement_is_not_as_planned(
    difference: str,
) -> None:
    cluster = Staggered()
    create, other_plans = cluster._create, list[float]()

    def created(app: str, zone: str, *, ready: bool) -> dict[str, Any]:
        pod = create(app, "a" if difference == "zone" else zone, ready=ready)
        if difference == "labels":
            pod["metadata"]["labels"] = {**pod["metadata"]["labels"], "version": "2"}
        other_plans.append(cluster.plans)
        return pod

    async with cluster.running():
        await until_all_places_are_used(cluster)
        cluster._create = created  # type: ignore[method-assign] # as with a scheduler, or a webhook, that nobody knows
        await until(lambda: bool(other_plans))
        asked = len(cluster.asked)
        await until(lambda: len(cluster.asked) > asked)
        assert cluster.plans > other_plans[0]
