"""The examples of PodDisruptionBudgets on Kubernetes' task page, with the real disruption controller and the book."""

from __future__ import annotations

import pytest

from respread.api.reasons import Held
from respread.cluster.meta import ObjectKey
from respread.planning.victims.budgets import BudgetBook, Needs
from respread_sandbox import Sandbox
from tests.integration.snapshots import take_snapshot
from tests.integration.workloads import create_deployment, deployment, wait_for_ready_pods, wait_until

REPLICAS = 7


@pytest.mark.parametrize(
    ("budget", "allowed"),
    [
        ({"minAvailable": "50%"}, 3),  # 3.5 pods must be available: rounded up, 4
        ({"maxUnavailable": "50%"}, 4),  # rounded up as well
        ({"maxUnavailable": "30%"}, 3),
        ({"minAvailable": "30%"}, 4),
        ({"minAvailable": 5}, 2),
        ({"maxUnavailable": 5}, 5),
        ({"maxUnavailable": 0}, 0),
        ({"maxUnavailable": "0%"}, 0),
        ({"minAvailable": "100%"}, 0),
        ({"minAvailable": REPLICAS}, 0),
    ],
    ids=str,
)
def test_a_budget_over_seven_pods_allows_the_documented_number(
    sandbox: Sandbox, namespace: str, budget: dict[str, int | str], allowed: int
) -> None:
    create_deployment(sandbox, namespace, deployment("zk", replicas=REPLICAS))
    wait_for_ready_pods(sandbox, namespace, "zk", REPLICAS)
    path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
    spec = {"selector": {"matchLabels": {"app": "zk"}}, **budget}
    sandbox.api.request("POST", path, {"metadata": {"name": "zk"}, "spec": spec})

    def counted() -> bool:
        status = sandbox.api.get(f"{path}/zk").get("status", {})
        return (status.get("observedGeneration"), status.get("currentHealthy")) == (1, REPLICAS)

    wait_until(counted, "the disruption controller to have counted")
    assert sandbox.api.get(f"{path}/zk")["status"]["disruptionsAllowed"] == allowed
    snapshot = take_snapshot(sandbox)
    book = BudgetBook(snapshot)
    pods = [pod for key, pod in snapshot.pods.items() if key.namespace == namespace]
    for pod in pods[:allowed]:
        taken = book.take(pod)
        assert isinstance(taken, Needs)
        assert taken.budget == ObjectKey(namespace, "zk")
    assert all(isinstance(book.verdict(pod), Held) for pod in pods[allowed:])
