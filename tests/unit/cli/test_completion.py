"""Shell completions, and the scripts that request them."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner

from respread_cli.commands.completion import SHELLS, cobra_lines
from respread_cli.main import COMMANDS, respread
from tests.unit.cli.snapshots import deployment_pods, manifest_of_node, snapshot_of

POLICY = {"apiVersion": "respread.dev/v1alpha1", "kind": "ClusterRebalancePolicy", "metadata": {"name": "all"}}


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> str:
    nodes = [manifest_of_node(f"node-{zone}", f"zone-{zone}") for zone in "ab"]
    web = deployment_pods("web", {"node-a": 1})
    api = deployment_pods("api", {"node-b": 1}, namespace="shop")
    return str(snapshot_of(tmp_path_factory.mktemp("cluster"), [*nodes, *web, *api, POLICY]))


def offered(*words: str) -> list[str]:
    lines = cobra_lines(respread, list(words))
    assert lines[-1] == ":4"
    return [line.split("\t")[0] for line in lines[:-1]]


def test_commands_are_completed_with_their_help_and_without_importing_them() -> None:
    assert cobra_lines(respread, [""]) == [*(f"{entry.name}\t{entry.summary}" for entry in COMMANDS), ":4"]
    look = (
        "import sys\nfrom respread_cli.commands.completion import cobra_lines\nfrom respread_cli.main import respread\n"
        "cobra_lines(respread, [''])\n"
        "print(sorted({'aiohttp', 'kopf', 'requests', 'rich', 'yaml'} & set(sys.modules)))"
    )
    shown = subprocess.run([sys.executable, "-c", look], check=True, capture_output=True, text=True)
    assert shown.stdout.strip() == "[]"


def test_options_and_their_values_are_completed() -> None:
    assert offered("skew", "--topo") == ["--topology-key"]
    assert offered("skew", "-o", "j") == ["json", "jsonpath="]
    assert offered("skew", "--when-unsatisfiable", "") == ["DoNotSchedule", "ScheduleAnyway"]
    assert offered("completion", "") == ["bash", "zsh", "fish"]
    assert offered("skew", "-k", "") == ["hostname", "region", "zone"]


def test_names_of_objects_in_the_cluster_are_completed(snapshot: str) -> None:
    of = ("--snapshot", snapshot)
    assert offered("skew", *of, "-n", "") == ["default", "shop"]
    assert offered("skew", *of, "") == ["deploy/api", "deploy/web"]
    assert offered("skew", *of, "-n", "shop", "") == ["deploy/api"]
    assert offered("skew", *of, "w") == ["web"]
    assert offered("plan", *of, "crbp/") == ["crbp/all"]
    assert offered("explain", *of, "pod/w") == ["pod/web-node-a-0"]
    assert offered("simulate", *of, "--drain", "node-b") == ["node-b"]


def test_contexts_of_the_kubeconfig_are_completed(tmp_path: Path) -> None:
    file = tmp_path / "config"
    file.write_text("contexts: [{name: prod}, {name: dev}]", encoding="utf-8")
    assert offered("skew", "--kubeconfig", str(file), "--context", "") == ["dev", "prod"]


def test_without_a_cluster_completion_is_empty_and_silent(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing")
    assert offered("skew", "--kubeconfig", missing, "-n", "") == []
    assert offered("skew", "--snapshot", missing, "w") == []


def test_file_options_are_completed_with_files() -> None:
    assert cobra_lines(respread, ["skew", "--snapshot", "/et"]) == [":0"]


def test_kubectl_complete_respread_completes_for_the_plugin(snapshot: str) -> None:
    program = Path(sys.executable).with_name("kubectl_complete-respread")
    done = subprocess.run(
        [program, "skew", "--snapshot", snapshot, "-n", "s"], check=True, capture_output=True, text=True
    )
    assert (done.stdout, done.stderr) == ("shop\n:4\n", "")


@pytest.mark.parametrize("shell", SHELLS)
def test_completion_scripts_are_valid_in_their_shells(shell: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(respread, ["completion", shell])
    assert done.exit_code == 0
    assert "_RESPREAD_COMPLETE" in done.stdout
    if (program := shutil.which(shell)) is None:
        return  # without the shell, only the text can be checked
    file = tmp_path / "script"
    file.write_text(done.stdout, encoding="utf-8")
    subprocess.run([program, "-n", str(file)], check=True)


def test_bash_completes_names_of_objects_in_the_cluster(snapshot: str, tmp_path: Path) -> None:
    file = tmp_path / "script"
    file.write_text(CliRunner().invoke(respread, ["completion", "bash"]).stdout, encoding="utf-8")
    ask = (
        f"source {file}; COMP_WORDS=(respread skew --snapshot {snapshot} -n s); COMP_CWORD=5; "
        '_respread_completion respread; echo "${COMPREPLY[@]}"'
    )
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", ask], check=True, capture_output=True, text=True, env={**os.environ, "PATH": path}
    )
    assert done.stdout == "shop\n"
