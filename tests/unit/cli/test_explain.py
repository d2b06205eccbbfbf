"""Explanations of workloads, pods and policies, from snapshot files, compared with `plan`."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner, Result
from rich.console import Console

from respread_cli.commands.explain import ExplainView, with_relative_times
from respread_cli.main import respread
from respread_cli.report.explain_report import CandidateReport, ConstraintReport, ExplainedPolicy, ExplainReport
from respread_cli.report.scale_downs import ScaleDownReport
from tests.policy_specs import policy_manifest
from tests.unit.cli.snapshots import deployment_pods, manifest_of_node, manifest_of_pod, snapshot_of
from tests.unit.ui.clusters import web, zones
from tests.worlds import NOW

ZONE = "topology.kubernetes.io/zone"
NEVER = {"annotations": {"respread.dev/evict": "never"}}


def run(tmp_path: Path, items: Sequence[Mapping[str, Any]], *arguments: str, command: str = "explain") -> Result:
    file = snapshot_of(tmp_path, items)
    return CliRunner().invoke(respread, [command, "--snapshot", str(file), *arguments], env={"COLUMNS": "120"})


def explained(tmp_path: Path, items: Sequence[Mapping[str, Any]], *arguments: str) -> ExplainReport:
    done = run(tmp_path, items, "-o", "json", *arguments)
    assert done.exit_code in {0, 1}, done.output
    return msgspec.json.decode(done.stdout, type=ExplainReport, strict=False)


def of(report: ExplainReport, fate: str) -> list[CandidateReport]:
    return [each for each in report.pods if each.fate == fate]


def policy(name: str = "mine", **spec: Any) -> dict[str, Any]:
    return policy_manifest(name, spec)


# Targets


@pytest.mark.parametrize(
    ("word", "subjects"),
    [
        ("deploy/web", ["deploy/web in default", "deploy/web in shop"]),
        ("deployments.apps/web", ["deploy/web in default", "deploy/web in shop"]),
        ("web", ["deploy/web in default", "deploy/web in shop"]),
        ("pod/web-node-b-0", ["pod/web-node-b-0 in default"]),
        ("web-node-b-0", ["pod/web-node-b-0 in default"]),
        ("crbp/mine", ["policy mine"]),
        ("policy/mine", ["policy mine"]),
        ("mine", ["policy mine"]),
    ],
)
def test_a_name_selects_workloads_pods_or_policies(tmp_path: Path, word: str, subjects: list[str]) -> None:
    items = [*zones("a", "b"), *web(3, 1), *web(1, namespace="shop"), policy()]
    assert list(explained(tmp_path, items, word).subjects) == subjects


def test_explain_can_be_limited_to_a_namespace(tmp_path: Path) -> None:
    items = [*zones("a", "b"), *web(3, 1), *web(1, namespace="shop")]
    assert explained(tmp_path, items, "web", "-n", "shop").subjects == ("deploy/web in shop",)
    assert {each.group.namespace for each in explained(tmp_path, items, "crbp/default").constraints} == {"default"}
    in_shop = explained(tmp_path, items, "crbp/default", "-n", "shop")
    assert (in_shop.constraints, in_shop.others_that_hold, in_shop.violated) == ((), 1, 0)


def test_a_namespaced_policy_is_found_in_its_namespace(tmp_path: Path) -> None:
    own = {**policy("own"), "kind": "RebalancePolicy", "metadata": {"name": "own", "namespace": "shop"}}
    items = [*zones("a", "b"), *web(3, 1), *web(3, 1, namespace="shop"), own]
    for word in ("rbp/own", "own"):
        report = explained(tmp_path, items, word)
        assert report.subjects == ("policy shop/own",)
        assert [each.group.namespace for each in report.constraints] == ["shop"]
    assert run(tmp_path, items, "rbp/own", "-n", "default").exit_code == 2


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["nope"], "there is no workload with pods, no pod and no policy named nope."),
        (["weeb"], "there is no workload with pods, no pod and no policy named weeb. Did you mean deploy/web?"),
        (
            ["deploy/wbe", "-n", "default"],
            "there is no workload with pods named wbe in namespace default. Did you mean deploy/web?",
        ),
        (["deploy/wbe", "-n", "defualt"], "there is no namespace defualt. Did you mean default?"),
        (["pod/web"], "there is no pod named web. Did you mean deploy/web?"),
        (["crbp/web"], "there is no policy named web. Did you mean deploy/web?"),
        (["deployment", "web", "api"], "name one target, not deployment/web and api."),
    ],
)
def test_a_name_that_does_not_exist_is_an_error(tmp_path: Path, arguments: list[str], said: str) -> None:
    done = run(tmp_path, [*zones("a", "b"), *web(3, 1)], *arguments)
    assert done.exit_code == 2
    assert done.stderr.endswith(f"Error: {said}\n")


# Constraints


def test_a_constraint_is_shown_with_its_planned_state(tmp_path: Path) -> None:
    report = explained(tmp_path, [*zones("a", "b"), *web(3, 1), *web(1, 1, name="other")], "web")
    (constraint,) = report.constraints
    assert (constraint.group.topology_key, constraint.group.skew, constraint.policy) == (ZONE, 2, "default")
    assert (constraint.evictions, constraint.skew_after, constraint.violated_after) == (1, 0, False)
    assert (constraint.reason, constraint.counts_own_pods) == (None, True)
    assert constraint.counts_after == {"zone-a": 2, "zone-b": 2}
    assert [(each.domain, each.pods, each.too_full, each.closed) for each in constraint.domains] == [
        ("zone-a", 3, True, None),
        ("zone-b", 1, False, None),
    ]


def test_domains_that_take_no_pod_show_the_reason(tmp_path: Path) -> None:
    items = [*zones("a"), *zones("b", spec={"unschedulable": True}), *web(3)]
    (constraint,) = explained(tmp_path, items, "web").constraints
    assert constraint.reason == "NoFeasibleNode"
    closed = constraint.domains[1].closed
    assert closed is not None
    assert closed.startswith("node-b is cordoned (spec.unschedulable)")
    assert constraint.domains[0].closed is None


def test_ineligible_nodes_show_the_reason(tmp_path: Path) -> None:
    unlabelled = manifest_of_node("node-x", "zone-x")
    del unlabelled["metadata"]["labels"][ZONE]
    selecting = {"nodeSelector": {"kubernetes.io/hostname": "node-a"}}
    constraints = {"topologySpreadConstraints": web(1)[0]["spec"]["topologySpreadConstraints"]}
    items = [*zones("a", "b"), unlabelled, manifest_of_pod("web-1", "node-a", "web", {**selecting, **constraints})]
    (constraint,) = explained(tmp_path, items, "web").constraints
    assert [(each.domain, each.examples, each.why) for each in constraint.ineligible] == [
        (None, ("node-x",), f"has no label {ZONE}"),
        ("zone-b", ("node-b",), "does not satisfy nodeSelector kubernetes.io/hostname=node-a"),
    ]


@pytest.mark.parametrize(
    ("spec", "when", "message"),
    [
        ({"podSelector": {"matchLabels": {"app": "db"}}}, "DoNotSchedule", "no policy selects the pods that have it"),
        ({}, "ScheduleAnyway", "add it to spec.constraints.whenUnsatisfiable"),
        ({"constraints": {"topologyKeys": ["rack"]}}, "DoNotSchedule", "policy mine restores constraints of rack only"),
    ],
)
def test_constraints_that_no_policy_selects_are_named(
    tmp_path: Path, spec: dict[str, Any], when: str, message: str
) -> None:
    items = [*zones("a", "b"), *web(3, 1, when=when), policy(**spec)]
    report = explained(tmp_path, items, "web")
    (constraint,) = report.constraints
    assert (constraint.policy, constraint.reason) == (None, "NotSelected")
    assert message in str(constraint.message)
    assert not of(report, "Moves")
    assert {each.message for each in of(report, "Stays")} | {each.message for each in of(report, "Held")} <= {
        "no policy restores the violated constraints that count it",
        "no policy selects it",
    }


def test_a_selector_that_does_not_match_the_pods_own_labels_is_reported(tmp_path: Path) -> None:
    pods = web(3)
    for pod in pods:
        pod["spec"]["topologySpreadConstraints"][0]["labelSelector"] = {"matchLabels": {"app": "wbe"}}
    items = [*zones("a", "b"), *pods]
    (constraint,) = explained(tmp_path, items, "web").constraints
    assert not constraint.counts_own_pods
    assert "does not match the pods that have it" in run(tmp_path, items, "web").stdout


def test_an_expected_domain_without_a_node_is_reported(tmp_path: Path) -> None:
    expected = policy(constraints={"expectedDomains": [{"topologyKey": ZONE, "values": ["zone-a", "zone-z"]}]})
    report = explained(tmp_path, [*zones("a"), *web(3), expected], "web")
    assert [each.reason for each in report.constraints] == ["DomainHasNoNode"]
    assert report.violated == 0
    planned = run(tmp_path, [*zones("a"), *web(3), expected], command="plan")
    assert planned.exit_code == 0
    assert "What would be violated if every expected domain had a node:" in planned.stdout


def test_explain_shows_what_the_operator_reports(tmp_path: Path) -> None:
    saying = policy(mode="Enforce")
    saying["metadata"]["generation"] = 2
    condition = {
        "type": "Progressing",
        "status": "False",
        "reason": "NothingToDo",
        "message": "No eviction is planned.",
    }
    violation = {
        "namespace": "default",
        "workloads": [{"kind": "Deployment", "name": "web"}],
        "constraint": {"topologyKey": ZONE, "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1},
        "skew": 2,
        "reason": "BackingOff",
        "message": "an eviction did not improve it",
    }
    saying["status"] = {
        "observedGeneration": 2,
        "lastPlanTime": "2026-11-21T09:00:00Z",
        "conditions": [{**condition, "lastTransitionTime": "2026-11-21T09:00:00Z", "observedGeneration": 2}],
        "violations": [violation],
    }
    items = [*zones("a", "b"), *web(3, 1), *web(3, 1, name="other"), saying]
    report = explained(tmp_path, items, "web")
    (constraint,) = report.constraints
    assert constraint.reason is None  # a plan of the command line has no back-off
    assert constraint.operator is not None
    assert (constraint.operator.reason, constraint.operator.message) == ("BackingOff", violation["message"])
    assert [(each.type, each.reason) for each in report.policies[0].conditions] == [("Progressing", "NothingToDo")]
    said = " ".join(run(tmp_path, items, "web").stdout.split())
    assert "The operator says: Progressing False (NothingToDo)." in said
    told = re.search(r"The operator says, ([^:]*): BackingOff: an eviction did not improve it\.", said)
    assert told is not None
    assert told[1].startswith("in ") or told[1].endswith(" ago")
    assert explained(tmp_path, items, "other").constraints[0].operator is None
    saying["metadata"]["generation"] = 3
    assert explained(tmp_path, items, "web").policies[0].conditions == ()


# Pods


def test_each_pod_is_shown_with_a_state_and_a_reason(tmp_path: Path) -> None:
    pods = web(4, 1)
    pods[0]["metadata"] |= {"name": "web-never", **NEVER}
    report = explained(tmp_path, [*zones("a", "b"), *pods], "web")
    (moving,) = of(report, "Moves")
    assert moving.move is not None
    assert (moving.move.wave, moving.move.constraints[0].to_domains) == (1, ("zone-b",))
    assert moving.too_full_domains == ("zone-a",)
    assert [(each.pod, each.reason) for each in of(report, "Held")] == [("web-never", "ProtectedPod")]
    assert {each.message for each in of(report, "MayMove")} == {
        "the plan evicts other pods, which cost less or whose replacements get better nodes"
    }
    assert [each.pod for each in of(report, "Stays")] == ["web-node-b-0"]


def test_evictable_pods_that_can_not_move_show_the_reason_of_their_constraint(tmp_path: Path) -> None:
    items = [*zones("a"), *zones("b", spec={"unschedulable": True}), *web(3)]
    report = explained(tmp_path, items, "web")
    assert {each.reason for each in of(report, "MayMove")} == {"NoFeasibleNode"}
    assert "NoFeasibleNode, as said above" in run(tmp_path, items, "web").stdout


def test_a_pod_that_is_not_placed_is_in_motion(tmp_path: Path) -> None:
    waiting = manifest_of_pod("web-new", "", "web", web(1)[0]["spec"])
    del waiting["spec"]["nodeName"]
    waiting["status"] = {"phase": "Pending"}
    report = explained(tmp_path, [*zones("a", "b"), *web(3), waiting], "pod/web-new")
    (pod,) = report.pods
    assert (pod.fate, pod.reason, pod.node) == ("Held", "InMotion", None)
    assert pod.message == "1 of 2 nodes can take it now. Its workload is left alone until it has a node"


def test_a_pending_pod_has_the_reasons_of_the_scheduler_for_each_constraint(tmp_path: Path) -> None:
    waiting = manifest_of_pod("web-new", "", "web", web(1)[0]["spec"])
    del waiting["spec"]["nodeName"]
    waiting["status"] = {"phase": "Pending"}
    nodes = [*zones("a"), *zones("b", "c", spec={"unschedulable": True})]
    (pod,) = explained(tmp_path, [*nodes, *web(1), waiting], "pod/web-new").pods
    assert pod.message == (
        "0 of 3 nodes are available: 2 are cordoned (node-b: is cordoned (spec.unschedulable)); 1 would break "
        "topology.kubernetes.io/zone (node-a: topology.kubernetes.io/zone zone-a has 1 matching pods, where the "
        "minimum is 0: with the pod the skew would be 2, above maxSkew 1). Its workload is left alone until it has a "
        "node"
    )


def test_explain_shows_the_moves_of_plan(tmp_path: Path) -> None:
    items = [*zones("a", "b", "c"), *web(7, 1), *web(4, name="stuck", metadata=NEVER), *web(2, 2, 3, name="fine")]
    plan = json.loads(run(tmp_path, items, "-o", "json", command="plan").stdout)
    report = explained(tmp_path, items, "crbp/default")
    moves = [each.move for each in report.pods if each.move is not None]
    assert [move.pod for move in moves] == [move["pod"] for move in plan["moves"]]
    assert json.loads(msgspec.json.encode(moves)) == plan["moves"]
    blocked = [(each.reason, each.message) for each in report.constraints if each.reason is not None]
    assert blocked == [(each["reason"], each["message"]) for each in plan["blocked"]]
    assert (len(report.constraints), report.others_that_hold, report.violated) == (2, 1, plan["violated"])


# Scale-downs


def test_explain_shows_the_victim_order_and_the_result_of_scale_downs(tmp_path: Path) -> None:
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "sts-db", "controller": True}
    items = [*zones("a", "b"), *web(2, 2), *web(2, 2, name="db")]
    for number, pod in enumerate(items[-4:]):
        pod["metadata"] |= {"name": f"db-{number}", "uid": f"db-{number}", "ownerReferences": [owner]}
    (of_web,) = explained(tmp_path, items, "web").scale_downs
    assert (of_web.protected, of_web.reason, of_web.policy) == (False, "NoPolicy", None)
    (of_db,) = explained(tmp_path, items, "sts/db").scale_downs
    assert (of_db.protected, of_db.reason) == (False, "HighestOrdinal")
    assert (of_db.replicas, of_db.violating_replicas, of_db.certain) == (4, (2,), True)  # db-0 and db-1 are in zone-a
    assert "A scale-down to 2 would leave a constraint violated." in run(tmp_path, items, "sts/db").stdout


def test_deletion_costs_written_by_respread_protect_a_workload(tmp_path: Path) -> None:
    pods = web(3, 3)
    cost = "controller.kubernetes.io/pod-deletion-cost"
    fields: dict[str, Any] = {"f:metadata": {"f:annotations": {f"f:{cost}": {}}}}
    ours = {"manager": "respread", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": fields}
    for number, pod in enumerate(pods):
        pod["metadata"] |= {"annotations": {cost: str(-1 - number % 3)}, "managedFields": [ours]}
    items = [*zones("a", "b"), *pods, policy(prevention={"podDeletionCost": "Enabled"})]
    (report,) = explained(tmp_path, items, "web").scale_downs
    assert (report.protected, report.reason, report.violating_replicas) == (True, "Protected", ())
    said = " ".join(run(tmp_path, items, "web").stdout.split())
    assert "A scale-down to any number would most likely keep every constraint." in said


# Output


def test_the_exit_code_says_whether_the_constraints_hold(tmp_path: Path) -> None:
    items = [*zones("a", "b"), *web(3, 1), *web(2, 1, name="fine")]
    assert run(tmp_path, items, "web").exit_code == 0
    assert run(tmp_path, items, "web", "--exit-code").exit_code == 1
    assert run(tmp_path, items, "fine", "--exit-code").exit_code == 0
    assert "It holds: nothing to do." in run(tmp_path, items, "fine").stdout


def test_yaml_says_what_json_says(tmp_path: Path) -> None:
    items = [*zones("a", "b"), *web(3, 1)]
    as_json = json.loads(run(tmp_path, items, "web", "-o", "json").stdout)
    as_yaml = yaml.safe_load(run(tmp_path, items, "web", "-o", "yaml").stdout)
    assert as_yaml.keys() == as_json.keys()
    for field in as_json.keys() - {"time"}:
        assert as_yaml[field] == as_json[field]
    assert as_json["kind"] == "ExplainReport"


@pytest.mark.parametrize("of", [ExplainReport, ExplainedPolicy, ConstraintReport, CandidateReport, ScaleDownReport])
def test_every_field_is_described(of: type[msgspec.Struct]) -> None:
    described = (Path(__file__).parents[3] / "docs" / "cli.md").read_text()
    missing = [field.encode_name for field in msgspec.structs.fields(of) if f"`{field.encode_name}`" not in described]
    assert missing == []


def test_surplus_pods_are_counted_and_listed_with_wide(tmp_path: Path) -> None:
    items = [*zones("a", "b"), *web(20, 20)]
    assert "and 20 more pods (see -o wide)" in run(tmp_path, items, "web").stdout
    assert "more pods" not in run(tmp_path, items, "web", "-o", "wide").stdout


def test_only_relevant_domains_of_many_are_shown(tmp_path: Path) -> None:
    nodes = [manifest_of_node(f"node-{number:03}", f"zone-{number:03}") for number in range(150)]
    items = [*nodes, *deployment_pods("web", {"node-000": 3, "node-001": 1})]
    (constraint,) = explained(tmp_path, items, "web").constraints
    assert [each.domain for each in constraint.domains] == ["zone-000", "zone-001"]
    assert "and 148 more domains" in run(tmp_path, items, "web").stdout


@pytest.mark.parametrize("width", [80, 160])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_an_explanation_fits_the_terminal(tmp_path: Path, width: int, encoding: str) -> None:
    name = "a-deployment-whose-name-is-as-long-as-some-are-in-real-life"
    nodes = [
        manifest_of_node(f"ip-10-0-0-{number}.eu-central-1.compute.internal", f"eu-central-1{zone}")
        for number, zone in enumerate("abc")
    ]
    placed = {nodes[0]["metadata"]["name"]: 7, nodes[1]["metadata"]["name"]: 1}
    report = explained(tmp_path, [*nodes, *deployment_pods(name, placed)], name)
    console = Console(file=io.TextIOWrapper(io.BytesIO(), encoding=encoding), width=width, highlight=False)
    with console.capture() as captured:
        for part in ExplainView(console, wide=False, with_namespace=True).render(report):
            console.print(part)
    text = captured.get()
    text.encode(encoding)
    assert max(map(len, text.splitlines())) <= width
    assert "Moves" in text


def test_explain_says_that_no_constraint_counts_a_pod(tmp_path: Path) -> None:
    lonely = manifest_of_pod("lonely", "node-a", "lonely", {})
    assert [each.message for each in explained(tmp_path, [*zones("a"), lonely], "lonely").pods] == [
        "no constraint counts it"
    ]
    done = run(tmp_path, [*zones("a"), lonely], "pod/lonely")
    assert done.exit_code == 0
    assert "No topology spread constraint concerns it." in done.stdout


def test_a_scale_down_is_not_said_to_depend_on_a_policy_that_does_not_exist(tmp_path: Path) -> None:
    done = run(tmp_path, [*zones("a", "b", "c"), *web(2, 2, 2)], "deploy/web")
    assert "not protected. No policy selects the pods." in done.stdout
    assert "policy default" not in done.stdout


@pytest.mark.parametrize(
    ("after", "said"),
    [
        (timedelta(seconds=34), "it will be in 34 s"),
        (timedelta(hours=2, minutes=5), "it will be in 2 h 5 min"),
        (timedelta(minutes=-3), "it will be 3 min ago"),
    ],
)
def test_a_time_is_told_from_now(after: timedelta, said: str) -> None:
    assert with_relative_times(f"it will be at {(NOW + after).isoformat(timespec='seconds')}", NOW) == said


def test_a_text_without_a_time_stays_as_it_is() -> None:
    assert with_relative_times("at maxSkew 1, at 12:00", NOW) == "at maxSkew 1, at 12:00"
