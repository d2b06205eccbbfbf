"""Namespaces whose replacements never get Ready do not prevent others from being balanced."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from respread_sandbox import Sandbox
from respread_sandbox.nodes import NEVER, READY_AFTER_ANNOTATION
from tests.integration.operator_process import operated, policy
from tests.integration.pools import POOL, Pool
from tests.integration.reused_sandbox import POLICIES, ReusedSandbox
from tests.integration.workloads import ZONE, constraint, create_deployment, deployment, wait_until

APPS = 12
REPLICAS = 3
MOVES = 2 * APPS
"""The evictions from three pods in one zone to one pod in each of three zones."""
HEAD_START_SECONDS = 5.0
SOON = "1"
"""The time until replacements are Ready, long enough that limits and not the machine determine the duration."""


@pytest.fixture(scope="module")
def cluster(reused_sandbox: ReusedSandbox, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A control plane without nodes, on which the operator runs."""
    with operated(reused_sandbox.reset(), tmp_path_factory.mktemp("operator")) as sandbox:
        yield sandbox


def fill(sandbox: Sandbox, name: str, *, ready_after: str) -> Pool:
    """Create a namespace with Deployments that have all their pods in its only zone, and return it."""
    pool = Pool(sandbox, name)
    pool.add_zone("zone-a", 2)
    for number in range(APPS):
        app = f"app-{number}"
        create_deployment(
            sandbox,
            pool.name,
            deployment(
                app,
                replicas=REPLICAS,
                constraints=[constraint(ZONE, app)],
                annotations={READY_AFTER_ANNOTATION: ready_after},
                nodeSelector={POOL: pool.name},
            ),
        )
    if ready_after != NEVER:
        pool.wait_for(APPS * REPLICAS)
    else:
        wait_until(lambda: sum(map(is_running, pool.pods())) == APPS * REPLICAS, "the pods to run")
        for pod in pool.pods():
            make_ready(sandbox, pod)
    return pool


def is_running(pod: dict[str, Any]) -> bool:
    return bool(pod["status"].get("phase") == "Running")


def make_ready(sandbox: Sandbox, pod: dict[str, Any]) -> None:
    """Make this pod Ready, but none of its replacements."""
    metadata = pod["metadata"]
    ready = [
        {**each, "status": "True", "reason": ""} if each["type"] in {"Ready", "ContainersReady"} else each
        for each in pod["status"]["conditions"]
    ]
    path = f"/api/v1/namespaces/{metadata['namespace']}/pods/{metadata['name']}/status"
    sandbox.api.request("PATCH", path, {"status": {"conditions": ready}})


def open_zones(pool: Pool) -> None:
    for zone in ("zone-b", "zone-c"):
        pool.add_zone(zone, 2)


def govern(sandbox: Sandbox, pools: list[Pool]) -> None:
    """Create one policy for all of them, so that they share its limits."""
    names = [pool.name for pool in pools]
    selector = {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": names}]}
    sandbox.apply(json.dumps(policy("shared", namespaceSelector=selector)))


def balance(tenants: list[Pool]) -> dict[str, float]:
    """Add their other zones one after another; return how many seconds it takes to balance each."""
    started: dict[str, float] = {}
    for pool in tenants:
        started[pool.name] = time.monotonic()
        open_zones(pool)
    seconds: dict[str, float] = {}

    def all_balanced() -> bool:
        for pool in tenants:
            if pool.name not in seconds and len(pool.evicted()) == MOVES and pool.is_ready(APPS * REPLICAS):
                seconds[pool.name] = time.monotonic() - started[pool.name]
        return len(seconds) == len(tenants)

    wait_until(all_balanced, lambda: f"all to be balanced, besides {sorted(seconds)}")
    return seconds


@pytest.mark.long
def test_two_namespaces_that_never_get_ready_slow_another_down_by_half_at_most(cluster: Sandbox) -> None:
    # All namespaces share the limits of one policy.
    cluster.api.request("DELETE", f"{POLICIES}/default")
    alone, tenant = fill(cluster, "alone", ready_after=SOON), fill(cluster, "tenant", ready_after=SOON)
    greedy = [fill(cluster, f"greedy-{number}", ready_after=NEVER) for number in range(2)]
    govern(cluster, [tenant, *greedy])
    alone.rebalance()
    for pool in greedy:
        open_zones(pool)
    wait_until(lambda: all(pool.evicted() for pool in greedy), "the greedy ones to have begun")
    time.sleep(HEAD_START_SECONDS)
    # Both run at the same time, because on a busy machine the same run can take twice as long a few seconds later.
    seconds = balance([alone, tenant])
    # it gets more moves only after its first replacement, and the clocks are read a few times a second
    assert seconds[tenant.name] <= 1.5 * seconds[alone.name] + 2.0, seconds
