"""Namespaces whose replacements never get Ready don't keep the others from being balanced."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import pytest

from respread_sandbox import Sandbox
from respread_sandbox.stages import NEVER, READY_AFTER_ANNOTATION
from tests.integration.as_new import AsNew
from tests.integration.operator_process import operated, policy
from tests.integration.pools import POOL, Pool
from tests.integration.workloads import ZONE, constraint, create_deployment, deployment, wait_until

APPS = 12
REPLICAS = 3
MOVES = 2 * APPS
"""From three pods in one zone to one in each of three."""
HEAD_START_SECONDS = 5.0


@pytest.fixture(scope="module")
def cluster(as_new: AsNew, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sandbox]:
    """A control plane without nodes, on which the operator runs."""
    with operated(as_new.put_back(), tmp_path_factory.mktemp("operator")) as sandbox:
        yield sandbox


def fill(sandbox: Sandbox, name: str, *, ready: bool) -> Pool:
    """Return a namespace with Deployments that have all their pods in the one zone that there is for them."""
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
                annotations={} if ready else {READY_AFTER_ANNOTATION: NEVER},
                nodeSelector={POOL: pool.name},
            ),
        )
    if ready:
        pool.wait_for(APPS * REPLICAS)
    else:
        wait_until(lambda: sum(map(is_running, pool.pods())) == APPS * REPLICAS, "the pods to run")
        for pod in pool.pods():
            make_ready(sandbox, pod)
    return pool


def is_running(pod: dict[str, Any]) -> bool:
    return bool(pod["status"].get("phase") == "Running")


def make_ready(sandbox: Sandbox, pod: dict[str, Any]) -> None:
    """Make this one Ready, but none that replaces it."""
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


def balance(sandbox: Sandbox, tenant: Pool, greedy: list[Pool]) -> float:
    """Let a policy act on all of them, the greedy ones first; return how long it takes to balance the tenant."""
    names = [pool.name for pool in (tenant, *greedy)]
    selector = {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "In", "values": names}]}
    sandbox.apply(json.dumps(policy(f"over-{tenant.name}", namespaceSelector=selector)))
    for pool in greedy:
        open_zones(pool)
    if greedy:
        wait_until(lambda: all(pool.evicted() for pool in greedy), "the greedy ones to have begun")
        time.sleep(HEAD_START_SECONDS)
    open_zones(tenant)
    started = time.monotonic()
    wait_until(lambda: len(tenant.evicted()) == MOVES, f"{tenant.name} to be balanced", seconds=180)
    tenant.wait_for(APPS * REPLICAS)
    return time.monotonic() - started


def test_two_namespaces_that_never_get_ready_cost_another_half_its_time_at_most(cluster: Sandbox) -> None:
    alone = balance(cluster, fill(cluster, "alone", ready=True), [])
    greedy = [fill(cluster, f"greedy-{number}", ready=False) for number in range(2)]
    beside = balance(cluster, fill(cluster, "tenant", ready=True), greedy)
    # its first replacement is waited for before it gets more places, and clocks are read a few times a second
    assert beside <= 1.5 * alone + 2.0, (alone, beside)
