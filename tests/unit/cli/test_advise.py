"""`respread advise`: which workloads it names, the constraint that it suggests, and that the constraint suits."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from respread_cli.main import respread
from tests.unit.cli.snapshots import HOSTNAME, ZONE, manifest_of_node, manifest_of_pod

NODES = [manifest_of_node(f"{zone}{number}", f"zone-{zone}") for zone in "abc" for number in (1, 2)]


def pods(app: str, *nodes: str, **fields: Any) -> list[dict[str, Any]]:
    return [manifest_of_pod(f"{app}-{number}", node, app, fields) for number, node in enumerate(nodes)]


def advise(folder: Path, items: list[dict[str, Any]], *more: str) -> dict[str, Any]:
    file = folder / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    done = CliRunner().invoke(
        respread, ["advise", "--snapshot", str(file), "-o", "json", *more], catch_exceptions=False
    )
    assert done.exit_code == 0, done.output
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_workloads_in_one_zone_or_on_one_node_are_named_worst_first(tmp_path: Path) -> None:
    items = [
        *NODES,
        *pods("zonal", "a1", "a2", "a1", "a2"),
        *pods("nodal", "a1", "a1"),
        *pods("even", "a1", "b1", "c1"),
        *pods("uneven", "a1", "a1", "a2", "b1"),
        *pods("single", "a1"),
        *pods("pinned", "a1", "a2", "a1", nodeSelector={ZONE: "zone-a"}),
    ]
    report = advise(tmp_path, items)
    assert [(each["workload"]["name"], each["concentration"]) for each in report["workloads"]] == [
        ("nodal", "OneNode"),
        ("zonal", "OneZone"),
    ]
    assert report["lookedAt"] == 5
    names = [each["workload"]["name"] for each in advise(tmp_path, items, "--uneven")["workloads"]]
    assert names == ["nodal", "zonal", "uneven"]
    assert [each["workload"]["name"] for each in advise(tmp_path, items, "zonal")["workloads"]] == ["zonal"]


def test_the_cost_is_what_a_plan_evicts_and_the_patch_is_for_the_workload(tmp_path: Path) -> None:
    (entry,) = advise(tmp_path, [*NODES, *pods("web", *["a1", "a2"] * 3)])["workloads"]
    assert entry["counts"] == {"zone-a": 6, "zone-b": 0, "zone-c": 0}
    assert entry["evictions"] == 4
    assert entry["constraint"] == {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": {"app": "web"}},
        "nodeTaintsPolicy": "Honor",
        "matchLabelKeys": ["pod-template-hash"],
    }
    path = "/spec/template/spec/topologySpreadConstraints"
    assert entry["patch"] == [{"op": "add", "path": path, "value": [entry["constraint"]]}]
    assert "All 6 pods are in zone-a" in entry["message"]


def test_a_hard_constraint_needs_as_many_zones_as_there_are_or_pods_for_them(tmp_path: Path) -> None:
    for count, expected in ((2, 2), (6, 3)):
        items = [*NODES, *pods("web", *["a1"] * count)]
        (entry,) = advise(tmp_path, items, "--preset", "hard")["workloads"]
        assert entry["constraint"]["whenUnsatisfiable"] == "DoNotSchedule"
        assert entry["constraint"]["minDomains"] == expected


def test_nodes_are_spread_over_where_there_is_one_zone(tmp_path: Path) -> None:
    (entry,) = advise(tmp_path, [*NODES[:2], *pods("web", "a1", "a1")], "--preset", "hard")["workloads"]
    assert (entry["topologyKey"], entry["concentration"]) == (HOSTNAME, "OneNode")
    assert "minDomains" not in entry["constraint"]


def test_labels_that_will_differ_select_no_pods(tmp_path: Path) -> None:
    """The API server copies the zone of the node to a pod that it binds."""
    items = [*NODES, *pods("web", "a1", "a2")]
    for each in items[len(NODES) :]:
        each["metadata"]["labels"] |= {ZONE: "zone-a", "version": "v1"}
    (entry,) = advise(tmp_path, items)["workloads"]
    assert entry["constraint"]["labelSelector"] == {"matchLabels": {"app": "web"}}


def test_labels_that_others_have_are_said(tmp_path: Path) -> None:
    items = [*NODES, *pods("web", "a1", "a2"), *pods("api", "b1", "c1")]
    for each in items[len(NODES) :]:
        each["metadata"]["labels"]["app"] = "all"
    (entry,) = advise(tmp_path, items)["workloads"]
    assert "narrow the labelSelector" in entry["message"]


def test_volumes_that_hold_pods_are_said(tmp_path: Path) -> None:
    volumes = [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]
    (entry,) = advise(tmp_path, [*NODES, *pods("web", "a1", "a2", volumes=volumes)])["workloads"]
    assert "reach their volumes" in entry["message"]


@pytest.mark.parametrize("preset", ["soft", "hard"])
def test_lint_finds_nothing_wrong_with_what_is_suggested(tmp_path: Path, preset: str) -> None:
    (entry,) = advise(tmp_path, [*NODES, *pods("web", *["a1"] * 6)], "--preset", preset)["workloads"]
    template = {
        "metadata": {"labels": {"app": "web"}},
        "spec": {"containers": [{"name": "main"}], "topologySpreadConstraints": [entry["constraint"]]},
    }
    spec = {"replicas": 6, "template": template}
    budget = {"maxUnavailable": 1, "selector": {"matchLabels": {"app": "web"}}}
    manifests = [
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"}, "spec": spec},
        {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"}, "spec": budget},
    ]
    command = ["lint", "-", "--fail-on", "warning", "--snapshot", str(tmp_path / "cluster.json")]
    done = CliRunner().invoke(respread, command, input=yaml.safe_dump_all(manifests))
    assert done.exit_code == 0, done.output


def test_the_text_has_the_constraint_and_the_command(tmp_path: Path) -> None:
    advise(tmp_path, [*NODES, *pods("web", "a1", "a2", "a1")])
    command = ["advise", "--snapshot", str(tmp_path / "cluster.json")]
    done = CliRunner().invoke(respread, [*command, "--exit-code"])
    assert done.exit_code == 1
    assert "default deploy/web" in done.stdout
    assert "topologyKey: topology.kubernetes.io/zone" in done.stdout
    _, patch = done.stdout.split("kubectl patch deployment.apps/web -n default --type json -p '")
    assert json.loads(patch.split("'")[0])[0]["op"] == "add"
    assert max(map(len, done.stdout.splitlines())) <= 160
    advise(tmp_path, [*NODES, *pods("web", "a1", "b1", "c1")])
    done = CliRunner().invoke(respread, command, env={"COLUMNS": "160"})
    assert done.stdout == "1 workload without constraints: none of them is in one zone or on one node by chance.\n"
