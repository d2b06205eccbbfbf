"""If something undoes evictions repeatedly, their number per hour is bounded, and a condition reports it."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tests.unit.controller.simulated_cluster import ZONE, ZONES, SimulatedCluster

APP = "app-0"
HOUR = 3600.0
HOURS = 3
SWING_SECONDS = 60.0
MOST = 12
"""The maximum number of the workload's pods, and so of its evictions per hour."""


class OscillatingCluster(SimulatedCluster):
    """One workload on nodes whose labels and cordons change, and a scheduler that follows its constraint."""

    def __init__(self) -> None:
        super().__init__(1, zones=["aabbcc"], limits={})
        self.policy["spec"]["victims"] = {"minAge": "0s"}
        self._labels = {zone: zone for zone in ZONES}
        self._cordoned: set[str] = set()

    def label(self, node: str, zone: str) -> None:
        """Say that a node is in another zone."""
        self._labels[node] = zone
        self._bring_node(node)

    def cordon(self, node: str, *, cordoned: bool = True) -> None:
        """Cordon a node, or uncordon it."""
        (self._cordoned.add if cordoned else self._cordoned.discard)(node)
        self._bring_node(node)

    def drain(self, node: str) -> None:
        """Delete the pods of a node. They are replaced."""
        for pod in [each for each in self.pods.values() if each["spec"]["nodeName"] == f"node-{node}"]:
            self._delete(pod)
            self._replace_soon()

    def scale(self, replicas: int) -> None:
        """Scale the workload. Pods of the last zones are deleted first."""
        self._zones[APP] = "a" * replicas
        there = sorted(self.pods.values(), key=lambda pod: pod["spec"]["nodeName"])
        for pod in there[replicas:]:
            self._delete(pod)
        for _ in range(replicas - len(there)):
            self._replace_soon()

    def conditions(self, name: str) -> list[str]:
        """Return the messages of a condition in all statuses in which it was True."""
        found = (each for status in self.written for each in status["conditions"])
        return [each["message"] for each in found if (each["type"], each["status"]) == (name, "True")]

    def most_in_an_hour(self) -> int:
        """Return the maximum number of evictions in an hour."""
        times = [at for at, _ in self.asked]
        return max(sum(since <= at < since + HOUR for at in times) for since in times)

    def _zone_for(self, app: str) -> str:
        counts = Counter(dict.fromkeys(self._labels.values(), 0))
        of_app = (pod for pod in self.pods.values() if pod["metadata"]["labels"]["app"] == app)
        counts.update(self._labels[pod["spec"]["nodeName"].removeprefix("node-")] for pod in of_app)
        return min(set(ZONES) - self._cordoned, key=lambda zone: (counts[self._labels[zone]], zone))

    def _replace_soon(self) -> None:
        task = asyncio.create_task(self._replace(APP))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _delete(self, pod: dict[str, Any]) -> None:
        del self.pods[pod["metadata"]["name"]]
        self._bring(pod, deleted=True)

    def _bring_node(self, node: str) -> None:
        self._version += 1
        name = f"node-{node}"
        labels = {ZONE: self._labels[node], "kubernetes.io/hostname": name}
        body = {
            "metadata": {"name": name, "labels": labels, "resourceVersion": str(self._version)},
            "spec": {"unschedulable": node in self._cordoned},
            "status": {"allocatable": {"pods": "10000"}},
        }
        self.parts.event("nodes", body)


async def an_oscillating_label(cluster: OscillatingCluster) -> None:
    cluster.label("c", "a")
    await asyncio.sleep(SWING_SECONDS)
    cluster.label("c", "c")


async def a_repeated_drain(cluster: OscillatingCluster) -> None:
    cluster.cordon("c")
    cluster.drain("c")
    await asyncio.sleep(SWING_SECONDS)
    cluster.cordon("c", cordoned=False)


async def an_autoscaler(cluster: OscillatingCluster) -> None:
    cluster.scale(MOST)
    await asyncio.sleep(SWING_SECONDS)
    cluster.scale(6)


async def a_hurried_consolidation(cluster: OscillatingCluster) -> None:
    """Deletes pods as soon as they are created."""
    while sum(pod["spec"]["nodeName"] == "node-c" for pod in cluster.pods.values()) < 2:  # noqa: ASYNC110 - no event tells
        await asyncio.sleep(1)
    cluster.cordon("c")
    cluster.drain("c")
    await asyncio.sleep(1)
    cluster.cordon("c", cordoned=False)


@pytest.mark.virtual_time
@pytest.mark.parametrize("swing", [an_oscillating_label, a_repeated_drain, an_autoscaler, a_hurried_consolidation])
async def test_a_component_that_undoes_evictions_causes_a_bounded_number_per_hour(
    swing: Callable[[OscillatingCluster], Awaitable[None]],
) -> None:
    cluster = OscillatingCluster()
    async with cluster.running():

        async def go_on() -> None:
            while True:
                await swing(cluster)
                await asyncio.sleep(SWING_SECONDS)

        swinging = asyncio.create_task(go_on())
        await asyncio.sleep(HOURS * HOUR)
        swinging.cancel()
    labels, metric = {"policy_namespace": "", "policy": "default"}, "respread_spread_groups_oscillating"
    (said,) = [each["status"] for each in cluster.written[-1]["conditions"] if each["type"] == "Oscillating"]
    assert cluster.parts.registry.get_sample_value(metric, labels) == (said == "True")
    assert cluster.most_in_an_hour() <= MOST
    assert len(cluster.asked) >= HOURS * 5, "it does not wait without an end"
    told = {message.partition(": ")[2].partition(".")[0] for message in cluster.conditions("Oscillating")}
    assert told == {f"ReplicaSet/{APP} in shop (10 evictions)"}, "no sooner than the limit of an hour is reached"
