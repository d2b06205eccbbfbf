"""`respread lint`: all mistakes in files in one run, without a cluster."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from respread_cli.main import respread

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
    assert done.stderr == "3 policies, 0 mistakes.\n"


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
    done = lint(tmp_path, f"{POLICY}---{wrong}", "a: [", POLICY, more=("-f", str(tmp_path / "missing.yaml")))
    assert done.exit_code == 1
    lines = done.stdout.replace(f"{tmp_path}/", "").splitlines()
    at = "0.yaml, document 2 (ClusterRebalancePolicy Not_a_name): "
    assert [line.removeprefix(at).split(":")[0] for line in lines if line.startswith(at)] == [
        "spce",
        "metadata.name",
        "metadata.namespace",
        "spec.mode",
        "spec.windows[0].timeZone",
        "spec.windows[0].schedule",
    ]
    assert "did you mean spec?" in lines[0]
    assert any(line.startswith("1.yaml is not YAML: ") for line in lines)
    assert "2.yaml: there is a RebalancePolicy shop/own already" in lines
    assert "missing.yaml can't be read: No such file or directory." in lines
    assert done.stderr.endswith("2 policies, 9 mistakes.\n")


def test_objects_of_other_kinds_are_skipped_but_not_misspelled_policies(tmp_path: Path) -> None:
    others = "apiVersion: apps/v1\nkind: Deployment\n---\napiVersion: v1\nkind: ConfigMap\n"
    done = lint(tmp_path, f"{others}---{POLICY}")
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "1 policy, 0 mistakes, 2 objects of other kinds skipped.\n"
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
    assert "the key 'quietPeriod' is there twice" in done.stdout


@pytest.mark.parametrize("text", ["", "apiVersion: apps/v1\nkind: Deployment\n"])
def test_a_file_without_a_policy_is_a_mistake(tmp_path: Path, text: str) -> None:
    done = lint(tmp_path, text)
    assert done.exit_code == 1
    assert done.stdout.endswith("0.yaml holds no policy.\n")


def test_standard_input_is_read_once(tmp_path: Path) -> None:
    assert lint(tmp_path, more=("-f", "-"), stdin=POLICY).exit_code == 0
    assert lint(tmp_path, more=("-f", "-", "-f", "-"), stdin=POLICY).exit_code == 2
