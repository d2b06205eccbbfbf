"""Steps of two pods: neither pod is evicted while a limit allows only one eviction, and then both are evicted.

The constraints on zone and hostname are both DoNotSchedule. One pod is in zone a, and three are on one of the two nodes
of zone b. A single replacement could return to its node or leave a constraint violated. Two replacements can only go to
zone a and to the other node of zone b.
"""

from __future__ import annotations

import time
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from respread_sandbox import Sandbox
from tests.faults.operators import Replica
from tests.faults.proxy import Asked, Fault, FaultProxy, no_fault
from tests.faults.rounds import enforce, taint, wait_for
from tests.faults.watcher import PodWatcher
from tests.integration.reused_sandbox import lay_out
from tests.integration.workloads import HOSTNAME, ZONE, constraint, create_deployment, deployment, is_ready, pods, scale

NAMESPACE = "steps"
POLICY = "/apis/respread.dev/v1alpha1/clusterrebalancepolicies/faults"
LIMIT = "limits.inFlightPerWorkload (Deployment/web) of policy faults is 1"
IN_A, FULL, EMPTY = "node-a1", "node-b1", "node-b2"


@pytest.fixture
def cluster(installed_sandbox: Sandbox) -> Sandbox:
    """One pod in zone a, and three on a node of zone b."""
    sandbox = lay_out(installed_sandbox, 1, 2)
    sandbox.api.request("DELETE", POLICY.replace("faults", "default"))  # its limits would apply too
    sandbox.create_namespace(NAMESPACE)
    spread = [constraint(key, "web", nodeTaintsPolicy="Honor") for key in (ZONE, HOSTNAME)]
    open_only(sandbox, IN_A)
    create_deployment(sandbox, NAMESPACE, deployment("web", replicas=1, constraints=spread))
    wait_for(lambda: by_node(sandbox) == {IN_A: 1}, "the pod in zone a")
    open_only(sandbox, FULL)
    scale(sandbox, NAMESPACE, "web", 4)
    wait_for(lambda: by_node(sandbox) == {IN_A: 1, FULL: 3}, "the others in zone b")
    open_only(sandbox, IN_A, FULL, EMPTY)
    return sandbox


def open_only(sandbox: Sandbox, *names: str) -> None:
    taint(sandbox, {name: name not in names for name in (IN_A, FULL, EMPTY)})


def by_node(sandbox: Sandbox) -> Counter[str]:
    """Return how many Ready pods each node with such pods has."""
    return Counter(pod["spec"]["nodeName"] for pod in pods(sandbox, NAMESPACE, "web") if is_ready(pod))


def violations(sandbox: Sandbox) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = sandbox.api.get(POLICY).get("status", {}).get("violations", [])
    return found


def test_a_step_of_two_waits_until_the_limit_has_room_for_both(cluster: Sandbox, tmp_path: Path) -> None:
    enforce(cluster)
    with PodWatcher(cluster) as watcher, FaultProxy(cluster) as proxy:
        with Replica(cluster, proxy, tmp_path, "one", "--no-leader-election"):
            wait_for(lambda: {each["reason"] for each in violations(cluster)} == {"LimitReached"}, "the reason")
            why = {each["message"] for each in violations(cluster)}
            assert why == {f"{LIMIT}, and 2 of the pods that it counts can only go together: set it to 2 or more"}
            time.sleep(2)
            assert watcher.evicted_by_now().total() == 0
            cluster.api.request("PATCH", POLICY, {"spec": {"limits": {"inFlightPerWorkload": 2}}})
            wait_for(lambda: by_node(cluster) == {IN_A: 2, FULL: 1, EMPTY: 1}, "both to be moved")
            wait_for(lambda: violations(cluster) == [], "the status to report no violation")
        assert watcher.evicted_by_now().total() == 2


@pytest.mark.parametrize("killed", [False, True], ids=["goes on", "killed"])
def test_the_second_eviction_of_a_step_follows_the_first(cluster: Sandbox, tmp_path: Path, *, killed: bool) -> None:
    with PodWatcher(cluster) as watcher, FaultProxy(cluster) as proxy:
        evictions: list[Asked] = []

        def refuse_the_second(asked: Asked) -> Fault | None:
            if not asked.is_eviction or "dryRun" in asked.query:
                return None
            evictions.append(asked)
            return None if len(evictions) == 1 else Fault("429")

        proxy.choose = refuse_the_second
        enforce(cluster, limits={"inFlightPerWorkload": 2})
        replica = Replica(cluster, proxy, tmp_path, "one", "--no-leader-election")
        with replica:
            wait_for(lambda: len(evictions) >= 3, "the second to be refused, and asked for again")
            assert watcher.evicted_by_now().total() == 1
            if killed:
                replica.kill()
                replica.start()
            proxy.choose = no_fault
            wait_for(lambda: by_node(cluster) == {IN_A: 2, FULL: 1, EMPTY: 1}, "the second pod to be evicted")
        assert watcher.evicted_by_now().total() == 2
        assert len({each.path for each in evictions}) == 2  # no third pod was evicted
