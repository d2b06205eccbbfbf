"""The leader's pod is stopped, killed, moved or cut off in the middle of a rebalance."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterator
from typing import Final

import pytest

from tests.faults.operators import NAMESPACE
from tests.integration.workloads import create_deployment, is_ready
from tests.node.installation import Installation, moment
from tests.node.real_node import KUBELET
from tests.node.rebalance import FEWEST_EVICTIONS, POLICY, Rebalance
from tests.node.workloads import on_simulated_nodes
from tests.processes import wait_until

SLOWNESS: Final = 3
"""How much slower than documented everything may be: other tests may use the machine too."""
RELEASED_SECONDS: Final = 2.4 * SLOWNESS
"""Within what another replica leads once the leader has released the Lease; both are in docs/operations.md."""
EXPIRED_SECONDS: Final = 15 * SLOWNESS
"""Within what another replica leads if the Lease has to expire."""


@pytest.fixture
def rebalance(installed: Installation, namespace: str) -> Iterator[Rebalance]:
    sandbox = installed.cluster.sandbox
    yield Rebalance(sandbox, namespace)
    sandbox.kubectl("delete", "clusterrebalancepolicy", POLICY, "--ignore-not-found")


def seconds_until_another_leads(installed: Installation, leader: str, since: float) -> float:
    """Wait until somebody else holds the Lease, and return the time from a moment until it acquired the Lease."""
    wait_until(lambda: installed.lease().get("holderIdentity") not in {leader, "", None}, "another leader")
    return moment(installed.lease()["acquireTime"]) - since


def test_another_replica_leads_at_once_when_the_pod_of_the_leader_is_deleted(
    installed: Installation, rebalance: Rebalance
) -> None:
    rebalance.begin()
    leader, since = installed.lease()["holderIdentity"], time.time()
    installed.delete(installed.leader())
    seconds_until_another_leads(installed, leader, since)
    (seconds,) = installed.handovers_seconds(since)
    assert seconds <= RELEASED_SECONDS
    rebalance.wait_until_over()
    assert rebalance.evicted() == FEWEST_EVICTIONS


def test_another_replica_leads_when_the_lease_of_a_killed_leader_has_expired(
    installed: Installation, rebalance: Rebalance
) -> None:
    before = installed.restarts()
    pod = installed.leader()
    name = pod["metadata"]["name"]
    (process,) = installed.node_of(pod).process_ids(pod)
    rebalance.begin()
    leader, since = installed.lease()["holderIdentity"], time.time()
    os.kill(process, signal.SIGKILL)
    assert seconds_until_another_leads(installed, leader, since) <= EXPIRED_SECONDS
    rebalance.wait_until_over()
    assert rebalance.evicted() == FEWEST_EVICTIONS
    installed.wait_until_ready()
    assert installed.restarts() == before | {name: before[name] + 1}


def test_another_replica_leads_when_the_leader_runs_out_of_memory(
    installed: Installation, rebalance: Rebalance, namespace: str
) -> None:
    before = installed.restarts()
    pod = installed.leader()
    name, node = pod["metadata"]["name"], installed.node_of(pod)
    usage = node.cgroup_file(pod, "memory", "memory.usage_in_bytes")
    limit = node.cgroup_file(pod, "memory", "memory.limit_in_bytes")
    rebalance.begin()
    leader = installed.lease()["holderIdentity"]
    create_deployment(installed.cluster.sandbox, namespace, on_simulated_nodes("many", 300))

    def killed() -> bool:
        with contextlib.suppress(OSError):  # less than it uses is refused, and in the end the cgroup is gone
            limit.write_text(usage.read_text(encoding="ascii"), encoding="ascii")
        return installed.restarts()[name] > before[name]

    wait_until(killed, "the leader to run out of memory")
    (state,) = installed.pod(name)["status"]["containerStatuses"]
    assert state["lastState"]["terminated"]["reason"] == "OOMKilled"
    ended = moment(state["lastState"]["terminated"]["finishedAt"])
    assert seconds_until_another_leads(installed, leader, ended) <= EXPIRED_SECONDS
    rebalance.wait_until_over()
    assert rebalance.evicted() == FEWEST_EVICTIONS
    installed.wait_until_ready()


def test_nodes_with_the_leader_and_with_both_replicas_are_drained(
    installed: Installation, rebalance: Rebalance
) -> None:
    sandbox = installed.cluster.sandbox
    rebalance.begin()
    since = time.time()
    for replicas_there in (1, 2):
        node, leader = installed.leader()["spec"]["nodeName"], installed.lease()["holderIdentity"]
        assert [pod["spec"]["nodeName"] for pod in installed.pods()].count(node) == replicas_there
        selector = "--pod-selector=app.kubernetes.io/name=respread"
        installed.cluster.cordon(node)
        sandbox.kubectl("drain", node, selector, "--ignore-daemonsets", "--timeout=240s")
        installed.wait_until_ready()
        sandbox.kubectl("uncordon", node)
        assert installed.lease()["holderIdentity"] != leader
    assert max(installed.handovers_seconds(since)) <= RELEASED_SECONDS
    rebalance.wait_until_over()
    assert rebalance.evicted() == FEWEST_EVICTIONS


def test_replicas_are_restarted_one_after_another(installed: Installation, rebalance: Rebalance) -> None:
    sandbox = installed.cluster.sandbox
    rebalance.begin()
    leader, since = installed.lease()["holderIdentity"], time.time()
    sandbox.kubectl("rollout", "restart", "deployment/respread", "-n", NAMESPACE)
    sandbox.kubectl("rollout", "status", "deployment/respread", "-n", NAMESPACE, "--timeout=240s")
    installed.wait_until_ready()
    assert installed.lease()["holderIdentity"] != leader
    assert max(installed.handovers_seconds(since)) <= RELEASED_SECONDS
    rebalance.wait_until_over()
    assert rebalance.evicted() == FEWEST_EVICTIONS
    assert set(installed.restarts().values()) == {0}


def test_another_replica_leads_when_the_node_of_the_leader_is_cut_off(
    installed: Installation, rebalance: Rebalance
) -> None:
    before = installed.restarts()
    node = installed.node_of(installed.leader())
    rebalance.begin()
    leader, since = installed.lease()["holderIdentity"], time.time()
    node.cut_off()
    try:
        assert seconds_until_another_leads(installed, leader, since) <= EXPIRED_SECONDS
        rebalance.wait_until_over()
    finally:
        node.connect_again()
    installed.wait_until_ready()
    assert rebalance.evicted() == FEWEST_EVICTIONS
    assert installed.restarts() == before


def test_the_leader_leads_on_without_the_kubelet_of_its_node(installed: Installation, rebalance: Rebalance) -> None:
    before = installed.restarts()
    pod = installed.leader()
    name, node = pod["metadata"]["name"], installed.node_of(pod)
    leader = installed.lease()["holderIdentity"]
    rebalance.begin()
    node.stop(KUBELET)
    try:
        rebalance.wait_until_over()
        wait_until(lambda: not is_ready(installed.pod(name)), "the node to be found dead")
    finally:
        node.start(KUBELET)
    installed.wait_until_ready()
    assert installed.lease()["holderIdentity"] == leader
    assert rebalance.evicted() == FEWEST_EVICTIONS
    assert installed.restarts() == before
