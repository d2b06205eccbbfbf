"""The effect of the scheduler configuration and the cluster's version on a plan of the command line."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
from click.testing import CliRunner, Result

from respread_cli.main import respread
from respread_cli.read.snapshot_file import ABOUT, About, read_snapshot
from respread_cli.report.plan_report import PlanReport
from respread_cli.report.skew_report import SkewReport
from tests.scheduler_configurations import HARD_DEFAULTS
from tests.unit.cli.snapshots import HOSTNAME, ZONE, list_of, manifest_of_node, manifest_of_pod, snapshot_of

OWNER: Mapping[str, Any] = {
    "apiVersion": "apps/v1",
    "kind": "ReplicaSet",
    "metadata": {"name": "web-1", "namespace": "default", "uid": "rs-web"},
    "spec": {"selector": {"matchLabels": {"app": "web", "pod-template-hash": "1"}}},
}
NODES = [manifest_of_node(f"node-{zone}", f"zone-{zone}") for zone in "abc"]
PODS = [manifest_of_pod(f"web-{number}", "node-a", "web", {}) for number in range(6)]


def planned(tmp_path: Path, items: Sequence[Mapping[str, Any]], *arguments: str) -> PlanReport:
    file = snapshot_of(tmp_path, items)
    done = CliRunner().invoke(respread, ["plan", "--snapshot", str(file), "-o", "json", *arguments])
    assert done.exit_code in {0, 1}, done.output
    return msgspec.json.decode(done.stdout, type=PlanReport, strict=False)


@pytest.fixture
def hard_defaults(tmp_path: Path) -> tuple[str, str]:
    file = tmp_path / "scheduler.yaml"
    file.write_text(HARD_DEFAULTS)
    return "--scheduler-configuration", str(file)


def test_hard_default_constraints_of_the_scheduler_configuration_are_restored(
    tmp_path: Path, hard_defaults: tuple[str, str]
) -> None:
    plan = planned(tmp_path, [*NODES, OWNER, *PODS], *hard_defaults)

    assert len(plan.moves) == 4
    assert len(plan.groups) == 1
    assert plan.blocked == ()


def test_without_a_scheduler_configuration_there_is_nothing_to_restore(tmp_path: Path) -> None:
    assert planned(tmp_path, [*NODES, OWNER, *PODS]).groups == ()


def test_pods_whose_owner_is_missing_in_the_snapshot_are_not_evicted(
    tmp_path: Path, hard_defaults: tuple[str, str]
) -> None:
    assert planned(tmp_path, [*NODES, *PODS], *hard_defaults).moves == ()


def test_built_in_soft_defaults_are_restored_if_a_policy_selects_soft_constraints(tmp_path: Path) -> None:
    policy = tmp_path / "policy.json"
    rules = {"constraints": {"whenUnsatisfiable": ["DoNotSchedule", "ScheduleAnyway"]}}
    about = {"apiVersion": "respread.dev/v1alpha1", "kind": "ClusterRebalancePolicy", "metadata": {"name": "soft"}}
    policy.write_text(json.dumps({**about, "spec": rules}))
    plan = planned(tmp_path, [*NODES, OWNER, *PODS], "-f", str(policy))

    # 6 pods on one of three hosts: maxSkew 3 allows 4, 1 and 1.
    assert len(plan.moves) == 2


def shown(tmp_path: Path, items: Sequence[Mapping[str, Any]], *arguments: str) -> Result:
    file = snapshot_of(tmp_path, items)
    return CliRunner().invoke(respread, ["skew", "--snapshot", str(file), *arguments])


def groups_shown(tmp_path: Path, *arguments: str) -> list[tuple[str, str, int, int]]:
    done = shown(tmp_path, [*NODES, OWNER, *PODS], "-o", "json", *arguments)
    groups = msgspec.json.decode(done.stdout, type=SkewReport, strict=False).groups
    return [(each.when_unsatisfiable, each.topology_key, each.skew, each.max_skew) for each in groups]


def test_skew_shows_the_hard_defaults_of_the_scheduler_configuration(
    tmp_path: Path, hard_defaults: tuple[str, str]
) -> None:
    assert groups_shown(tmp_path, *hard_defaults) == [("DoNotSchedule", ZONE, 6, 1)]
    assert groups_shown(tmp_path) == []


def test_skew_shows_the_built_in_soft_defaults_on_request(tmp_path: Path, hard_defaults: tuple[str, str]) -> None:
    built_in = [("ScheduleAnyway", ZONE, 6, 5), ("ScheduleAnyway", HOSTNAME, 6, 3)]
    assert sorted(groups_shown(tmp_path, "--soft-defaults")) == sorted(built_in)
    assert groups_shown(tmp_path, "--soft-defaults", *hard_defaults) == [("DoNotSchedule", ZONE, 6, 1)]


def test_skew_names_a_missing_owner_that_default_constraints_depend_on(
    tmp_path: Path, hard_defaults: tuple[str, str]
) -> None:
    done = shown(tmp_path, [*NODES, *PODS], *hard_defaults)
    assert done.exit_code == 0
    assert "Note: ReplicaSet default/web-1 is not known" in done.stderr
    assert "not known" not in shown(tmp_path, [*NODES, *PODS], "-n", "shop", *hard_defaults).stderr


def snapshot_from(tmp_path: Path, about: About | None, *items: Mapping[str, Any]) -> Path:
    document: dict[str, Any] = list_of([*NODES, *items])
    if about is not None:
        document[ABOUT] = msgspec.to_builtins(about)
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps(document))
    return file


def test_a_snapshot_contains_the_version_of_the_cluster(tmp_path: Path) -> None:
    about = read_snapshot(str(snapshot_from(tmp_path, None, *PODS)))
    assert about.server_version == ""
    taken = About(taken_at=about.time, server_version="v1.36.3")
    assert read_snapshot(str(snapshot_from(tmp_path, taken, *PODS))).server_version == "v1.36.3"


@pytest.mark.parametrize(("version", "moves"), [("v1.36.3", 0), ("v1.33.0", 4)])
def test_a_plan_for_a_snapshot_uses_the_scheduler_bugs_of_its_version(tmp_path: Path, version: str, moves: int) -> None:
    """Anti-affinity to `app: web` in all namespaces except its own: with the bug it applies to the pods themselves."""
    foreign = {"matchExpressions": [{"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["default"]}]}
    web = {"matchLabels": {"app": "web"}}
    term = {"topologyKey": "kubernetes.io/os", "labelSelector": web, "namespaceSelector": foreign}
    constraint = {"maxSkew": 1, "topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": web}
    spec = {
        "affinity": {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}},
        "topologySpreadConstraints": [constraint],
    }
    nodes = [manifest_of_node(f"node-{zone}", f"zone-{zone}") for zone in "abc"]
    for node in nodes:
        node["metadata"]["labels"]["kubernetes.io/os"] = "linux"
    namespace = {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "default", "labels": {"kubernetes.io/metadata.name": "default"}},
    }
    pods = [manifest_of_pod(f"web-{number}", "node-a", "web", spec) for number in range(6)]
    document: dict[str, Any] = list_of([*nodes, namespace, *pods])
    document[ABOUT] = {"takenAt": "2026-11-21T09:00:00Z", "serverVersion": version}
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps(document))
    done = CliRunner().invoke(respread, ["plan", "--snapshot", str(file), "-o", "json"])
    assert len(json.loads(done.stdout)["moves"]) == moves
