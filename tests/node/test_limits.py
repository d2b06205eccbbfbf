"""Respread starts with little CPU, and where the certificates are old."""

from __future__ import annotations

from pathlib import Path

from tests.integration.helm import helm_for
from tests.node.cluster import real_cluster
from tests.node.installation import Installation
from tests.node.programs import Programs


def test_replicas_start_with_a_twentieth_of_a_processor(installation: Installation) -> None:
    installation.install("resources.limits.cpu=50m", "resources.requests.cpu=50m", "replicas=1")
    (pod,) = installation.pods()
    quota = installation.node_of(pod).cgroup_file(pod, "cpu", "cpu.cfs_quota_us")
    assert quota.read_text(encoding="ascii").strip() == "5000"
    assert set(installation.restarts().values()) == {0}


def test_a_replica_is_ready_where_certificates_have_no_key_identifiers(
    programs: Programs, cgroup: str, tmp_path: Path
) -> None:
    at = tmp_path / "cluster"
    at.mkdir()
    with real_cluster(at, programs, cgroup, nodes=1, simulated=(0,), key_identifiers=False, number=1) as cluster:
        installation = Installation(cluster, helm_for(cluster.sandbox, tmp_path))
        installation.install("replicas=1")
        assert set(installation.restarts().values()) == {0}
