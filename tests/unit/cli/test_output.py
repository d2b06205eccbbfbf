"""Output formats of all commands: names, templates, Markdown; the selection with -l and TARGET, and --watch."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any

import click
import msgspec
import pytest
from click.testing import CliRunner
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from respread.program.command_line import CommandError
from respread_cli.main import respread
from respread_cli.render import watching
from respread_cli.render.formats import JsonPathTemplate, OutputOptions, TemplateError
from respread_cli.render.output import Shown, markdown
from respread_cli.render.watching import WatchScreen
from tests.unit.cli.snapshots import deployment_pods, manifest_of_node, snapshot_of

POD: dict[str, Any] = {
    "kind": "Pod",
    "metadata": {"name": "a", "labels": {"k.z/a": "v", "n": "1"}, "empty": None},
    "spec": {
        "containers": [
            {"name": "c", "image": "i", "ports": [{"containerPort": 80}, {"containerPort": 90}]},
            {"name": "d", "image": "j", "stdin": True},
        ]
    },
}


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two violated groups, `web` in one namespace and `api` in another."""
    nodes = [manifest_of_node(f"node-{zone}", f"zone-{zone}") for zone in "ab"]
    web = deployment_pods("web", {"node-a": 3, "node-b": 1})
    api = deployment_pods("api", {"node-a": 4, "node-b": 1}, namespace="shop")
    fine = deployment_pods("fine", {"node-a": 1, "node-b": 1})
    return snapshot_of(tmp_path_factory.mktemp("cluster"), [*nodes, *web, *api, *fine])


def output(cluster: Path, *arguments: str) -> str:
    done = CliRunner().invoke(respread, [*arguments, "--snapshot", str(cluster)])
    assert done.exit_code == 0, done.output
    return done.stdout


def test_skew_prints_workload_names_worst_first(cluster: Path) -> None:
    assert output(cluster, "skew", "-o", "name") == "deployment.apps/api\ndeployment.apps/web\ndeployment.apps/fine\n"


def test_plan_prints_the_names_of_evicted_pods(cluster: Path) -> None:
    moves = json.loads(output(cluster, "plan", "-o", "json"))["moves"]
    assert output(cluster, "plan", "-o", "name").splitlines() == [f"pod/{move['pod']}" for move in moves]
    assert len(moves) == 2


def test_explain_and_simulate_print_pod_names(cluster: Path) -> None:
    explained = output(cluster, "explain", "web", "-o", "name").splitlines()
    assert sorted(explained) == ["pod/web-node-a-0", "pod/web-node-a-1", "pod/web-node-a-2", "pod/web-node-b-0"]
    deleted = output(cluster, "simulate", "--scale", "web=1", "-n", "default", "-o", "name").splitlines()
    assert len(deleted) == 3
    assert set(deleted) < set(explained)


def test_a_template_is_printed_without_a_trailing_line_break(cluster: Path) -> None:
    template = 'jsonpath={range .groups[?(@.violated==true)]}{.namespace}{"\\t"}{.skew}{"\\n"}{end}'
    assert output(cluster, "skew", "-o", template) == "shop\t3\ndefault\t2\n"
    assert output(cluster, "skew", "-o", "jsonpath={.violated}") == "2"


@pytest.mark.parametrize(
    ("template", "text"),
    [
        ("{.metadata.name}", "a"),
        ("{.kind}: {.metadata.name}!", "Pod: a!"),
        ("{.spec.containers[*].name}", "c d"),
        ("{range .spec.containers[*]}{.name}{'\\t'}{.image}{\"\\n\"}{end}x", "c\ti\nd\tj\nx"),
        ("{range .spec.containers[*]}{range .ports[*]}{.containerPort},{end};{end}", "80,90,;;"),
        ('{.spec.containers[?(@.name=="d")].image}', "j"),
        ("{.spec.containers[?(@.name!='c')].name}", "d"),
        ("{.spec.containers[?(@.stdin)].name}", "d"),
        ("{.spec.containers[?(@.ports[0].containerPort>=80)].name}", "c"),
        ("{.metadata.labels.k\\.z/a}", "v"),
        ("{..containerPort}", "80 90"),
        ("{.spec.containers[-1].name}", "d"),
        ("{.spec.containers[0:1].name}", "c"),
        ("{.spec.containers[::2].name}", "c"),
        ("{.spec.containers[0,1].name}", "c d"),
        ("{.spec.containers[*]['name','image']}", "c d i j"),
        ("{.spec.containers[0].ports[0]}", '{"containerPort":80}'),
        ("{.metadata.labels.*}", "v 1"),
        ("{.absent.deeper}", ""),
        ("{.metadata.empty}", "null"),
        ("{.spec.containers[1].stdin}", "true"),
        ("no braces", "no braces"),
    ],
)
def test_templates_have_kubectls_syntax(template: str, text: str) -> None:
    assert JsonPathTemplate(template).render(POD) == text


@pytest.mark.parametrize(
    "template", ["{.a", "{end}", "{range .a}", "{name}", "{.a[}", "{.a[x]}", "{.a[?(@.b}", "{'a}", "{.a[?(@.b=~1)]}"]
)
def test_an_invalid_template_is_rejected(template: str) -> None:
    with pytest.raises(TemplateError):
        JsonPathTemplate(template)
    refused = CliRunner().invoke(respread, ["skew", "-o", f"jsonpath={template}"])
    assert refused.exit_code == 2
    assert "can't be read" in refused.stderr


@pytest.mark.parametrize(
    ("template", "said"),
    [
        ("{.spec.containers[5].name}", "index out of bounds: index 5, length 2"),
        ("{.metadata[0]}", "is not a list"),
        ("{.spec.containers[?(@.name>1)].name}", "values of different types can't be compared"),
    ],
)
def test_a_template_that_does_not_match_the_data_names_the_place(template: str, said: str) -> None:
    with pytest.raises(TemplateError, match=re.escape(said)):
        JsonPathTemplate(template).render(POD)


@pytest.mark.parametrize(
    "arguments",
    [["skew"], ["plan"], ["explain", "web"], ["simulate", "--scale", "web=2", "-n", "default"]],
    ids=lambda arguments: str(arguments[0]),
)
def test_markdown_output_has_the_rows_of_the_table(cluster: Path, arguments: list[str]) -> None:
    text = output(cluster, *arguments, "-o", "markdown")
    rows = [line for line in text.splitlines() if line.startswith("|")]
    assert rows
    headings = {line.count("|") for line in rows if "---" in line}
    for row in rows:
        assert row.endswith("|")
        assert row.replace("\\|", "").count("|") in headings
    assert "deploy/web" in text
    assert "\x1b" not in text


def test_markdown_output_escapes_special_characters() -> None:
    table = Table()
    table.add_column("A|B")
    table.add_row(Text("x|y\n<b>*z*"))
    written = markdown([Text("Title", style="bold"), Padding(table, (0, 0, 0, 2)), Text()], ["a_note"])
    assert written == ("> a\\_note\n\n**Title**\n\n| A\\|B |\n| --- |\n| x\\|y<br>\\<b\\>\\*z\\* |\n")


def groups(cluster: Path, *arguments: str) -> list[str]:
    return output(cluster, "skew", "-o", "jsonpath={range .groups[*]}{.workloads[*].name} {end}", *arguments).split()


@pytest.mark.parametrize(
    ("selector", "found"),
    [
        ("app=web", ["web"]),
        ("app in (web, fine)", ["web", "fine"]),
        ("app!=web", ["api", "fine"]),
        ("app,!tier", ["api", "web", "fine"]),
        ("tier", []),
        ("", ["api", "web", "fine"]),
    ],
)
def test_a_selector_selects_groups_by_the_labels_of_their_pods(cluster: Path, selector: str, found: list[str]) -> None:
    assert groups(cluster, "-l", selector) == found


def test_a_selector_that_the_api_server_rejects_is_rejected() -> None:
    refused = CliRunner().invoke(respread, ["skew", "-l", "app in web"])
    assert refused.exit_code == 2
    assert "'app in web': expected '(', found 'web'" in refused.stderr


@pytest.mark.parametrize(
    "arguments", [["-l", "app=api"], ["api"], ["deploy/api"], ["pod/api-node-a-0"], ["-n", "shop"]], ids=" ".join
)
def test_a_plan_is_limited_to_the_named_objects(cluster: Path, arguments: list[str]) -> None:
    report = json.loads(output(cluster, "plan", "-o", "json", *arguments))
    assert (report["selected"], report["violated"], report["lowerBound"]) == (1, 1, None)
    assert [group["group"]["namespace"] for group in report["groups"]] == ["shop"]
    assert {move["namespace"] for move in report["moves"]} <= {"shop"}


def test_a_plan_for_a_policy_has_all_of_its_groups(cluster: Path) -> None:
    whole = json.loads(output(cluster, "plan", "-o", "json"))
    of_policy = json.loads(output(cluster, "plan", "crbp/default", "-o", "json"))
    assert of_policy["moves"] == whole["moves"]
    refused = CliRunner().invoke(respread, ["plan", "deploy/nowhere", "--snapshot", str(cluster)])
    assert refused.exit_code == 2
    assert "there is no workload with pods named nowhere" in refused.stderr


def test_exit_code_1_is_used_only_on_request(cluster: Path) -> None:
    def code(*arguments: str) -> int:
        return CliRunner().invoke(respread, ["skew", "--snapshot", str(cluster), *arguments]).exit_code

    assert code() == 0
    assert code("--exit-code") == 1
    assert code("--exit-code", "fine") == 0
    assert code("--exit-code", "-o", "json") == 1


class Report(msgspec.Struct, frozen=True):
    """Some numbers and the time of their reading."""

    numbers: tuple[int, ...]
    time: datetime = datetime(2026, 1, 1, tzinfo=UTC)
    notes: tuple[str, ...] = ()

    def names(self) -> Iterable[str]:
        return map(str, self.numbers)


def shown(report: Report) -> Shown:
    return Shown(report, lambda _: [Text(f"line {number}") for number in report.numbers])


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("skew", "--snapshot", "x.json"), "leave out --exit-code and --snapshot"),
        (("plan", "--exit-code"), "leave out --exit-code and --snapshot"),
        (("explain", "web", "-o", "html"), "-o html is one file"),
        (("plan", "-f", "-"), "name a file instead of -f -"),
    ],
)
def test_incompatible_options_of_watch_are_rejected(arguments: tuple[str, ...], said: str) -> None:
    done = CliRunner().invoke(respread, [*arguments, "--watch"], env={"KUBECONFIG": "/nowhere"})
    assert done.exit_code == 2
    assert said in done.stderr


def test_lines_that_do_not_fit_the_terminal_are_counted_and_errors_are_complete() -> None:
    screen = WatchScreen(OutputOptions(no_color=True))
    console = Console(width=60, height=6, no_color=True)

    def drawn() -> list[str]:
        options = console.options.update(height=6)
        return ["".join(part.text for part in line).rstrip() for line in console.render_lines(screen, options)]

    screen.show(shown(Report(tuple(range(10)))))
    assert drawn()[:4] == ["line 0", "line 1", "line 2", "line 3"]
    assert re.search(r"^6 more lines do not fit\. Read at .* Ctrl-C ends\.$", " ".join(drawn()[4:]))
    screen.show(shown(Report((1, 2))))
    assert drawn()[:2] == ["line 1", "line 2"]
    assert "fit" not in drawn()[-1]
    screen.fail("the API server at https://127.0.0.1:6443 (context shop) can't be reached: Connection refused.")
    assert drawn()[:2] == ["line 1", "line 2"]
    assert " ".join(drawn()).endswith("can't be reached: Connection refused.")
    assert len(drawn()) == 6


def test_output_that_differs_only_in_time_and_repeated_errors_are_printed_once(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(watching, "WATCH_SECONDS", 0.0)
    turns = count()

    def look() -> Report:
        turn = next(turns)
        if turn in {2, 3}:
            raise CommandError("it can't be reached.")
        if turn == 6:
            raise KeyboardInterrupt
        return Report((1,) if turn < 5 else (2,), datetime(2026, 1, 1, 0, turn, tzinfo=UTC))

    with pytest.raises(click.exceptions.Exit) as ended:
        watching.show_results(look, OutputOptions("name", watch=True), shown)
    assert ended.value.exit_code == 130
    printed = capsys.readouterr()
    assert printed.out == "1\n2\n"
    assert printed.err == "Note: it can't be reached.\n"
