"""On a real control plane, what the audit calls unsatisfiable leaves pods Pending, and the cures that it names work."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, Final, NamedTuple

import pytest
from click.testing import CliRunner

from respread_cli.main import respread
from respread_sandbox import Sandbox
from tests.integration.workloads import HOSTNAME, ZONE, constraint, deployment, is_ready, pods, wait_until

NAMESPACE: Final = "audited"
REPLICAS: Final = 6
SOFT: Final[dict[str, Any]] = {"when_unsatisfiable": "ScheduleAnyway"}
OF_ZONE_A: Final[dict[str, Any]] = {"nodeSelector": {ZONE: "zone-a"}}
OF_TWO_TYPES: Final[dict[str, Any]] = {"nodeSelector": {"types": "yes"}}
OF_ZONE_A_ALONE: Final[dict[str, Any]] = {"name": "disk", "persistentVolumeClaim": {"claimName": "disk"}}
OF_UNEVEN_ZONES: Final[dict[str, Any]] = {"nodeSelector": {"uneven": "yes"}}


class Broken(NamedTuple):
    """A workload that respread skew must not show as holding."""

    rule: str
    constraints: tuple[dict[str, Any], ...]
    pending: int | None = 0
    """How many pods stay Pending; None if it depends on the order in which they are placed, but some do."""
    pod_spec: Mapping[str, Any] = MappingProxyType({})
    kind: str = "Deployment"
    at: str = ZONE
    """The topologyKey of the constraint that the rule is about."""
    replicas: int = REPLICAS


def affinity(value: str) -> dict[str, Any]:
    terms = [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": [value]}]}]
    wanted = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
    return {"affinity": {"nodeAffinity": wanted}}


def near(app: str, kind: str = "podAffinity") -> dict[str, Any]:
    """Return affinity, or anti-affinity, to the pods of an app, for zones."""
    term = {"topologyKey": ZONE, "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {kind: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}}


def of(name: str, key: str = ZONE, **fields: Any) -> dict[str, Any]:
    return constraint(key, name, **fields)


def without_selector(name: str, selector: object = None, **fields: Any) -> dict[str, Any]:
    return {**of(name, **fields), "labelSelector": selector}


FEW_OF_TWO_TYPES: Final = {"node-a2": "spot", "node-b1": "spot", "node-c2": "spot", "node-c3": "od"}
"""Each zone has a node of the one type, and only zone-c one of the other."""
BROKEN: Final[dict[str, Broken]] = {
    "rack": Broken("UnknownTopologyKey", (of("rack", "rack"),), REPLICAS, at="rack"),
    "beta": Broken(
        "UnknownTopologyKey",
        (of("beta", "failure-domain.beta.kubernetes.io/zone"),),
        REPLICAS,
        at="failure-domain.beta.kubernetes.io/zone",
    ),
    "soft-rack": Broken("UnknownTopologyKey", (of("soft-rack", "rack", **SOFT),), at="rack"),
    "sibling": Broken("NoEligibleNode", (of("sibling"), of("sibling", "rack")), REPLICAS),
    "mindom": Broken("TooFewDomains", (of("mindom", minDomains=4),), 3),
    "mindom-a": Broken("TooFewDomains", (of("mindom-a", minDomains=2),), 5, OF_ZONE_A),
    "index": Broken("OneDomain", (of("index"),), pod_spec=OF_ZONE_A),
    "affine": Broken("OneDomain", (of("affine"),), pod_spec=affinity("zone-b")),
    "wrong": Broken("SelectorMatchesNothing", (of("wrogn"),)),
    "others": Broken("SelectorMissesOwnPods", (of("bigskew"),)),
    "null": Broken("SelectorMatchesNothing", (without_selector("null"),)),
    "empty": Broken("SelectorMatchesNothing", (without_selector("empty", {}),)),
    "soft-null": Broken("SelectorMatchesNothing", (without_selector("soft-null", **SOFT),)),
    "bigskew": Broken("SkewUnreachable", (of("bigskew", max_skew=REPLICAS),)),
    "perpod": Broken("KeyPerPod", (of("perpod", matchLabelKeys=["apps.kubernetes.io/pod-index"]),), kind="StatefulSet"),
    "twice": Broken("Duplicate", (of("twice", **SOFT), of("twice"))),
    "unlabeled": Broken("OneDomain", (of("unlabeled", "few"),), at="few"),
    "crossing": Broken("Contradiction", (of("crossing"), of("crossing", "type")), None, OF_TWO_TYPES),
    "together": Broken("Contradiction", (of("together"),), 5, near("together")),
    "apart": Broken("Duplicate", (of("apart"),), 0, near("apart", "podAntiAffinity"), replicas=2),
    "volume": Broken("FullDomains", (of("volume"),), 5, {"volumes": [OF_ZONE_A_ALONE]}),
    "ignoring": Broken("UnavailableDomains", (of("ignoring", nodeAffinityPolicy="Ignore"),), 5, OF_ZONE_A),
    "tainted": Broken("UnavailableDomains", (of("tainted", "pool"),), 4, at="pool"),
    "uneven": Broken(
        "Contradiction", (of("uneven"), of("uneven", HOSTNAME)), None, OF_UNEVEN_ZONES, at=HOSTNAME, replicas=9
    ),
}
NOT_BY_ONE_PATCH: Final = {"sibling"}
"""The cure is that of the other constraint."""


@pytest.fixture(scope="module")
def cluster(sandbox: Sandbox) -> Sandbox:
    """A cluster with nodes of three pools, of which one is tainted, and all broken workloads."""
    names = sorted(sandbox.nodes.names())
    reserved = names[2::3]
    for number, name in enumerate(names):
        labels = {"pool": f"pool-{number % 3}"}
        if name == names[0] or (name.startswith("node-b") and name not in reserved):
            labels["uneven"] = "yes"
        if name in FEW_OF_TWO_TYPES:
            labels |= {"types": "yes", "type": FEW_OF_TWO_TYPES[name]}
        if name == names[0]:
            labels["few"] = "yes"
        sandbox.api.request("PATCH", f"/api/v1/nodes/{name}", {"metadata": {"labels": labels}})
    for name in reserved:
        taints = [{"key": "reserved", "value": "yes", "effect": "NoSchedule"}]
        sandbox.api.request("PATCH", f"/api/v1/nodes/{name}", {"spec": {"taints": taints}})
    sandbox.create_namespace(NAMESPACE)
    of_volume = {"accessModes": ["ReadWriteMany"], "storageClassName": "none"}
    terms = affinity("zone-a")["affinity"]["nodeAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    for path, kind, spec in (
        (
            "persistentvolumes",
            "PersistentVolume",
            {
                "capacity": {"storage": "1"},
                "csi": {"driver": "x", "volumeHandle": "x"},
                "nodeAffinity": {"required": terms},
            },
        ),
        (
            f"namespaces/{NAMESPACE}/persistentvolumeclaims",
            "PersistentVolumeClaim",
            {"resources": {"requests": {"storage": "1"}}, "volumeName": "disk"},
        ),
    ):
        volume = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "disk"}, "spec": {**of_volume, **spec}}
        sandbox.api.request("POST", f"/api/v1/{path}", volume)
    for name, broken in BROKEN.items():
        manifest = deployment(name, replicas=broken.replicas, constraints=broken.constraints, **broken.pod_spec)
        manifest["kind"] = broken.kind
        if broken.kind == "StatefulSet":
            manifest["spec"] |= {"podManagementPolicy": "Parallel", "serviceName": name}
        path = f"/apis/apps/v1/namespaces/{NAMESPACE}/{broken.kind.lower()}s"
        sandbox.api.request("POST", path, manifest)
    return sandbox


def skewed(cluster: Sandbox) -> dict[str, Any]:
    """Return what respread skew --problems says."""
    done = CliRunner().invoke(
        respread, ["skew", "-n", NAMESPACE, "--problems", "-o", "json"], env={"KUBECONFIG": str(cluster.kubeconfig)}
    )
    assert done.exit_code == 0, done.output
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def problems(cluster: Sandbox) -> dict[str, list[dict[str, Any]]]:
    """Return the constraints that respread skew --problems lists, by workload."""
    found: dict[str, list[dict[str, Any]]] = {}
    for group in skewed(cluster)["groups"]:
        for workload in group["workloads"]:
            found.setdefault(workload["name"], []).append(group)
    return found


def finding_of(name: str, found: dict[str, list[dict[str, Any]]]) -> dict[str, Any] | None:
    """Return what is found about a workload by its rule."""
    broken = BROKEN[name]
    for group in found.get(name, []):
        for each in group["findings"]:
            if (each["rule"], group["topologyKey"]) == (broken.rule, broken.at):
                assert group["state"] == each["state"]
                return {**each, "group": group}
    return None


def pending(cluster: Sandbox, name: str) -> int:
    return sum("nodeName" not in pod["spec"] for pod in pods(cluster, NAMESPACE, name))


def placed(cluster: Sandbox, name: str) -> bool:
    """Whether as many pods are Ready or Pending as the audit says, and no other."""
    broken = BROKEN[name]
    there = pods(cluster, NAMESPACE, name)
    waiting = pending(cluster, name)
    settled = all(is_ready(pod) or "nodeName" not in pod["spec"] for pod in there)
    as_said = waiting > 0 if broken.pending is None else waiting == broken.pending
    return len(there) == broken.replicas and settled and as_said


def all_ready(cluster: Sandbox, name: str) -> bool:
    there = pods(cluster, NAMESPACE, name)
    return len(there) == BROKEN[name].replicas and all(map(is_ready, there))


def test_every_broken_constraint_is_found_and_what_is_unsatisfiable_leaves_pods_pending(cluster: Sandbox) -> None:
    for name in BROKEN:
        wait_until(partial(placed, cluster, name), f"the pods of {name}, with {BROKEN[name].pending} Pending")
    found = problems(cluster)
    rules = {name: [each["rule"] for group in found.get(name, []) for each in group["findings"]] for name in BROKEN}
    assert {name: finding_of(name, found) is not None for name in BROKEN} == dict.fromkeys(BROKEN, True), rules
    for name, broken in BROKEN.items():
        finding = finding_of(name, found)
        assert finding is not None
        expected = ("Unsatisfiable", "Now") if broken.pending != 0 else ("Ineffective", "Now")
        assert (finding["state"], finding["when"]) == expected, (name, finding)


def test_pending_pods_are_rows_with_the_numbers_of_kube_scheduler(cluster: Sandbox) -> None:
    told = {each["workload"]["name"]: each for each in skewed(cluster)["pending"]}
    for name, broken in BROKEN.items():
        waiting = [pod for pod in pods(cluster, NAMESPACE, name) if "nodeName" not in pod["spec"]]
        assert told.get(name, {"pods": 0})["pods"] == len(waiting)
        if not waiting:
            continue
        said = refused(waiting[0])
        spread = [each for each in told[name]["rejections"] if each["plugin"] == "PodTopologySpread"]
        assert sum(each["nodes"] for each in spread) == said, (told[name], waiting[0]["status"])
        assert all(each["topologyKey"] in {wanted["topologyKey"] for wanted in broken.constraints} for each in spread)
        assert sum(each["nodes"] for each in told[name]["rejections"]) == len(cluster.nodes.names())


def refused(pod: Mapping[str, Any]) -> int:
    """Return for how many nodes kube-scheduler says that topology spread constraints reject a pod."""
    (said,) = (each["message"] for each in pod["status"]["conditions"] if each["type"] == "PodScheduled")
    found = re.findall(
        r"(\d+) node\(s\) didn't match pod topology spread constraints", said.partition("preemption:")[0]
    )
    return sum(map(int, found))


def test_the_command_of_each_finding_cures_it(cluster: Sandbox) -> None:
    found = problems(cluster)
    cured = [name for name in BROKEN if name not in NOT_BY_ONE_PATCH]
    for name in cured:
        finding = finding_of(name, found)
        assert finding is not None
        kubectl, *arguments = shlex.split(finding["command"])
        assert kubectl == "kubectl"
        cluster.kubectl(*arguments)
    for name in cured:
        replicas = BROKEN[name].replicas
        wait_until(partial(all_ready, cluster, name), f"{replicas} Ready pods of {name} after its cure", seconds=180)
    found = problems(cluster)
    assert {name: finding_of(name, found) for name in cured} == dict.fromkeys(cured)
