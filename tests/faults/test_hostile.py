"""Extreme objects that the API server accepts, and policies that contradict each other, do not stop the operator."""

from __future__ import annotations

import json
import random
import re
import time
from pathlib import Path
from typing import Any

import pytest

from respread_sandbox import Sandbox
from tests.faults.operators import Replica
from tests.faults.proxy import FaultProxy
from tests.faults.rounds import Workload, balanced, close_zones, create, enforce, wait_for
from tests.faults.watcher import PodWatcher
from tests.integration.reused_sandbox import lay_out
from tests.integration.workloads import ZONE, constraint, deployment, pods
from tests.policy_specs import policy_manifest

NAMESPACE = "hostile"
MOST_MEGABYTES = 400
MOST_CPU_SECONDS = 30
MOST_IDLE_SHARE = 0.5
"""The share of a CPU while nothing changes."""
HUGE_LIMITS = ("inFlight", "inFlightPerNamespace", "inFlightPerNode", "inFlightPerWorkload")
LONGEST_NAMESPACE = "n" * 63


@pytest.fixture
def cluster(installed_sandbox: Sandbox) -> Sandbox:
    sandbox = lay_out(installed_sandbox, 3, 3, 3)
    sandbox.create_namespace(NAMESPACE)
    for node in sandbox.api.get("/api/v1/nodes")["items"]:
        racks = {f"example.com/rack-{number}": node["metadata"]["labels"][ZONE] for number in range(32)}
        sandbox.api.request("PATCH", f"/api/v1/nodes/{node['metadata']['name']}", {"metadata": {"labels": racks}})
    return sandbox


def extreme_deployments() -> list[dict[str, Any]]:
    many_constraints = [
        constraint(f"example.com/rack-{number}", "absurd-0", max_skew=number + 1, when_unsatisfiable=when)
        for number in range(32)
        for when in ("DoNotSchedule", "ScheduleAnyway")
    ]
    no_such_key = [
        {**constraint(f"example.com/key-{number}", "absurd-1"), "whenUnsatisfiable": "ScheduleAnyway"}
        for number in range(64)
    ]
    huge = [constraint(ZONE, "absurd-2", max_skew=2**31 - 1, minDomains=2**31 - 1)]
    long_lists = constraint(ZONE, "absurd-3")
    long_lists["labelSelector"] = {
        "matchExpressions": [
            {"key": "app", "operator": "In", "values": ["absurd-3", *(f"value-{number}" for number in range(2000))]},
            *({"key": f"key-{number}", "operator": "DoesNotExist"} for number in range(200)),
        ]
    }
    everything = constraint(ZONE, "absurd-4")
    everything["labelSelector"] = {}
    labels = {f"example.com/label-{number}": "v" * 63 for number in range(1000)}
    made = [
        deployment("absurd-0", replicas=3, constraints=many_constraints),
        deployment("absurd-1", replicas=3, constraints=no_such_key),
        deployment("absurd-2", replicas=3, constraints=huge),
        deployment("absurd-3", replicas=3, constraints=[long_lists]),
        deployment("absurd-4", replicas=3, constraints=[everything]),
        deployment("absurd-5", replicas=3, constraints=[constraint(ZONE, "absurd-5")]),
        deployment("absurd-6", replicas=2, constraints=[constraint(ZONE, "absurd-6")], cpu="1000000000000"),
        deployment("absurd-7", replicas=2, constraints=[constraint(ZONE, "absurd-7")], cpu="0.0000000001"),
    ]
    made[5]["spec"]["template"]["metadata"]["labels"] |= labels
    made[5]["metadata"]["name"] = "n" * 240  # the controller shortens the pods' names
    made[5]["spec"]["template"]["metadata"]["annotations"] = {
        "example.com/unicode": "ßÅ漢字🐈\u202e" * 1000,
        "controller.kubernetes.io/pod-deletion-cost": "-2147483648",
        "respread.dev/evict": "perhaps",
    }
    made[4]["spec"]["template"]["spec"] |= {"terminationGracePeriodSeconds": 2**40, "schedulerName": "nobody"}
    made[3]["spec"]["template"]["metadata"]["annotations"] = {
        "controller.kubernetes.io/pod-deletion-cost": "2147483647"
    }
    return made


def extreme_budgets() -> list[dict[str, Any]]:
    expressions = [
        {"key": f"example.com/key-{number}", "operator": "NotIn", "values": [f"v{n}" for n in range(20)]}
        for number in range(500)
    ]
    specs = [
        {"selector": {"matchExpressions": expressions}, "maxUnavailable": "0%"},
        {"selector": {"matchLabels": {"app": "absurd-3"}}, "minAvailable": 2**31 - 1},
        {"selector": {"matchLabels": {"app": "absurd-5"}}, "minAvailable": "100%"},
        {"selector": {"matchLabels": {"app": "absurd-5"}}, "maxUnavailable": "1%"},
    ]
    return [
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": f"budget-{number}", "namespace": NAMESPACE},
            "spec": spec,
        }
        for number, spec in enumerate(specs)
    ]


def policy(name: str, **spec: Any) -> dict[str, Any]:
    return policy_manifest(name, {"mode": "Enforce", "quietPeriod": "1s", "victims": {"minAge": "0s"}, **spec})


def extreme_policies() -> list[dict[str, Any]]:
    """Policies with values at the limits, which govern only the extreme objects."""
    keys = [f"example.com/rack-{number}" for number in range(16)]
    beside = {"key": "app", "operator": "NotIn", "values": ["web", *(f"v{number}" for number in range(99))]}
    selector = {"matchExpressions": [beside, *({"key": f"k{n}", "operator": "DoesNotExist"} for n in range(31))]}
    window = {"schedule": "*/1 * * * *", "duration": "24h", "timeZone": "America/Argentina/ComodRivadavia"}
    return [
        policy("a" * 253, priority=-1_000_000_000, podSelector=selector, windows=[window] * 32),
        policy("huge", priority=1_000_000_000, podSelector=selector, limits=dict.fromkeys(HUGE_LIMITS, 10_000)),
        policy("strange", podSelector=selector, constraints={"topologyKeys": keys}, quietPeriod="24h"),
        policy("negative", podSelector=selector, victims={"priorityThreshold": {"value": -(2**31)}}),
    ]


def cpu_seconds(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / 100


def peak_megabytes(pid: int) -> float:
    found = re.search(r"VmHWM:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert found is not None
    return int(found[1]) / 1024


def blocked(cluster: Sandbox, name: str) -> list[tuple[str, str]]:
    """Return the reason and message of every blocked violation in a policy's status."""
    status = cluster.api.get(f"/apis/respread.dev/v1alpha1/clusterrebalancepolicies/{name}").get("status", {})
    return [(each["reason"], each["message"]) for each in status.get("violations", ()) if not each["plannedMoves"]]


class Bounded:
    """A process that must stay within bounds of memory and CPU, whatever the objects."""

    def __init__(self, pid: int) -> None:
        self._pid = pid

    def check(self) -> None:
        """Measure its total use, and its use while nothing changes."""
        assert peak_megabytes(self._pid) < MOST_MEGABYTES
        spent = cpu_seconds(self._pid)
        assert spent < MOST_CPU_SECONDS
        time.sleep(5)
        assert cpu_seconds(self._pid) - spent < 5 * MOST_IDLE_SHARE


def test_extreme_objects_do_not_stop_the_operator(cluster: Sandbox, tmp_path: Path) -> None:
    for each in extreme_deployments():
        cluster.api.request("POST", f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments", each)
    for each in extreme_budgets():
        cluster.api.request("POST", f"/apis/policy/v1/namespaces/{NAMESPACE}/poddisruptionbudgets", each)
    workloads = [Workload("beside", "web", 6, 1)]
    with PodWatcher(cluster) as watcher, FaultProxy(cluster) as proxy:
        close_zones(cluster, closed=True)
        create(cluster, watcher, workloads, random.Random(1))
        enforce(cluster, constraints={"whenUnsatisfiable": ["DoNotSchedule", "ScheduleAnyway"]})
        cluster.create_namespace(LONGEST_NAMESPACE)
        for each in extreme_policies():
            cluster.api.request("POST", "/apis/respread.dev/v1alpha1/clusterrebalancepolicies", each)
        with Replica(cluster, proxy, tmp_path, "one", "--no-leader-election") as replica:
            close_zones(cluster, closed=False)
            wait_for(lambda: balanced(cluster, workloads), "the ordinary Deployments to be spread")
            time.sleep(3)
            assert len(pods(cluster, NAMESPACE)) == 22  # the API server accepted each workload, and its pods exist
            assert replica.runs
            assert watcher.evicted_by_now()["beside", "web"] == 4
            # No pod with an impossible budget or with two budgets was evicted.
            assert {app for namespace, app in watcher.evicted_by_now() if namespace == NAMESPACE} & {
                "absurd-3",
                "absurd-5",
            } == set()
            Bounded(replica.pid).check()
            shown = [
                each for name in ("faults", "a" * 253, "huge", "strange", "negative") for each in blocked(cluster, name)
            ]
            assert all(reason and message for reason, message in shown), shown
            errors = [line for line in replica.lines() if line["level"] in {"error", "critical"}]
            # The only pods that are reported as unreadable have more labels than Respread keeps.
            assert len({line.get("fault") for line in errors}) == 3, errors
            assert all(": metadata.labels: " in line.get("fault", "") for line in errors), errors
        assert watcher.breaches == []


def test_the_policy_with_precedence_applies_among_ten_for_the_same_pods(cluster: Sandbox, tmp_path: Path) -> None:
    workloads = [Workload("contested", "web", 6, 1)]
    with PodWatcher(cluster) as watcher, FaultProxy(cluster) as proxy:
        close_zones(cluster, closed=True)
        create(cluster, watcher, workloads, random.Random(1))
        for number in range(9):
            mode = "Enforce" if number % 2 else "DryRun"
            cluster.apply(json.dumps(policy(f"policy-{number}", mode=mode, priority=number)))
        cluster.apply(json.dumps(policy("last-word", priority=100, limits={"inFlight": 1})))
        never = {"schedule": "0 0 30 2 *", "duration": "1h", "timeZone": "UTC"}
        cluster.apply(json.dumps(policy("never", priority=50, windows=[never])))
        nowhere = {"schedule": "0 0 * * *", "duration": "1h", "timeZone": "Moon/Tranquility"}
        cluster.apply(json.dumps(policy("nowhere", priority=60, windows=[nowhere])))
        with Replica(cluster, proxy, tmp_path, "one", "--no-leader-election") as replica:
            close_zones(cluster, closed=False)
            wait_for(lambda: balanced(cluster, workloads), "the spread to be restored")
            assert watcher.evicted_by_now()["contested", "web"] == 4

            def ready(name: str) -> dict[str, Any]:
                path = f"/apis/respread.dev/v1alpha1/clusterrebalancepolicies/{name}"
                conditions = cluster.api.get(path).get("status", {}).get("conditions", ())
                return next((each for each in conditions if each["type"] == "Ready"), {})

            def all_say_so() -> bool:
                return all(
                    [
                        ready("last-word").get("reason") == "Valid",
                        all(ready(f"policy-{number}").get("reason") == "Overridden" for number in range(9)),
                        ready("nowhere").get("reason") == "InvalidPolicy",
                        "timeZone" in ready("nowhere").get("message", ""),
                        ready("never").get("reason") == "InvalidPolicy",
                    ]
                )

            wait_for(all_say_so, "every policy to say how it stands")
            Bounded(replica.pid).check()
            errors = [line for line in replica.lines() if line["level"] in {"error", "critical"}]
            assert errors == []
