"""A sandbox whose parts, owner or options fail."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from respread_sandbox import ApiError, Binaries, ComponentError, NodeShape, Sandbox, SandboxError, SandboxOptions
from tests.integration.etcd import Etcd
from tests.integration.workloads import (
    create_deployment,
    deployment,
    is_ready,
    pods,
    pods_per_domain,
    scale,
    wait_for_ready_pods,
    wait_until,
)
from tests.processes import is_alive, wait_until_dead

StartSandbox = Callable[[SandboxOptions], Sandbox]
API_ONLY = SandboxOptions(nodes=0, scheduler=False, controller_manager=False, kwok=False)

OWNER = """
import json, sys, time
from respread_sandbox import Sandbox, SandboxOptions
with Sandbox.start(SandboxOptions(nodes=1, zones=1)) as sandbox:
    pids = [sandbox.supervisor_pid, *(sandbox.process_id(each) for each in sandbox.components)]
    print(json.dumps({"pids": pids, "directory": str(sandbox.files.directory)}), flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize("number", [signal.SIGKILL, pytest.param(signal.SIGINT, marks=pytest.mark.long)])
def test_a_killed_owner_leaves_no_processes_and_no_files(binaries: Binaries, number: signal.Signals) -> None:
    assert binaries.paths
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER], stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
    )
    assert owner.stdout is not None
    with owner.stdout as said:
        told = json.loads(said.readline())
    assert len(told["pids"]) == 6
    assert all(is_alive(pid) for pid in told["pids"])
    owner.send_signal(number)
    owner.wait()
    wait_until_dead(told["pids"])
    assert not Path(told["directory"]).exists()


def test_ctrl_c_during_the_start_leaves_nothing(
    binaries: Binaries, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    assert binaries.paths
    owner = subprocess.Popen([sys.executable, "-c", OWNER], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    root = tmp_path / f"respread-sandboxes-{os.getuid()}"
    wait_until(lambda: bool(list(root.glob("_*/kube-apiserver.log"))), "kube-apiserver to be started")
    supervisor = int(next(root.glob("_*/lock")).read_text())
    owner.send_signal(signal.SIGINT)
    assert owner.wait(60) != 0
    assert not is_alive(supervisor)
    assert [path.name for path in root.iterdir()] == [".lock"]


@pytest.mark.long
def test_two_sandboxes_are_two_clusters(start_sandbox: StartSandbox) -> None:
    one = start_sandbox(SandboxOptions(nodes=1, zones=1))
    other = start_sandbox(SandboxOptions(nodes_per_zone=(2, 0, 1)))
    assert one.server != other.server
    assert one.nodes.names() == ["node-a1"]
    assert other.nodes.names() == ["node-a1", "node-a2", "node-c1"]


@pytest.fixture(scope="module")
def impatient(binaries: Binaries) -> Iterator[Sandbox]:
    """Pods are evicted from nodes that fail after a second."""
    tolerations = ("--default-not-ready-toleration-seconds=1", "--default-unreachable-toleration-seconds=1")
    with Sandbox.start(SandboxOptions(nodes=6, apiserver_flags=tolerations), binaries=binaries) as running:
        yield running


def test_api_server_and_etcd_restart_with_all_data(impatient: Sandbox) -> None:
    sandbox = impatient
    create_deployment(sandbox, "default", deployment("kept", replicas=3))
    wait_for_ready_pods(sandbox, "default", "kept", 3)
    before = {component: sandbox.process_id(component) for component in ("kube-apiserver", "kube-controller-manager")}
    for component in ("kube-apiserver", "etcd"):
        sandbox.stop_component(component)
        with pytest.raises(SandboxError, match=f"{component} does not run"):
            sandbox.process_id(component)
    with pytest.raises(OSError, match="refused"):
        sandbox.api.get("/api/v1/nodes")
    sandbox.start_component("etcd")
    sandbox.start_component("kube-apiserver")
    # Otherwise informers of a running component wait up to a minute, and its controllers may wait longer.
    assert all(sandbox.process_id(component) != pid for component, pid in before.items())
    assert len(pods(sandbox, "default", "kept")) == 3
    scale(sandbox, "default", "kept", 5)
    wait_for_ready_pods(sandbox, "default", "kept", 5)  # the other components have reconnected
    assert {sandbox.process_id(component) for component in sandbox.components}


@pytest.mark.long
def test_pods_that_were_starting_when_etcd_died_start_later(start_sandbox: StartSandbox) -> None:
    """The API server then answers some requests with 500, and KWOK, which starts pods, does not retry."""
    sandbox = start_sandbox(SandboxOptions(nodes=6))
    create_deployment(sandbox, "default", deployment("web", replicas=120))
    wait_until(lambda: sum(map(is_ready, pods(sandbox, "default", "web"))) > 10, "the first pods to start")
    sandbox.stop_component("etcd")
    time.sleep(1)
    sandbox.start_component("etcd")
    wait_for_ready_pods(sandbox, "default", "web", 120)


@pytest.mark.long
def test_a_scheduler_that_exits_is_restarted(start_sandbox: StartSandbox) -> None:
    """The scheduler exits when it finds a pod on another node than before.

    That happens when a pod of a StatefulSet is deleted and recreated in an outage. The scheduler treats the new pod as
    a change of the old one.
    """
    sandbox = start_sandbox(SandboxOptions(nodes=2, zones=1, kwok=False))
    path = "/api/v1/namespaces/default/pods"
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "db-0"}}
    spec = {"containers": [{"name": "main", "image": "simulated"}]}
    created = sandbox.api.request("POST", path, {**pod, "spec": {**spec, "nodeName": "node-a1"}})
    sandbox.api.request("POST", path, {**pod, "metadata": {"name": "before"}, "spec": spec})
    wait_until(lambda: "nodeName" in sandbox.api.get(f"{path}/before")["spec"], "the scheduler to know of both")
    process = sandbox.process_id("kube-scheduler")
    metadata = {**created["metadata"], "uid": str(uuid.uuid4())}
    del metadata["resourceVersion"]
    sandbox.stop_component("kube-apiserver")
    asyncio.run(Etcd(sandbox).put("/registry/pods/default/db-0", {**pod, "metadata": metadata, "spec": spec}))
    sandbox.start_component("kube-apiserver")
    wait_until(lambda: "cache is corrupted" in sandbox.log("kube-scheduler").read_text(), "it to end")
    wait_until(lambda: "nodeName" in sandbox.api.get(f"{path}/db-0")["spec"], "the pod to be bound all the same")
    assert sandbox.process_id("kube-scheduler") != process


def test_a_zone_fails_and_returns(impatient: Sandbox) -> None:
    sandbox = impatient
    create_deployment(sandbox, "default", deployment("web", replicas=6))
    wait_for_ready_pods(sandbox, "default", "web", 6)
    failed = [name for name in sandbox.nodes.names() if name.startswith("node-c")]
    sandbox.nodes.fail(*failed)

    def moved() -> bool:
        ready = [pod for pod in pods(sandbox, "default", "web") if is_ready(pod)]
        return len(ready) == 6 and not any(pod["spec"]["nodeName"] in failed for pod in ready)

    wait_until(moved, "the pods to be replaced elsewhere")
    terminating = [pod for pod in pods(sandbox, "default", "web") if "deletionTimestamp" in pod["metadata"]]
    assert {pod["spec"]["nodeName"] for pod in terminating} <= set(failed)  # no kubelet confirms their end
    sandbox.nodes.recover(*failed)
    wait_for_ready_pods(sandbox, "default", "web", 6)
    wait_until(lambda: all(is_ready(node) for node in sandbox.api.get("/api/v1/nodes")["items"]), "Ready nodes")


def test_nodes_can_be_added_and_removed(start_sandbox: StartSandbox) -> None:
    sandbox = start_sandbox(SandboxOptions(nodes=1, zones=1))
    shape = NodeShape(
        cpu="2", labels={"pool": "new"}, taints=({"key": "pool", "value": "new", "effect": "NoSchedule"},)
    )
    assert sandbox.nodes.add(2, "zone-a") == ["node-a2", "node-a3"]
    assert sandbox.nodes.add(1, "zone-new", shape) == ["node-new1"]
    node = sandbox.api.get("/api/v1/nodes/node-new1")
    assert node["status"]["allocatable"]["cpu"] == "2"
    assert node["metadata"]["labels"]["pool"] == "new"
    assert {"key": "pool", "value": "new", "effect": "NoSchedule"} in node["spec"]["taints"]
    create_deployment(sandbox, "default", deployment("web", replicas=4))
    wait_for_ready_pods(sandbox, "default", "web", 4)
    sandbox.nodes.cordon("node-a2")
    sandbox.nodes.remove("node-a1", "node-a2", "node-new1")
    assert sandbox.nodes.names() == ["node-a3"]
    wait_for_ready_pods(sandbox, "default", "web", 4)
    assert {pod["spec"]["nodeName"] for pod in pods(sandbox, "default", "web")} == {"node-a3"}
    assert sandbox.nodes.add(1, "zone-a") == ["node-a1"]


SPREADS_BY_DEFAULT = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
profiles:
  - schedulerName: default-scheduler
    pluginConfig:
      - name: PodTopologySpread
        args:
          defaultingType: List
          defaultConstraints:
            - {maxSkew: 1, topologyKey: topology.kubernetes.io/zone, whenUnsatisfiable: DoNotSchedule}
"""


@pytest.fixture(scope="module")
def configured(binaries: Binaries) -> Iterator[Sandbox]:
    """Five nodes in a zone and one in another, with a configuration of the scheduler, and pods that start slowly."""
    options = SandboxOptions(nodes_per_zone=(5, 1), pod_ready_seconds=3, scheduler_configuration=SPREADS_BY_DEFAULT)
    with Sandbox.start(options, binaries=binaries) as running:
        yield running


def test_a_scheduler_configuration_is_used(configured: Sandbox) -> None:
    create_deployment(configured, "default", deployment("spread", replicas=6))
    wait_for_ready_pods(configured, "default", "spread", 6)
    assert pods_per_domain(configured, "default", "spread") == {"zone-a": 3, "zone-b": 3}


def test_pods_become_ready_late_even_if_they_are_updated(configured: Sandbox) -> None:
    sandbox = configured
    create_deployment(sandbox, "default", deployment("web", replicas=3))
    wait_until(lambda: [pod["status"]["phase"] for pod in pods(sandbox, "default", "web")] == ["Running"] * 3, "pods")
    time.sleep(2)  # a delay that restarted now would end 2 s later than the others
    touched = pods(sandbox, "default", "web")[0]["metadata"]["name"]
    sandbox.api.request("PATCH", f"/api/v1/namespaces/default/pods/{touched}", {"metadata": {"labels": {"a": "b"}}})
    wait_for_ready_pods(sandbox, "default", "web", 3)
    ready_at = {pod["metadata"]["name"]: became(pod, "Ready") for pod in pods(sandbox, "default", "web")}
    scheduled_at = [became(pod, "PodScheduled") for pod in pods(sandbox, "default", "web")]
    assert min(ready_at.values()) - max(scheduled_at) >= timedelta(seconds=2)
    others = [time for name, time in ready_at.items() if name != touched]
    assert ready_at[touched] - max(others) < timedelta(seconds=2)


def became(pod: dict[str, Any], condition_type: str) -> datetime:
    """Return when a condition last changed, in whole seconds."""
    (condition,) = (each for each in pod["status"]["conditions"] if each["type"] == condition_type)
    return datetime.fromisoformat(condition["lastTransitionTime"])


def test_an_api_server_alone_accepts_pods_and_writes_an_audit_log_until_it_is_closed(
    start_sandbox: StartSandbox,
) -> None:
    sandbox = start_sandbox(
        SandboxOptions(nodes=2, zones=1, scheduler=False, controller_manager=False, kwok=False, audit=True)
    )
    assert sandbox.components == ("etcd", "kube-apiserver")
    assert not any("taints" in node["spec"] for node in sandbox.api.get("/api/v1/nodes")["items"])
    pod = {"metadata": {"name": "bare"}, "spec": {"nodeName": "node-a1", "containers": [{"name": "c", "image": "i"}]}}
    sandbox.create_namespace("apart")
    sandbox.api.request("POST", "/api/v1/namespaces/apart/pods", pod)
    written = [json.loads(line) for line in sandbox.files.audit_log.read_text().splitlines()]
    calls = [
        (each["user"]["username"], each["verb"], each["objectRef"].get("resource"))
        for each in written
        if "objectRef" in each
    ]
    assert ("admin", "create", "pods") in calls
    for _ in range(2):
        sandbox.close()
    with pytest.raises(SandboxError, match="has been stopped"):
        sandbox.start_component("etcd")
    with pytest.raises((ApiError, OSError)):
        sandbox.api.get("/readyz")


@pytest.mark.parametrize("wrong", ["{", "kind: Pod", "[]"])
def test_an_invalid_scheduler_configuration_is_rejected(start_sandbox: StartSandbox, wrong: str) -> None:
    with pytest.raises(SandboxError, match="the scheduler configuration"):
        start_sandbox(SandboxOptions(scheduler_configuration=wrong))


def test_the_error_for_a_component_that_does_not_start_shows_its_log(start_sandbox: StartSandbox) -> None:
    begun = time.monotonic()
    with pytest.raises(
        ComponentError, match=r"kube-apiserver ended with exit code 1:\n(.*\n)*.*unknown flag: --nonsense"
    ):
        start_sandbox(SandboxOptions(apiserver_flags=("--nonsense",)))
    assert time.monotonic() - begun < 90  # a component that is only slow is given two minutes
    with pytest.raises(ComponentError, match="kube-controller-manager ended with exit code"):
        start_sandbox(SandboxOptions(controller_manager_flags=("--nonsense",)))


@pytest.mark.parametrize("zones", [0, -1])
def test_impossible_numbers_are_rejected_before_any_component_starts(zones: int) -> None:
    with pytest.raises(SandboxError, match="at least one zone"):
        Sandbox.start(SandboxOptions(zones=zones))


def test_the_error_names_a_broken_program(binaries: Binaries, tmp_path: Path) -> None:
    broken = tmp_path / "etcd"
    broken.write_bytes(b"\0" * 100)
    broken.chmod(0o755)
    with pytest.raises(SandboxError, match=f"etcd cannot be started from {broken}"):
        Sandbox.start(API_ONLY, binaries=Binaries(binaries.paths | {"etcd": broken}))


def test_programs_from_kubebuilder_assets_run_unless_they_are_frozen(binaries: Binaries, tmp_path: Path) -> None:
    shutil.copy(binaries.path("etcd"), tmp_path / "etcd")
    found, missing = Binaries.find(os.environ | {"KUBEBUILDER_ASSETS": str(tmp_path)})
    assert missing == ()
    with Sandbox.start(API_ONLY, binaries=found) as sandbox:
        assert Path(f"/proc/{sandbox.process_id('etcd')}/exe").resolve() == tmp_path / "etcd"
        sandbox.freeze_component("kube-apiserver")
        with pytest.raises(SandboxError, match=r"Client\.Timeout|timeout|deadline"):
            sandbox.kubectl("get", "nodes", "--request-timeout=1s")
        sandbox.thaw_component("kube-apiserver")
        sandbox.kubectl("get", "nodes", "--request-timeout=60s")
