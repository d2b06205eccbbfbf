"""Moves that fail or are undone cost a few pods and are reported, and evictions continue once the cause is gone."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from respread_sandbox import Sandbox
from respread_sandbox.api import NotFoundError
from tests.faults.rounds import close_zones, enforce, in_the_background, wait_for, zones_of_nodes
from tests.faults.stuck import heal, patch, skewed
from tests.integration.explaining import operator_messages
from tests.integration.operator_process import OperatorProcess, evictions
from tests.integration.reused_sandbox import lay_out
from tests.integration.workloads import (
    ZONE,
    constraint,
    create_deployment,
    deployment,
    is_ready,
    pods,
    pods_per_domain,
    scale,
)

NAMESPACE = "shop"
STATUS = "/apis/respread.dev/v1alpha1/clusterrebalancepolicies/faults"
REPLICAS = 4
IN_FLIGHT = 2
FAILURES = 3
QUIET_SECONDS = 4.0
"""The time without an eviction after which no eviction is expected any more."""


@pytest.fixture
def cluster(installed_sandbox: Sandbox) -> Sandbox:
    installed_sandbox.create_namespace(NAMESPACE)
    return lay_out(installed_sandbox, 3, 3, 3)


def status(cluster: Sandbox) -> dict[str, Any]:
    found: dict[str, Any] = cluster.api.get(STATUS).get("status", {})
    return found


def reasons(cluster: Sandbox) -> set[str]:
    return {each["reason"] for each in status(cluster).get("violations", ())}


def condition(cluster: Sandbox, name: str) -> dict[str, Any]:
    found = [each for each in status(cluster).get("conditions", ()) if each["type"] == name]
    return found[0] if found else {}


def holds(cluster: Sandbox, name: str) -> bool:
    return condition(cluster, name).get("status") == "True"


def events(cluster: Sandbox) -> set[str]:
    return {each["reason"] for each in cluster.api.get("/apis/events.k8s.io/v1/events")["items"]}


def balanced(cluster: Sandbox, *names: str) -> bool:
    found = pods(cluster, NAMESPACE)
    zones = zones_of_nodes(cluster)
    counts = {name: Counter(dict.fromkeys(zones.values(), 0)) for name in names}
    for pod in found:
        if "nodeName" in pod["spec"] and "deletionTimestamp" not in pod["metadata"]:
            counts[pod["metadata"]["labels"]["app"]][zones[pod["spec"]["nodeName"]]] += 1
    return all(each.total() == REPLICAS and max(each.values()) - min(each.values()) <= 1 for each in counts.values())


def assert_nothing_more_is_evicted(cluster: Sandbox, so_far: int) -> None:
    time.sleep(QUIET_SECONDS)
    assert len(evictions(cluster)) == so_far


def test_replacements_that_never_get_ready_cost_a_few_pods_and_later_moves_continue(
    cluster: Sandbox, tmp_path: Path
) -> None:
    names = [f"web-{number}" for number in range(5)]
    skewed(cluster, NAMESPACE, *names, replicas=REPLICAS, broken=True)
    enforce(cluster, limits={"inFlight": IN_FLIGHT, "failuresInARow": FAILURES}, eviction={"readyTimeout": "1s"})
    with OperatorProcess(cluster, tmp_path) as operator:
        wait_for(lambda: holds(cluster, "Paused"), "the policy to be paused")
        failed = len(evictions(cluster))
        # The moves in flight, and one for each move that failed before the third failure.
        assert FAILURES <= failed <= IN_FLIGHT + FAILURES - 1
        said = condition(cluster, "Paused")
        assert said["reason"] == "EvictionsFail"
        assert said["message"].count("Deployment/web-") >= FAILURES
        assert operator.metric('respread_policy_paused{policy="faults"}') == 1
        assert operator.metric('respread_eviction_outcomes_total{outcome="NotReady",policy="faults"}') >= FAILURES
        wait_for(lambda: {"EvictionsPaused", "SpreadNotImproved"} <= events(cluster), "the Events")
        assert_nothing_more_is_evicted(cluster, failed)
        assert operator.stop() == 0
    with OperatorProcess(cluster, tmp_path) as operator:
        operator.wait_until_ready()
        wait_for(lambda: operator.metric('respread_policy_paused{policy="faults"}') == 1, "the next to know of it")
        assert_nothing_more_is_evicted(cluster, failed)

        def restored() -> bool:
            heal(cluster, NAMESPACE)
            return balanced(cluster, *names) and not holds(cluster, "Paused")

        wait_for(restored, "the spread to be restored once replacements become Ready", 400)
        assert condition(cluster, "Paused")["reason"] == "NotPaused"
        wait_for(lambda: "EvictionsResumed" in events(cluster), "the Event")
        # From [4, 0, 0] to [2, 1, 1] each needs two evictions, besides those that failed.
        assert len(evictions(cluster)) == 2 * len(names)


@pytest.mark.parametrize("most", [0, 1])
def test_a_policy_may_be_paused_by_the_first_failure_or_by_none(cluster: Sandbox, tmp_path: Path, most: int) -> None:
    names = [f"web-{number}" for number in range(3)]
    skewed(cluster, NAMESPACE, *names, replicas=REPLICAS, broken=True)
    enforce(cluster, limits={"inFlight": 1, "failuresInARow": most}, eviction={"readyTimeout": "1s"})
    with OperatorProcess(cluster, tmp_path) as operator:
        expected = 1 if most else len(names)
        wait_for(lambda: len(evictions(cluster)) == expected, "as many to be evicted as may fail")
        wait_for(
            lambda: operator.metric('respread_eviction_outcomes_total{outcome="NotReady",policy="faults"}') == expected,
            "them to fail",
        )
        assert_nothing_more_is_evicted(cluster, expected)
        wait_for(lambda: holds(cluster, "Paused") == bool(most), "the status, which follows within 5 s")


def test_no_pod_is_evicted_from_a_workload_with_unready_pods(cluster: Sandbox, tmp_path: Path) -> None:
    skewed(cluster, NAMESPACE, "web", replicas=REPLICAS, broken=True)
    enforce(cluster, eviction={"readyTimeout": "1s"})
    with OperatorProcess(cluster, tmp_path):
        wait_for(lambda: reasons(cluster) == {"BackingOff"}, "the move to fail")
        assert len(evictions(cluster)) == 1
        # A changed situation ends the back-off after the minimum delay, but the unready pods still hold the workload.
        scale(cluster, NAMESPACE, "web", REPLICAS + 1)
        wait_for(lambda: reasons(cluster) == {"PodsNotReady"}, "the reason to be reported")
        assert "not Ready" in status(cluster)["violations"][0]["message"]
        assert_nothing_more_is_evicted(cluster, 1)
        scale(cluster, NAMESPACE, "web", REPLICAS)

        def restored() -> bool:
            heal(cluster, NAMESPACE)
            return balanced(cluster, "web")

        wait_for(restored, "the spread to be restored")


def is_restored(cluster: Sandbox) -> bool:
    found = pods(cluster, NAMESPACE, "web")
    counts = pods_per_domain(cluster, NAMESPACE, "web")
    return len(found) == REPLICAS and all(map(is_ready, found)) and min(counts.values()) > 0


def zones_of_pods(cluster: Sandbox) -> list[tuple[str, str]]:
    """Return the name and zone of each pod of `web` that has a node."""
    zones = zones_of_nodes(cluster)
    placed = (pod for pod in pods(cluster, NAMESPACE, "web") if "nodeName" in pod["spec"])
    return [(pod["metadata"]["name"], zones[pod["spec"]["nodeName"]]) for pod in placed]


def delete(cluster: Sandbox, name: str) -> None:
    with suppress(NotFoundError):  # it may have been evicted in the meantime
        cluster.api.request("DELETE", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}?gracePeriodSeconds=0")


def evict(cluster: Sandbox, name: str) -> None:
    body = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name, "namespace": NAMESPACE}}
    with suppress(NotFoundError):
        cluster.api.request("POST", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/eviction", body)


def consolidate(cluster: Sandbox, take_away: Callable[[Sandbox, str], None]) -> None:
    """Empty two of three zones by tainting their nodes after the spread is restored."""
    if not is_restored(cluster):
        return
    close_zones(cluster, closed=True)

    def are_empty() -> bool:
        for name, zone in zones_of_pods(cluster):
            if zone != "zone-a":
                take_away(cluster, name)
        return pods_per_domain(cluster, NAMESPACE, "web")["zone-a"] == REPLICAS

    wait_for(are_empty, "the zones to be empty")
    close_zones(cluster, closed=False)


@pytest.mark.parametrize(
    "take_away",
    [
        pytest.param(delete, id="a consolidation of nodes"),
        pytest.param(evict, id="another descheduler", marks=pytest.mark.long),
    ],
)
def test_a_component_that_works_against_respread_causes_few_evictions(
    cluster: Sandbox, tmp_path: Path, take_away: Callable[[Sandbox, str], None]
) -> None:
    skewed(cluster, NAMESPACE, "web", replicas=REPLICAS, broken=False)
    limit = 5
    enforce(cluster, limits={"perHourPerGroup": limit})
    with in_the_background(partial(consolidate, cluster, take_away)):
        with OperatorProcess(cluster, tmp_path) as operator:
            # A chosen move counts before it is sent, and may not be sent.
            wait_for(lambda: holds(cluster, "Oscillating") and len(evictions(cluster)) >= limit, "that to be named")
            assert len(evictions(cluster)) == limit
            assert f"Deployment/web in {NAMESPACE} ({limit} evictions)" in condition(cluster, "Oscillating")["message"]
            oscillating = 'respread_spread_groups_oscillating{policy="faults"}'
            wait_for(lambda: reasons(cluster) == {"LimitReached"}, "the reason to be reported")
            wait_for(lambda: operator.metric(oscillating) == 1, "the metric to say so")
            assert_nothing_more_is_evicted(cluster, limit)
            assert operator.stop() == 0
        with OperatorProcess(cluster, tmp_path) as operator:
            operator.wait_until_ready()
            assert_nothing_more_is_evicted(cluster, limit)
    enforce_more = {"spec": {"limits": {"perHourPerGroup": MANY}}}
    with OperatorProcess(cluster, tmp_path):
        patch(cluster, STATUS, enforce_more)
        wait_for(lambda: balanced(cluster, "web"), "the spread to be restored")
        wait_for(lambda: condition(cluster, "Oscillating").get("status") == "False", "the condition to change")


MANY = 12
FEW = REPLICAS
SWING_SECONDS = 2.0
"""How long an autoscaler keeps a number of replicas."""
DELETION_COST = "controller.kubernetes.io/pod-deletion-cost"


def oscillate(cluster: Sandbox, *least: int) -> None:
    """Scale up and down as an autoscaler does. The deleted pods leave those of one zone."""
    for replicas in (MANY, FEW, *least):
        for name, zone in zones_of_pods(cluster):
            cost = {"metadata": {"annotations": {DELETION_COST: "100" if zone == "zone-a" else "-100"}}}
            patch(cluster, f"/api/v1/namespaces/{NAMESPACE}/pods/{name}", cost)
        scale(cluster, NAMESPACE, "web", replicas)
        time.sleep(SWING_SECONDS)


@pytest.mark.parametrize(
    ("limits", "most", "least"),
    [
        pytest.param({}, MANY, (), id="by default, to a few", marks=pytest.mark.long),
        pytest.param({"perHourPerGroup": 5}, 5, (0,), id="five, to none"),
    ],
)
def test_an_oscillating_autoscaler_causes_few_evictions(
    cluster: Sandbox, tmp_path: Path, limits: dict[str, int], most: int, least: tuple[int, ...]
) -> None:
    create_deployment(cluster, NAMESPACE, deployment("web", replicas=FEW, constraints=[constraint(ZONE, "web")]))
    wait_for(lambda: sum(map(is_ready, pods(cluster, NAMESPACE, "web"))) == FEW, "the pods to be Ready")
    enforce(cluster, limits={"inFlightPerWorkload": 4, **limits})
    with (
        OperatorProcess(cluster, tmp_path) as operator,
        in_the_background(partial(oscillate, cluster, *least)) as cycles,
    ):
        wait_for(lambda: holds(cluster, "Oscillating"), "the oscillation to be named", 400)
        made = len(evictions(cluster))
        assert made <= most
        assert f"Deployment/web in {NAMESPACE}" in condition(cluster, "Oscillating")["message"]
        wait_for(
            lambda: "an autoscaler that scales up and down" in operator_messages(cluster, NAMESPACE, "deploy/web"),
            "explain to say so",
        )
        so_far = cycles["steps"]
        wait_for(lambda: cycles["steps"] >= so_far + 3, "the autoscaler to go on")
        assert made <= len(evictions(cluster)) <= most
        assert operator.stop() == 0
