"""The GitHub Action and the pre-commit hook of `respread lint`, and the job of docs/ui.md, as they are written."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.lint_manifests import BUDGET, GOOD, deployment
from tests.unit.cli.snapshots import deployment_pods, manifest_of_node, snapshot_of

ROOT = Path(__file__).parents[3]
ACTION: dict[str, Any] = yaml.safe_load((ROOT / "action.yml").read_text(encoding="utf-8"))
(HOOK,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text(encoding="utf-8"))
PROGRAMS = Path(sys.executable).parent


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with a good manifest, one with an error and one with a warning."""
    good, bad, warned = (
        deployment(GOOD),
        deployment({**GOOD, "maxSkew": 6}),
        deployment({**GOOD, "nodeTaintsPolicy": "Ignore"}),
    )
    for name, manifest in (("good", good), ("bad", bad), ("warned", warned)):
        folder = tmp_path / f"a {name}" if name == "bad" else tmp_path / name
        folder.mkdir()
        (folder / "web.yaml").write_text(yaml.safe_dump_all([manifest, BUDGET]))
    (tmp_path / "runner" / "respread" / "bin").mkdir(parents=True)
    (tmp_path / "runner" / "respread" / "bin" / "respread").symlink_to(PROGRAMS / "respread")
    return tmp_path


def run_action(project: Path, **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run the second step, as a runner does; the first, which installs, is replaced by what is installed here."""
    chosen = {name: each["default"] for name, each in ACTION["inputs"].items()} | inputs
    step = ACTION["runs"]["steps"][1]
    environment = {
        name: chosen[value.removeprefix("${{ inputs.").removesuffix(" }}")] for name, value in step["env"].items()
    }
    return subprocess.run(
        ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", step["run"]],
        cwd=project,
        env={**os.environ, **environment, "RUNNER_TEMP": str(project / "runner")},
        capture_output=True,
        text=True,
        check=False,
    )


def test_the_action_fails_for_errors_and_for_warnings_if_asked_to(project: Path) -> None:
    assert run_action(project, paths="good").returncode == 0
    assert run_action(project, paths="good warned\n").returncode == 0
    assert run_action(project, paths="good warned", **{"fail-on": "warning"}).returncode == 1
    done = run_action(project)
    assert done.returncode == 1
    assert "[SkewUnreachable]" in done.stdout
    assert run_action(project, paths="nowhere").returncode == 2


def test_the_action_writes_sarif_and_takes_settings(project: Path) -> None:
    (project / "lint.yaml").write_text("rules: {SkewUnreachable: 'off'}")
    inputs = {"sarif-file": "found.sarif", "config": "lint.yaml"}
    assert run_action(project, **inputs).returncode == 0
    results = json.loads((project / "found.sarif").read_text())["runs"][0]["results"]
    assert {each["ruleId"] for each in results} == {"MissingNodeTaintsPolicy"}
    assert results[0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "warned/web.yaml"


def test_the_action_installs_the_packages_of_this_project() -> None:
    install = ACTION["runs"]["steps"][0]["run"]
    places = [
        each.removeprefix('"$GITHUB_ACTION_PATH').rstrip('"\n') for each in install.split() if "ACTION_PATH" in each
    ]
    assert len(places) == 2
    assert all((ROOT / each.strip("/") / "pyproject.toml").is_file() for each in places)


def test_the_hook_fails_for_a_file_with_an_error(project: Path) -> None:
    program, *arguments = shlex.split(HOOK["entry"])
    for name, code in (("good", 0), ("a bad", 1)):
        command = [str(PROGRAMS / program), *arguments, str(project / name / "web.yaml")]
        assert subprocess.run(command, capture_output=True, check=False).returncode == code
    assert all((ROOT / each / "pyproject.toml").is_file() for each in HOOK["additional_dependencies"])


POLICY = """\
apiVersion: respread.dev/v1alpha1
kind: ClusterRebalancePolicy
metadata: {name: default}
spec: {constraints: {topologyKeys: [topology.kubernetes.io/zone]}}
"""


def test_the_job_of_the_page_says_what_a_pull_request_changes(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "ui.md").read_text(encoding="utf-8")
    (job,) = (yaml.safe_load(each) for each in re.findall(r"^```yaml\n(.*?)^```", page, re.MULTILINE | re.DOTALL))
    steps = job["jobs"]["plan"]["steps"]
    install, plan, _ = (each["run"] for each in steps if "run" in each)  # the last needs GitHub
    for folder in install.partition("pip install ./")[2].split()[:2]:
        assert (ROOT / folder / "pyproject.toml").is_file()
    shared, clone = tmp_path / "shared.git", tmp_path / "work" / "clone"

    def typed(line: str, folder: Path = clone) -> str:
        known = {"PATH": f"{PROGRAMS}:{os.environ['PATH']}", "HOME": str(tmp_path), "GITHUB_BASE_REF": "main"}
        names = {f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        bash = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", line]
        done = subprocess.run(bash, cwd=folder, env=known | names, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    typed(f"git init -q --bare -b main {shared} && mkdir -p {clone.parent} && git clone -q {shared} {clone}", tmp_path)
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
    nodes = [manifest_of_node(f"node-{zone}", zone) for zone in "ab"]
    pods = deployment_pods("web", {"node-a": 6}, namespace="shop")
    cluster = snapshot_of(tmp_path, [namespace, *nodes, *pods])
    (clone / "cluster.json.gz").write_bytes(gzip.compress(cluster.read_bytes()))
    (clone / "policies").mkdir()
    (clone / "policies" / "default.yaml").write_text(
        POLICY.replace("topology.kubernetes.io/zone", "kubernetes.io/hostname")
    )
    typed("git checkout -q -b main && git add . && git commit -q -m before && git push -q origin main")
    (clone / "policies" / "default.yaml").write_text(POLICY)
    typed("git checkout -q -b change && git commit -q -a -m after")
    typed(plan)
    assert "shop" in (clone / "comment.md").read_text()
    (simulate,) = re.findall(r"`(respread simulate --snapshot [^`]*)`", page)
    assert "web" in typed(simulate)
