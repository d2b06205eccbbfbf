"""`respread lint`: what each rule finds in the manifests of workloads and budgets, and what switches it off."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner, Result

from respread_cli.lint.rules import RULES
from respread_cli.main import respread
from tests.lint_manifests import BUDGET, GOOD, HOSTNAME, HPA, SOFT, ZONE, deployment, pod_spec


def lint(*objects: dict[str, Any], more: tuple[str, ...] = ()) -> Result:
    return CliRunner().invoke(respread, ["lint", "-", *more], input=yaml.safe_dump_all(objects, sort_keys=False))


def found(*objects: dict[str, Any], more: tuple[str, ...] = ()) -> dict[str, str]:
    """Return the fields by the rules that find something in them."""
    report = json.loads(lint(*objects, more=("-o", "json", *more)).stdout)
    return {each["rule"]: each["field"] for each in report["findings"] if each["switchedOffBy"] is None}


IN_A = {"nodeSelector": {ZONE: "zone-a"}}
CONSTRAINT = "spec.template.spec.topologySpreadConstraints[0]"


def test_nothing_is_found_where_nothing_is_wrong() -> None:
    assert found(deployment(GOOD, {**SOFT, "topologyKey": HOSTNAME}), BUDGET) == {}


@pytest.mark.parametrize(
    ("rule", "field", "changes", "of_pods"),
    [
        ("SelectorMissesOwnPods", ".labelSelector", {"labelSelector": {"matchLabels": {"a": "b"}}}, {}),
        ("SelectorMatchesNothing", ".labelSelector", {"labelSelector": ..., "matchLabelKeys": ...}, {}),
        ("SkewUnreachable", ".maxSkew", {"maxSkew": 6}, {}),
        ("OneDomain", "", {}, IN_A),
        ("TooFewDomains", ".minDomains", {"minDomains": 2}, IN_A),
        ("UnavailableDomains", ".nodeAffinityPolicy", {"nodeAffinityPolicy": "Ignore"}, IN_A),
        ("KeyPerPod", ".matchLabelKeys", {"matchLabelKeys": ["apps.kubernetes.io/pod-index"]}, {}),
        ("RejectedConstraint", ".minDomains", {**SOFT, "minDomains": 2}, {}),
        ("RejectedConstraint", ".matchLabelKeys", {"labelSelector": None}, {}),
        ("RejectedConstraint", ".matchLabelKeys", {"matchLabelKeys": ["app"]}, {}),
        ("RejectedConstraint", ".maxSkew", {"maxSkew": 0}, {}),
        ("RejectedConstraint", "", {"maxSkew": ...}, {}),
        ("MissingMatchLabelKeys", ".matchLabelKeys", {**SOFT, "matchLabelKeys": []}, {}),
        ("MissingNodeTaintsPolicy", ".nodeTaintsPolicy", {"nodeTaintsPolicy": "Ignore"}, {}),
    ],
    ids=lambda each: each if isinstance(each, str) else "",
)
def test_a_rule_finds_the_field_of_a_constraint(rule: str, field: str, changes: Any, of_pods: Any) -> None:
    constraint = {key: each for key, each in {**GOOD, **changes}.items() if each is not ...}
    kind = "StatefulSet" if rule == "KeyPerPod" else "Deployment"
    objects = [{**deployment(constraint, **of_pods), "kind": kind}]
    result = found(*objects, BUDGET)
    assert result[rule] == CONSTRAINT + field
    assert lint(*objects, BUDGET).exit_code == (RULES[rule].level == "error")
    assert lint(*objects, BUDGET, more=("--fail-on", "warning")).exit_code == 1


def test_the_second_of_two_constraints_with_the_same_key_is_rejected() -> None:
    assert found(deployment(GOOD, GOOD), BUDGET) == {"RejectedConstraint": CONSTRAINT.replace("0", "1")}


def test_zones_and_nodes_are_warned_of_only_if_both_are_hard() -> None:
    by_node = {**GOOD, "topologyKey": HOSTNAME}
    at = CONSTRAINT.replace("0", "1")
    assert found(deployment(GOOD, by_node), BUDGET) == {"ZoneAndHostname": f"{at}.whenUnsatisfiable"}
    assert found(deployment(SOFT, by_node), BUDGET) == {}


def test_a_recreated_or_single_pod_needs_no_match_label_keys() -> None:
    without = {**GOOD, "matchLabelKeys": []}
    recreated, single = deployment(without), deployment(without)
    recreated["spec"]["strategy"] = {"type": "Recreate"}
    single["spec"]["replicas"] = 1
    assert found(recreated, BUDGET) == found(single) == {}


def test_an_autoscaler_decides_how_many_pods_there_are() -> None:
    wide = {**GOOD, "maxSkew": 6}
    assert found(deployment(wide), BUDGET, HPA) == {}
    named = {"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "metadata": HPA["metadata"]}
    assert found(deployment(wide), BUDGET, {**named, "spec": {"scaleTargetRef": {"name": "web"}}}) == {}
    few = {"scaleTargetRef": {"name": "web"}, "maxReplicaCount": 6}
    assert "SkewUnreachable" in found(deployment(wide), BUDGET, {**named, "spec": few})
    without = deployment(wide)
    del without["spec"]["replicas"]
    assert found(without, BUDGET) == {}


def test_other_workloads_that_a_selector_matches_count_too() -> None:
    other = deployment(GOOD)
    other["metadata"]["name"] = "web-canary"
    shared = deployment({**GOOD, "maxSkew": 6, "matchLabelKeys": []})
    assert "SkewUnreachable" not in found(shared, other, BUDGET)
    by_revision = deployment({**GOOD, "maxSkew": 6})
    assert "SkewUnreachable" in found(by_revision, other, BUDGET)


@pytest.mark.parametrize(
    ("kind", "api_version", "path"),
    [
        ("ReplicaSet", "apps/v1", ("template",)),
        ("StatefulSet", "apps/v1", ("template",)),
        ("DaemonSet", "apps/v1", ("template",)),
        ("ReplicationController", "v1", ("template",)),
        ("Job", "batch/v1", ("template",)),
        ("CronJob", "batch/v1", ("jobTemplate", "spec", "template")),
        ("Rollout", "argoproj.io/v1alpha1", ("template",)),
        ("CloneSet", "apps.kruise.io/v1alpha1", ("template",)),
        ("StatefulSet", "apps.kruise.io/v1beta1", ("template",)),
        ("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", ("leaderWorkerTemplate", "leaderTemplate")),
        ("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", ("leaderWorkerTemplate", "workerTemplate")),
        ("Database", "example.com/v1", ("template",)),
    ],
)
def test_pod_templates_of_all_kinds_are_checked(kind: str, api_version: str, path: tuple[str, ...]) -> None:
    template: Any = deployment({**GOOD, "labelSelector": {"matchLabels": {"a": "b"}}})["spec"]["template"]
    for part in reversed(path):
        template = {part: template}
    manifest = {"apiVersion": api_version, "kind": kind, "metadata": {"name": "x"}, "spec": template}
    at = f"spec.{'.'.join(path)}.spec.topologySpreadConstraints[0].labelSelector"
    assert found(manifest)["SelectorMissesOwnPods"] == at


def test_labels_that_a_controller_adds_can_be_selected() -> None:
    template = deployment({**GOOD, "matchLabelKeys": [], "labelSelector": {"matchLabels": {"job-name": "x"}}})["spec"]
    job = {"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": "x"}, "spec": template}
    assert found(job) == {}
    assert found({**job, "metadata": {"name": "y"}}) == {"SelectorMissesOwnPods": f"{CONSTRAINT}.labelSelector"}


def test_the_spec_of_a_pod_is_checked() -> None:
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "labels": {"app": "web"}}, "spec": pod_spec()}
    pod["spec"] = pod_spec({**GOOD, "labelSelector": {"matchLabels": {"a": "b"}}})
    assert found(pod)["SelectorMissesOwnPods"] == "spec.topologySpreadConstraints[0].labelSelector"


def test_a_list_is_checked_item_by_item() -> None:
    bad = deployment({**GOOD, "maxSkew": 6})
    report = found({"apiVersion": "v1", "kind": "List", "items": [bad, BUDGET]})
    assert report == {"SkewUnreachable": f"{CONSTRAINT}.maxSkew"}


def test_pods_that_must_be_spread_need_a_budget_in_their_namespace() -> None:
    elsewhere = {**BUDGET, "metadata": {"name": "web", "namespace": "other"}}
    for budgets in ((), (elsewhere,)):
        assert found(deployment(GOOD), *budgets) == {"NoDisruptionBudget": CONSTRAINT[:-3]}
    assert found(deployment(SOFT)) == {}


@pytest.mark.parametrize(
    ("spec", "rule", "field"),
    [
        ({"maxUnavailable": 0}, "BudgetAllowsNothing", "spec.maxUnavailable"),
        ({"maxUnavailable": "0%"}, "BudgetAllowsNothing", "spec.maxUnavailable"),
        ({"minAvailable": "100%"}, "BudgetAllowsNothing", "spec.minAvailable"),
        ({"minAvailable": 6}, "BudgetAllowsNothing", "spec.minAvailable"),
        ({"minAvailable": "90%"}, "BudgetAllowsNothing", "spec.minAvailable"),  # 5.4 of 6 pods are 6
        ({"minAvailable": 1, "selector": None}, "BudgetSelectsNothing", "spec.selector"),
        ({"minAvailable": 1, "selector": {"matchLabels": {"a": "!"}}}, "Unreadable", "spec.selector"),
        ({"minAvailable": "83%"}, None, ""),
        ({"maxUnavailable": "1%"}, None, ""),
        ({"minAvailable": 5}, None, ""),
    ],
)
def test_a_budget_that_allows_nothing_is_found(spec: dict[str, Any], rule: str | None, field: str) -> None:
    budget = {**BUDGET, "spec": {"selector": BUDGET["spec"]["selector"], **spec}}
    result = found(deployment(SOFT), budget)
    assert result == ({} if rule is None else {rule: field})


def test_a_budget_alone_is_judged_by_what_it_says() -> None:
    assert found({**BUDGET, "spec": {**BUDGET["spec"], "maxUnavailable": 0}}) == {
        "BudgetAllowsNothing": "spec.maxUnavailable"
    }
    assert found({**BUDGET, "spec": {"minAvailable": 3, "selector": BUDGET["spec"]["selector"]}}) == {}


def test_two_budgets_for_the_same_pods_are_found() -> None:
    other = {**BUDGET, "metadata": {"name": "all", "namespace": "shop"}, "spec": {"maxUnavailable": 1, "selector": {}}}
    assert found(deployment(SOFT), BUDGET, other) == {"SeveralBudgets": "spec.selector"}


def test_the_same_objects_in_files_of_several_environments_are_not_added_up() -> None:
    assert found(deployment({**GOOD, "maxSkew": 6}), BUDGET, deployment(GOOD), BUDGET) == {
        "SkewUnreachable": f"{CONSTRAINT}.maxSkew"
    }


def test_an_annotation_switches_rules_off_for_one_object() -> None:
    bad, other = deployment({**GOOD, "maxSkew": 6}), deployment({**GOOD, "maxSkew": 6})
    other["metadata"]["name"] = "api"
    other["spec"]["template"]["metadata"]["labels"] = {"app": "api"}
    other["spec"]["template"]["spec"]["topologySpreadConstraints"][0]["labelSelector"] = {"matchLabels": {"app": "api"}}
    bad["metadata"]["annotations"] = {"respread.dev/lint-off": "SkewUnreachable, NoDisruptionBudget"}
    done = lint(bad, other)
    assert done.stdout.count("SkewUnreachable") == 1
    assert "Deployment shop/api" in done.stdout
    assert "1 finding switched off" not in done.stderr
    assert "2 findings switched off" in done.stderr
    bad["metadata"]["annotations"] = {"respread.dev/lint-off": "*"}
    assert lint(bad).exit_code == 0
    bad["metadata"]["annotations"] = {"respread.dev/lint-off": "SkewUnreachabel"}
    done = lint(bad)
    assert "there is no rule SkewUnreachabel; did you mean SkewUnreachable?" in done.stdout
    assert done.exit_code == 1


def test_a_file_sets_levels_and_ignores_objects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    bad = deployment({**GOOD, "maxSkew": 6, "nodeTaintsPolicy": "Ignore"})
    settings = tmp_path / ".respread-lint.yaml"
    settings.write_text("rules: {SkewUnreachable: off, NoDisruptionBudget: error}\n")
    assert set(found(bad)) == {"NoDisruptionBudget"}
    assert lint(bad).exit_code == 1
    settings.write_text("ignore: [{rules: ['*'], kind: Deployment, name: 'w*', reason: old}]\n")
    assert found(bad) == {}
    settings.write_text("ignore: [{rules: ['*'], namespace: other}]\n")
    assert "SkewUnreachable" in found(bad)
    for wrong in ("rules: {SkewUnreachabel: off}", "rule: {}", "[", "rules: {SkewUnreachable: fatal}"):
        settings.write_text(wrong)
        done = lint(bad)
        assert done.exit_code == 2
        assert ".respread-lint.yaml" in done.stderr


def test_a_snapshot_tells_keys_zones_and_budgets(tmp_path: Path) -> None:
    nodes = [
        {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": f"n{zone}", "labels": {ZONE: zone, HOSTNAME: f"n{zone}"}},
        }
        for zone in ("zone-a", "zone-b")
    ]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "namespace": "shop"}, "spec": pod_spec()}
    snapshot = tmp_path / "snapshot.json"
    snapshot.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*nodes, pod, BUDGET]}))
    more = ("--snapshot", str(snapshot))
    assert found(deployment(GOOD), more=more) == {}
    assert "UnknownTopologyKey" in found(deployment({**GOOD, "topologyKey": "rack"}), more=more)
    assert found(deployment({**GOOD, "minDomains": 3}), more=more) == {"TooFewDomains": f"{CONSTRAINT}.minDomains"}


def test_the_rules_are_listed() -> None:
    done = CliRunner().invoke(respread, ["lint", "--rules"])
    assert done.exit_code == 0
    assert [line.split()[0] for line in done.stdout.splitlines()] == list(RULES)
    page = Path(__file__).parents[3] / "docs" / "lint.md"
    assert done.stdout in page.read_text(encoding="utf-8")
