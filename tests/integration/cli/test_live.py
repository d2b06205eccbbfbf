"""`respread skew`, `plan` and `snapshot` on a real API server."""

from __future__ import annotations

import gzip
import json
import os
import pty
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest
import yaml
from click.testing import CliRunner

from respread import __version__
from respread_cli.main import respread
from respread_sandbox import Sandbox
from tests.integration.operator_process import OperatorProcess
from tests.integration.operator_process import policy as hurried
from tests.integration.workloads import (
    HOSTNAME,
    ZONE,
    constraint,
    create_deployment,
    deployment,
    pods_per_domain,
    scale,
    wait_for_ready_pods,
    wait_until,
)

NAMESPACE = "shop"


@pytest.fixture(scope="module")
def cluster(sandbox: Sandbox) -> Sandbox:
    """A cluster in which `fine` is spread and `bad` is not, because its pods ran before the nodes had zones."""
    sandbox.create_namespace(NAMESPACE)
    hard = [constraint(ZONE, "fine"), constraint(HOSTNAME, "fine", when_unsatisfiable="ScheduleAnyway")]
    create_deployment(sandbox, NAMESPACE, deployment("fine", replicas=6, constraints=hard))
    wait_for_ready_pods(sandbox, NAMESPACE, "fine", 6)
    bad = [constraint(ZONE, "bad", nodeTaintsPolicy="Honor")]
    with zone_a_alone(sandbox):
        create_deployment(sandbox, NAMESPACE, deployment("bad", replicas=5, constraints=bad))
        wait_for_ready_pods(sandbox, NAMESPACE, "bad", 5)
    return sandbox


@contextmanager
def zone_a_alone(sandbox: Sandbox) -> Iterator[None]:
    """Cordon all other nodes while the context lasts."""
    others = [name for name in sandbox.nodes.names() if not name.startswith("node-a")]
    sandbox.nodes.cordon(*others)
    yield
    sandbox.nodes.uncordon(*others)


@pytest.fixture
def young(cluster: Sandbox) -> Sandbox:
    """The same cluster with new pods of `bad`, which are too young for an empty policy to evict."""
    with zone_a_alone(cluster):
        selected = f"/api/v1/namespaces/{NAMESPACE}/pods?labelSelector=app%3Dbad&gracePeriodSeconds=0"
        cluster.api.request("DELETE", selected)
        wait_for_ready_pods(cluster, NAMESPACE, "bad", 5)
    return cluster


@pytest.fixture
def policy(tmp_path: Path) -> Path:
    """Return a file with a policy that allows evicting pods of any age."""
    file = tmp_path / "policy.json"
    file.write_text(json.dumps(hurried("hurried")))
    return file


def run(cluster: Sandbox | Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    kubeconfig = cluster.kubeconfig if isinstance(cluster, Sandbox) else cluster
    done = CliRunner().invoke(
        respread, arguments, env={"KUBECONFIG": str(kubeconfig), **environment}, catch_exceptions=False
    )
    return subprocess.CompletedProcess(arguments, done.exit_code, done.stdout, done.stderr)


def parsed(cluster: Sandbox, *arguments: str) -> dict[str, Any]:
    done = CliRunner().invoke(respread, [*arguments, "-o", "json"], env={"KUBECONFIG": str(cluster.kubeconfig)})
    assert done.exit_code in {0, 1}, done.output
    report: dict[str, Any] = json.loads(done.stdout)
    return report


def test_skew_matches_the_pods_in_the_cluster(cluster: Sandbox) -> None:
    groups = parsed(cluster, "skew", "-k", "zone")["groups"]
    assert [group["workloads"] for group in groups] == [
        [{"kind": "Deployment", "name": "bad"}],
        [{"kind": "Deployment", "name": "fine"}],
    ]
    for group, name in zip(groups, ("bad", "fine"), strict=True):
        assert group["counts"] == pods_per_domain(cluster, NAMESPACE, name)
    assert groups[0]["counts"] == {"zone-a": 5, "zone-b": 0, "zone-c": 0}
    assert groups[0]["skew"] == 5
    assert groups[0]["excess"] == 4


def test_exit_codes_say_whether_the_shown_groups_are_balanced(cluster: Sandbox) -> None:
    assert run(cluster, "skew").returncode == 0
    assert run(cluster, "skew", "--exit-code").returncode == 1
    assert run(cluster, "skew", "--exit-code", "fine").returncode == 0
    assert run(cluster, "skew", "--exit-code", "-n", "default").returncode == 0
    assert run(cluster, "skew", "--exit-code", "--when-unsatisfiable", "ScheduleAnyway").returncode == 0
    typo = run(cluster, "skew", "fin")
    assert typo.returncode == 2
    assert typo.stderr == "Error: no pod of fin has a topology spread constraint. Did you mean fine?\n"


def test_the_table_is_plain_without_a_terminal(cluster: Sandbox) -> None:
    done = run(cluster, "skew", COLUMNS="80")
    lines = done.stdout.splitlines()
    assert lines[1].split() == ["✗", NAMESPACE, "deploy/bad", "zone", "5/1", "zone-a", "5", "█████"]
    assert lines[-1] == "1 of 3 constraints violated: 1 DoNotSchedule."
    assert "\x1b" not in done.stdout
    assert max(map(len, lines)) <= 80


def test_plan_without_respread_installed_uses_an_empty_policy(young: Sandbox) -> None:
    plan = parsed(young, "plan")
    assert plan["defaultPolicy"]
    assert plan["notes"][0] == (
        "The cluster has no policy. This is the plan for a ClusterRebalancePolicy with an empty spec."
    )
    assert [(each["group"]["skew"], each["reason"]) for each in plan["blocked"]] == [(5, "TooYoung")]
    done = run(young, "plan")
    assert done.returncode == 0
    assert "No eviction is planned for 1 violated constraint." in done.stdout


def test_plan_uses_the_policies_of_a_file(cluster: Sandbox, policy: Path) -> None:
    plan = parsed(cluster, "plan", "-f", str(policy))
    assert [each["name"] for each in plan["policies"]] == ["hurried"]
    # [5, 0, 0] with maxSkew 1 becomes [2, 2, 1].
    assert (plan["evictions"], plan["lowerBound"], plan["violated"], plan["selected"]) == (3, 3, 1, 2)
    assert [group["countsAfter"]["zone-a"] for group in plan["groups"]] == [2]
    assert {move["constraints"][0]["fromDomain"] for move in plan["moves"]} == {"zone-a"}
    assert len({move["pod"] for move in plan["moves"]}) == 3
    done = run(cluster, "plan", "-f", str(policy), COLUMNS="160")
    assert done.returncode == 0
    assert "3 evictions to restore 1 of 1 violated constraint; no plan of safe evictions needs fewer." in done.stdout


def test_explain_shows_the_planned_state_of_each_pod(cluster: Sandbox, policy: Path) -> None:
    plan = parsed(cluster, "plan", "-f", str(policy))
    report = parsed(cluster, "explain", "deploy/bad", "-f", str(policy))
    assert [pod["move"] for pod in report["pods"] if pod["fate"] == "Moves"] == plan["moves"]
    assert sorted(pod["fate"] for pod in report["pods"]) == ["MayMove", "MayMove", "Moves", "Moves", "Moves"]
    (constraint,) = report["constraints"]
    assert [(each["domain"], each["pods"], each["closed"]) for each in constraint["domains"]] == [
        ("zone-a", 5, None),
        ("zone-b", 0, None),
        ("zone-c", 0, None),
    ]
    fine = run(cluster, "explain", "deploy/fine", "-f", str(policy))
    assert fine.returncode == 0
    assert "It holds: nothing to do." in fine.stdout


def test_explain_says_that_pods_are_too_young_for_an_empty_policy(young: Sandbox) -> None:
    report = parsed(young, "explain", "deploy/bad")
    assert {(pod["fate"], pod["reason"]) for pod in report["pods"]} == {("Held", "TooYoung")}


@pytest.mark.parametrize("name", ["cluster.json", "cluster.json.gz"])
def test_a_snapshot_gives_the_same_reports_as_the_cluster(
    cluster: Sandbox, policy: Path, tmp_path: Path, name: str
) -> None:
    file = tmp_path / name
    written = run(cluster, "snapshot", str(file))
    assert written.returncode == 0
    assert (
        "Wrote 11 pods, 12 nodes, " in written.stderr.replace("namespaces, 12", "namespaces,12")
        or "11 pods" in written.stderr
    )
    assert file.read_bytes().startswith(b"\x1f\x8b") == name.endswith(".gz")
    for command, part in (("skew", "groups"), ("plan", "moves")):
        options = ["-f", str(policy)] if command == "plan" else []
        from_file = parsed(cluster, command, *options, "--snapshot", str(file))
        assert from_file[part] == parsed(cluster, command, *options)[part]
        assert from_file["source"] == f"{file}, context {cluster.name}"


def test_a_snapshot_can_be_piped(cluster: Sandbox) -> None:
    written = run(cluster, "snapshot", "-")
    looked_at = CliRunner().invoke(respread, ["skew", "--snapshot", "-", "-o", "json"], input=written.stdout)
    assert json.loads(looked_at.stdout)["groups"] == parsed(cluster, "skew")["groups"]


def test_output_of_kubectl_get_is_a_snapshot(cluster: Sandbox, tmp_path: Path) -> None:
    kinds = "pods,nodes,namespaces,pdb,pvc,pv,sc,csinodes,services"
    file = tmp_path / "cluster.json.gz"
    file.write_bytes(gzip.compress(cluster.kubectl("get", kinds, "-A", "-o", "json").encode()))
    for command, part in (("skew", "groups"), ("plan", "groups")):
        from_file = parsed(cluster, command, "--snapshot", str(file))
        assert from_file[part] == parsed(cluster, command)[part]


def test_a_snapshot_is_written_completely_or_not_at_all(cluster: Sandbox, tmp_path: Path) -> None:
    done = run(cluster, "snapshot", str(tmp_path / "missing" / "cluster.json"))
    assert done.returncode == 2
    assert "cluster.json can't be written: No such file or directory." in done.stderr
    file = tmp_path / "cluster.json"
    refused = run(account(cluster, "nobody"), "snapshot", str(file))
    assert refused.returncode == 2
    assert list(tmp_path.iterdir()) == []


def test_lists_of_many_pages_are_read_completely(cluster: Sandbox, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("respread_cli.read.connection.PAGE_OBJECTS", 2)
    arguments = ["skew", "-o", "json", "--kubeconfig", str(cluster.kubeconfig)]
    assert json.loads(CliRunner().invoke(respread, arguments).stdout)["groups"] == parsed(cluster, "skew")["groups"]


def test_every_option_can_be_a_variable(cluster: Sandbox) -> None:
    done = run(cluster, "skew", RESPREAD_NAMESPACE="default", RESPREAD_OUTPUT="json")
    assert json.loads(done.stdout)["groups"] == []
    assert (
        len(
            json.loads(run(cluster, "skew", "-A", RESPREAD_NAMESPACE="default", RESPREAD_OUTPUT="json").stdout)[
                "groups"
            ]
        )
        == 3
    )


def account(cluster: Sandbox, name: str, *rules: dict[str, Any], namespace: str = "") -> Path:
    """Return the kubeconfig of a ServiceAccount with only these permissions."""
    core = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts"
    if not cluster.api.exists(f"{core}/{name}"):
        cluster.api.request("POST", core, {"metadata": {"name": name}})
    kind = "Role" if namespace else "ClusterRole"
    rbac = "/apis/rbac.authorization.k8s.io/v1" + (f"/namespaces/{namespace}" if namespace else "")
    if rules:
        labels = {"metadata": {"name": f"{name}-{kind.lower()}"}}
        cluster.api.request("POST", f"{rbac}/{kind.lower()}s", {**labels, "rules": list(rules)})
        binding = {
            **labels,
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": kind, "name": f"{name}-{kind.lower()}"},
            "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": NAMESPACE}],
        }
        cluster.api.request("POST", f"{rbac}/{kind.lower()}bindings", binding)
    return cluster.kubeconfig_for_service_account(NAMESPACE, name)


def rule(*resources: str, group: str = "") -> dict[str, Any]:
    return {"apiGroups": [group], "resources": list(resources), "verbs": ["list"]}


def test_without_permission_to_read_policies_the_spread_is_shown_without_protection(cluster: Sandbox) -> None:
    done = run(account(cluster, "onlooker", rule("pods", "nodes")), "skew", "-o", "json")
    assert done.returncode == 0
    report = json.loads(done.stdout)
    assert len(report["groups"]) == 3
    assert report["protections"] is None
    assert any("clusterrebalancepolicies" in note for note in report["notes"])
    told = parsed(cluster, "skew")["protections"]
    assert {(each["workload"]["name"], each["reason"]) for each in told} == {("bad", "NoPolicy"), ("fine", "NoPolicy")}


def test_a_missing_permission_is_named(cluster: Sandbox) -> None:
    done = run(account(cluster, "nobody"), "skew")
    assert done.returncode == 2
    assert done.stderr.startswith("Error: you are not allowed to list pods: pods is forbidden: User ")
    assert "If you may list them in one namespace, name it by -n." in done.stderr
    assert done.stderr.endswith("For all namespaces, ask for the ClusterRole view by a ClusterRoleBinding.\n")
    assert "Traceback" not in done.stderr


def test_permissions_in_one_namespace_suffice_for_that_namespace(cluster: Sandbox) -> None:
    account(cluster, "guest", rule("nodes"))
    kubeconfig = account(cluster, "guest", rule("pods"), namespace=NAMESPACE)
    assert run(kubeconfig, "skew").returncode == 2
    done = run(kubeconfig, "skew", "-n", NAMESPACE, "-o", "json")
    assert len(json.loads(done.stdout)["groups"]) == 3


def test_a_snapshot_may_lack_owners(cluster: Sandbox, tmp_path: Path) -> None:
    kubeconfig = account(
        cluster,
        "auditor",
        rule("pods", "nodes", "namespaces", "services", "persistentvolumeclaims", "persistentvolumes"),
        rule("poddisruptionbudgets", group="policy"),
        rule("storageclasses", "csinodes", group="storage.k8s.io"),
        rule("priorityclasses", group="scheduling.k8s.io"),
        rule("rebalancepolicies", "clusterrebalancepolicies", group="respread.dev"),
    )
    file = tmp_path / "cluster.json"
    done = run(kubeconfig, "snapshot", str(file))
    assert done.returncode == 0
    assert "Note: Left out: you are not allowed to list replicasets.apps: " in done.stderr
    assert parsed(cluster, "skew", "--snapshot", str(file))["groups"] == parsed(cluster, "skew")["groups"]


def changed(cluster: Sandbox, directory: Path, change: dict[str, dict[str, Any]]) -> Path:
    """Return a copy of the administrator's kubeconfig with a changed cluster or user."""
    content = yaml.safe_load(cluster.kubeconfig.read_text())
    for part, fields in change.items():
        content[f"{part}s"][0][part].update(fields)
    file = directory / "kubeconfig"
    file.write_text(yaml.safe_dump(content))
    return file


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"cluster": {"server": "https://127.0.0.1:1"}}, "(context {name}) can't be reached: Connection refused."),
        ({"cluster": {"server": "https://nowhere.invalid"}}, "(context {name}) can't be reached: "),
        ({"user": {"token": "expired"}}, "does not accept the credentials of context {name}: they may have expired"),
        ({"cluster": {"tls-server-name": "somebody.else"}}, "(context {name}) is not who the kubeconfig says: "),
    ],
    ids=["refused", "no such host", "credentials", "certificate"],
)
def test_connection_errors_are_explained(cluster: Sandbox, tmp_path: Path, change: dict[str, Any], said: str) -> None:
    for command in ("skew", "plan"):
        done = run(changed(cluster, tmp_path, change), command)
        assert done.returncode == 2
        assert said.format(name=cluster.name) in done.stderr
        assert len(done.stderr.splitlines()) == 1


def test_an_unknown_context_is_an_error(cluster: Sandbox) -> None:
    done = run(cluster, "skew", "--context", "prod")
    assert done.returncode == 2
    assert f"there is no context 'prod' in the kubeconfig {cluster.kubeconfig}; it has {cluster.name}." in done.stderr


@contextmanager
def watching(
    cluster: Sandbox, *arguments: str, terminal: bool = False
) -> Iterator[tuple[subprocess.Popen[bytes], Callable[[], str]]]:
    """Run a command with --watch, and return a function that returns its output so far, on a terminal or a pipe."""
    reading, writing = pty.openpty() if terminal else os.pipe()
    printed = bytearray()

    def collect() -> None:
        while True:
            try:
                got = os.read(reading, 65536)
            except OSError:  # the command has closed the terminal
                return
            if not got:
                return
            printed.extend(got)

    process = subprocess.Popen(
        [sys.executable, "-m", "respread_cli.main", *arguments, "--watch"],
        stdout=writing,
        stderr=writing,
        env={**os.environ, "KUBECONFIG": str(cluster.kubeconfig), "COLUMNS": "100", "LINES": "12", "TERM": "xterm"},
    )
    os.close(writing)
    collector = threading.Thread(target=collect)
    collector.start()
    try:
        yield process, lambda: printed.decode(errors="replace")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()
        collector.join()
        os.close(reading)


@pytest.fixture
def restored_fine(cluster: Sandbox) -> Iterator[None]:
    """Scale `fine` back after the test."""
    yield
    scale(cluster, NAMESPACE, "fine", 6)
    wait_for_ready_pods(cluster, NAMESPACE, "fine", 6)


@pytest.mark.usefixtures("restored_fine")
def test_watch_appends_a_scale_down_without_a_terminal(cluster: Sandbox) -> None:
    counts = "jsonpath={.groups[0].counts}"
    with watching(cluster, "skew", "deploy/fine", "-k", "zone", "-o", counts) as (process, printed):

        def pods_counted() -> list[int]:
            return [sum(json.loads(line).values()) for line in printed().splitlines()]

        wait_until(lambda: pods_counted() == [6], "the first result")
        scale(cluster, NAMESPACE, "fine", 4)
        wait_until(lambda: pods_counted()[-1] == 4, lambda: f"4 pods: {printed()}")
        lines = printed().splitlines()
        assert all(line != after for line, after in pairwise(lines))
        assert json.loads(lines[-1]) == pods_per_domain(cluster, NAMESPACE, "fine")
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert "Traceback" not in printed()


@pytest.mark.usefixtures("restored_fine")
@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_watch_redraws_its_output_on_a_terminal_and_restores_the_terminal(
    cluster: Sandbox, number: signal.Signals, code: int
) -> None:
    begin, end = "\x1b[?1049h", "\x1b[?1049l"
    with watching(cluster, "skew", "deploy/fine", "-k", "zone", "--no-color", terminal=True) as (process, printed):
        wait_until(lambda: "2 2 2" in printed() and "Ctrl-C ends" in printed(), lambda: f"a result: {printed()!r}")
        assert printed().startswith(begin)
        scale(cluster, NAMESPACE, "fine", 3)
        wait_for_ready_pods(cluster, NAMESPACE, "fine", 3)
        now = pods_per_domain(cluster, NAMESPACE, "fine")
        drawn = " ".join(map(str, now.values())) if max(now.values()) == 1 else f"zone-a {now['zone-a']}"
        wait_until(lambda: drawn in printed().rpartition("\x1b[H")[2], lambda: f"{drawn}: {printed()!r}")
        process.send_signal(number)
        assert process.wait(60) == code
    watched, _, left = printed().partition(end)
    assert "\x1b[2J" not in watched.partition(begin)[2].partition("2 2 2")[2], "it flickers"
    assert drawn in left  # the last screen stays visible below the typed command
    assert left.count("deploy/fine") == 1
    assert "Ctrl-C" not in left
    assert "Traceback" not in printed()


def test_as_impersonates_a_user_and_groups(cluster: Sandbox) -> None:
    refused = run(cluster, "skew", "--as", "nobody")
    assert refused.returncode == 2
    assert 'User "nobody" cannot list resource "pods"' in refused.stderr
    assert run(cluster, "skew", "--as", "nobody", "--as-group", "a", "--as-group", "system:masters").returncode == 0


def test_version_names_the_operator_that_leads(installed_sandbox: Sandbox, tmp_path: Path) -> None:
    server = installed_sandbox.api.get("/version")["gitVersion"]

    def version() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(run(installed_sandbox, "version", "-o", "json").stdout)
        return found

    assert (version()["clientVersion"], version()["serverVersion"], version()["operator"]) == (
        __version__,
        server,
        None,
    )
    assert "none leads" in run(installed_sandbox, "version").stdout
    with OperatorProcess(installed_sandbox, tmp_path) as operator:
        operator.wait_until_ready()
        wait_until(lambda: version()["operator"] is not None, "an operator to lead")
        leader = version()["operator"]
        lease = installed_sandbox.api.get("/apis/coordination.k8s.io/v1/namespaces/respread-system/leases/respread")
        assert leader["version"] == __version__
        assert leader["lease"] == "respread-system/respread"
        assert leader["identity"] == lease["spec"]["holderIdentity"]
        assert f"Operator:    {__version__} ({leader['identity']}" in run(installed_sandbox, "version").stdout
        assert operator.stop() == 0


def test_plan_uses_the_policies_of_the_cluster_once_installed(installed_sandbox: Sandbox) -> None:
    plan = parsed(installed_sandbox, "plan")
    assert not plan["defaultPolicy"]
    assert plan["policies"] == [{"name": "default", "mode": "DryRun", "wrong": []}]
    done = run(installed_sandbox, "plan")
    assert done.returncode == 0
    assert done.stderr.startswith("Note: Policy default is in mode DryRun")
