"""The command line as a whole: the list of commands, errors, and complete documentation."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
from pathlib import Path
from string import Template
from typing import Any, Final
from unittest.mock import Mock

import click
import msgspec
import pytest
import yaml
from click.testing import CliRunner

from respread.cluster.selectors import SelectorError
from respread.program.command_line import CommandWithExamples
from respread_cli import main as cli
from respread_cli.lint.linting import LintFindingReport, LintReport
from respread_cli.report.advice_report import AdviceEntry, AdviceReport
from respread_cli.report.domain_loss import DomainLoss, DomainLossReport, NamespaceLoss, PendingWorkload, WorkloadLoss
from respread_cli.report.plan_report import (
    BlockedReport,
    ConstraintDifference,
    ConstraintState,
    HelpedConstraint,
    MoveReport,
    PlanDifference,
    PlannedGroup,
    PlanReport,
)
from respread_cli.report.planned import PolicyReport
from respread_cli.report.simulate_report import (
    GroupAfter,
    OutcomeReport,
    PodReport,
    ScaledReport,
    SimulatedGroup,
    SimulationReport,
)
from respread_cli.report.skew_report import GroupReport, PendingPods, RejectedNodesReport, SkewReport
from respread_cli.report.target import WorkloadReference, parse_selector
from tests.unit.cli.snapshots import snapshot_of
from tests.unit.ui.clusters import web, zones

DOCUMENTATION = (Path(__file__).parents[3] / "docs" / "cli.md").read_text(encoding="utf-8")
OWN_COMMANDS = [entry.name for entry in cli.COMMANDS if entry.name != "sandbox"]


def command(name: str) -> click.Command:
    (entry,) = [each for each in cli.COMMANDS if each.name == name]
    return cli.load(entry)


@pytest.mark.parametrize("entry", cli.COMMANDS, ids=lambda entry: entry.name)
def test_the_command_list_shows_the_help_text_of_each_command(entry: cli.Entry) -> None:
    assert command(entry.name).get_short_help_str(limit=200) == entry.summary


def test_help_is_shown_without_importing_what_commands_need() -> None:
    look = (
        "import sys\nfrom click.testing import CliRunner\nfrom respread_cli.main import respread\n"
        "assert 'plan' in CliRunner().invoke(respread, ['--help']).output\n"
        "print(sorted({'aiohttp', 'kopf', 'kubernetes', 'msgspec', 'pykube', 'rich', 'yaml'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True)
    assert shown.stdout.strip() == "[]"


@pytest.mark.parametrize("name", OWN_COMMANDS)
def test_help_shows_examples_that_can_be_typed_and_no_variables(name: str) -> None:
    shown = CliRunner().invoke(cli.respread, [name, "--help"], terminal_width=1000, prog_name="kubectl respread").output
    assert "env var" not in shown
    if name == "demo":
        return
    of = command(name)
    assert isinstance(of, CommandWithExamples)
    for example in of.examples:
        assert f"\n  # {example.about}\n  kubectl respread {example.arguments}\n" in shown
        called, *arguments = shlex.split(re.split(r" [<>|] ", example.arguments)[0])
        assert called == name
        of.make_context(name, arguments)  # raises if the arguments can't be parsed


@pytest.mark.parametrize("name", OWN_COMMANDS)
def test_every_command_is_documented(name: str) -> None:
    assert f"`respread {name}`" in DOCUMENTATION
    assert f"\n## respread {name}\n" in DOCUMENTATION


def test_every_option_of_run_is_documented() -> None:
    for parameter in command("run").params:
        for option in (*parameter.opts, *parameter.secondary_opts):
            assert f"`{option}`" in DOCUMENTATION


@pytest.mark.parametrize(
    "report",
    [
        SkewReport,
        GroupReport,
        PendingPods,
        RejectedNodesReport,
        WorkloadReference,
        PlanReport,
        PolicyReport,
        MoveReport,
        HelpedConstraint,
        PlannedGroup,
        BlockedReport,
        PlanDifference,
        ConstraintDifference,
        ConstraintState,
        SimulationReport,
        ScaledReport,
        OutcomeReport,
        PodReport,
        SimulatedGroup,
        GroupAfter,
        AdviceReport,
        AdviceEntry,
        LintReport,
        LintFindingReport,
        WorkloadLoss,
        PendingWorkload,
        DomainLoss,
        NamespaceLoss,
        DomainLossReport,
    ],
)
def test_every_field_of_the_json_output_is_documented(report: type[msgspec.Struct]) -> None:
    for field in msgspec.structs.fields(report):
        assert f"`{field.encode_name}`" in DOCUMENTATION, f"{report.__name__}.{field.encode_name}"


def run(*arguments: str, program: str = "respread", **environment: str) -> subprocess.CompletedProcess[str]:
    start = f"import sys; sys.argv[0] = '{program}'; from respread_cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", start, *arguments],
        check=False,
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin", "HOME": "/nonexistent", **environment},
    )


def test_calling_without_a_command_shows_the_help() -> None:
    assert "Usage: respread" in run("--help").stdout
    assert run("--help").returncode == 0


def test_as_a_kubectl_plugin_the_usage_shows_kubectl_respread() -> None:
    assert "Usage: kubectl respread [OPTIONS]" in run("--help", program="/usr/bin/kubectl-respread").stdout


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["frobnicate"], "there is no command 'frobnicate'"),
        (["skew", "--frobnicate"], "No such option"),
        (["skew", "-o", "xml"], "'xml' is not one of"),
        (["run", "--listen-address", "nowhere"], "'nowhere' is not a listen address"),
        (["skew", "--snapshot", "x.json", "--context", "prod"], "leave out --context"),
        (["plan", "-f", "-", "--snapshot", "-"], "standard input can be read only once"),
        (["skew"], "there is no kubeconfig: ~/.kube/config does not exist"),
        (["skew", "--snapshot", "/nonexistent/cluster.json"], "/nonexistent/cluster.json can't be read: No such file"),
        (["ui", "--prometheus=127.0.0.1:9090"], "is no URL such as http://127.0.0.1:9090, nor CONTEXT=URL"),
        (["ui", "--prometheus=west=http://p:1"], "there is no context west in the kubeconfig; there is none to choose"),
        (["run"], "there is no kubeconfig: ~/.kube/config does not exist. Give one by --kubeconfig or KUBECONFIG"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_errors_have_exit_code_2_and_no_traceback(arguments: list[str], said: str) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert said in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr
    assert done.stdout == ""


def test_options_have_precedence_over_variables(tmp_path: Path) -> None:
    missing = tmp_path / "missing.json"
    by_file = run("skew", "--snapshot", str(missing), RESPREAD_CONTEXT="prod", RESPREAD_KUBECONFIG="/nonexistent/k")
    assert f"{missing} can't be read" in by_file.stderr
    by_cluster = run("skew", "--kubeconfig", "/nonexistent/k", RESPREAD_SNAPSHOT=str(missing))
    assert "/nonexistent/k does not exist" in by_cluster.stderr
    from_variables = run("skew", RESPREAD_SNAPSHOT=str(missing), RESPREAD_CONTEXT="prod")
    assert "leave out --context" in from_variables.stderr


def test_sandbox_options_can_be_set_by_variables() -> None:
    assert run("sandbox", "status", RESPREAD_SANDBOX_OUTPUT="xml").returncode == 2


def test_the_variable_respread_version_is_ignored() -> None:
    assert "Usage:" in run("--help", RESPREAD_VERSION="0.1.0").stdout
    assert run("skew", RESPREAD_VERSION="0.1.0").returncode == 2


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [(ZeroDivisionError(), 2, ".*this is a bug in respread.*"), (KeyboardInterrupt(), 130, "Interrupted\\.\n")],
)
def test_an_internal_error_and_ctrl_c_do_not_have_the_exit_code_of_a_violated_constraint(
    raised: BaseException, code: int, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(cli.respread, "main", Mock(side_effect=raised))
    with pytest.raises(SystemExit) as ended:
        cli.main()
    assert ended.value.code == code
    assert re.fullmatch(said, capsys.readouterr().err, re.DOTALL)


@pytest.mark.parametrize(("typed", "meant"), [("skwe", "skew"), ("plna", "plan"), ("explian", "explain")])
def test_a_misspelled_command_is_answered_with_the_one_that_was_meant(typed: str, meant: str) -> None:
    assert CliRunner().invoke(cli.respread, [typed]).stderr.endswith(f"no command '{typed}'. Did you mean {meant}?\n")


def test_a_word_that_no_command_is_close_to_is_answered_without_a_suggestion() -> None:
    assert CliRunner().invoke(cli.respread, ["nope"]).stderr.endswith("there is no command 'nope'.\n")


K9S: Final[dict[str, Any]] = yaml.safe_load((Path(__file__).parents[3] / "krew" / "k9s-plugins.yaml").read_text())
SELECTED: Final = {
    "deployments": "web",
    "statefulsets": "db",
    "pods": "web-node-a-0",
    "nodes": "node-a",
    "namespaces": "default",
}


@pytest.mark.parametrize(
    ("plugin", "scope"), [(name, scope) for name, each in K9S["plugins"].items() for scope in each["scopes"]]
)
def test_the_commands_of_the_k9s_plugins_work_for_what_is_selected(plugin: str, scope: str, tmp_path: Path) -> None:
    entry = K9S["plugins"][plugin]
    assert {"shortCut", "description", "scopes", "command", "background", "args"} == entry.keys()
    assert (entry["command"], entry["args"][0]) == ("sh", "-c")
    pods = web(2, 1, name="db")
    for pod in pods:
        owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "db", "controller": True}
        pod["metadata"]["ownerReferences"] = [owner]
    file = snapshot_of(tmp_path, [*zones("a", "b"), *web(3, 1), *pods])
    command, _, pager = entry["args"][1].partition(" | ")
    assert pager == "less -R"
    selected = {"RESOURCE_NAME": scope, "NAME": SELECTED[scope], "NAMESPACE": "default"}
    typed = Template(command.replace('--context "$CONTEXT"', f"--snapshot {file}")).substitute(selected)
    program, *arguments = shlex.split(typed)
    done = CliRunner().invoke(cli.respread, arguments)
    assert (program, done.exit_code) == ("respread", 0), done.output


@pytest.mark.parametrize(
    ("text", "canonical"),
    [
        ("", "<everything>"),
        (" ", "<everything>"),
        ("a=b", "a=b"),
        ("a == b , c != d", "a=b,c notin (d)"),
        ("!x,y", "!x,y"),
        ("a in (c,b),d notin ( e )", "a in (b,c),d notin (e)"),
        ("a=", "a="),
        ("a=,b", "a=,b"),
        ("a in ()", "a="),
        ("a in (,b)", "a in (,b)"),
        ("in in (in)", "in=in"),
        ("app.kubernetes.io/name=web", "app.kubernetes.io/name=web"),
    ],
)
def test_a_selector_text_is_parsed(text: str, canonical: str) -> None:
    assert str(parse_selector(text)) == canonical


@pytest.mark.parametrize(
    "text",
    ["=x", "a=b,", "a>1", "a b", "a in b", "a in (b", "a in (b c)", "!", "-a=b", "a=b=c", "a=-b", ",", "a==!b", "!a=b"],
)
def test_a_selector_text_that_the_api_server_rejects_is_an_error(text: str) -> None:
    with pytest.raises(SelectorError):
        parse_selector(text)


@pytest.mark.parametrize(
    ("text", "labels", "matches"),
    [
        ("a!=b", {}, True),
        ("a notin (b)", {"a": "c"}, True),
        ("a", {"a": ""}, True),
        ("!a", {"a": ""}, False),
        ("a=b,c", {"a": "b"}, False),
    ],
)
def test_a_parsed_selector_matches_labels(text: str, labels: dict[str, str], matches: bool) -> None:
    assert parse_selector(text).matches(labels) is matches
