"""The GitHub Action and the pre-commit hook of `respread lint`, and the job of docs/ui.md, as they are written."""

from __future__ import annotations

import gzip
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Mapping
from functools import partial
from importlib import metadata
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


_VENV_WITH_DEPENDENCIES = """\
#!{python}
import pathlib, sys, venv
module, path = sys.argv[2:]
assert module == "venv"
venv.create(path, with_pip=True)
(library,) = pathlib.Path(path).glob("lib/python*/site-packages")
(library / "dependencies.pth").write_text({dependencies!r})
"""


@pytest.fixture(scope="module")
def runner(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The variables of a machine without network, whose `python3 -m venv` makes environments with our dependencies."""
    folder = tmp_path_factory.mktemp("runner")
    dependencies, programs = folder / "dependencies", folder / "bin"
    for each in (dependencies, programs):
        each.mkdir()
    for distribution in metadata.distributions():
        if not distribution.name.startswith("respread"):
            for name in {each.parts[0] for each in distribution.files or ()} - {"..", "__pycache__"}:
                if not (dependencies / name).exists():
                    (dependencies / name).symlink_to(Path(str(distribution.locate_file(name))))
    python = programs / "python3"
    python.write_text(_VENV_WITH_DEPENDENCIES.format(python=sys.executable, dependencies=str(dependencies)))
    python.chmod(0o755)
    path = f"{programs}:{os.environ['PATH']}"
    # For pip, the value of this variable is whether a build is isolated.
    pip = {"PIP_NO_INDEX": "1", "PIP_NO_BUILD_ISOLATION": "0"}
    return {**os.environ, **pip, "PATH": path, "RUNNER_TEMP": str(folder), "GITHUB_ACTION_PATH": str(ROOT)}


def typed(line: str, folder: Path, environment: Mapping[str, str]) -> subprocess.CompletedProcess[str]:
    """Run a line as a runner does."""
    bash = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", line]
    return subprocess.run(bash, cwd=folder, env=environment, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def with_respread(runner: dict[str, str]) -> dict[str, str]:
    """The machine after the first step of the action."""
    done = typed(ACTION["runs"]["steps"][0]["run"], ROOT, runner)
    assert done.returncode == 0, done.stderr
    return runner


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
    return tmp_path


def run_action(project: Path, machine: dict[str, str], **inputs: str) -> subprocess.CompletedProcess[str]:
    """Run the second step."""
    chosen = {name: each["default"] for name, each in ACTION["inputs"].items()} | inputs
    step = ACTION["runs"]["steps"][1]
    environment = {
        name: chosen[value.removeprefix("${{ inputs.").removesuffix(" }}")] for name, value in step["env"].items()
    }
    return typed(step["run"], project, {**machine, **environment})


def test_the_action_fails_for_errors_and_for_warnings_if_asked_to(project: Path, with_respread: dict[str, str]) -> None:
    run = partial(run_action, project, with_respread)
    assert run(paths="good").returncode == 0
    assert run(paths="good warned\n").returncode == 0
    assert run(paths="good warned", **{"fail-on": "warning"}).returncode == 1
    done = run()
    assert done.returncode == 1
    assert "[SkewUnreachable]" in done.stdout
    assert run(paths="nowhere").returncode == 2


def test_the_action_writes_sarif_and_takes_settings(project: Path, with_respread: dict[str, str]) -> None:
    (project / "lint.yaml").write_text("rules: {SkewUnreachable: 'off'}")
    inputs = {"sarif-file": "found.sarif", "config": "lint.yaml"}
    assert run_action(project, with_respread, **inputs).returncode == 0
    results = json.loads((project / "found.sarif").read_text())["runs"][0]["results"]
    assert {each["ruleId"] for each in results} == {"MissingNodeTaintsPolicy"}
    assert results[0]["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] == "warned/web.yaml"


def test_the_hook_fails_for_a_file_with_an_error(project: Path, runner: dict[str, str], tmp_path: Path) -> None:
    """As pre-commit runs a hook in Python: it installs the repository, and then the command has an own environment."""
    assert HOOK["language"] == "python"
    environment = tmp_path / "environment"
    packages = shlex.join([".", *HOOK["additional_dependencies"]])
    line = f"python3 -m venv {environment} && {environment}/bin/python -mpip -q install {packages}"
    done = typed(line, ROOT, runner)
    assert done.returncode == 0, done.stderr
    inside = {**runner, "PATH": f"{environment}/bin:{runner['PATH']}"}
    for name, code in (("good", 0), ("a bad", 1)):
        assert typed(f"{HOOK['entry']} '{name}/web.yaml'", project, inside).returncode == code


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

    def done_by(line: str, folder: Path = clone) -> str:
        known = {"PATH": f"{PROGRAMS}:{os.environ['PATH']}", "HOME": str(tmp_path), "GITHUB_BASE_REF": "main"}
        names = {f"GIT_{who}_{what}": "a@b.c" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
        done = typed(line, folder, known | names)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    done_by(
        f"git init -q --bare -b main {shared} && mkdir -p {clone.parent} && git clone -q {shared} {clone}", tmp_path
    )
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
    nodes = [manifest_of_node(f"node-{zone}", zone) for zone in "ab"]
    pods = deployment_pods("web", {"node-a": 6}, namespace="shop")
    cluster = snapshot_of(tmp_path, [namespace, *nodes, *pods])
    (clone / "cluster.json.gz").write_bytes(gzip.compress(cluster.read_bytes()))
    (clone / "policies").mkdir()
    (clone / "policies" / "default.yaml").write_text(
        POLICY.replace("topology.kubernetes.io/zone", "kubernetes.io/hostname")
    )
    done_by("git checkout -q -b main && git add . && git commit -q -m before && git push -q origin main")
    (clone / "policies" / "default.yaml").write_text(POLICY)
    done_by("git checkout -q -b change && git commit -q -a -m after")
    done_by(plan)
    assert "shop" in (clone / "comment.md").read_text()
    (simulate,) = re.findall(r"`(respread simulate --snapshot [^`]*)`", page)
    assert "web" in done_by(simulate)
