"""If another descheduler evicts pods of a workload, Respread names it and leaves the workload alone for some time."""

from __future__ import annotations

import json
import subprocess
import time
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from respread.holds.other_evictions import ROUND, WAIT
from respread_sandbox.binaries import cache_directory
from respread_sandbox.nodes import TERMINATE_AFTER_ANNOTATION
from tests.integration.operator_process import OperatorProcess, audited, evictions
from tests.integration.pools import Pool
from tests.integration.workloads import ZONE, constraint, evict_slowly, wait_until

DESCHEDULER = "sigs.k8s.io.descheduler"
PODS_LIVE_SECONDS = 8
PEER = """\
apiVersion: descheduler/v1alpha2
kind: DeschedulerPolicy
profiles:
  - name: short-lives
    pluginConfig:
      - name: DefaultEvictor
        args: {}
      - name: PodLifeTime
        args: {maxPodLifeTimeSeconds: %d, namespaces: {include: [%s]}}
    plugins: {deschedule: {enabled: [PodLifeTime]}}
"""


def others_evictions(pool: Pool) -> str:
    """Return the metric of evictions by others of the pool's pods."""
    return f'respread_other_evictions_total{{namespace="{pool.name}"}}'


def report(pool: Pool, pod: dict[str, Any]) -> None:
    """Report an eviction by an Event, as descheduler does."""
    name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
    event = {
        "metadata": {"generateName": "descheduled-", "namespace": pool.name},
        "eventTime": datetime.now(UTC).isoformat(timespec="microseconds"),
        "type": "Normal",
        "reason": "PodLifeTime",
        "action": "Descheduled",
        "note": "pod eviction from a node by sigs.k8s.io/descheduler",
        "reportingController": DESCHEDULER,
        "reportingInstance": "descheduler-0",
        "regarding": {"apiVersion": "v1", "kind": "Pod", "namespace": pool.name, "name": name, "uid": uid},
    }
    pool.sandbox.api.request("POST", f"/apis/events.k8s.io/v1/namespaces/{pool.name}/events", event)


class LeftAlone(NamedTuple):
    """A workload that Respread leaves alone although its spread is violated."""

    pool: Pool
    since: datetime
    """The time of the last eviction by the other evictor."""


@pytest.fixture(scope="module")
def left_alone(operator: OperatorProcess) -> LeftAlone:
    """A workload whose pods another evictor evicts repeatedly. The last test waits until that has ended."""
    pool = Pool(operator.sandbox, "repeatedly-evicted")
    pool.add_zone("zone-a", 2)
    pool.add_zone("zone-b", 2)
    pool.deploy("web", 6, constraints=[constraint(ZONE, "web")])
    pool.rebalance()
    wait_until(lambda: pool.condition("Balanced").get("status") == "True", "the policy to be planned for")
    for number in (1, 2):
        report(pool, evict_slowly(pool.sandbox, pool.name, "web"))
        wait_until(
            lambda number=number: operator.metric(others_evictions(pool)) == number,  # type: ignore[misc]  # no types for defaults
            "the eviction to be seen",
        )
        pool.wait_for(6)
        time.sleep(ROUND.total_seconds() + 1)
    wait_until(lambda: DESCHEDULER in pool.condition("OtherDescheduler").get("message", ""), "it to be named")
    # Now the spread is violated, and Respread waits.
    since = datetime.now(UTC)
    evict_slowly(pool.sandbox, pool.name, "web")
    pool.wait_for(6)
    pool.add_zone("zone-c", 2)
    return LeftAlone(pool, since)


def test_a_repeated_evictor_is_named_and_its_workload_left_alone(left_alone: LeftAlone) -> None:
    pool = left_alone.pool
    assert pool.condition("OtherDescheduler")["status"] == "True"
    assert "Deployment/web" in pool.condition("OtherDescheduler")["message"]
    wait_until(
        lambda: any(each["reason"] == "OtherDescheduler" for each in pool.status().get("violations", ())),
        "the reason to be reported",
    )


def test_respreads_evictions_and_drains_do_not_count_as_others(operator: OperatorProcess, pool: Pool) -> None:
    slowly = {TERMINATE_AFTER_ANNOTATION: "4"}
    pool.add_zone("zone-a", 2)
    pool.deploy("web", 6, constraints=[constraint(ZONE, "web")], annotations=slowly)
    (drained, *_) = pool.add_zone("zone-b", 2)
    pool.rebalance(limits={"inFlightPerWorkload": 3})
    pool.wait_until_balanced(6, 3)
    pool.sandbox.kubectl("drain", drained, "--ignore-daemonsets", "--timeout=60s", "--pod-selector=app=web")
    pool.wait_for(6)
    time.sleep(2)
    assert operator.metric(others_evictions(pool)) == 0
    assert pool.condition("OtherDescheduler") == {}


def peer() -> Path:
    """Return descheduler's program, if `python -m bench.peer` has built it."""
    built = sorted((cache_directory({}).parent.parent / "peer").glob("descheduler-*/descheduler"))
    return built[-1] if built else Path("descheduler")


@pytest.mark.skipif(not peer().exists(), reason="descheduler is built by `python -m bench.peer`")
def test_the_descheduler_is_recognized(operator: OperatorProcess, pool: Pool, tmp_path: Path) -> None:
    slowly = {TERMINATE_AFTER_ANNOTATION: "2"}
    pool.add_zone("zone-a", 2)
    pool.add_zone("zone-b", 2)
    pool.deploy("web", 4, constraints=[constraint(ZONE, "web")], annotations=slowly)
    pool.rebalance()
    wait_until(lambda: pool.condition("Balanced").get("status") == "True", "the policy to be planned for")
    policy, log = tmp_path / "policy.yaml", tmp_path / "descheduler.log"
    policy.write_text(PEER % (PODS_LIVE_SECONDS, pool.name))
    command = [str(peer()), "--kubeconfig", str(pool.sandbox.kubeconfig), "--policy-config-file", str(policy)]
    command += ["--descheduling-interval=12s", "--bind-address=127.0.0.1", "--secure-port=0", "--v=2"]
    with log.open("w") as output:
        descheduler = subprocess.Popen(command, stdout=output, stderr=output, cwd=tmp_path)
    try:
        wait_until(
            lambda: DESCHEDULER in pool.condition("OtherDescheduler").get("message", ""),
            lambda: f"descheduler to be named; the policy says {pool.status()}, descheduler\n{log.read_text()[-3000:]}",
            seconds=180,
        )
    finally:
        descheduler.terminate()
        descheduler.wait()
    made = [json.loads(line) for line in audited(pool.sandbox, '"eviction"', pool.name)]
    assert operator.metric(others_evictions(pool)) <= len(made)
    assert pool.evicted() == []


def test_a_workload_is_not_left_alone_forever(operator: OperatorProcess, left_alone: LeftAlone) -> None:
    pool = left_alone.pool
    wait_until(
        lambda: bool(pool.evicted()),
        lambda: f"the wait to end; the policy says {pool.status()}, pods are on {pool.counts()}",
    )
    pool.wait_until_balanced(6, 2)
    ours = [each for each in evictions(pool.sandbox) if each["objectRef"]["namespace"] == pool.name]
    assert len(ours) == 2
    first = min(datetime.fromisoformat(each["requestReceivedTimestamp"]) for each in ours)
    assert first - left_alone.since >= timedelta(seconds=WAIT.first_seconds)
    assert operator.metric(others_evictions(pool)) == 3, "our own evictions do not count as evictions by others"
