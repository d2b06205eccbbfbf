"""`respread lint`: all mistakes in files in one run, without a cluster."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as Xml

import fastjsonschema
import pytest
import yaml
from click.testing import CliRunner, Result

from respread_cli.lint.rules import RULES
from respread_cli.main import respread
from tests.lint_manifests import BUDGET, GOOD, deployment

POLICY = """
apiVersion: respread.dev/v1alpha1
kind: RebalancePolicy
metadata: {name: own, namespace: shop}
spec: {quietPeriod: 1m}
"""


def lint(directory: Path, *texts: str, more: tuple[str, ...] = (), stdin: str | None = None) -> Result:
    words = ["lint"]
    for number, text in enumerate(texts):
        file = directory / f"{number}.yaml"
        file.write_text(text, encoding="utf-8")
        words += ["-f", str(file)]
    return CliRunner().invoke(respread, [*words, *more], input=stdin)


def test_valid_policies_produce_no_output(tmp_path: Path) -> None:
    done = lint(tmp_path, POLICY, f"{POLICY}---{POLICY.replace('own', 'other')}".replace("shop", "pay"))
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "3 objects checked, 0 errors, 0 warnings.\n"


@pytest.mark.parametrize(
    "text",
    [
        "apiVersion: policy/v1\nkind: PodDisruptionBudget\nspec: {selector: {matchLabels: {yes: a}}}\n",
        "apiVersion: v1\nkind: Pod\nmetadata: {labels: {yes: a}}\nspec: {containers: []}\n",
    ],
)
def test_an_object_that_is_no_json_is_reported(tmp_path: Path, text: str) -> None:
    done = lint(tmp_path, text)
    assert done.exit_code == 1, done.output
    assert "It can't be sent to the API server" in done.stdout


def test_mistakes_in_all_files_documents_and_fields_are_reported_in_one_run(tmp_path: Path) -> None:
    wrong = """
apiVersion: respread.dev/v1alpha1
kind: ClusterRebalancePolicy
metadata: {name: Not_a_name, namespace: shop}
spce: {}
spec:
  mode: Maybe
  windows: [{schedule: "0 0 30 2 *", timeZone: Mars/Base, duration: 1h}]
"""
    done = lint(tmp_path, f"{POLICY}---{wrong}", "a: [", POLICY)
    assert done.exit_code == 1
    lines = done.stdout.replace(f"{tmp_path}/", "").splitlines()
    of = ": error: ClusterRebalancePolicy Not_a_name: "
    found = [line.split(of) for line in lines if of in line]
    assert [(place, said.split(":")[0]) for place, said in found] == [
        ("0.yaml:9", "metadata.name"),
        ("0.yaml:9", "metadata.namespace"),
        ("0.yaml:10", "spce"),
        ("0.yaml:12", "spec.mode"),
        ("0.yaml:13", "spec.windows[0].timeZone"),
        ("0.yaml:13", "spec.windows[0].schedule"),
    ]
    assert "did you mean spec?" in done.stdout
    assert any(re.match(r"1\.yaml:\d: error: 1\.yaml is not YAML: ", line) for line in lines)
    assert any("there is a RebalancePolicy shop/own already" in line and line.startswith("2.yaml:2:") for line in lines)
    assert done.stderr == "3 objects checked, 8 errors, 0 warnings.\n"


def test_objects_of_other_kinds_are_skipped_but_not_misspelled_policies(tmp_path: Path) -> None:
    others = "apiVersion: v1\nkind: Secret\n---\napiVersion: v1\nkind: ConfigMap\n"
    done = lint(tmp_path, f"{others}---{POLICY}")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "1 object checked, 0 errors, 0 warnings, 2 objects of other kinds skipped.\n"
    for misspelled in (
        POLICY.replace("respread.dev", "respred.dev"),
        POLICY.replace("kind: Rebalance", "kind: Balance"),
        POLICY.replace("v1alpha1", "v1"),
    ):
        done = lint(tmp_path, misspelled)
        assert done.exit_code == 1
        assert done.stdout.count("\n") == 1


def test_a_duplicate_key_is_a_mistake(tmp_path: Path) -> None:
    done = lint(tmp_path, POLICY.replace("quietPeriod: 1m", "quietPeriod: 1m, quietPeriod: 2m"))
    assert done.exit_code == 1
    assert "0.yaml:5: error: " in done.stdout
    assert "the key 'quietPeriod' is there twice" in done.stdout


@pytest.mark.parametrize("text", ["", "---\n# nothing\n---\n"])
def test_an_empty_file_is_an_error_because_a_failed_helm_template_writes_nothing(tmp_path: Path, text: str) -> None:
    done = lint(tmp_path, text)
    assert done.exit_code == 2
    assert done.stderr.endswith("0.yaml is empty.\n")


def test_a_missing_file_is_an_error_and_the_others_are_checked(tmp_path: Path) -> None:
    done = lint(tmp_path, POLICY.replace("1m", "x"), more=(str(tmp_path / "missing.yaml"),))
    assert done.exit_code == 2
    assert "spec.quietPeriod" in done.stdout
    assert done.stderr.endswith("missing.yaml can't be read: No such file or directory.\n")


def test_standard_input_is_read_once(tmp_path: Path) -> None:
    assert lint(tmp_path, more=("-f", "-"), stdin=POLICY).exit_code == 0
    assert lint(tmp_path, more=("-",), stdin=POLICY).exit_code == 0
    assert lint(tmp_path, more=("-f", "-", "-"), stdin=POLICY).exit_code == 2


def test_without_files_it_says_what_to_name(tmp_path: Path) -> None:
    done = lint(tmp_path)
    assert done.exit_code == 2
    assert "name a file, a folder, or - for standard input" in done.stderr


def test_a_folder_is_read_with_all_folders_below_it_but_charts_and_hidden_files(tmp_path: Path) -> None:
    for place in ("a.yaml", "deep/er/b.yml", "deep/c.json", "deep/notes.txt", ".git/d.yaml", "chart/templates/e.yaml"):
        (tmp_path / place).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / place).write_text(POLICY.replace("own", Path(place).stem) if place[-1] != "n" else "{}")
    (tmp_path / "chart" / "Chart.yaml").write_text("name: x\n")
    done = lint(tmp_path, more=(str(tmp_path),))
    assert done.exit_code == 0, done.output
    chart = f"{tmp_path}/chart"
    assert done.stderr.splitlines() == [
        f"Note: {chart} is of a Helm chart, and skipped: helm template NAME {chart} | respread lint -",
        "2 objects checked, 0 errors, 0 warnings, 1 object of other kinds skipped.",
    ]
    (tmp_path / "empty").mkdir()
    assert lint(tmp_path, more=(str(tmp_path / "empty"),)).exit_code == 2


def test_documents_before_a_mistake_in_yaml_are_checked_too(tmp_path: Path) -> None:
    done = lint(tmp_path, f"{POLICY.replace('1m', 'x')}---\n{{\n")
    assert "spec.quietPeriod" in done.stdout
    assert "0.yaml:8: error: " in done.stdout


@pytest.mark.parametrize("text", ["text", "3", "apiVersion: v1", "metadata: {}", "{apiVersion: v1, kind: [x]}"])
def test_a_document_that_is_no_object_is_an_error(tmp_path: Path, text: str) -> None:
    done = lint(tmp_path, text)
    assert done.exit_code == 1
    assert "it is not an object of Kubernetes" in done.stdout


def test_files_of_other_programs_and_templates_of_charts_are_skipped(tmp_path: Path) -> None:
    template = tmp_path / "chart" / "templates" / "web.yaml"
    template.parent.mkdir(parents=True)
    template.write_text("{{ if }}")
    (tmp_path / "chart" / "Chart.yaml").write_text("name: x")
    done = lint(tmp_path, "- hosts: all", "services: {web: {}}", more=(str(template),))
    assert (done.exit_code, done.stdout) == (0, "")
    assert "helm template NAME" in done.stderr
    assert "2 objects of other kinds skipped" in done.stderr


def linted(output: str, *more: str) -> str:
    bad = deployment(
        {**GOOD, "maxSkew": 6}, {**GOOD, "topologyKey": "kubernetes.io/hostname", "nodeTaintsPolicy": "Ignore"}
    )
    off = deployment({**GOOD, "maxSkew": 6})
    off["metadata"] = {"name": "off", "namespace": "pay", "annotations": {"respread.dev/lint-off": "*"}}
    text = yaml.safe_dump_all([bad, BUDGET, off], sort_keys=False)
    return CliRunner().invoke(respread, ["lint", "-", "-o", output, *more], input=text).stdout


def test_json_counts_and_marks_what_is_switched_off() -> None:
    report: dict[str, Any] = json.loads(linted("json"))
    assert {key: report[key] for key in ("checked", "skipped", "errors", "warnings", "switchedOff")} == {
        "checked": 3,
        "skipped": 0,
        "errors": 1,
        "warnings": 2,
        "switchedOff": 2,
    }
    first = report["findings"][0]
    assert first["patch"][-1] == {
        "op": "add",
        "path": "/spec/template/spec/topologySpreadConstraints/0/maxSkew",
        "value": 1,
    }
    assert [each["switchedOffBy"] for each in report["findings"]] == [None, None, None, "annotation", "annotation"]


def test_sarif_is_as_its_schema_says() -> None:
    schema = json.loads((Path(__file__).parents[2] / "golden" / "sarif-2.1.0.schema.json").read_text())
    conforms = fastjsonschema.compile(schema)
    log = json.loads(linted("sarif"))
    assert conforms(log) == log
    with pytest.raises(fastjsonschema.JsonSchemaException):
        conforms(log | {"version": "2.0.0"})


def test_sarif_names_rules_places_and_suppressions() -> None:
    log = json.loads(linted("sarif"))
    assert log["version"] == "2.1.0"
    (run,) = log["runs"]
    rules = run["tool"]["driver"]["rules"]
    assert [rule["id"] for rule in rules] == list(RULES)
    for result in run["results"]:
        assert rules[result["ruleIndex"]]["id"] == result["ruleId"]
        assert result["locations"][0]["physicalLocation"]["region"]["startLine"] > 1
        assert result["message"]["text"]
    assert [len(each.get("suppressions", [])) for each in run["results"]] == [0, 0, 0, 1, 1]
    assert len({each["partialFingerprints"]["respreadFinding/v1"] for each in run["results"]}) == len(run["results"])


def test_junit_has_a_case_for_each_object_and_fails_what_the_command_fails() -> None:
    suites = Xml.fromstring(linted("junit"))  # noqa: S314 - our own output
    (case, clean) = suites.iter("testcase")
    assert (case.get("name"), clean.get("name")) == ("Deployment shop/web", "2 without findings")
    failures = case.findall("failure")
    assert [each.get("type") for each in failures] == ["SkewUnreachable"]
    assert "ZoneAndHostname" in (case.findtext("system-out") or "")
    assert suites.get("failures") == "1"
    strict = Xml.fromstring(linted("junit", "--fail-on", "warning"))  # noqa: S314 - our own output
    assert "ZoneAndHostname" in (strict.findtext(".//failure") or "")
    assert strict.find(".//system-out") is None
