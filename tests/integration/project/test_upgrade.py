"""An upgrade with Helm as in docs/upgrade.md, and a rollback, in the middle of evictions."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from respread_sandbox import Sandbox, SandboxOptions
from tests.go_programs import PROGRAMS, find_or_build
from tests.integration.operator_process import OperatorProcess, evictions, refused, wait_until_policies_are_served
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
NAMESPACE = "respread-system"
POLICY = "/apis/respread.dev/v1alpha1/clusterrebalancepolicies/default"
READY_AFTER = "sandbox.respread.dev/ready-after-seconds"
SHOP = {"matchLabels": {"kubernetes.io/metadata.name": "shop"}}
HURRIED = {"mode": "Enforce", "quietPeriod": "1ms", "victims": {"minAge": "0s"}, "namespaceSelector": SHOP}
SPEC = f"policy.spec={json.dumps(HURRIED)}"

pytestmark = pytest.mark.timeout(1800)
"""The time limit. The fixture builds Helm first if it is not in the cache."""


@pytest.fixture
def next_chart(tmp_path: Path) -> Path:
    """The chart of a version after this one, whose definitions have a new field."""
    chart = Path(shutil.copytree(ROOT / "charts" / "respread", tmp_path / "next"))
    about = yaml.safe_load((chart / "Chart.yaml").read_text(encoding="utf-8"))
    (chart / "Chart.yaml").write_text(yaml.safe_dump({**about, "version": "99.0.0", "appVersion": "99.0.0"}))
    for path in (chart / "crds").glob("*policies.respread.dev.yaml"):
        definition = yaml.safe_load(path.read_text(encoding="utf-8"))
        (version,) = definition["spec"]["versions"]
        for part in ("spec", "status"):
            fields = version["schema"]["openAPIV3Schema"]["properties"][part]["properties"]
            fields["later"] = {"type": "string", "maxLength": 10}
        path.write_text(yaml.safe_dump(definition), encoding="utf-8")
    return chart


class Helm:
    """Helm for a sandbox's cluster, with its own home directory."""

    def __init__(self, sandbox: Sandbox, home: Path) -> None:
        self._program = find_or_build(PROGRAMS["helm"])
        self._sandbox = sandbox
        self._home = home

    def install(self, chart: Path) -> None:
        """Install a chart's release, or upgrade it to the chart."""
        self._run("upgrade", "--install", "respread", str(chart), "--create-namespace", "--set-json", SPEC)

    def roll_back(self) -> None:
        """Return to the revision that was installed first."""
        self._run("rollback", "respread", "1")

    def _run(self, *arguments: str) -> None:
        where = ("--namespace", NAMESPACE, "--kubeconfig", str(self._sandbox.kubeconfig))
        environment = {"HOME": str(self._home), "PATH": "/usr/bin:/bin"}
        done = subprocess.run(
            [self._program, *arguments, *where], env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


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


def test_moves_are_followed_across_an_upgrade_and_a_rollback(
    next_chart: Path, start_sandbox: Callable[[SandboxOptions], Sandbox], tmp_path: Path
) -> None:
    sandbox = start_sandbox(SandboxOptions(nodes=0, audit=True))
    helm = Helm(sandbox, tmp_path)
    helm.install(ROOT / "charts" / "respread")
    wait_until_policies_are_served(sandbox)
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

    def spread() -> bool:
        heal(sandbox)  # Spread pods first: until they are, another one may be evicted once all are Ready.
        return set(pods_per_domain(sandbox, "shop", "web").values()) == {2} and all_ready()

    def follow(operator: OperatorProcess) -> None:
        """Wait until an operator follows the move of the one before."""
        operator.wait_until_ready()
        wait_until(lambda: operator.metric("respread_evictions_in_flight") == 1, "the move under way to be followed")
        assert summary(sandbox)["evicted"] == 1
        # With one unready replacement and inFlightPerWorkload 1, no other pod is evicted.
        assert len(evictions(sandbox)) == 1

    with OperatorProcess(sandbox, tmp_path) as operator:
        wait_until(lambda: summary(sandbox).get("evicted") == 1, "a pod to be evicted")
        sandbox.kubectl("apply", "--server-side", "--force-conflicts", "-f", str(next_chart / "crds"))
        helm.install(next_chart)
        assert operator.stop() == 0
    with OperatorProcess(sandbox, tmp_path) as operator:
        follow(operator)
        helm.roll_back()
        assert operator.stop() == 0
    with OperatorProcess(sandbox, tmp_path) as operator:
        follow(operator)
        wait_until(spread, "the spread to be restored")
        wait_until(lambda: summary(sandbox).get("inFlight") == 0, "every move to have ended")
        assert operator.metric('respread_eviction_outcomes_total{outcome="Improved"}') == 4
        assert operator.stop() == 0
    assert len(evictions(sandbox)) == 4  # [6, 0, 0] needs four, from all operators together
    assert summary(sandbox)["evicted"] == 4
    assert refused(sandbox) == []
