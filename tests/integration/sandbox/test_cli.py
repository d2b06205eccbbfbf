"""`respread sandbox up`, `status` and `down`, as a user types them, and everything that docs/sandbox.md shows."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from respread_sandbox import Binaries
from respread_sandbox.command import up as up_command
from respread_sandbox.directory import running
from tests.go_programs import PROGRAMS, find_or_build
from tests.processes import is_alive, wait_until, wait_until_dead

COMMAND = [sys.executable, "-m", "respread_cli.main", "sandbox"]
ROOT = Path(__file__).parents[3]
PAGE = (ROOT / "docs" / "sandbox.md").read_text(encoding="utf-8")


Respread = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def respread(binaries: Binaries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Respread]:
    """A function that runs `respread sandbox …` without other sandboxes; those still up are stopped after the test."""
    assert binaries.paths
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", None)  # so that TMPDIR is read again
    monkeypatch.delenv("KUBECONFIG", raising=False)

    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([*COMMAND, *arguments], capture_output=True, text=True, check=False, timeout=120)

    yield run
    if running():
        run("down", "--all")


def test_the_commands_that_up_prints_work(respread: Respread) -> None:
    up = respread("up", "--nodes", "4", "--zones", "2")
    assert up.returncode == 0, up.stderr
    assert re.search(r"Sandbox default is up: Kubernetes v1\.\d+\.\d+, 4 nodes in 2 zones, \d+\.\d s", up.stdout)
    (kubeconfig,) = re.findall(r"^  export KUBECONFIG=(.+)$", up.stdout, re.MULTILINE)
    (sandbox,) = running()
    typed = ["get", "nodes", "-L", "topology.kubernetes.io/zone", "--no-headers"]
    environment = {"KUBECONFIG": shlex.split(kubeconfig)[0], "HOME": str(sandbox.directory)}
    nodes = subprocess.run([sandbox.kubectl, *typed], env=environment, capture_output=True, text=True, check=True)
    assert re.findall(r"^(\S+)\s+Ready .* (\S+)$", nodes.stdout, re.MULTILINE) == [
        ("node-a1", "zone-a"),
        ("node-a2", "zone-a"),
        ("node-b1", "zone-b"),
        ("node-b2", "zone-b"),
    ]
    assert "  respread sandbox down\n" in up.stdout


def test_a_sandbox_runs_until_down_and_leaves_nothing(respread: Respread, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RESPREAD_SANDBOX_NODES", "1")
    assert "1 node in 1 zone," in respread("up", "--zones", "1").stdout
    (sandbox,) = running()
    assert is_alive(sandbox.supervisor_pid)
    again = respread("up")
    assert again.returncode == 2
    assert "Error: sandbox default is up already" in again.stderr
    down = respread("down")
    assert (down.returncode, down.stdout) == (0, "Sandbox default is down.\n")
    wait_until_dead([sandbox.supervisor_pid])
    assert not sandbox.directory.exists()
    assert running() == []


def test_a_version_that_can_not_be_built_is_an_error_that_names_those_that_can(respread: Respread) -> None:
    up = respread("up", "--kubernetes-version", "1.32")
    assert up.returncode == 2
    assert "Error: Kubernetes 1.32 is none that the sandbox builds; choose one of 1.33 (" in up.stderr


def test_status_and_down_work_with_several_sandboxes(respread: Respread) -> None:
    assert respread("status").stdout == "No sandbox is up. Start one with: respread sandbox up\n"
    assert json.loads(respread("status", "-o", "json").stdout) == []
    assert respread("up", "--nodes", "3", "--name", "one").returncode == 0
    assert respread("up", "--nodes", "1", "--zones", "1", "--name", "two").returncode == 0
    one, two = json.loads(respread("status", "--output", "json").stdout)
    assert (one["name"], one["state"], one["nodesReady"], one["zones"]) == ("one", "Up", 3, 3)
    assert (two["name"], two["state"], two["nodesReady"], two["zones"]) == ("two", "Up", 1, 1)
    assert re.search(r"^ one +Up +3/3 +3 +0 +\d+[sm]", respread("status").stdout, re.MULTILINE)
    missing = respread("down")
    assert (missing.returncode, missing.stderr) == (2, "Error: there is no sandbox default (up: one, two)\n")
    assert respread("down", "--name", "two").returncode == 0
    assert respread("down", "--all").stdout == "Sandbox one is down.\n"
    assert respread("down", "--all").stdout == "No sandbox is up.\n"


def test_a_sandbox_that_does_not_answer_is_shown_as_such(respread: Respread) -> None:
    assert respread("up", "--nodes", "0").returncode == 0
    (sandbox,) = running()
    children = Path(f"/proc/{sandbox.supervisor_pid}/task/{sandbox.supervisor_pid}/children").read_text().split()
    for pid in children:
        if "kube-apiserver" in Path(f"/proc/{pid}/cmdline").read_text():
            os.kill(int(pid), 9)
    (row,) = json.loads(respread("status", "-o", "json").stdout)
    assert row["state"] == "NotResponding"
    assert respread("down").returncode == 0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--nodes", "-1"], "Invalid value for '--nodes'"),
        (["--zones", "0"], "Invalid value for '--zones'"),
        (["--name", "A b"], "Error: 'A b' cannot be a sandbox's name"),
        (["--node-cpu", "lots"], "quantities must match the regular expression"),
        (["--scheduler-configuration", str(Path(__file__))], "Error: the scheduler configuration"),
    ],
)
@pytest.mark.usefixtures("respread")
def test_invalid_options_are_rejected_and_nothing_is_left(arguments: list[str], message: str) -> None:
    up = CliRunner().invoke(up_command, arguments, catch_exceptions=False)
    assert up.exit_code == 2
    assert message in up.stderr
    assert running() == []


def blocks(language: str) -> list[str]:
    """Return the blocks of the page in a language."""
    return re.findall(rf"^```{language}\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.timeout(1800)
def test_the_commands_of_the_page_have_the_documented_result(respread: Respread, tmp_path: Path) -> None:
    """Helm is built first if it is not in the cache."""

    def plain(text: str) -> str:
        return re.sub(r"v1\.\d+\.\d+|\d+\.\d s|(?<=KUBECONFIG=).*", "…", text)

    (console,) = blocks("console")
    typed, _, shown = console.partition("\n")
    up = respread(*typed.removeprefix("$ respread sandbox ").split())
    assert plain(up.stdout).split() == plain(shown).split()
    (sandbox,) = running()
    (kubeconfig,) = re.findall(r"^  export KUBECONFIG=(.+)$", up.stdout, re.MULTILINE)
    programs = tmp_path / "bin"
    programs.mkdir()
    for name, program in (("helm", find_or_build(PROGRAMS["helm"])), ("kubectl", sandbox.kubectl)):
        (programs / name).symlink_to(program)
    environment = {
        "PATH": f"{programs}:{Path(sys.executable).parent}:/usr/bin:/bin",
        "HOME": str(tmp_path),
        "TMPDIR": str(tmp_path),  # where the sandbox is
        "KUBECONFIG": shlex.split(kubeconfig)[0],
        "RESPREAD_RUN_LISTEN_ADDRESS": "127.0.0.1:0",  # other tests serve too
    }

    def type_in(line: str) -> str:
        done = subprocess.run(
            ["bash", "-c", line], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr
        return done.stdout

    install, _ = blocks("sh")  # `make recorded-run` types the other
    *lines, run = install.splitlines()
    for line in lines:
        type_in(line)
    with (
        (tmp_path / "log").open("w") as log,
        subprocess.Popen(shlex.split(run), env=environment, stderr=log) as operator,
    ):
        try:
            balanced = "kubectl get crbp default -o jsonpath='{.status.conditions[?(@.type==\"Balanced\")].status}'"
            wait_until(lambda: type_in(balanced) == "True", "the operator beside the sandbox to plan")
        finally:
            operator.terminate()
    assert operator.returncode == 0
    for line in re.findall(r"^  (kubectl .*|respread .*)$", shown, re.MULTILINE):
        type_in(line)
    assert running() == []


def test_the_python_of_the_page_runs(binaries: Binaries, capfd: pytest.CaptureFixture[str]) -> None:
    assert binaries.paths
    (code,) = blocks("python")
    exec(compile(code, "docs/sandbox.md", "exec"), {})  # noqa: S102  # it is what the page shows
    assert "node-b3" in capfd.readouterr().out


def test_the_page_names_the_options_of_up() -> None:
    documented = {
        option for row in re.findall(r"^\| (`--.*?) \|", PAGE, re.MULTILINE) for option in re.findall(r"--[\w-]+", row)
    }
    assert documented == {each for option in up_command.params for each in option.opts} - {"--help"}
