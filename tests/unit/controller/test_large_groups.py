"""Spread groups that count the pods of hundreds of controllers: restored, or held with the number in the status."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import pytest

from respread.eviction.owners.last_look import MOST_CONTROLLERS
from respread.kube.requests import Response
from tests.unit.controller.simulated_cluster import ZONE, ZONES, SimulatedCluster

LARGE, SMALL = "app-0", "app-1"


class Crowded(SimulatedCluster):
    """A workload whose constraint counts the pods of many others too, and one that counts only its own."""

    def __init__(self, others: int) -> None:
        super().__init__(2, zones=["aaaa", "aaabc", *(ZONES[number % 3] for number in range(others))], limits={})
        self.policy["spec"]["victims"] = {"minAge": "0s"}
        self.read: Counter[str] = Counter()

    async def answer(self, method: str, path: str, names: Mapping[str, str], **options: Any) -> Response:
        if path.endswith("/replicasets/{name}"):
            self.read[names["name"]] += 1
        return await super().answer(method, path, names, **options)

    def _create(self, app: str, zone: str, *, ready: bool) -> dict[str, Any]:
        pod = super()._create(app, zone, ready=ready)
        _with_tier(app, pod)
        return pod

    def _replica_set(self, app: str) -> dict[str, Any]:
        found = super()._replica_set(app)
        _with_tier(app, found["spec"]["template"])
        return found


def _with_tier(app: str, pod: dict[str, Any]) -> None:
    """Give a pod or a template the label that the constraint of the large group selects, and that constraint."""
    if app != SMALL:
        pod["metadata"]["labels"]["tier"] = "front"
        constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule"}
        selector = {"labelSelector": {"matchLabels": {"tier": "front"}}}
        pod["spec"]["topologySpreadConstraints"] = [{**constraint, **selector}] if app == LARGE else []


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("others", "moves"), [(MOST_CONTROLLERS - 1, {LARGE: 2, SMALL: 1}), (MOST_CONTROLLERS + 2, {SMALL: 1})]
)
async def test_a_group_of_too_many_controllers_is_reported_and_others_are_restored(
    others: int, moves: dict[str, int]
) -> None:
    cluster = Crowded(others)
    await cluster.run(300)
    assert Counter(app for _, app in cluster.evicted) == moves
    said = [(each["reason"], each["message"]) for each in cluster.written[-1]["violations"]]
    if LARGE in moves:
        assert said == []
        assert max(cluster.read[f"app-{number}"] for number in range(2, others + 2)) <= 2, "once for each eviction"
    else:
        ((reason, message),) = said
        assert reason == "GroupTooLarge"
        assert f"the pods of {others} other controllers, and at most {MOST_CONTROLLERS} are read" in message
        assert not any(cluster.read[f"app-{number}"] for number in range(2, others + 2))
