"""An upgrade with Helm as in docs/upgrade.md, while the operator of the previous version evicts."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from respread_sandbox import Sandbox, SandboxOptions
from tests.go_programs import PROGRAMS, find_or_build
from tests.integration.operator_process import OperatorProcess, evictions, refused
from tests.integration.reused_sandbox import lay_out
from tests.integration.workloads import (
    ZONE,
    constraint,
    create_deployment,
    deployment,
    is_ready,
    pods,
    pods_per_domain,
    wait_until,
)

ROOT = Path(__file__).parents[3]
PREVIOUS = "21f5dfb"
"""The commit whose chart, CRDs and operator are upgraded: the first with a chart, because there is no release yet."""
NAMESPACE = "respread-system"
POLICY = "/apis/respread.dev/v1alpha1/clusterrebalancepolicies/default"
READY_AFTER = "sandbox.respread.dev/ready-after-seconds"
SHOP = {"matchLabels": {"kubernetes.io/metadata.name": "shop"}}
HURRIED = json.dumps({"mode": "Enforce", "quietPeriod": "1ms", "victims": {"minAge": "0s"}, "namespaceSelector": SHOP})

pytestmark = pytest.mark.timeout(1800)
"""The time limit. The fixture builds Helm first if it is not in the cache."""


@pytest.fixture(scope="module")
def previous(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The previous version's source."""
    git = ["git", "-C", str(ROOT)]
    if subprocess.run([*git, "cat-file", "-e", f"{PREVIOUS}^{{commit}}"], check=False).returncode != 0:
        pytest.skip("the previous version is not in this clone: `git fetch --unshallow`")
    archive = subprocess.run([*git, "archive", PREVIOUS, "charts", "operator"], check=True, capture_output=True).stdout
    folder = tmp_path_factory.mktemp("previous")
    with tarfile.open(fileobj=io.BytesIO(archive)) as tar:
        tar.extractall(folder, filter="data")
    return folder


class Helm:
    """Helm for a sandbox's cluster, with its own home directory."""

    def __init__(self, sandbox: Sandbox, home: Path) -> None:
        self._program = find_or_build(PROGRAMS["helm"])
        self._sandbox = sandbox
        self._home = home

    def install(self, chart: Path) -> None:
        """Install a chart's release, or upgrade it to the chart."""
        upgrade = ["upgrade", "--install", "respread", str(chart), "--namespace", NAMESPACE, "--create-namespace"]
        options = ["--set-json", f"policy.spec={HURRIED}", "--kubeconfig", str(self._sandbox.kubeconfig)]
        environment = {"HOME": str(self._home), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(
            [self._program, *upgrade, *options], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


@contextmanager
def operating(source: Path, sandbox: Sandbox, log: Path) -> Iterator[None]:
    """Run the operator of a source tree with the permissions of the chart, until the context ends."""
    kubeconfig = sandbox.kubeconfig_for_service_account(NAMESPACE, "respread")
    run = [sys.executable, "-m", "respread.cli.main", "run", "--kubeconfig", str(kubeconfig)]
    options = ["--listen-address", "127.0.0.1:0", "--lease-namespace", NAMESPACE, "--leader-election"]
    environment = {**os.environ, "PYTHONPATH": str(source / "operator")}
    with log.open("w") as output:
        operator = subprocess.Popen([*run, *options], stdout=output, stderr=output, env=environment)
    try:
        yield
        operator.terminate()
        assert operator.wait(60) == 0, log.read_text()[-4000:]
    finally:
        operator.kill()
        operator.wait()


def heal(sandbox: Sandbox) -> None:
    """Make every pod Ready."""
    for pod in pods(sandbox, "shop"):
        if (
            pod["metadata"].get("annotations", {}).get(READY_AFTER) == "never"
            and "deletionTimestamp" not in pod["metadata"]
        ):
            body = {"metadata": {"annotations": {READY_AFTER: "0"}}}
            sandbox.api.request("PATCH", f"/api/v1/namespaces/shop/pods/{pod['metadata']['name']}", body)


def summary(sandbox: Sandbox) -> dict[str, int]:
    """Return the summary in the policy's status; empty while it is of an earlier generation."""
    policy = sandbox.api.get(POLICY)
    status = policy.get("status", {})
    found: dict[str, int] = status.get("summary", {})
    return found if status.get("observedGeneration") == policy["metadata"]["generation"] else {}


def test_an_upgrade_follows_the_moves_of_the_previous_version(
    previous: Path, start_sandbox: Callable[[SandboxOptions], Sandbox], tmp_path: Path
) -> None:
    sandbox = start_sandbox(SandboxOptions(nodes=0, audit=True))
    helm = Helm(sandbox, tmp_path)
    helm.install(previous / "charts" / "respread")
    sandbox.wait_for_definitions("rebalancepolicies.respread.dev", "clusterrebalancepolicies.respread.dev")
    lay_out(sandbox, 4)
    sandbox.create_namespace("shop")
    never = {READY_AFTER: "never"}
    create_deployment(
        sandbox, "shop", deployment("web", replicas=6, constraints=[constraint(ZONE, "web")], annotations=never)
    )

    def all_ready() -> bool:
        heal(sandbox)
        return sum(map(is_ready, pods(sandbox, "shop", "web"))) == 6

    wait_until(all_ready, "all pods to be Ready")
    for zone in ("zone-b", "zone-c"):
        sandbox.nodes.add(4, zone=zone)
    with operating(previous, sandbox, tmp_path / "previous.log"):
        wait_until(lambda: summary(sandbox).get("evicted") == 1, "the previous version to evict a pod, and say so")
    assert len(evictions(sandbox)) == 1

    sandbox.kubectl("apply", "--server-side", "--force-conflicts", "-k", str(ROOT / "crds"))
    helm.install(ROOT / "charts" / "respread")
    if sandbox.api.get(POLICY)["spec"]["limits"].get("perHour") == 0:  # the earlier default; docs/upgrade.md removes it
        sandbox.api.request("PATCH", POLICY, {"spec": {"limits": {"perHour": None}}})
    with OperatorProcess(sandbox, tmp_path) as operator:
        operator.wait_until_ready()
        wait_until(lambda: summary(sandbox).get("inFlight") == 1, "the new version to follow the move under way")
        assert summary(sandbox)["evicted"] == 1
        # With one unready replacement and inFlightPerWorkload 1, no other pod is evicted.
        assert len(evictions(sandbox)) == 1

        def spread() -> bool:
            heal(sandbox)
            return all_ready() and set(pods_per_domain(sandbox, "shop", "web").values()) == {2}

        wait_until(spread, "the spread to be restored")
        wait_until(lambda: summary(sandbox).get("inFlight") == 0, "every move to have ended")
        assert operator.metric('respread_eviction_outcomes_total{outcome="Improved"}') == 4
        assert operator.stop() == 0
    assert len(evictions(sandbox)) == 4  # [6, 0, 0] needs four, from both versions together
    assert summary(sandbox)["evicted"] == 4
    assert refused(sandbox) == []
