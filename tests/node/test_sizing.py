"""Pods for 30,000 pods stay within the requests of the chart, by the kernel's own figures."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Any, Final, NamedTuple

import pytest

from bench.ingest_world import cluster as objects_of
from bench.ingest_world import fill, pod_changes, wait_until_served
from respread_sandbox.components import CONTROLLER_MANAGER, SCHEDULER
from tests.integration.helm import helm_for
from tests.integration.operator_process import matching
from tests.node.cluster import real_cluster
from tests.node.installation import Installation
from tests.node.programs import Programs
from tests.processes import wait_until

PODS: Final = 30_000
CHANGES: Final = 20_000
AT_REST_SECONDS: Final = 60
REQUESTED_MIB: Final = 256
"""What the chart requests, for about this number of pods."""


class Usage(NamedTuple):
    """What the kernel says of a container."""

    cpu_seconds: float
    memory_mib: float
    peak_mib: float

    @classmethod
    def of(cls, installation: Installation, pod: dict[str, Any]) -> Usage:
        """Read the cgroup of a pod's container."""
        node = installation.node_of(pod)

        def read(controller: str, name: str) -> int:
            return int(node.cgroup_file(pod, controller, name).read_text(encoding="ascii"))

        used, peak = (read("memory", f"memory.{name}_in_bytes") / 2**20 for name in ("usage", "max_usage"))
        return cls(read("cpuacct", "cpuacct.usage") / 1e9, used, peak)


def usages(installation: Installation) -> dict[str, Usage]:
    """Return the usage of the leader and of the other replica."""
    leader = installation.leader()["metadata"]["name"]
    return {
        "leader" if pod["metadata"]["name"] == leader else "follower": Usage.of(installation, pod)
        for pod in installation.pods()
    }


def known_pods(installation: Installation) -> float:
    """Return how many pods the leader holds in memory."""
    leader = installation.leader()
    metrics = installation.node_of(leader).get(f"http://{leader['status']['podIP']}:8080/metrics")
    return sum(sample.value for sample in matching('respread_cluster_objects{kind="pods"}', metrics))


def wait_until_all_are_known(installation: Installation) -> None:
    """Wait until the leader knows all pods."""
    known = 0.0

    def all_known() -> bool:
        nonlocal known
        with contextlib.suppress(OSError, StopIteration):  # it does not answer yet, or nobody leads
            known = known_pods(installation)
        return known >= PODS

    wait_until(all_known, lambda: f"{PODS} pods to be known; {known:g} are")


@pytest.mark.long
def test_replicas_for_30_000_pods_stay_within_the_requested_memory(
    programs: Programs, cgroup: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    at = tmp_path / "cluster"
    at.mkdir()
    with real_cluster(at, programs, cgroup, simulated=(0,), number=2) as cluster:
        installation = Installation(cluster, helm_for(cluster.sandbox, tmp_path))
        installation.install()
        rows: dict[str, dict[str, Usage]] = {}

        def at_rest(name: str) -> None:
            before = usages(installation)
            time.sleep(AT_REST_SECONDS)
            after = usages(installation)
            rows[f"{name}, at rest"] = {
                role: Usage(after[role].cpu_seconds - before[role].cpu_seconds, *after[role][1:]) for role in after
            }

        rows["empty cluster, started"] = usages(installation)
        at_rest("empty cluster")
        # The controller manager would delete pods without an owner, and taint nodes without a heartbeat.
        for component in (CONTROLLER_MANAGER, SCHEDULER):
            cluster.sandbox.stop_component(component)
        fill(cluster.sandbox, objects_of(PODS))
        wait_until_served(cluster.sandbox)
        for pod in installation.pods():  # a start with all objects is what takes most memory
            (process,) = installation.node_of(pod).process_ids(pod)
            os.kill(process, signal.SIGKILL)
        wait_until_all_are_known(installation)
        installation.wait_until_ready()
        rows[f"{PODS} pods, started"] = usages(installation)
        at_rest(f"{PODS} pods")
        before = usages(installation)
        fill(cluster.sandbox, pod_changes(PODS, CHANGES))
        wait_until_served(cluster.sandbox)
        time.sleep(AT_REST_SECONDS / 2)
        after = usages(installation)
        rows[f"{PODS} pods, {CHANGES} changes"] = {
            role: Usage(after[role].cpu_seconds - before[role].cpu_seconds, *after[role][1:]) for role in after
        }
    with capsys.disabled():
        for name, usage in rows.items():
            for role, each in usage.items():
                print(f"{name} | {role} | {each.cpu_seconds:.2f} s | {each.memory_mib:.0f} | {each.peak_mib:.0f}")  # noqa: T201
    assert max(each.peak_mib for usage in rows.values() for each in usage.values()) < REQUESTED_MIB
