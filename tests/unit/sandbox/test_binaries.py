"""The control plane's programs are found if they exist, and built once if not.

A script replaces Go, because a build takes minutes. Every test on a control plane builds with the real Go on a machine
without KUBEBUILDER_ASSETS.
"""

from __future__ import annotations

import io
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from rich.console import Console

from respread_sandbox import Binaries, BuildError, SandboxError, ToolchainError
from respread_sandbox.binaries import (
    COMPILER_MEMORY,
    COMPONENTS,
    NEWEST,
    SAME_PROGRAM_SOONER,
    Module,
    build_environment,
    cache_directory,
    kubernetes_versions,
    modules_for,
)
from respread_sandbox.components import BINARIES
from respread_sandbox.progress import BuildProgress
from tests.makefile import make
from tests.processes import is_alive, wait_until

GO = """#!/bin/sh
if [ "$1" = env ]; then echo go1.26.3; exit 0; fi
while [ "$1" != -o ]; do shift; done
folder=$2; shift 2
for each; do echo "$each" >> "$GO_CALLS"; done
env > "$GO_CALLS.env"
echo "compiling the world" >&2
printf half > "$folder/half"
sleep "$GO_SECONDS"
for each; do
  case "$each" in */v[0-9]) each=${each%/*};; esac
  printf '#!/bin/sh\\n' > "$folder/${each##*/}"; chmod +x "$folder/${each##*/}"
done
rm "$folder/half"
"""

SLOW_GO = GO.replace("sleep ", "echo $$ > $GO_CALLS.pid; exec sleep ")

PACKAGES = NEWEST.packages
OLDEST = next(iter(kubernetes_versions()))

BUILD = "from respread_sandbox import Binaries; Binaries.find_or_build()"


class Machine:
    """A user's environment with its own home directory, PATH and go command."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.calls = home / "calls"
        self.bin = home / "bin"
        self.bin.mkdir()
        for tool in ("sh", "sed", "env", "sleep", "chmod", "rm"):
            (self.bin / tool).symlink_to(shutil.which(tool) or tool)
        self.environment = {"HOME": str(home), "PATH": str(self.bin), "GO_CALLS": str(self.calls), "GO_SECONDS": "0"}

    def install_go(self, script: str = GO) -> None:
        (self.bin / "go").write_text(script)
        (self.bin / "go").chmod(0o755)

    def built(self) -> list[str]:
        """Return the packages that go was called to build, in order."""
        return self.calls.read_text().splitlines() if self.calls.exists() else []

    def pid_of_go(self) -> int:
        """Wait for the SLOW_GO of another build, and return its process ID."""
        file = self.home / "calls.pid"
        wait_until(lambda: file.exists() and file.read_text().endswith("\n"), "the build to begin")
        return int(file.read_text())

    def add_assets(self, *names: str) -> Path:
        """Create a folder of programs for KUBEBUILDER_ASSETS."""
        folder = self.home / "assets"
        folder.mkdir()
        for name in names:
            (folder / name).write_text("#!/bin/sh\n")
            (folder / name).chmod(0o755)
        self.environment["KUBEBUILDER_ASSETS"] = str(folder)
        return folder

    def find_or_build(self, kubernetes_version: str = "") -> Binaries:
        progress = BuildProgress(Console(file=io.StringIO()))
        return Binaries.find_or_build(self.environment, progress, kubernetes_version=kubernetes_version)


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_programs_are_built_once_and_then_found(machine: Machine) -> None:
    machine.install_go()
    binaries = machine.find_or_build()
    assert machine.built() == list(PACKAGES.values())
    assert set(binaries.paths) == set(BINARIES)
    assert all(path.parent == cache_directory(machine.environment) for path in binaries.paths.values())
    (machine.bin / "go").unlink()  # the second call needs no Go
    assert machine.find_or_build() == binaries
    leftovers = {path.name for path in cache_directory(machine.environment).iterdir()} - set(BINARIES)
    assert leftovers == {f".{name}.size" for name in BINARIES}


def test_each_program_is_taken_from_the_assets_if_it_exists_there(machine: Machine) -> None:
    machine.install_go()
    assets = machine.add_assets("etcd", "kube-apiserver", "kubectl")
    binaries = machine.find_or_build()
    assert {name for name, path in binaries.paths.items() if path.parent == assets} == {
        "etcd",
        "kube-apiserver",
        "kubectl",
    }
    assert machine.built() == [PACKAGES[name] for name in ("kube-scheduler", "kube-controller-manager", "kwok")]


def test_complete_assets_need_no_go(machine: Machine) -> None:
    assets = machine.add_assets(*BINARIES)
    assert machine.find_or_build().paths == {name: assets / name for name in BINARIES}


def test_assets_that_cannot_be_executed_are_ignored(machine: Machine) -> None:
    machine.install_go()
    assets = machine.add_assets("etcd", "kubectl")
    (assets / "etcd").chmod(0o644)
    (assets / "kubectl").unlink()
    (assets / "kubectl").mkdir()
    binaries = machine.find_or_build()
    assert binaries.path("etcd").parent == binaries.path("kubectl").parent == cache_directory(machine.environment)


def test_assets_that_do_not_exist_are_an_error(machine: Machine) -> None:
    machine.environment["KUBEBUILDER_ASSETS"] = str(machine.home / "nowhere")
    with pytest.raises(SandboxError, match=r"KUBEBUILDER_ASSETS is .*nowhere, which is no folder"):
        machine.find_or_build()


def test_a_truncated_program_in_the_cache_is_built_again(machine: Machine) -> None:
    machine.install_go()
    etcd = machine.find_or_build().path("etcd")
    etcd.write_bytes(b"")
    kwok = cache_directory(machine.environment) / ".kwok.size"
    kwok.write_text("rubbish")
    machine.calls.unlink()
    machine.find_or_build()
    assert machine.built() == [PACKAGES["etcd"], PACKAGES["kwok"]]
    assert etcd.stat().st_size > 0


def test_the_cache_folder_is_configurable_and_depends_on_the_build(machine: Machine, tmp_path: Path) -> None:
    directory = cache_directory(machine.environment)
    assert directory.parent == machine.home / ".cache/respread/controlplane"
    elsewhere = cache_directory(machine.environment | {"XDG_CACHE_HOME": "/elsewhere"})
    assert elsewhere == Path("/elsewhere/respread/controlplane") / directory.name
    for name in ("go.mod", "go.sum"):
        (tmp_path / name).write_bytes((NEWEST.folder / name).read_bytes() + b"\n" * (name == "go.sum"))
    assert cache_directory(machine.environment, Module(tmp_path, PACKAGES)).name != directory.name


def test_without_go_the_error_says_what_to_install(machine: Machine) -> None:
    with pytest.raises(ToolchainError) as caught:
        machine.find_or_build()
    message = str(caught.value)
    assert message.startswith("Go was not found.")
    assert "Go 1.26 or newer" in message
    assert "KUBEBUILDER_ASSETS" in message
    assert all(name in message for name in BINARIES)


@pytest.mark.parametrize(
    "script",
    [
        "#!/bin/sh\necho go1.20.4\n",
        "#!/bin/sh\necho 'go.mod requires go >= 1.26.0 (running go 1.22; GOTOOLCHAIN=local)' >&2; exit 1\n",
        "#!/bin/sh\necho something else\n",
    ],
)
def test_the_error_names_the_version_of_an_outdated_go(machine: Machine, script: str) -> None:
    machine.install_go(script)
    with pytest.raises(ToolchainError, match=rf"{machine.bin}/go is too old or does not work \(.+\)\. The sandbox"):
        machine.find_or_build()


def test_the_error_of_a_failed_build_shows_the_last_output_of_go(machine: Machine) -> None:
    machine.install_go(GO.replace("printf half", "seq 1 40 | sed 's/^/line /'; echo no route to the proxy; exit 7 #"))
    (machine.bin / "seq").symlink_to(shutil.which("seq") or "seq")
    with pytest.raises(BuildError) as caught:
        machine.find_or_build()
    message = str(caught.value)
    assert message.startswith(f"building {', '.join(BINARIES)} failed: ")
    assert "line 40\n  no route to the proxy\n" in message
    assert "line 5\n" not in message
    assert Binaries.find(machine.environment)[1] == BINARIES


def test_go_settings_of_the_user_do_not_affect_the_build(machine: Machine) -> None:
    machine.install_go()
    machine.environment |= {"GOOS": "plan9", "GOFLAGS": "-mod=vendor", "CGO_ENABLED": "1", "GOPROXY": "https://mirror"}
    machine.find_or_build()
    seen = dict(line.split("=", 1) for line in (machine.home / "calls.env").read_text().splitlines() if "=" in line)
    assert "GOOS" not in seen
    assert "GOFLAGS" not in seen
    assert (seen["CGO_ENABLED"], seen["GOWORK"], seen["GOPROXY"]) == ("0", "off", "https://mirror")


def test_the_user_decides_how_much_memory_the_compiler_takes(machine: Machine) -> None:
    assert build_environment(machine.environment)["GOGC"] == "1000"
    assert build_environment(machine.environment | {"GOGC": "50"})["GOGC"] == "50"


def test_the_first_demo_compiles_what_the_build_then_finds_in_the_cache_of_go() -> None:
    command = make("--eval=shown: ; @echo '$(COMPILE_SOONER)'", "shown").stdout
    words = command.partition("go build")[2].split()
    linked = next(each for each in NEWEST.build_flags() if each.startswith("-ldflags="))
    flags = {each for each in (*NEWEST.build_flags(), *SAME_PROGRAM_SOONER) if each not in {linked, "-mod=readonly"}}
    assert {each for each in words if each.startswith("-") and each != "-o"} == flags  # as Go's default, -mod=readonly
    assert set(words) - flags == {"-o", "/dev/null", *PACKAGES.values()}
    for name, value in {**COMPILER_MEMORY, "CGO_ENABLED": "0", "GOWORK": "off"}.items():
        assert f" {name}={value} " in command


@pytest.mark.parametrize(("minor", "version"), kubernetes_versions().items())
def test_the_api_server_is_stamped_with_its_version(minor: str, version: str) -> None:
    flags = modules_for(minor)[0].build_flags()
    assert any(f"version.gitVersion=v{version} " in flag and flag.endswith(f"gitMinor={minor[2:]}") for flag in flags)


def test_every_supported_minor_version_is_listed() -> None:
    assert list(kubernetes_versions()) == ["1.33", "1.34", "1.35", "1.36"]


@pytest.mark.parametrize("asked", [OLDEST, f"v{OLDEST}", kubernetes_versions()[OLDEST]])
def test_an_older_version_is_built_separately_and_shares_independent_programs(machine: Machine, asked: str) -> None:
    machine.install_go()
    newest = machine.find_or_build()
    machine.calls.unlink()
    older = machine.find_or_build(asked)
    assert machine.built() == list(COMPONENTS.values())
    assert {name for name in BINARIES if older.path(name) != newest.path(name)} == set(COMPONENTS)
    (built,) = {older.path(name).parent for name in COMPONENTS}
    assert built == cache_directory(machine.environment, modules_for(OLDEST)[0])
    assert machine.find_or_build() == newest


def test_the_environment_variable_sets_the_default_version(machine: Machine) -> None:
    machine.install_go()
    machine.environment["RESPREAD_SANDBOX_KUBERNETES_VERSION"] = OLDEST
    assert machine.find_or_build() == machine.find_or_build(OLDEST)
    newest = list(kubernetes_versions())[-1]
    assert {path.parent for path in machine.find_or_build(newest).paths.values()} == {
        cache_directory(machine.environment)
    }


def test_assets_are_not_used_for_an_explicit_version(machine: Machine) -> None:
    machine.install_go()
    assets = machine.add_assets(*BINARIES)
    binaries = machine.find_or_build(OLDEST)
    assert {name for name in BINARIES if binaries.path(name).parent == assets} == set(BINARIES) - set(COMPONENTS)
    assert machine.built() == list(COMPONENTS.values())


def test_an_unavailable_version_is_an_error_that_lists_the_available_ones(machine: Machine) -> None:
    with pytest.raises(
        SandboxError, match=r"Kubernetes 1\.32 is none that .* choose one of 1\.33 \(1\.33\.\d+\), 1\.34"
    ):
        machine.find_or_build("1.32")


def test_two_processes_build_once(machine: Machine) -> None:
    machine.install_go()
    machine.environment["GO_SECONDS"] = "0.2"
    both = [subprocess.Popen([sys.executable, "-c", BUILD], env=machine.environment) for _ in range(2)]
    assert [process.wait(60) for process in both] == [0, 0]
    assert machine.built() == list(PACKAGES.values())


def test_a_killed_build_leaves_no_partial_program_and_no_lock(machine: Machine) -> None:
    machine.install_go(SLOW_GO)
    machine.environment["GO_SECONDS"] = "600"
    builder = subprocess.Popen([sys.executable, "-c", BUILD], env=machine.environment, stderr=subprocess.DEVNULL)
    orphan = machine.pid_of_go()
    builder.kill()
    builder.wait()
    try:
        cache = cache_directory(machine.environment)
        assert [file.name for file in cache.iterdir()] == [f".{builder.pid}.partial"]
        machine.install_go()
        machine.environment["GO_SECONDS"] = "0"
        assert set(machine.find_or_build().paths) == set(BINARIES)  # although the Go of the killed build still runs
        assert not list(cache.glob("*.partial"))
        assert is_alive(orphan)
    finally:
        os.kill(orphan, signal.SIGKILL)


def test_an_interrupted_build_terminates_go(machine: Machine) -> None:
    machine.install_go(SLOW_GO)
    machine.environment["GO_SECONDS"] = "600"
    builder = subprocess.Popen([sys.executable, "-c", BUILD], env=machine.environment, stderr=subprocess.DEVNULL)
    go = machine.pid_of_go()
    builder.send_signal(signal.SIGINT)
    assert builder.wait(200) != 0
    wait_until(lambda: not is_alive(go), "go to end")


def test_plain_progress_names_the_programs(machine: Machine) -> None:
    machine.install_go()
    said = io.StringIO()
    Binaries.find_or_build(machine.environment, BuildProgress(Console(file=said, soft_wrap=True)))
    lines = said.getvalue().splitlines()
    assert lines[0].startswith("Building a Kubernetes control plane from Go modules")
    assert lines[1] == f"Building {', '.join(PACKAGES)} …"
    assert lines[-1] == "Built in 0 s."


def test_plain_progress_is_repeated_during_a_long_build(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("respread_sandbox.progress.LINE_EVERY_SECONDS", 0)
    said = io.StringIO()
    with BuildProgress(Console(file=said, soft_wrap=True)) as progress:
        progress.waiting()
        progress.building(["etcd"])
        progress.working(7, "go.etcd.io/raft/v3")
    assert "Another process is building" in said.getvalue()
    assert "  0 s, 7 packages, last go.etcd.io/raft/v3\n" in said.getvalue()


def test_terminal_progress_shows_what_is_built(machine: Machine) -> None:
    machine.install_go()
    machine.environment["GO_SECONDS"] = "0.2"  # the progress is drawn ten times a second
    said = io.StringIO()
    progress = BuildProgress(Console(file=said, force_terminal=True, width=100))
    Binaries.find_or_build(machine.environment, progress)
    assert ", ".join(PACKAGES) in " ".join(said.getvalue().split())
    assert "compiling the world" in said.getvalue()
