"""Snapshot files: the accepted forms, and the errors for others."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from respread.cluster.decode.decoder import KINDS, Decoder
from respread.cluster.pod import Pod
from respread_cli.main import respread
from respread_cli.read.snapshot_file import ABOUT, snapshot_content
from tests.unit.cli.snapshots import deployment_pods, list_of, manifest_of_node, manifest_of_pod, snapshot_of

NODES = [manifest_of_node("node-a", "zone-a"), manifest_of_node("node-b", "zone-b")]
ITEMS = [*NODES, *deployment_pods("web", {"node-a": 3, "node-b": 1})]


def skew(file: Path | str, **options: Any) -> Result:
    return CliRunner().invoke(respread, ["skew", "--snapshot", str(file), "-o", "json"], **options)


def counts(done: Result) -> dict[str, int]:
    (group,) = json.loads(done.stdout)["groups"]
    found: dict[str, int] = group["counts"]
    return found


def write(directory: Path, content: str | bytes, name: str = "cluster.json") -> Path:
    file = directory / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file


def test_a_list_of_mixed_kinds_is_read(tmp_path: Path) -> None:
    done = skew(snapshot_of(tmp_path, ITEMS))
    assert done.exit_code == 0
    assert counts(done) == {"zone-a": 3, "zone-b": 1}


def test_gzip_is_recognized_whatever_the_file_name(tmp_path: Path) -> None:
    file = write(tmp_path, gzip.compress(json.dumps(list_of(ITEMS)).encode()), "cluster.bin")
    assert counts(skew(file)) == {"zone-a": 3, "zone-b": 1}


def test_standard_input_is_read() -> None:
    done = skew("-", input=json.dumps(list_of(ITEMS)))
    assert counts(done) == {"zone-a": 3, "zone-b": 1}
    assert json.loads(done.stdout)["source"] == "standard input"
    gzipped = skew("-", input=gzip.compress(json.dumps(list_of(ITEMS)).encode()))
    assert counts(gzipped) == {"zone-a": 3, "zone-b": 1}


def test_the_report_has_the_time_at_which_the_snapshot_was_taken(tmp_path: Path) -> None:
    about = {"takenAt": "2026-05-04T03:02:01Z", "source": "context prod", "notes": ["Something was left out."]}
    file = write(tmp_path, json.dumps({**list_of(ITEMS), ABOUT: about}))
    report = json.loads(skew(file).stdout)
    assert report["time"] == "2026-05-04T03:02:01Z"
    assert report["source"] == f"{file}, context prod"
    assert report["notes"] == ["Something was left out."]


def test_a_snapshot_of_an_empty_cluster_is_valid(tmp_path: Path) -> None:
    about = {"takenAt": "2026-05-04T03:02:01Z"}
    done = skew(write(tmp_path, json.dumps({**list_of([]), ABOUT: about})))
    assert done.exit_code == 0
    assert json.loads(done.stdout)["groups"] == []


def test_items_of_a_typed_list_have_the_kind_of_the_list(tmp_path: Path) -> None:
    pods = [{name: value for name, value in pod.items() if name not in {"apiVersion", "kind"}} for pod in ITEMS[2:]]
    file = write(tmp_path, json.dumps({"apiVersion": "v1", "kind": "PodList", "items": pods}))
    done = skew(file)
    assert done.exit_code == 2
    # The pods were recognized: only the nodes are missed.
    assert "holds no nodes, and without them there is no spread" in " ".join(done.stderr.split())


def broken(**change: Any) -> dict[str, Any]:
    pod = manifest_of_pod("web-9", "node-a", "web", {})
    return {**pod, **change}


BAD_REQUEST = broken(spec={"containers": [{"name": "main", "resources": {"requests": {"cpu": "1 core"}}}]})
BAD_SKEW = broken(spec={"topologySpreadConstraints": [{"maxSkew": "one", "topologyKey": "x"}]})


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("", "cluster.json is empty. A snapshot is what `respread snapshot` or `kubectl get"),
        ("apiVersion: v1\nkind: List\n", "cluster.json is not JSON: "),
        ("\x1f\x8b broken", "cluster.json is a broken gzip file: "),
        ("[1, 2]", "cluster.json is not a snapshot: Expected `object`, got `array`."),
        (json.dumps(ITEMS[0]), "cluster.json is not a List but a Node: a snapshot is"),
        (json.dumps({"kind": "Status", "code": 403}), "cluster.json is not a List but a Status"),
        (json.dumps({"items": "none"}), "cluster.json is not a snapshot: Expected `array | null`, got `str`"),
        (json.dumps(list_of([])), "cluster.json holds no nodes and no pods, and without them there is no spread."),
        (json.dumps(list_of(ITEMS[2:])), "cluster.json holds no nodes, and without them"),
        (json.dumps(list_of(NODES)), "cluster.json holds no pods, and without them"),
        (json.dumps(list_of([*ITEMS, 7])), "cluster.json: items[6] is not an object of Kubernetes: "),  # type: ignore[list-item]  # on purpose
        (
            json.dumps(list_of([*ITEMS, BAD_REQUEST])),
            "cluster.json: items[6]: pods default/web-9: spec.containers[0].resources.requests[cpu]: ",
        ),
        (
            json.dumps(list_of([*ITEMS, BAD_SKEW])),
            "cluster.json: items[6]: pods default/web-9: spec.topologySpreadConstraints[0].maxSkew: ",
        ),
        (json.dumps({**list_of(ITEMS), ABOUT: {"takenAt": "soon"}}), "$.respread.dev/snapshot"),
    ],
    ids=range(14),
)
def test_mistakes_are_reported_with_file_item_and_field(tmp_path: Path, content: str, said: str) -> None:
    file = write(tmp_path, content.encode("latin-1") if content.startswith("\x1f") else content)
    done = skew(file)
    assert done.exit_code == 2
    assert said in " ".join(done.stderr.split())
    assert done.stdout == ""


def test_invalid_policies_are_named_too(tmp_path: Path) -> None:
    nameless = {"apiVersion": "respread.dev/v1alpha1", "kind": "RebalancePolicy", "metadata": {}}
    done = skew(snapshot_of(tmp_path, [*ITEMS, nameless]))
    assert done.exit_code == 2
    assert "items[6]: rebalancepolicies" in done.stderr
    assert "metadata.name" in done.stderr


def test_a_plan_for_a_snapshot_without_budgets_says_so(tmp_path: Path) -> None:
    done = CliRunner().invoke(respread, ["plan", "--snapshot", str(snapshot_of(tmp_path, ITEMS))])
    assert "holds no PodDisruptionBudgets" in done.stderr


def test_a_snapshot_omits_secrets_and_contains_what_a_plan_needs() -> None:
    secret = {
        "args": ["--token=secret"],
        "command": ["sh", "-c", "secret"],
        "env": [{"name": "PASSWORD", "value": "secret"}],
        "envFrom": [{"secretRef": {"name": "secret"}}],
        "lifecycle": {"preStop": {"exec": {"command": ["secret"]}}},
        "livenessProbe": {"httpGet": {"httpHeaders": [{"name": "Authorization", "value": "secret"}]}},
        "readinessProbe": {"exec": {"command": ["secret"]}},
        "startupProbe": {"exec": {"command": ["secret"]}},
    }
    annotations = {
        "kubectl.kubernetes.io/last-applied-configuration": "secret",
        "respread.dev/evict": "never",
        "kubernetes.io/config.mirror": "x",
    }
    container = {"name": "main", "image": "app", "resources": {"requests": {"cpu": "100m"}}, **secret}
    spec = {"containers": [container], "initContainers": [container], "ephemeralContainers": [container]}
    pod = manifest_of_pod(
        "web-1", "node-a", "web", spec, annotations=annotations, managedFields=[{"manager": "secret"}]
    )
    content = snapshot_content(KINDS["pods"], pod)
    assert "secret" not in json.dumps(content)
    decoder = Decoder()
    assert decoder.decode_object("pods", content) == decoder.decode_object("pods", pod)
    template = {"metadata": {"annotations": annotations}, "spec": spec}
    owner = {"metadata": {"name": "web", "namespace": "default", "annotations": annotations}}
    workload = {**owner, "spec": {"replicas": 3, "selector": {"matchLabels": {"app": "web"}}, "template": template}}
    content = snapshot_content(KINDS["replicasets"], workload)
    assert "secret" not in json.dumps(content)
    assert decoder.decode_object("replicasets", content) == decoder.decode_object("replicasets", workload)


@pytest.mark.parametrize(("manager", "ours"), [("respread", True), ("somebody", False)])
def test_a_snapshot_keeps_only_the_field_manager_of_deletion_costs(manager: str, ours: bool) -> None:
    cost = "controller.kubernetes.io/pod-deletion-cost"
    pod = manifest_of_pod("web-1", "node-a", "web", {}, annotations={cost: "-1000"})
    entry = {"operation": "Apply", "fieldsV1": {"f:metadata": {"f:annotations": {".": {}, f"f:{cost}": {}}}}}
    other = {"manager": "kubelet", "operation": "Update", "fieldsV1": {"f:status": {"f:phase": {}}}}
    pod["metadata"]["managedFields"] = [other, {"manager": manager, "time": "2026-05-04T03:02:01Z", **entry}]
    content = snapshot_content(KINDS["pods"], pod)
    (kept,) = content["metadata"]["managedFields"]
    assert kept == {
        "manager": manager,
        "operation": "Apply",
        "fieldsV1": {"f:metadata": {"f:annotations": {f"f:{cost}": {}}}},
    }
    read = Decoder().decode_object("pods", json.dumps(content).encode())
    assert isinstance(read, Pod)
    assert read.deletion_cost_is_ours is ours


@pytest.mark.parametrize(
    "broken", ["none", [1], [{"fieldsV1": 2}], [{"fieldsV1": {"f:metadata": {"f:annotations": 3}}}]]
)
def test_malformed_managed_fields_are_left_out(broken: object) -> None:
    pod = manifest_of_pod("web-1", "node-a", "web", {}, annotations={"controller.kubernetes.io/pod-deletion-cost": "1"})
    pod["metadata"]["managedFields"] = broken
    assert "managedFields" not in snapshot_content(KINDS["pods"], pod)["metadata"]
