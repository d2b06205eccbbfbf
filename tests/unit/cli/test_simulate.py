"""The predictions of `respread simulate`, and its errors."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from respread_cli.main import respread
from respread_cli.read.snapshot_file import ABOUT
from tests.policy_specs import policy_manifest
from tests.unit.cli.snapshots import HOSTNAME, ZONE, deployment_pods, list_of, manifest_of_node, manifest_of_pod

COST = "controller.kubernetes.io/pod-deletion-cost"
TAKEN_AT = datetime(2026, 11, 21, 12, tzinfo=UTC)
NODES = [manifest_of_node(f"node-{zone}{number}", f"zone-{zone}") for zone in "abc" for number in (1, 2)]
ON_ALL = {f"node-{zone}{number}": 2 for zone in "abc" for number in (1, 2)}
AGENT = {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "d", "controller": True}
POLICY = policy_manifest("prevents", {"prevention": {"podDeletionCost": "Enabled"}})


def aged(pods: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return pods, each half as old as the one before, because the controller deletes the youngest first."""
    for number, pod in enumerate(reversed(pods), start=1):
        pod["metadata"]["creationTimestamp"] = (TAKEN_AT - timedelta(seconds=1 << number)).isoformat()
    return pods


def written(directory: Path, items: list[dict[str, Any]]) -> Path:
    """Write a snapshot as `respread snapshot` does, with its time."""
    file = directory / "cluster.json"
    about = {"takenAt": TAKEN_AT.isoformat(), "source": "a test"}
    file.write_text(json.dumps({**list_of(items), ABOUT: about}), encoding="utf-8")
    return file


def ranked(pods: list[dict[str, Any]], *costs: int) -> list[dict[str, Any]]:
    """Return pods with costs of Respread."""
    for pod, cost in zip(pods, costs, strict=True):
        pod["metadata"]["annotations"] = {COST: str(cost)}
        owned: dict[str, Any] = {"f:metadata": {"f:annotations": {f"f:{COST}": {}}}}
        pod["metadata"]["managedFields"] = [{"manager": "respread", "operation": "Apply", "fieldsV1": owned}]
    return pods


def stateful_pods() -> list[dict[str, Any]]:
    constraint = {
        "maxSkew": 1,
        "topologyKey": ZONE,
        "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": {"matchLabels": {"app": "db"}},
    }
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "set-db", "controller": True}
    return [
        manifest_of_pod(
            f"db-{ordinal}",
            node,
            "db",
            {"topologySpreadConstraints": [constraint]},
            ownerReferences=[owner],
            labels={"app": "db"},
        )
        for ordinal, node in enumerate(("node-a1", "node-b1", "node-c1", "node-a2", "node-b2", "node-c2"))
    ]


@pytest.fixture
def cluster(tmp_path: Path) -> Path:
    """A cluster without protected workloads: web 4 4 4, cart 1 1 1, and six ordinals of db."""
    cart = deployment_pods("cart", {"node-a1": 1, "node-b1": 1, "node-c1": 1})
    return written(tmp_path, [*NODES, *aged(deployment_pods("web", ON_ALL)), *cart, *stateful_pods()])


def simulate(file: Path, *arguments: str, **options: Any) -> Result:
    return CliRunner().invoke(respread, ["simulate", "--snapshot", str(file), *arguments], **options)


def report_of(file: Path, *arguments: str) -> dict[str, Any]:
    done = simulate(file, "-o", "json", *arguments)
    assert done.exit_code in {0, 1}, done.output
    report: dict[str, Any] = json.loads(done.stdout)
    assert yaml.safe_load(simulate(file, "-o", "yaml", *arguments).stdout)["groups"] == report["groups"]
    return report


def counts(report: dict[str, Any], which: str = "asItIs", at: int = 0) -> list[int]:
    return list(report["groups"][at][which]["counts"].values())


def error(file: Path, *arguments: str) -> str:
    done = simulate(file, *arguments)
    assert done.exit_code == 2
    return done.stderr.splitlines()[-1]


def test_a_scale_down_is_shown_with_costs_and_without(cluster: Path) -> None:
    report = report_of(cluster, "--scale", "deploy/web=5")
    assert [group["group"]["workloads"] for group in report["groups"]] == [[{"kind": "Deployment", "name": "web"}]]
    assert counts(report, "group") == [4, 4, 4]
    assert counts(report, "withoutCosts") == counts(report) == [4, 1, 0]
    assert sorted(counts(report, "withCosts")) == [1, 2, 2]
    assert (report["withoutCosts"]["evictions"], report["withCosts"]["evictions"]) == (2, 0)
    assert report["asItIs"]["evictions"] == 2
    assert not report["withoutCosts"]["certain"]
    assert report["withCosts"]["certain"]
    assert len(report["asItIs"]["deleted"]) == 7
    (scaled,) = report["scaled"]
    assert (scaled["pods"], scaled["replicas"], scaled["protected"], scaled["reason"]) == (12, 5, False, "NoPolicy")


def test_the_simulation_without_changes_uses_the_existing_costs(tmp_path: Path) -> None:
    pods = ranked(deployment_pods("web", {"node-a1": 2, "node-b1": 1, "node-c1": 1}), -1000, -4000, -3000, -2000)
    report = report_of(written(tmp_path, [*NODES, *pods, POLICY]), "--scale", "web=3")
    assert counts(report) == [1, 1, 1]
    (scaled,) = report["scaled"]
    assert (scaled["protected"], scaled["policy"]) == (True, "prevents")
    assert report["asItIs"] == report["withCosts"]


def test_the_exit_code_says_whether_all_constraints_hold_afterwards(cluster: Path) -> None:
    assert simulate(cluster, "--scale", "web=5").exit_code == 0
    assert simulate(cluster, "--scale", "web=5", "--exit-code").exit_code == 1
    assert simulate(cluster, "--scale", "web=12", "--exit-code").exit_code == 0
    assert simulate(cluster, "--scale", "web=14", "--exit-code").exit_code == 0


def test_a_stateful_set_loses_its_highest_ordinals_whatever_they_cost(cluster: Path) -> None:
    report = report_of(cluster, "--scale", "sts/db=4")
    assert counts(report) == [2, 1, 1]
    assert [pod["pod"] for pod in report["asItIs"]["deleted"]] == ["db-5", "db-4"]
    assert report["withCosts"] is None
    assert report["scaled"][0]["reason"] == "HighestOrdinal"
    shown = " ".join(simulate(cluster, "--scale", "sts/db=4").stdout.split())
    assert "Not protected (HighestOrdinal): A StatefulSet deletes its pods of the highest ordinals" in shown


def test_new_pods_are_placed_in_feasible_domains_and_marked_as_likely(cluster: Path) -> None:
    report = report_of(cluster, "--scale", "web=15", "--scale", "cart=4")
    assert counts(report, at=1) == [5, 5, 5]
    assert sorted(counts(report, at=0)) == [1, 1, 2]
    certain = [pod["certain"] for pod in report["asItIs"]["placed"] if pod["workload"]["name"] == "web"]
    assert certain == [False, False, True]  # the third has pods in one zone only
    assert "(likely)" in simulate(cluster, "--scale", "web=14").stdout


def test_new_pods_of_a_stateful_set_get_the_next_ordinals(cluster: Path) -> None:
    report = report_of(cluster, "--scale", "db=8")
    assert [pod["pod"] for pod in report["asItIs"]["placed"]] == ["db-6", "db-7"]


def test_a_drained_node_takes_no_pods(cluster: Path) -> None:
    report = report_of(cluster, "--drain", "node-c1", "--drain", "node-c2", "--scale", "web=13")
    assert report["drainedNodes"] == ["node-c1", "node-c2"]
    assert all(pod["node"] not in {"node-c1", "node-c2"} for pod in report["asItIs"]["placed"])
    # Cordoned nodes count for the constraint. While zone-c is an empty domain, no pod may be added to the others.
    assert report["asItIs"]["unplaced"]
    assert "PodTopologySpread" in report["asItIs"]["unplaced"][0]["message"]


def test_a_lost_domain_is_no_longer_eligible(cluster: Path) -> None:
    report = report_of(cluster, "--remove-domain", "zone=zone-c")
    assert report["removedNodes"] == ["node-c1", "node-c2"]
    by_name = {each["group"]["workloads"][0]["name"]: each["asItIs"]["counts"] for each in report["groups"]}
    assert by_name["web"] == {"zone-a": 6, "zone-b": 6}
    assert sorted(by_name["cart"].values()) == [1, 2]
    assert by_name["db"] == {"zone-a": 3, "zone-b": 3}
    assert report == report_of(cluster, "--remove-domain", f"{ZONE}=zone-c")


def test_a_domain_that_was_away_is_back_without_pods_and_it_is_said_how_long_the_rest_takes(cluster: Path) -> None:
    items = json.loads(cluster.read_text(encoding="utf-8"))
    for each in items["items"]:
        if each["kind"] == "Pod":
            created = datetime.fromisoformat(each["metadata"]["creationTimestamp"])
            each["status"]["conditions"][0]["lastTransitionTime"] = (created + timedelta(seconds=20)).isoformat()
    cluster.write_text(json.dumps(items), encoding="utf-8")
    report = report_of(cluster, "--restore-domain", "zone=zone-c")
    assert report["restoredNodes"] == ["node-c1", "node-c2"]
    after = {group["group"]["workloads"][0]["name"]: group["asItIs"] for group in report["groups"]}
    assert after["web"]["counts"] == {"zone-a": 6, "zone-b": 6, "zone-c": 0}
    assert after["web"]["violated"]
    assert report["asItIs"]["evictions"] == 7  # four of web, two of db, one of cart
    # 30 s of quiet, and four of one workload one after another.
    assert report["asItIs"]["pace"] == {"seconds": 110, "boundBy": "inFlightPerWorkload 1"}
    shown = simulate(cluster, "--restore-domain", "zone=zone-c").stdout
    assert "Node node-c1: lost and back." in shown
    assert "Evictions needed afterwards: 7. They take about 110 s: inFlightPerWorkload 1." in " ".join(shown.split())


def test_bare_pods_on_a_lost_node_are_not_replaced(tmp_path: Path) -> None:
    bare = manifest_of_pod("lone", "node-a1", "lone", {}, ownerReferences=[])
    agent = manifest_of_pod(
        "agent",
        "node-a1",
        "agent",
        {},
        ownerReferences=[
            {"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "d", "controller": True}
        ],
    )
    file = written(tmp_path, [*NODES, bare, agent])
    outcome = report_of(file, "--drain", "node-a1")["asItIs"]
    assert [pod["pod"] for pod in outcome["lost"]] == ["lone"]
    assert outcome["placed"] == outcome["unplaced"] == []
    assert "Pod lone is deleted: no controller recreates it." in simulate(file, "--drain", "node-a1").stdout


def test_new_nodes_copy_a_node_of_each_zone_in_turn_or_a_named_node(cluster: Path) -> None:
    report = report_of(cluster, "--add-nodes", "4", "--add-nodes", "1,like=node-b2")
    assert [name.rpartition("-new")[0] for name in report["addedNodes"]] == [
        "node-a1",
        "node-b1",
        "node-c1",
        "node-a1",
        "node-b2",
    ]
    assert len(set(report["addedNodes"])) == 5


def test_pending_pods_are_placed_on_new_nodes(tmp_path: Path) -> None:
    small = {
        "allocatable": {"cpu": "1", "memory": "1Gi", "pods": "1"},
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    nodes = [manifest_of_node(f"node-{zone}1", f"zone-{zone}", status=small) for zone in "abc"]
    pods = [*deployment_pods("web", {"node-a1": 1, "node-b1": 1, "node-c1": 1}), *deployment_pods("web", {"": 2})]
    file = written(tmp_path, [*nodes, *pods])
    assert len(report_of(file, "--scale", "web=5")["asItIs"]["unplaced"]) == 2
    report = report_of(file, "--add-nodes", "2")
    assert report["asItIs"]["unplaced"] == []
    assert sorted(counts(report)) == [1, 2, 2]
    assert {pod["node"] for pod in report["asItIs"]["placed"]} == set(report["addedNodes"])
    assert {pod["node"][:8] for pod in report["asItIs"]["placed"]} == {"node-a1-", "node-b1-"}


def test_a_new_node_has_its_own_hostname_label(tmp_path: Path) -> None:
    pods = deployment_pods("web", {"node-a1": 1, "node-b1": 1})
    for pod in pods:
        pod["spec"]["topologySpreadConstraints"][0]["topologyKey"] = HOSTNAME
    file = written(tmp_path, [*NODES[:1], *NODES[2:3], *pods])
    report = report_of(file, "--add-nodes", "1,like=node-a1", "--scale", "web=3")
    assert list(report["groups"][0]["asItIs"]["counts"].values()) == [1, 1, 1]
    assert set(report["groups"][0]["asItIs"]["counts"]) == {"node-a1", "node-b1", *report["addedNodes"]}


def test_scaling_to_the_current_replicas_changes_nothing(cluster: Path) -> None:
    report = report_of(cluster, "--scale", "web=12")
    assert counts(report) == counts(report, "group")
    assert report["asItIs"]["deleted"] == report["asItIs"]["placed"] == []


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            ("--scale", "deploy/wev=3"),
            "Error: --scale deploy/wev=3: there is no pod of deploy/wev. Did you mean deploy/web",
        ),
        (("--scale", "web=3", "-n", "shop"), "there is no pod of web in namespace shop, but in default."),
        (("--scale", "web=few"), "say which workload and to how many pods, as in --scale deploy/web=4."),
        (("--scale", "web"), "say which workload and to how many pods"),
        (("--scale", "zzzz=1"), "there is no pod of zzzz. A workload without pods can't be simulated"),
        (("--drain", "node-a3"), "--drain node-a3: there is no node node-a3. Did you mean node-a"),
        (("--remove-domain", "zone=zone-d"), "no node has zone=zone-d. The values of zone are zone-a, zone-b"),
        (("--remove-domain", "rack=1"), "no node has a label rack."),
        (("--remove-domain", "zone"), "say a topology key and a value"),
        (("--add-nodes", "0"), "say how many"),
        (("--add-nodes", "1,as=node-a1"), "say how many"),
        (("--add-nodes", "1,like=node-q"), "--add-nodes 1,like=node-q: there is no node node-q."),
        ((), "Error: say what to simulate"),
    ],
)
def test_a_change_that_can_not_be_simulated_is_an_error_with_advice(
    cluster: Path, arguments: tuple[str, ...], said: str
) -> None:
    assert said in error(cluster, *arguments)


def test_an_ambiguous_workload_name_is_an_error_that_asks_for_the_namespace(tmp_path: Path) -> None:
    other = {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-1", "uid": "other", "controller": True}
    everywhere = [
        *deployment_pods("web", {"node-a1": 2}),
        *deployment_pods("web", {"node-b1": 2}, namespace="shop", metadata={"ownerReferences": [other]}),
    ]
    file = written(tmp_path, [*NODES, *everywhere])
    assert "there is one in each of namespaces default, shop: name one by -n." in error(file, "--scale", "web=1")
    assert report_of(file, "--scale", "web=1", "-n", "shop")["scaled"][0]["namespace"] == "shop"


def test_scaling_a_daemon_set_is_an_error_that_says_why(tmp_path: Path) -> None:
    agent = manifest_of_pod("agent-1", "node-a1", "agent", {}, ownerReferences=[AGENT])
    said = error(written(tmp_path, [*NODES, agent]), "--scale", "ds/agent=2")
    assert (
        said == "Error: --scale ds/agent=2: ds/agent is not scaled: a DaemonSet has a pod on every node that takes one."
    )


def test_scale_downs_of_a_custom_controller_are_not_predicted(tmp_path: Path) -> None:
    owner = {"apiVersion": "apps.kruise.io/v1alpha1", "kind": "CloneSet", "name": "web", "uid": "c", "controller": True}
    pods = deployment_pods("web", {"node-a1": 2}, metadata={"ownerReferences": [owner]})
    said = error(written(tmp_path, [*NODES, *pods]), "--scale", "cloneset/web=1")
    assert said == ("Error: --scale cloneset/web=1: how a CloneSet chooses the pods it deletes is not known.")


@pytest.mark.parametrize("columns", ["80", "160"])
def test_the_table_fits_the_terminal_and_shows_the_effect_of_prevention(cluster: Path, columns: str) -> None:
    done = simulate(cluster, "--scale", "web=5", env={"COLUMNS": columns})
    lines = done.stdout.splitlines()
    assert max(map(len, lines)) <= int(columns)
    assert lines[0].split() == ["NAMESPACE", "WORKLOAD", "KEY", "WHEN", "SKEW/MAX", "PODS", "PER", "DOMAIN"]
    assert lines[1].split() == ["default", "deploy/web", "zone", "now", "✓", "0/1", "4", "4", "4"]
    assert lines[2].split() == ["without", "costs", "✗", "4/1", "4", "1", "0", "(likely)"]
    assert lines[3].split()[:4] == ["with", "costs", "✓", "1/1"]
    text = " ".join(done.stdout.split())
    assert "Evictions needed afterwards: 2 without pod deletion costs, 0 with them. As things are: 2." in text
    assert "deploy/web in default: 12 pods to 5. Not protected (NoPolicy): No policy selects the pods." in text


def test_wide_output_names_domains(cluster: Path) -> None:
    shown = simulate(cluster, "--scale", "web=13", "-o", "wide").stdout
    assert "zone-a 4, zone-b 4, zone-c 4" in shown
