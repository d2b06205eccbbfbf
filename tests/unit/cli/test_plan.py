"""Reports and tables of plans, from snapshot files and policies in files."""

from __future__ import annotations

import io
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest
import yaml
from click.testing import CliRunner, Result
from rich.console import Console

from respread.api.policy import Policy
from respread.program.command_line import CommandError
from respread_cli.commands.plan import PlanView, summary
from respread_cli.main import respread
from respread_cli.read.snapshot_file import ABOUT
from respread_cli.report.plan_report import PlanReport
from respread_cli.report.planned import DEFAULT_POLICY, PaceReport, read_policies
from tests.policy_specs import NAMESPACED, policy_manifest
from tests.unit.cli.snapshots import ENTRIES, deployment_pods, list_of, manifest_of_node, manifest_of_pod, snapshot_of
from tests.unit.ui.clusters import pending_pods, web, zones

ZONE = "topology.kubernetes.io/zone"


def run(tmp_path: Path, items: Sequence[Mapping[str, Any]], *arguments: str, stdin: str | None = None) -> Result:
    file = snapshot_of(tmp_path, items)
    return CliRunner().invoke(respread, ["plan", "--snapshot", str(file), *arguments], input=stdin)


def report(tmp_path: Path, items: Sequence[Mapping[str, Any]], *arguments: str) -> PlanReport:
    done = run(tmp_path, items, "-o", "json", *arguments)
    assert done.exit_code in {0, 1}, done.output
    return msgspec.json.decode(done.stdout, type=PlanReport, strict=False)


def policy(**spec: Any) -> str:
    return json.dumps(policy_manifest("mine", spec))


def test_without_a_policy_the_plan_uses_an_empty_one_and_a_note_says_so(tmp_path: Path) -> None:
    planned = report(tmp_path, [*zones("a", "b"), *web(3, 1)])
    assert planned.default_policy
    assert [each.name for each in planned.policies] == ["default"]
    assert any("The cluster has no policy." in note for note in planned.notes)
    assert (planned.evictions, planned.lower_bound, planned.violated, planned.selected) == (1, 1, 1, 1)


def test_a_move_shows_pod_target_domains_and_constraint(tmp_path: Path) -> None:
    (move,) = report(tmp_path, [*zones("a", "b"), *web(3, 1)]).moves
    assert move.wave == 1
    assert (move.namespace, move.node, move.policy, move.feasible_nodes) == ("default", "node-a", "default", 1)
    assert move.pod.startswith("web-node-a-")
    assert str(move.workload) == "deploy/web"
    assert move.certain
    (helped,) = move.constraints
    assert (helped.topology_key, helped.from_domain, helped.to_domains) == (ZONE, "zone-a", ("zone-b",))
    assert (helped.skew, helped.max_skew, helped.selector) == (2, 1, "app=web")


def test_a_group_is_shown_with_its_counts_before_and_after(tmp_path: Path) -> None:
    (group,) = report(tmp_path, [*zones("a", "b"), *web(3, 1)]).groups
    assert group.group.counts == {"zone-a": 3, "zone-b": 1}
    assert group.counts_after == {"zone-a": 2, "zone-b": 2}
    assert (group.group.skew, group.skew_after, group.violated_after) == (2, 0, False)


def test_exit_code_1_means_a_violated_constraint_if_requested(tmp_path: Path) -> None:
    balanced = run(tmp_path, [*zones("a", "b"), *web(2, 1)], "--exit-code")
    assert balanced.exit_code == 0
    assert balanced.stdout == "The constraint that the policies restore holds: nothing to do.\n"
    assert run(tmp_path, [*zones("a", "b"), *web(3, 1)], "--exit-code").exit_code == 1
    assert run(tmp_path, [*zones("a", "b"), *web(3, 1)]).exit_code == 0


def test_no_plan_says_that_all_is_well_beside_pending_pods(tmp_path: Path) -> None:
    waiting = pending_pods("web", 2)
    stuck = [*zones("a"), *zones("b", spec={"unschedulable": True}), *web(1, 0), *waiting]
    planned = report(tmp_path, stuck)
    assert (planned.violated, planned.unsatisfiable, planned.ineffective) == (0, 1, 0)
    shown = run(tmp_path, stuck).stdout.replace("\n", " ")
    assert "hold" not in shown
    assert shown.rstrip().endswith(
        "No constraint that the policies restore is violated, so there is nothing to evict. 1 constraint keeps pods "
        "Pending, or would. See respread skew --problems. 2 pods are Pending."
    )
    elsewhere = [*zones("a", "b"), *web(1, 1), *pending_pods("web", 2, nodeSelector={"disk": "ssd"})]
    assert "restore hold: nothing to evict. 2 pods are Pending." in run(tmp_path, elsewhere).stdout.replace("\n", " ")


def test_groups_that_stay_violated_have_a_reason(tmp_path: Path) -> None:
    items = [*zones("a"), *zones("b", spec={"unschedulable": True}), *web(3, 0)]
    planned = report(tmp_path, items)
    assert not planned.moves
    (blocked,) = planned.blocked
    assert blocked.group.counts == {"zone-a": 3, "zone-b": 0}
    assert blocked.reason == "NoFeasibleNode"
    assert "zone-b" in blocked.message
    shown = run(tmp_path, items).stdout
    assert "What stays violated, and why:" in shown
    assert "NoFeasibleNode: " in shown
    assert "No eviction is planned for 1 violated constraint" in shown


def test_a_quota_that_would_refuse_replacements_is_named(tmp_path: Path) -> None:
    def quota(name: str, pods: str, **spec: Any) -> dict[str, Any]:
        status = {"hard": {"pods": pods}, "used": {"pods": "5"}}
        metadata = {"name": name, "namespace": "default"}
        return {"apiVersion": "v1", "kind": "ResourceQuota", "metadata": metadata, "spec": spec, "status": status}

    quotas = [quota("full", "5"), quota("wide", "6"), quota("of-jobs", "5", scopes=["Terminating"])]
    planned = report(tmp_path, [*zones("a", "b", "c"), *web(3, 2, 0), *quotas])
    assert len(planned.moves) == 1
    (said,) = [note for note in planned.notes if "Quota" in note]
    assert said.startswith("ResourceQuota full of namespace default would refuse the replacements of 1 of the planned")


def test_policies_from_a_file_replace_those_of_the_cluster(tmp_path: Path) -> None:
    soft = web(4, 0, when="ScheduleAnyway")
    assert report(tmp_path, [*zones("a", "b"), *soft]).violated_unselected == 1
    file = tmp_path / "policy.yaml"
    file.write_text(policy(constraints={"whenUnsatisfiable": ["ScheduleAnyway"]}))
    planned = report(tmp_path, [*zones("a", "b"), *soft], "-f", str(file))
    assert not planned.default_policy
    assert [each.name for each in planned.policies] == ["mine"]
    assert planned.violated == 1
    assert planned.violated_unselected == 0


def test_a_policy_can_be_read_from_standard_input(tmp_path: Path) -> None:
    text = policy(mode="Enforce")
    done = run(tmp_path, [*zones("a", "b"), *web(3, 1)], "-f", "-", "-o", "json", stdin=text)
    assert json.loads(done.stdout)["policies"] == [{"name": "mine", "mode": "Enforce", "wrong": []}]


def test_policies_in_a_snapshot_are_used(tmp_path: Path) -> None:
    items = [*zones("a", "b"), *web(3, 1), json.loads(policy(mode="DryRun"))]
    planned = report(tmp_path, items)
    assert not planned.default_policy
    assert any("Policy mine is in mode DryRun" in note for note in planned.notes)


def test_an_invalid_policy_in_the_cluster_is_noted_and_in_a_file_rejected(tmp_path: Path) -> None:
    wrong = policy(windows=[{"schedule": "0 2 * * *", "duration": "1h", "timeZone": "Europe/Atlantis"}])
    planned = report(tmp_path, [*zones("a", "b"), *web(3, 1), json.loads(wrong)])
    assert "spec.windows[0].timeZone" in planned.policies[0].wrong[0]
    assert any("Policy mine is invalid and evicts nothing" in note for note in planned.notes)
    assert not planned.moves
    file = tmp_path / "policy.yaml"
    file.write_text(wrong)
    refused = run(tmp_path, [*zones("a", "b"), *web(3, 1)], "-f", str(file))
    assert refused.exit_code == 2
    assert f"{file} (ClusterRebalancePolicy mine): spec.windows[0].timeZone" in refused.stderr


def test_a_priority_class_that_does_not_exist_is_reported(tmp_path: Path) -> None:
    items = [*zones("a", "b"), *web(3, 1)]
    file = tmp_path / "policy.yaml"
    file.write_text(policy(victims={"priorityThreshold": {"name": "important"}}))
    refused = run(tmp_path, items, "-f", str(file))
    assert refused.exit_code == 2
    assert "there is no PriorityClass 'important'" in refused.stderr
    important = {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": "important"},
        "value": 1000,
    }
    assert run(tmp_path, [*items, important], "-f", str(file)).exit_code == 0


def test_namespaced_policies_can_be_ignored(tmp_path: Path) -> None:
    soft = {"constraints": {"whenUnsatisfiable": ["ScheduleAnyway"]}}
    own = policy_manifest("own", soft, NAMESPACED, namespace="default")
    items = [*zones("a", "b"), *web(3, 1), own, json.loads(policy())]
    assert report(tmp_path, items).violated == 0
    ignoring = report(tmp_path, items, "--namespaced-policies", "ignore")
    assert ignoring.violated == 1
    assert [policy.name for policy in ignoring.policies] == ["mine"]


def test_ignored_policies_restore_nothing_and_are_not_replaced_by_the_default(tmp_path: Path) -> None:
    own = policy_manifest("own", {"mode": "DryRun", "quietPeriod": "forever"}, NAMESPACED, namespace="default")
    ignoring = report(tmp_path, [*zones("a", "b"), *web(3, 1), own], "--namespaced-policies", "ignore")
    assert (ignoring.policies, ignoring.moves, ignoring.default_policy) == ((), (), False)
    assert not [note for note in ignoring.notes if note.startswith(("Polic", "There is no policy"))]


def test_a_namespace_option_shows_only_that_part_of_the_plan(tmp_path: Path) -> None:
    items = [*zones("a", "b"), *web(3, 1), *web(5, 1, name="cart", namespace="shop")]
    whole = report(tmp_path, items)
    assert (whole.evictions, whole.lower_bound, whole.violated) == (3, 3, 2)
    part = report(tmp_path, items, "-n", "shop")
    assert {move.namespace for move in part.moves} == {"shop"}
    assert (part.evictions, part.lower_bound, part.violated, part.selected) == (2, None, 1, 1)


def test_protected_pods_are_not_planned_to_move(tmp_path: Path) -> None:
    never = {"annotations": {"respread.dev/evict": "never"}}
    planned = report(tmp_path, [*zones("a", "b"), *web(3, 1, metadata=never)])
    assert [blocked.reason for blocked in planned.blocked] == ["ProtectedPod"]


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry["kind"])
def test_a_snapshot_can_contain_objects_of_every_kind(tmp_path: Path, entry: dict[str, Any]) -> None:
    assert run(tmp_path, [*zones("a", "b"), *web(3, 1), entry]).exit_code == 0


def printed(planned: PlanReport, width: int, *, wide: bool = False, encoding: str = "utf-8") -> str:
    console = Console(file=io.TextIOWrapper(io.BytesIO(), encoding=encoding), width=width, highlight=False)
    with console.capture() as captured:
        for part in PlanView(console, wide=wide, with_namespace=True).render(planned):
            console.print(part, crop=False)
    return captured.get()


def long_names(tmp_path: Path) -> PlanReport:
    name = "a-deployment-whose-name-is-as-long-as-some-are-in-real-life"
    nodes = [
        manifest_of_node(f"ip-10-0-0-{number}.eu-central-1.compute.internal", f"eu-central-1{zone}")
        for number, zone in enumerate("abc")
    ]
    placed = {nodes[0]["metadata"]["name"]: 7, nodes[1]["metadata"]["name"]: 1}
    stuck = deployment_pods("other", placed, metadata={"annotations": {"respread.dev/evict": "never"}})
    return report(tmp_path, [*nodes, *deployment_pods(name, placed, namespace="a-namespace-of-many-letters"), *stuck])


@pytest.mark.parametrize("width", [80, 100, 160])
@pytest.mark.parametrize("encoding", ["utf-8", "ascii"])
def test_a_plan_with_long_names_fits_the_terminal(tmp_path: Path, width: int, encoding: str) -> None:
    planned = long_names(tmp_path)
    text = printed(planned, width, encoding=encoding)
    text.encode(encoding)
    names = {move.pod for move in planned.moves}
    assert all(len(line) <= width or line.strip() in names for line in text.splitlines())
    assert "zone skew 7/1" in text
    assert not {"…", "~"} & set(text)


def test_names_stay_whole_where_the_table_is_wider_than_the_terminal(tmp_path: Path) -> None:
    move = long_names(tmp_path).moves[0]
    lines = printed(long_names(tmp_path), 80).splitlines()
    at = lines.index(f"1  wave 1, namespace {move.namespace}")
    assert [line.strip() for line in lines[at + 1 : at + 4]] == [
        move.pod,
        f"on {move.node}",
        "eu-central-1a → eu-central-1c  zone skew 7/1",
    ]


def test_moves_are_shown_with_their_target_domains(tmp_path: Path) -> None:
    lines = printed(report(tmp_path, [*zones("a", "b", "c"), *web(3, 1, 1)]), 160).splitlines()
    assert lines[0] == "Evictions, in this order:"
    assert lines[2].split()[:3] == ["1", "1", "default"]
    assert "zone-a → zone-b or zone-c" in lines[2]
    assert "zone skew 2/1" in lines[2]
    assert lines[4] == "What they do:"
    assert "3 1 1 → 2 2 1" in lines[6] or "3 1 1 → 2 1 2" in lines[6]


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ((3, 1), "1 eviction to restore 1 of 1 violated constraint; no plan of safe evictions needs fewer."),
        ((5, 1), "2 evictions to restore 1 of 1 violated constraint; no plan of safe evictions needs fewer."),
    ],
)
def test_the_last_line_summarizes_the_plan(tmp_path: Path, counts: tuple[int, ...], said: str) -> None:
    first, second = summary(report(tmp_path, [*zones("a", "b"), *web(*counts)])).plain.splitlines()
    assert (first, second) == (
        said,
        "Within limits they take an unknown time: no pod shows how long it takes to become Ready.",
    )


def test_a_plan_says_how_long_it_takes_and_which_limit_bounds_it(tmp_path: Path) -> None:
    """The pods took 30 s to become Ready, and one of the workload is moved at a time."""
    pods = web(7, 1)
    for each in pods:
        (ready,) = each["status"]["conditions"]
        ready["lastTransitionTime"] = "2020-01-01T00:00:30Z"
    plan = report(tmp_path, [*zones("a", "b"), *pods])
    assert plan.evictions == 3
    assert (plan.pace, summary(plan).plain.splitlines()[1]) == (
        PaceReport(seconds=90, bound_by="inFlightPerWorkload 1"),
        "Within limits they take about 90 s: inFlightPerWorkload 1.",
    )
    file = tmp_path / "policy.json"
    file.write_text(policy(limits={"inFlightPerWorkload": "50%"}), encoding="utf-8")
    half = report(tmp_path, [*zones("a", "b"), *pods], "-f", str(file))
    assert half.pace == PaceReport(seconds=60, bound_by="inFlightPerNode 2")
    assert report(tmp_path, [*zones("a", "b"), *web(1, 1)]).pace == PaceReport(seconds=0, bound_by=None)


def test_violations_that_no_policy_selects_are_mentioned(tmp_path: Path) -> None:
    soft = web(4, 0, when="ScheduleAnyway")
    assert "1 more constraint is violated that no policy restores" in run(tmp_path, [*zones("a", "b"), *soft]).stdout


def test_yaml_and_json_output_are_equal(tmp_path: Path) -> None:
    items = [*zones("a", "b"), *web(3, 1)]
    as_yaml = yaml.safe_load(run(tmp_path, items, "-o", "yaml").stdout)
    as_json = json.loads(run(tmp_path, items, "-o", "json").stdout)
    assert {**as_yaml, "time": ""} == {**as_json, "time": ""}


def test_a_scheduler_configuration_can_be_passed(tmp_path: Path) -> None:
    items = [*zones("a", "b"), *web(3, 1)]
    file = tmp_path / "scheduler.yaml"
    affinity = {"nodeSelectorTerms": [{"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["zone-a"]}]}]}
    arguments = {"addedAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": affinity}}
    profile = {"schedulerName": "default-scheduler", "pluginConfig": [{"name": "NodeAffinity", "args": arguments}]}
    configuration = {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
    file.write_text(yaml.safe_dump({**configuration, "profiles": [profile]}))
    (blocked,) = report(tmp_path, items, "--scheduler-configuration", str(file)).blocked
    assert blocked.reason == "NoFeasibleNode"
    file.write_text("kind: Pod")
    refused = run(tmp_path, items, "--scheduler-configuration", str(file))
    assert refused.exit_code == 2
    assert refused.stderr.startswith(f"Error: --scheduler-configuration {file}: ")


def full_but_for_one() -> list[dict[str, Any]]:
    """Return two Deployments, either of which could use node-c, which has room for one pod."""
    nodes = zones("a", "b", "c")
    nodes[2]["status"]["allocatable"]["pods"] = "1"
    return [*nodes, *web(2, 1), *web(2, 1, name="api")]


def test_the_first_wave_has_only_the_moves_that_fit(tmp_path: Path) -> None:
    moves = report(tmp_path, full_but_for_one()).moves
    assert [(move.wave, move.waits_for) for move in moves] == [(1, None)]


def test_a_move_waits_for_a_pending_pod_that_may_take_its_room(tmp_path: Path) -> None:
    pending = manifest_of_pod("other", "", "other", {"nodeSelector": {ZONE: "zone-c"}})
    pending["status"] = {"phase": "Pending"}
    moves = report(tmp_path, [*full_but_for_one(), pending]).moves
    assert {move.wave for move in moves} == {2}
    assert "it waits until pod default/other has a node: " in (moves[0].waits_for or "")
    assert "node-c" in (moves[0].waits_for or "")
    shown = run(tmp_path, [*full_but_for_one(), pending]).stdout
    assert "1 waits: it waits until pod default/other has a node" in shown.replace("\n", " ")


def test_a_pending_pod_that_fits_nowhere_reserves_no_room(tmp_path: Path) -> None:
    pending = manifest_of_pod("other", "", "other", {"nodeSelector": {ZONE: "zone-x"}})
    pending["status"] = {"phase": "Pending"}
    assert [move.wave for move in report(tmp_path, [*full_but_for_one(), pending]).moves] == [1]


def test_a_move_in_flight_reserves_its_room_until_its_replacement_has_a_node(tmp_path: Path) -> None:
    """The pod is deleted and its replacement does not exist yet: only the policy's record has the move."""
    gone = web(1, name="api")[0]["metadata"]
    in_flight = {
        "uid": "uid-gone",
        "namespace": "default",
        "pod": "api-node-a-9",
        "node": "node-a",
        "workload": "Deployment/api",
        "controllerKind": "ReplicaSet",
        "controllerName": "api-1",
        "controllerUid": gone["ownerReferences"][0]["uid"],
        "sent": "2026-11-21T09:00:00Z",
        "newest": "2020-01-01T00:00:00Z",
        "newestPods": [each["metadata"]["name"] for each in web(1, 1, name="api")],
    }
    enforcing = json.loads(policy(mode="Enforce"))
    enforcing["metadata"]["uid"] = "uid-policy"
    record = {
        "apiVersion": enforcing["apiVersion"],
        "kind": "ClusterRebalancePolicyRecord",
        "metadata": {"name": "uid-policy"},
        "policy": enforcing["metadata"]["name"],
        "record": json.dumps({"movesInFlight": [in_flight]}),
    }
    nodes = full_but_for_one()[:3]
    items = [*nodes, *web(2, 1), *web(1, 1, name="api")]
    assert [move.wave for move in report(tmp_path, [*items, json.loads(policy())]).moves] == [1]
    about = {"takenAt": "2026-11-21T09:00:05Z", "source": "a test"}
    file = tmp_path / "in-flight.json"
    file.write_text(json.dumps({**list_of([*items, enforcing, record]), ABOUT: about}), encoding="utf-8")
    done = CliRunner().invoke(respread, ["plan", "--snapshot", str(file), "-o", "json"])
    (move,) = msgspec.json.decode(done.stdout, type=PlanReport, strict=False).moves
    assert move.wave == 2
    assert "it waits until the replacement of pod default/api-node-a-9 has a node" in (move.waits_for or "")


CLUSTER_POLICY = """
apiVersion: respread.dev/v1alpha1
kind: ClusterRebalancePolicy
metadata: {name: all}
spec: {mode: Enforce}
"""
POLICY = """
apiVersion: respread.dev/v1alpha1
kind: RebalancePolicy
metadata: {name: own}
spec: {quietPeriod: 1m}
"""


def read(directory: Path, *texts: str) -> tuple[Policy, ...]:
    files = [directory / f"{number}.yaml" for number in range(len(texts))]
    for file, text in zip(files, texts, strict=True):
        file.write_text(text, encoding="utf-8")
    return read_policies([str(file) for file in files], default_namespace="shop")


def error_of(directory: Path, *texts: str) -> str:
    with pytest.raises(CommandError) as caught:
        read(directory, *texts)
    return caught.value.message.replace(f"{directory}/", "")


def test_several_documents_in_several_files_are_read(tmp_path: Path) -> None:
    other = POLICY.replace("own", "other")
    assert [each.name for each in read(tmp_path, f"---{CLUSTER_POLICY}---{POLICY}---\n", other)] == [
        "all",
        "shop/own",
        "shop/other",
    ]


def test_lists_from_kubectl_get_are_read(tmp_path: Path) -> None:
    items = "\n".join(f"- {line}" if line.startswith("api") else f"  {line}" for line in POLICY.strip().splitlines())
    assert [each.name for each in read(tmp_path, f"apiVersion: v1\nkind: List\nitems:\n{items}\n")] == ["shop/own"]
    raw = (
        '{"apiVersion": "respread.dev/v1alpha1", "kind": "RebalancePolicyList", "items": [{"metadata": {"name": "a"}}]}'
    )
    assert [each.name for each in read(tmp_path, raw)] == ["shop/a"]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "0.yaml holds no policy."),
        ("a: [", "0.yaml is not YAML: "),
        ("7", "0.yaml: a policy must be an object"),
        ("kind: Deployment\napiVersion: apps/v1", "0.yaml: apiVersion: a policy's is respread.dev/v1alpha1"),
        (
            CLUSTER_POLICY.replace("{name: all}", "{}"),
            "0.yaml: metadata.name: every ClusterRebalancePolicy needs a name",
        ),
        (CLUSTER_POLICY.replace("Enforce", "Enforced"), "0.yaml (ClusterRebalancePolicy all): spec.mode: "),
        (f"{POLICY}---{POLICY}", "0.yaml, document 2: there is a RebalancePolicy shop/own already"),
    ],
    ids=range(7),
)
def test_mistakes_are_reported_with_file_document_and_field(tmp_path: Path, text: str, message: str) -> None:
    assert error_of(tmp_path, text).startswith(message)


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    wrong = CLUSTER_POLICY.replace("{mode: Enforce}", "{mode: Maybe, quietPeriod: soon}")
    message = error_of(tmp_path, f"{wrong}---\nkind: Pod\n---{POLICY}")
    assert message.startswith("3 mistakes:\n  0.yaml, document 1 (ClusterRebalancePolicy all): spec.mode: ")
    assert "\n  0.yaml, document 1 (ClusterRebalancePolicy all): spec.quietPeriod: " in message
    assert "\n  0.yaml, document 2: apiVersion: " in message


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CommandError, match=r"missing.yaml can't be read: No such file or directory"):
        read_policies([str(tmp_path / "missing.yaml")], default_namespace="default")


def test_a_binary_file_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "policy.yaml").write_bytes(b"\xff\xfe")
    with pytest.raises(CommandError, match=r"policy.yaml is not text in UTF-8"):
        read_policies([str(tmp_path / "policy.yaml")], default_namespace="default")


def test_the_default_policy_has_an_empty_spec(tmp_path: Path) -> None:
    text = CLUSTER_POLICY.replace("{mode: Enforce}", "{}")
    assert read(tmp_path, text)[0].spec == DEFAULT_POLICY.spec


def plan_of(cluster: Path, *arguments: str) -> Result:
    return CliRunner().invoke(respread, ["plan", "--snapshot", str(cluster), *arguments])


def differ(tmp_path: Path, before: list[dict[str, Any]], after: list[dict[str, Any]], *arguments: str) -> Result:
    old = snapshot_of(tmp_path, before, "before.json")
    new = snapshot_of(tmp_path, after, "after.json")
    plan = tmp_path / "plan.json"
    plan.write_text(plan_of(old, "-o", "json").stdout, encoding="utf-8")
    done = plan_of(new, "--diff", str(plan), *arguments)
    assert done.exit_code in {0, 1}, done.output
    return done


def test_the_same_cluster_has_the_same_plan(tmp_path: Path) -> None:
    cluster = [*zones("a", "b"), *web(3, 1)]
    assert differ(tmp_path, cluster, cluster).stdout == "The plans are the same.\n"
    document = json.loads(differ(tmp_path, cluster, cluster, "-o", "json").stdout)
    assert (document["constraints"], document["addedMoves"], document["removedMoves"]) == ([], [], [])


def test_a_new_violation_is_named_with_its_evictions(tmp_path: Path) -> None:
    before = [*zones("a", "b"), *web(3, 1), *web(2, 2, name="api")]
    after = [*zones("a", "b"), *web(3, 1), *web(4, 0, name="api")]
    document = json.loads(differ(tmp_path, before, after, "-o", "json").stdout)
    (constraint,) = document["constraints"]
    assert constraint["workloads"] == [{"kind": "Deployment", "name": "api"}]
    assert constraint["before"] is None
    assert (constraint["after"]["skew"], constraint["after"]["evictions"]) == (4, 2)
    assert len(document["addedMoves"]) == 2
    assert document["removedMoves"] == []
    table = differ(tmp_path, before, after).stdout
    assert "Violated constraints: 1 before, 2 now." in table
    assert "nothing to do" in table
    assert "skew 4 (maxSkew 1), 2 evictions" in table


def test_restored_and_newly_blocked_groups_are_named(tmp_path: Path) -> None:
    held = {"annotations": {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}}
    before = [*zones("a", "b"), *web(3, 1), *web(3, 0, name="api")]
    after = [*zones("a", "b"), *web(2, 2), *web(3, 0, name="api", metadata=held)]
    document = json.loads(differ(tmp_path, before, after, "-o", "json").stdout)
    found = {each["workloads"][0]["name"]: each for each in document["constraints"]}
    assert found["web"]["after"] is None
    assert found["api"]["before"]["reason"] is None
    assert found["api"]["after"]["reason"] == "ProtectedPod"
    assert len(document["removedMoves"]) == 2


def test_a_file_that_is_not_a_plan_is_an_error(tmp_path: Path) -> None:
    cluster = snapshot_of(tmp_path, [*zones("a"), *web(1)])
    done = plan_of(cluster, "--diff", str(cluster))
    assert done.exit_code == 2
    assert "is not what `respread plan -o json` writes" in done.output
    assert plan_of(cluster, "--diff", str(tmp_path / "none.json")).exit_code == 2
