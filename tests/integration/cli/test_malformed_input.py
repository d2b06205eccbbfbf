"""The operator and the command line name malformed objects with their fields, and continue with the others."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from respread_sandbox import Sandbox
from tests.integration.etcd import Etcd
from tests.integration.operator_process import OperatorProcess, evictions, policy
from tests.integration.reused_sandbox import lay_out
from tests.integration.workloads import (
    ZONE,
    constraint,
    create_deployment,
    deployment,
    pods_per_domain,
    wait_for_ready_pods,
    wait_until,
)

EMPTY_KEY = {"matchExpressions": [{"key": "", "operator": "Exists"}]}
STRANGE = {
    "empty-key": [{**constraint(ZONE, "x"), "labelSelector": EMPTY_KEY}],
    "operator": [
        {**constraint(ZONE, "x"), "labelSelector": {"matchExpressions": [{"key": "a", "operator": "Resembles"}]}}
    ],
}
FAULTS = {
    "empty-key": "spec.topologySpreadConstraints[0].labelSelector: matchExpressions[0]: '' is not a label key",
    "operator": "spec.topologySpreadConstraints[0].labelSelector.matchExpressions[0].operator: Invalid enum value",
}
"""The error for each pod, after its name. (The API server itself fails for a quantity that can't be parsed.)"""


def respread(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "respread_cli.main", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)


def store(sandbox: Sandbox) -> None:
    """Write pods into etcd that no API server of this version would accept."""

    async def put() -> None:
        etcd = Etcd(sandbox)
        for number, (name, constraints) in enumerate(STRANGE.items()):
            container = {"name": "main", "image": "simulated"}
            pod: dict[str, Any] = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "name": name,
                    "namespace": "strange",
                    "uid": f"3f2b1e9a-0000-4000-8000-00000000000{number}",
                },
                "spec": {"containers": [container], "schedulerName": "none", "topologySpreadConstraints": constraints},
            }
            await etcd.put(f"/registry/pods/strange/{name}", pod)

    asyncio.run(put())


def test_malformed_objects_are_named_and_the_others_are_planned_for(installed_sandbox: Sandbox, tmp_path: Path) -> None:
    sandbox = lay_out(installed_sandbox, 4)
    for namespace in ("shop", "strange"):
        sandbox.create_namespace(namespace)
    create_deployment(sandbox, "shop", deployment("web", replicas=4, constraints=[constraint(ZONE, "web")]))
    wait_for_ready_pods(sandbox, "shop", "web", 4)
    sandbox.nodes.add(4, zone="zone-b")
    store(sandbox)

    (tmp_path / "policy.json").write_text(json.dumps(policy()))
    planned = respread(
        "plan", "-f", str(tmp_path / "policy.json"), "--kubeconfig", str(sandbox.kubeconfig), "-o", "json"
    )
    report = json.loads(planned.stdout)
    assert len(report["moves"]) == 2
    for name, fault in FAULTS.items():
        assert any(f"pods strange/{name}: {fault}" in note for note in report["notes"]), report["notes"]

    sandbox.apply(json.dumps(policy()))
    with OperatorProcess(sandbox, tmp_path) as operator:
        wait_until(lambda: pods_per_domain(sandbox, "shop", "web") == {"zone-a": 2, "zone-b": 2}, "web to be spread")
        assert operator.metric('respread_decode_errors_total{kind="pods"}') >= len(FAULTS)
        assert operator.stop() == 0
    assert len(evictions(sandbox)) == 2
    log = operator.log.read_text()
    for name, fault in FAULTS.items():
        assert f"pods strange/{name}: {fault}" in log


BAD_CONFIGURATIONS = {
    "not-yaml": ("{", "the scheduler's configuration is not YAML"),
    "skew": (
        (
            "profiles: [{pluginConfig: [{name: PodTopologySpread, args: {defaultingType: List, defaultConstraints: "
            "[{maxSkew: one, topologyKey: zone, whenUnsatisfiable: DoNotSchedule}]}}]}]"
        ),
        "profiles[0].pluginConfig[0].args.defaultConstraints[0].maxSkew: Expected `int`, got `str`",
    ),
    "empty-key": (
        (
            "profiles: [{pluginConfig: [{name: PodTopologySpread, args: {defaultingType: List, defaultConstraints: "
            "[{maxSkew: 1, topologyKey: '', whenUnsatisfiable: DoNotSchedule}]}}]}]"
        ),
        "profiles[0].pluginConfig[0].args.defaultConstraints[0].topologyKey: '' is not a label key: it is empty",
    ),
    "operator": (
        (
            "profiles: [{pluginConfig: [{name: NodeAffinity, args: {addedAffinity: "
            "{requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: "
            "[{matchExpressions: [{key: a, operator: Resembles}]}]}}}}]}]"
        ),
        (
            "profiles[0].pluginConfig[0].args.addedAffinity.requiredDuringSchedulingIgnoredDuringExecution"
            ".nodeSelectorTerms[0].matchExpressions[0].operator: Invalid enum value 'Resembles'"
        ),
    ),
}


@pytest.mark.parametrize("command", ["run", "plan"])
@pytest.mark.parametrize("wrong", BAD_CONFIGURATIONS)
def test_an_invalid_scheduler_configuration_is_rejected_before_any_request(
    tmp_path: Path, command: str, wrong: str
) -> None:
    text, fault = BAD_CONFIGURATIONS[wrong]
    file = tmp_path / "scheduler.yaml"
    file.write_text(f"apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n{text}")

    done = respread(command, "--scheduler-configuration", str(file), "--kubeconfig", str(tmp_path / "none"))

    assert done.returncode == 2
    said = " ".join(done.stderr.split())
    assert f"--scheduler-configuration {file}: {fault}" in said
    assert "Traceback" not in said
