"""Scale-downs of pods on real and on simulated nodes are restored by the fewest evictions."""

from __future__ import annotations

from tests.integration.operator_process import matching
from tests.integration.workloads import pods, wait_for_ready_pods
from tests.node.installation import Installation
from tests.node.rebalance import POLICY
from tests.node.workloads import (
    REAL_ZONES,
    ZONES,
    create,
    evicted,
    is_even,
    leave_in_zone,
    on_real_nodes,
    on_simulated_nodes,
)
from tests.processes import wait_until

GRACE_SECONDS = 600
"""Longer than a test may take."""


def test_real_and_simulated_pods_are_restored_by_the_fewest_evictions(enforced: Installation, namespace: str) -> None:
    sandbox = enforced.cluster.sandbox
    before = made(enforced)
    create(sandbox, namespace, [on_real_nodes("real", 8), on_simulated_nodes("simulated", 9)])
    assert leave_in_zone(sandbox, namespace, "real", "zone-a") == 4
    assert leave_in_zone(sandbox, namespace, "simulated", "zone-a") == 3
    wait_until(lambda: is_even(sandbox, namespace, "real", REAL_ZONES), "the real pods to be spread again")
    wait_until(lambda: is_even(sandbox, namespace, "simulated", ZONES), "the simulated pods to be spread again")
    wait_for_ready_pods(sandbox, namespace, "real", 4)
    wait_for_ready_pods(sandbox, namespace, "simulated", 3)
    wait_until(lambda: summary(enforced) == {"violated": 0, "inFlight": 0, "evicted": 4}, "the status of the policy")
    assert evicted(sandbox, namespace) == 4
    assert made(enforced) == before + 4
    for app in ("real", "simulated"):
        shown = sandbox.kubectl("events", "--namespace", namespace, "--for", f"deployment/{app}")
        assert "EvictedForSpread" in shown


def summary(installed: Installation) -> dict[str, int]:
    """Return numbers from the status of the policy."""
    status = installed.cluster.sandbox.api.get(f"/apis/respread.dev/v1alpha1/clusterrebalancepolicies/{POLICY}")[
        "status"
    ]
    return {name: status["summary"][name] for name in ("violated", "inFlight", "evicted")}


def made(installed: Installation) -> float:
    """Return how many evictions the metrics of all replicas count, which a node reads from their pods."""
    total = 0.0
    for pod in installed.pods():
        metrics = installed.node_of(pod).get(f"http://{pod['status']['podIP']}:8080/metrics")
        total += sum(sample.value for sample in matching('respread_evictions_total{result="Evicted"}', metrics))
    return total


def test_the_time_does_not_depend_on_how_long_pods_take_to_stop(enforced: Installation, namespace: str) -> None:
    sandbox = enforced.cluster.sandbox
    stubborn = {"stop_after_seconds": GRACE_SECONDS, "grace_seconds": GRACE_SECONDS}
    create(sandbox, namespace, [on_real_nodes(app, 8, **stubborn) for app in ("one", "two")])
    for app in ("one", "two"):
        assert leave_in_zone(sandbox, namespace, app, "zone-a") == 4
    for app in ("one", "two"):
        wait_until(lambda app=app: is_even(sandbox, namespace, app, REAL_ZONES), f"{app} to be spread again")  # type: ignore[misc]
        terminating = [pod for pod in pods(sandbox, namespace, app) if "deletionTimestamp" in pod["metadata"]]
        assert len(terminating) == 4 + 2  # all that were scaled down or evicted still stop
    assert evicted(sandbox, namespace) == 4


def test_pods_that_take_long_to_be_ready_are_restored_by_the_fewest_evictions(
    enforced: Installation, namespace: str
) -> None:
    sandbox = enforced.cluster.sandbox
    slowly = {"ready_after_seconds": 5, "stop_after_seconds": 10}
    create(sandbox, namespace, [on_real_nodes(app, 8, **slowly) for app in ("one", "two")])
    for app in ("one", "two"):
        assert leave_in_zone(sandbox, namespace, app, "zone-b") == 4
    for app in ("one", "two"):
        wait_until(lambda app=app: is_even(sandbox, namespace, app, REAL_ZONES), f"{app} to be spread again")  # type: ignore[misc]
        wait_for_ready_pods(sandbox, namespace, app, 4)
    assert evicted(sandbox, namespace) == 4
