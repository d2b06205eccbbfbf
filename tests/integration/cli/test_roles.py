"""Users with the read-only roles that Respread installs can use the commands, for the cluster or one namespace."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner, Result

from respread_cli.main import respread
from respread_sandbox import Sandbox
from tests.integration.operator_process import REPOSITORY
from tests.integration.workloads import (
    ZONE,
    constraint,
    create_deployment,
    deployment,
    pods,
    wait_for_ready_pods,
    wait_until,
)

ROLES = REPOSITORY / "manifests" / "base" / "policy-roles.yaml"
AUDITOR, TEAM, GUEST, STRANGER = "an-auditor", "a-team", "a-guest", "a-stranger"


@pytest.fixture(scope="module")
def cluster(sandbox: Sandbox) -> Sandbox:
    """A cluster with two teams and the roles: a viewer of everything, and two of one namespace, one who sees nodes."""
    for namespace in ("shop", "bank"):
        sandbox.create_namespace(namespace)
        create_deployment(sandbox, namespace, deployment("web", replicas=6, constraints=[constraint(ZONE, "web")]))
        wait_for_ready_pods(sandbox, namespace, "web", 6)
    sandbox.apply(ROLES)
    sandbox.kubectl("create", "clusterrolebinding", AUDITOR, "--clusterrole=view", f"--user={AUDITOR}")
    for user in (TEAM, GUEST):
        sandbox.kubectl("create", "rolebinding", user, "-n", "shop", "--clusterrole=view", f"--user={user}")
    sandbox.kubectl("create", "clusterrolebinding", TEAM, "--clusterrole=respread-cluster-view", f"--user={TEAM}")

    def sees_nodes() -> bool:
        return run(sandbox, "skew", AUDITOR).exit_code == 0

    wait_until(sees_nodes, "respread-cluster-view to be aggregated to view")
    return sandbox


def run(cluster: Sandbox, command: str, user: str, *arguments: str) -> Result:
    typed = [*command.split(), "--as", user, *arguments]
    return CliRunner().invoke(respread, typed, env={"KUBECONFIG": str(cluster.kubeconfig)})


def report_of(cluster: Sandbox, command: str, user: str, *arguments: str) -> dict[str, Any]:
    done = run(cluster, command, user, *arguments, "-o", "json")
    assert done.exit_code == 0, done.output
    report: dict[str, Any] = json.loads(done.stdout)
    return report


@pytest.mark.parametrize(
    "command", ["skew", "plan", "explain deploy/web -n shop", "simulate --scale shop/deploy/web=4"]
)
def test_a_viewer_of_the_cluster_can_use_every_command(cluster: Sandbox, command: str) -> None:
    report = report_of(cluster, command, AUDITOR)
    assert not [note for note in report["notes"] if "not allowed" in note]
    assert report["kind"] == report_of(cluster, command, "system:admin", "--as-group", "system:masters")["kind"]


@pytest.mark.parametrize("command", ["skew", "plan", "explain deploy/web", "simulate --scale deploy/web=4"])
def test_a_team_with_its_namespace_and_the_nodes_can_use_them_for_it(cluster: Sandbox, command: str) -> None:
    of_team, of_auditor = (report_of(cluster, command, user, "-n", "shop") for user in (TEAM, AUDITOR))
    key = "constraints" if command.startswith("explain") else "groups"
    assert of_team[key] == of_auditor[key]
    said = [note for note in of_team["notes"] if "Only namespace shop was read" in note]
    assert len(said) == (0 if command == "skew" else 1)
    assert [note for note in of_team["notes"] if "Left out" in note] == []


@pytest.mark.parametrize("command", ["skew", "plan", "explain deploy/web"])
def test_rights_on_one_namespace_alone_show_its_spread_by_the_labels_of_its_pods(
    cluster: Sandbox, command: str
) -> None:
    """PodTopologyLabelsAdmission gives pods the zone of their node."""
    of_guest, of_auditor = (report_of(cluster, command, user, "-n", "shop") for user in (GUEST, AUDITOR))
    key = "constraints" if command.startswith("explain") else "groups"

    def counts(report: dict[str, Any]) -> list[dict[str, int]]:
        return [each.get("counts") or each["group"]["counts"] for each in report[key]]

    assert counts(of_guest) == counts(of_auditor)
    (said,) = (note for note in of_guest["notes"] if note.startswith("You are not allowed to list nodes"))
    assert "respread-cluster-view" in said


@pytest.mark.parametrize(
    ("user", "arguments", "said"),
    [
        (TEAM, [], "ask for the ClusterRole view by a ClusterRoleBinding."),
        (GUEST, ["-n", "bank"], "Ask for the ClusterRole view by a RoleBinding in namespace bank."),
        (STRANGER, ["-n", "shop"], "Ask for the ClusterRole view by a RoleBinding in namespace shop."),
    ],
)
@pytest.mark.parametrize("command", ["skew", "plan"])
def test_the_message_names_the_role_to_ask_for(
    cluster: Sandbox, command: str, user: str, arguments: list[str], said: str
) -> None:
    done = run(cluster, command, user, *arguments)
    assert done.exit_code == 2
    assert "you are not allowed to list pods" in done.stderr
    assert said in done.stderr


def test_no_role_shows_pods_of_other_namespaces(cluster: Sandbox) -> None:
    for user in (TEAM, GUEST):
        assert "bank" not in run(cluster, "plan", user, "-n", "shop", "-o", "json").stdout


def test_a_user_who_may_not_read_all_pods_is_told_so_instead_of_why_pods_are_pending(cluster: Sandbox) -> None:
    late = deployment("late", replicas=1, constraints=[constraint(ZONE, "late")], nodeSelector={ZONE: "zone-x"})
    create_deployment(cluster, "shop", late)
    wait_until(lambda: bool(pods(cluster, "shop", "late")), "a pod without a node")
    said = {}
    for user in (TEAM, AUDITOR):
        (pending,) = report_of(cluster, "skew", user, "-n", "shop")["pending"]
        assert (pending["workload"]["name"], pending["pods"]) == ("late", 1)
        said[user] = pending["message"]
    assert said[TEAM] == "it can't be told why: not all that decides where pods go may be read"
    assert "do not match its nodeSelector or affinity" in said[AUDITOR]
