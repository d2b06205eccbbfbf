"""LeaderWorkerSets with their own controller: evicting a pod restarts its whole group, so their pods stay."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from respread_sandbox import Sandbox
from tests.custom_workloads.conftest import Run
from tests.go_programs import PROGRAMS, find_or_build, source_of
from tests.integration.pools import POOL, Pool
from tests.integration.workloads import ZONE, constraint, deployment, wait_for_ready_pods, wait_until

GROUPS = 2
SIZE = 3
"""A leader and two workers, which belong to their own StatefulSet."""
QUIET_SECONDS = 4.0
CONFIGURATION = """
apiVersion: config.lws.x-k8s.io/v1alpha1
kind: Configuration
internalCertManagement: {enable: false}
leaderElection: {leaderElect: false}
metrics: {bindAddress: "0"}
health: {healthProbeBindAddress: "0"}
"""

pytestmark = pytest.mark.timeout(1800)
"""The fixture builds the controller first if it is not in the cache."""


@pytest.fixture(scope="module", autouse=True)
def _lws(cluster: Sandbox, run: Run, tmp_path_factory: pytest.TempPathFactory) -> None:
    """The controller without its webhooks, which set defaults and names of groups. The controller sets the owners."""
    program = PROGRAMS["lws"]
    definitions = source_of(program) / "config" / "crd" / "bases"
    cluster.kubectl("apply", "--server-side", "-f", str(definitions))  # too long for the annotation of a plain apply
    cluster.wait_for_definitions("leaderworkersets.leaderworkerset.x-k8s.io")
    configuration: Path = tmp_path_factory.mktemp("lws") / "configuration.yaml"
    configuration.write_text(CONFIGURATION, encoding="utf-8")
    run(
        find_or_build(program),
        f"--config={configuration}",
        f"--kubeconfig={cluster.kubeconfig}",
        "--metrics-bind-address=0",
        ENABLE_WEBHOOKS="false",
    )


def test_pods_of_a_leader_worker_set_stay_and_the_reason_names_the_kind(pool: Pool) -> None:
    template = deployment("web", replicas=1, constraints=[constraint(ZONE, "web")], nodeSelector={POOL: pool.name})
    body = {
        "apiVersion": "leaderworkerset.x-k8s.io/v1",
        "kind": "LeaderWorkerSet",
        "metadata": {"name": "web"},
        "spec": {
            "replicas": GROUPS,
            "startupPolicy": "LeaderCreated",
            "networkConfig": {"subdomainPolicy": "Shared"},
            "rolloutStrategy": {
                "type": "RollingUpdate",
                "rollingUpdateConfiguration": {"maxUnavailable": 1, "maxSurge": 0, "partition": 0},
            },
            "leaderWorkerTemplate": {
                "size": SIZE,
                "restartPolicy": "RecreateGroupOnPodRestart",
                "workerTemplate": template["spec"]["template"],
            },
        },
    }
    pool.sandbox.api.request("POST", f"/apis/leaderworkerset.x-k8s.io/v1/namespaces/{pool.name}/leaderworkersets", body)
    wait_for_ready_pods(pool.sandbox, pool.name, "web", GROUPS * SIZE)
    pool.add_zone("zone-b")
    before = pool.uids()
    pool.rebalance()

    def violation() -> dict[str, object]:
        found: dict[str, object] = (pool.status().get("violations") or [{}])[0]
        return found

    wait_until(lambda: violation().get("reason") == "UnknownOwner", lambda: f"the reason; it says {violation()}")
    assert "LeaderWorkerSet" in str(violation()["message"])
    time.sleep(QUIET_SECONDS)
    assert pool.evicted() == []
    assert pool.uids() == before
