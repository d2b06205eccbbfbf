"""`respread simulate --each-domain` and `--remove-domain` say what workloads lose with their nodes, the worst first."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from prometheus_client.parser import text_string_to_metric_families

from respread_cli.main import respread
from tests.unit.cli.snapshots import deployment_pods, manifest_of_node, manifest_of_pod, snapshot_of

POOL = "example.com/pool"


def node(name: str, zone: str, *, pods: int = 110, pool: str = "main") -> dict[str, Any]:
    made = manifest_of_node(name, zone)
    made["metadata"]["labels"][POOL] = pool
    made["status"]["allocatable"]["pods"] = str(pods)
    return made


def pinned(app: str, zone: str, placed: dict[str, int], **fields: Any) -> list[dict[str, Any]]:
    """Return pods that may only run in one zone."""
    found = deployment_pods(app, placed, **fields)
    for pod in found:
        pod["spec"]["nodeSelector"] = {"topology.kubernetes.io/zone": zone}
    return found


def budget(app: str, *, desired: int, healthy: int) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": app, "namespace": "default"},
        "spec": {"selector": {"matchLabels": {"app": app}}},
        "status": {"desiredHealthy": desired, "currentHealthy": healthy, "expectedPods": healthy},
    }


NODES = [node("node-a", "zone-a"), node("node-b", "zone-b", pool="spot"), node("node-c", "zone-c", pods=12)]
WORLD = [
    *NODES,
    *deployment_pods("web", {"node-a": 2, "node-b": 2, "node-c": 2}),
    *pinned("index", "zone-a", {"node-a": 4}),
    *deployment_pods("solo", {"node-b": 1}, namespace="shop"),
    manifest_of_pod("bare", "node-a", "bare", {}, ownerReferences=[]),
    *pinned("late", "zone-d", {"": 3}, namespace="shop"),
    budget("web", desired=5, healthy=6),
]


def simulate(file: Path, *arguments: str) -> Result:
    return CliRunner().invoke(respread, ["simulate", "--snapshot", str(file), *arguments], env={"COLUMNS": "160"})


def report_of(file: Path, *arguments: str) -> dict[str, Any]:
    done = simulate(file, "-o", "json", *arguments)
    assert done.exit_code in {0, 1}, done.output
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.fixture
def world(tmp_path: Path) -> Path:
    return snapshot_of(tmp_path, WORLD)


@pytest.mark.parametrize("option", [("--each-domain", "zone"), ("--remove-domain", "zone=zone-a")])
def test_losses_are_not_cut_on_a_narrow_terminal(world: Path, option: tuple[str, str]) -> None:
    arguments = ["simulate", "--snapshot", str(world), *option]
    shown = CliRunner().invoke(respread, arguments, env={"COLUMNS": "80"}).stdout
    assert "deploy/index  no pod left" in shown
    assert all(len(line) <= 80 and "…" not in line for line in shown.splitlines())


def told(domain: dict[str, Any]) -> list[tuple[str, str, int, int, int, int]]:
    return [
        (each["workload"]["name"], each["damage"], each["pods"], each["left"], each["after"], each["missing"])
        for each in domain["workloads"]
    ]


def test_the_domain_whose_loss_is_worst_is_first_and_in_it_the_workload_that_loses_most(world: Path) -> None:
    report = report_of(world, "--each-domain", "zone")
    assert report["topologyKey"] == "topology.kubernetes.io/zone"
    assert [each["domain"] for each in report["domains"]] == ["zone-a", "zone-b", "zone-c"]
    worst, outage, harmless = report["domains"]
    assert told(worst) == [("index", "Gone", 4, 0, 0, 4), ("bare", "Gone", 1, 0, 0, 1)]
    assert (worst["nodes"], worst["pods"], worst["missing"], worst["unharmed"]) == (1, 7, 5, 1)
    assert "NodeAffinity on 2" in worst["workloads"][0]["message"]
    assert told(outage) == [("solo", "Outage", 1, 0, 1, 0)]
    assert (told(harmless), harmless["unharmed"]) == ([], 1)


def test_pods_that_were_pending_before_are_kept_apart(world: Path) -> None:
    report = report_of(world, "--each-domain", "zone")
    assert report["pending"] == [{"namespace": "shop", "workload": {"kind": "Deployment", "name": "late"}, "pods": 3}]
    assert all("late" not in [each[0] for each in told(domain)] for domain in report["domains"])
    removed = report_of(world, "--remove-domain", "zone=zone-b")
    assert [each["wasPending"] for each in removed["asItIs"]["unplaced"]] == [True] * 3


def test_budgets_say_that_fewer_pods_are_healthy_than_they_want(world: Path) -> None:
    del_index = [each for each in WORLD if each["metadata"].get("labels", {}).get("app") != "index"]
    crowded = [node("node-a", "zone-a"), node("node-b", "zone-b", pods=4), node("node-c", "zone-c", pods=2)]
    file = snapshot_of(world.parent, [*crowded, *(each for each in del_index if each["kind"] != "Node")], "b.json")
    (worst, *_) = report_of(file, "--each-domain", "zone")["domains"]
    (web,) = [each for each in worst["workloads"] if each["workload"]["name"] == "web"]
    assert (worst["domain"], web["damage"], web["left"], web["after"], web["missing"]) == ("zone-a", "Missing", 4, 5, 1)
    (said,) = web["budgets"]
    assert said.startswith("PodDisruptionBudget web wants 5 healthy pods and has 4, so its other pods can't be evicted")


def test_every_namespace_has_its_worst_domain(world: Path) -> None:
    report = report_of(world, "--each-domain", "zone")
    assert report["namespaces"] == [
        {"namespace": "default", "pods": 11, "worstDomain": "zone-a", "missing": 5, "gone": 2, "outages": 0},
        {"namespace": "shop", "pods": 1, "worstDomain": "zone-b", "missing": 0, "gone": 0, "outages": 1},
    ]
    (shop,) = report_of(world, "--each-domain", "zone", "-n", "shop")["namespaces"]
    assert shop == report["namespaces"][1]


def test_node_pools_and_other_labels_are_domains_too(world: Path) -> None:
    report = report_of(world, "--each-domain", POOL)
    assert [(each["domain"], each["nodes"]) for each in report["domains"]] == [("main", 2), ("spot", 1)]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--each-domain", "rack"], "--each-domain rack: no node has a label rack."),
        (["--each-domain", "zone", "--drain", "node-a"], "leave out the other changes."),
        (["--metrics"], "--metrics needs --each-domain KEY."),
        (["--each-domain", "zone", "--metrics", "-o", "json"], "leave out -o and --watch."),
    ],
)
def test_a_wrong_use_of_each_domain_is_an_error(world: Path, arguments: list[str], message: str) -> None:
    done = simulate(world, *arguments)
    assert done.exit_code == 2
    assert message in done.stderr.replace("\n", " ")


def test_too_many_domains_are_an_error(tmp_path: Path) -> None:
    nodes = [node(f"node-{number}", "zone-a") for number in range(65)]
    file = snapshot_of(tmp_path, [*nodes, *deployment_pods("web", {"node-0": 1})])
    done = simulate(file, "--each-domain", "kubernetes.io/hostname")
    assert done.exit_code == 2
    assert "nodes have 65 values of kubernetes.io/hostname, and 64 are the most." in done.stderr


def test_the_figures_can_be_tracked(world: Path) -> None:
    done = simulate(world, "--each-domain", "zone", "--metrics")
    key = 'topology_key="topology.kubernetes.io/zone"'
    assert done.stdout.splitlines()[2:] == [
        f'respread_domain_loss_pods{{namespace="default",{key},domain="zone-a"}} 5',
        f'respread_domain_loss_pods{{namespace="shop",{key},domain="zone-a"}} 0',
        f'respread_domain_loss_pods{{namespace="default",{key},domain="zone-b"}} 0',
        f'respread_domain_loss_pods{{namespace="shop",{key},domain="zone-b"}} 0',
        f'respread_domain_loss_pods{{namespace="default",{key},domain="zone-c"}} 0',
        f'respread_domain_loss_pods{{namespace="shop",{key},domain="zone-c"}} 0',
    ]


def test_prometheus_reads_the_figures(world: Path) -> None:
    (family,) = text_string_to_metric_families(simulate(world, "--each-domain", "zone", "--metrics").stdout)
    assert (family.name, family.type) == ("respread_domain_loss_pods", "gauge")
    assert sum(sample.value for sample in family.samples) == 5
    assert {tuple(sorted(sample.labels)) for sample in family.samples} == {("domain", "namespace", "topology_key")}


def quota(name: str, namespace: str, hard: dict[str, str], used: dict[str, str], **spec: Any) -> dict[str, Any]:
    metadata = {"name": name, "namespace": namespace}
    status = {"hard": hard, "used": used}
    return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": spec, "status": status}


def test_quotas_that_refuse_replacements_while_the_lost_pods_count_are_named(tmp_path: Path) -> None:
    pods = deployment_pods("web", {"node-a": 2, "node-b": 2, "node-c": 2})
    for pod in pods:
        pod["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "250m"}}
    database = deployment_pods("db", {"node-a": 1}, namespace="data")
    database[0]["metadata"]["ownerReferences"][0]["kind"] = "StatefulSet"
    quotas = [
        quota("tight", "default", {"pods": "20", "requests.cpu": "1800m"}, {"pods": "6", "requests.cpu": "1500m"}),
        quota("wide", "default", {"pods": "8"}, {"pods": "6"}),
        quota("scoped", "default", {"pods": "6"}, {"pods": "6"}, scopes=["BestEffort"]),
        quota("replaced-later", "data", {"pods": "1"}, {"pods": "1"}),
    ]
    file = snapshot_of(tmp_path, [*NODES, *pods, *database, *quotas])
    said = (
        "ResourceQuota tight of namespace default refuses some replacements until the old pods have stopped: they "
        "take 0.5 of requests.cpu, and 1.5 of 1.8 are used"
    )
    report = report_of(file, "--each-domain", "zone")
    assert {each["domain"]: each["quotas"] for each in report["domains"]} == {
        "zone-a": [said],
        "zone-b": [said],
        "zone-c": [said],
    }
    assert report_of(file, "--remove-domain", "zone=zone-a")["quotas"] == [said]
    assert report_of(file, "--remove-domain", "zone=zone-a", "-n", "data")["quotas"] == []
    for arguments in (["--each-domain", "zone"], ["--remove-domain", "zone=zone-a"]):
        assert said in simulate(file, *arguments).stdout.replace("\n", " ")


def test_the_table_names_what_is_lost_and_collapses_the_rest(world: Path) -> None:
    said = simulate(world, "--each-domain", "zone").stdout
    assert "zone=zone-a lost: 1 node with 7 pods; 5 pods find no node or are not created again" in said
    assert "✗  default    deploy/index  no pod left" in said
    assert said.count("1 more workload keeps some pods and gets the others back.") == 2  # web, of zone-a and zone-b
    assert "deploy/web" not in said
    assert "zone=zone-c lost: 1 node with 2 pods; no workload is harmed." in said
    assert "Pending already, and not counted: 3 pods (3 of deploy/late in shop)." in said
    assert simulate(world, "--each-domain", "zone", "-o", "name").stdout.splitlines()[:2] == [
        "deploy/index",
        "pod/bare",
    ]


def test_reports_for_auditors_are_markdown_and_html(world: Path) -> None:
    assert (
        "| deploy/index | no pod left | 4 | 0 | 0 |"
        in simulate(world, "--each-domain", "zone", "-o", "markdown").stdout
    )
    html = simulate(world, "--each-domain", "zone", "-o", "html").stdout
    assert '"kind":"DomainLossReport"' in html


@pytest.mark.parametrize(("domain", "code"), [("zone-a", 1), ("zone-b", 0), ("zone-c", 0)])
def test_a_removed_domain_is_no_success_if_a_workload_loses_pods_for_good(world: Path, domain: str, code: int) -> None:
    done = simulate(world, "--remove-domain", f"zone={domain}", "--exit-code")
    assert done.exit_code == code
    report = report_of(world, "--remove-domain", f"zone={domain}")
    assert [each["workload"]["name"] for each in report["losses"]] == {
        "zone-a": ["index", "bare"],
        "zone-b": ["solo"],
        "zone-c": [],
    }[domain]
    lines = done.stdout.splitlines()
    (index,) = (
        (at for at, line in enumerate(lines) if "deploy/index  zone  now" in line) if domain == "zone-a" else (0,)
    )
    assert ("then  ✗" in lines[index + 1]) is (domain == "zone-a")
    assert ("2 workloads harmed: 5 pods would be missing afterwards." in done.stdout) is (domain == "zone-a")
    assert simulate(world, "--each-domain", "zone", "--exit-code").exit_code == 1


def test_pods_of_a_scale_up_that_find_no_node_take_nothing_from_those_that_are_there(tmp_path: Path) -> None:
    file = snapshot_of(tmp_path, [node("node-a", "zone-a", pods=3), *deployment_pods("web", {"node-a": 2})])
    (loss,) = report_of(file, "--scale", "deploy/web=9")["losses"]
    assert (loss["damage"], loss["pods"], loss["left"], loss["after"], loss["missing"]) == ("Missing", 2, 2, 3, 6)


def by_priority_class(operator: str, *values: str) -> dict[str, Any]:
    expression = {"scopeName": "PriorityClass", "operator": operator, "values": values}
    return {"scopeSelector": {"matchExpressions": [expression]}}


@pytest.mark.parametrize(
    ("scopes", "counts"),
    [
        ({"scopes": ["NotBestEffort", "NotTerminating"]}, True),
        ({"scopes": ["NotBestEffort", "Terminating"]}, False),
        (by_priority_class("Exists"), True),
        (by_priority_class("NotIn", "high"), False),
        (
            {
                "scopeSelector": {
                    "matchExpressions": [{"scopeName": "PriorityClass", "operator": "NotIn", "values": ["high"]}]
                }
            },
            False,
        ),
        ({"scopes": ["CrossNamespacePodAffinity"]}, False),
    ],
    ids=str,
)
def test_a_quota_with_a_scope_refuses_only_the_pods_that_it_counts(
    tmp_path: Path, scopes: dict[str, Any], *, counts: bool
) -> None:
    pods = deployment_pods("web", {"node-a": 2, "node-b": 2, "node-c": 2})
    for pod in pods:
        pod["spec"]["priorityClassName"] = "high"
        pod["spec"]["containers"][0]["resources"] = {"limits": {"memory": "1Gi"}, "requests": {"memory": "1Gi"}}
    tight = quota("tight", "default", {"limits.memory": "7Gi"}, {"limits.memory": "6Gi"}, **scopes)
    report = report_of(snapshot_of(tmp_path, [*NODES, *pods, tight]), "--remove-domain", "zone=zone-a")
    assert len(report["quotas"]) == counts


def test_a_quota_refuses_pods_of_a_larger_workload_for_good(tmp_path: Path) -> None:
    pods = deployment_pods("web", {"node-a": 2, "node-b": 2, "node-c": 2})
    tight = quota("tight", "default", {"pods": "7"}, {"pods": "6"})
    report = report_of(snapshot_of(tmp_path, [*NODES, *pods, tight]), "--scale", "web=9")
    (said,) = report["quotas"]
    assert said.endswith(
        "tight of namespace default refuses some of the new pods: they take 3 of pods, and 6 of 7 are used"
    )
    drained = report_of(snapshot_of(tmp_path, [*NODES, *pods, tight]), "--drain", "node-a")
    assert [each.partition(" refuses ")[2].partition(":")[0] for each in drained["quotas"]] == [
        "some replacements until the old pods have stopped"
    ]
