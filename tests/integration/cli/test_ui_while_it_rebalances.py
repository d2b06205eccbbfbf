"""The page in Chromium, on a real cluster in which the operator restores a constraint."""

from __future__ import annotations

import asyncio
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from respread_sandbox import Binaries, Sandbox, SandboxOptions
from tests.chromium import browser, chromium
from tests.integration.cli.ui_process import LONG_SECONDS, Page
from tests.integration.operator_process import OperatorProcess, install, policy
from tests.integration.workloads import (
    ZONE,
    constraint,
    create_deployment,
    deployment,
    labels_of_nodes,
    pods,
    pods_per_domain,
    scale,
    wait_for_ready_pods,
)

NAMESPACE = "shop"
POLICIES = "/apis/respread.dev/v1alpha1/clusterrebalancepolicies"
WORST_ROW = "document.querySelector('.rows .group').querySelectorAll('.domain')"
SHOWN_SECONDS = 15
"""The maximum time for a change on a slow machine. Usually it takes about a second, including the controllers."""


@pytest.fixture(scope="module")
def program() -> str:
    return chromium()


@pytest.fixture
def cluster(program: str, binaries: Binaries) -> Iterator[Sandbox]:
    """A cluster with an operator's rights, and a Deployment of 9 pods whose next scale-down spares one zone."""
    del program
    with Sandbox.start(SandboxOptions(nodes=6, zones=3), binaries=binaries) as sandbox:
        install(sandbox)
        sandbox.create_namespace(NAMESPACE)
        create_deployment(sandbox, NAMESPACE, deployment("web", replicas=9, constraints=[constraint(ZONE, "web")]))
        wait_for_ready_pods(sandbox, NAMESPACE, "web", 9)
        keep_in_zone_a(sandbox)
        sandbox.api.request("POST", POLICIES, policy(mode="DryRun"))
        yield sandbox


@pytest.fixture
def page(cluster: Sandbox) -> Iterator[Page]:
    running = Page(cluster.kubeconfig)
    yield running
    assert running.end() == 0


def keep_in_zone_a(sandbox: Sandbox) -> None:
    """Let a scale-down to 5 pods leave 3 pods in zone-a and one in each other zone."""
    nodes = labels_of_nodes(sandbox)
    kept = set()
    for pod in pods(sandbox, NAMESPACE, "web"):
        zone = nodes[pod["spec"]["nodeName"]][ZONE]
        if zone == "zone-a" or zone not in kept:
            kept.add(zone)
            path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}"
            cost = {"metadata": {"annotations": {"controller.kubernetes.io/pod-deletion-cost": "100"}}}
            sandbox.api.request("PATCH", path, cost)


async def test_the_page_shows_the_skew_the_evictions_and_the_operators_events(
    cluster: Sandbox, page: Page, program: str, tmp_path: Path
) -> None:
    in_thread = asyncio.to_thread
    async with browser(program) as tab, asyncio.timeout(3 * LONG_SECONDS):
        await tab.open(page.url)
        balanced = "✓ All 3 constraints hold"  # two are the operator's own
        await tab.wait_for(f"document.querySelector('h1').textContent.startsWith({json.dumps(balanced)})")
        begun = time.monotonic()
        await in_thread(scale, cluster, NAMESPACE, "web", 5)
        await tab.wait_for(f"String([...{WORST_ROW}].map((each) => parseInt(each.textContent, 10))) === '3,1,1'")
        taken = time.monotonic() - begun
        sys.stdout.write(f"The page shows a scale-down after {taken:.2f} s\n")  # pytest -rP prints it
        assert taken < SHOWN_SECONDS
        would = "✗ 1 of 3 constraints is violated: 1 eviction would restore it"
        await tab.wait_for(f"document.querySelector('h1').textContent.includes({json.dumps(would)})")
        with OperatorProcess(cluster, tmp_path) as operator:
            await in_thread(operator.wait_until_ready)
            await in_thread(cluster.api.request, "PATCH", f"{POLICIES}/test", {"spec": {"mode": "Enforce"}})
            await tab.wait_for("document.querySelector('h1').textContent.startsWith('✓')")
            told = "[...document.querySelectorAll('.happenings .evicted')].map((each) => each.textContent)"
            await tab.wait_for(f"{told}.length === 1 && {told}[0].includes('holds more than maxSkew 1')")
            assert "deploy/web holds again" in await tab.text(".happenings")
            await tab.run(
                "[...document.querySelectorAll('.rows a')].find((a) => a.textContent === 'deploy/web').click()"
            )
            await tab.wait_for("document.querySelector('.happenings')?.textContent.includes('EvictedForSpread')")
            assert "zone-a holds more than maxSkew 1 allows" in await tab.text(".happenings")
            assert await in_thread(operator.stop) == 0
        assert tab.problems == []
    assert max(pods_per_domain(cluster, NAMESPACE, "web").values()) == 2
