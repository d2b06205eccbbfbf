"""The manifest of the kubectl plugin follows the rules of krew, and its archives can be unpacked and run as by krew.

If krew is installed (krew or kubectl-krew on the PATH), it also installs, upgrades and removes the plugin.
"""

from __future__ import annotations

import hashlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from krew import archives
from respread import __version__
from respread_sandbox import Binaries
from tests.release.made import DIST, ROOT, made
from tests.unit.cli.snapshots import deployment_pods, manifest_of_node, snapshot_of

OSES: Final = {"Linux": "linux", "Darwin": "darwin"}
PROCESSORS: Final = {"x86_64": "amd64", "aarch64": "arm64", "arm64": "arm64"}
HERE: Final = (OSES[platform.system()], PROCESSORS[platform.machine()])
"""This machine's operating system and processor by krew's names."""
CODE_FOR: Final = {
    ("linux", "amd64"): rb"\x7fELF\x02\x01.{12}\x3e\x00",
    ("linux", "arm64"): rb"\x7fELF\x02\x01.{12}\xb7\x00",
    ("darwin", "amd64"): rb"\xcf\xfa\xed\xfe\x07\x00\x00\x01",
    ("darwin", "arm64"): rb"\xcf\xfa\xed\xfe\x0c\x00\x00\x01",
}
"""The first bytes of compiled code: the format, 64 bits, and the processor."""
FOR_SEVERAL_PROCESSORS: Final = b"\xca\xfe\xba\xbe"
PYTHON: Final = Path(sys.base_prefix, "bin", f"python{sys.version_info.major}.{sys.version_info.minor}")
NEEDED_BY_THE_PROGRAM: Final = ("dirname", "readlink", "sed")
KREW: Final = shutil.which("kubectl-krew") or shutil.which("krew")
of_each_platform = pytest.mark.parametrize("of", CODE_FOR, ids="-".join)


def manifest() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load(made("krew/respread.yaml").read_text(encoding="utf-8"))
    return found


def platform_of(of: tuple[str, str]) -> dict[str, Any]:
    platforms: list[dict[str, Any]] = manifest()["spec"]["platforms"]
    (found,) = [each for each in platforms if selected(each) == of]
    return found


def selected(entry: dict[str, Any]) -> tuple[str, str]:
    labels = entry["selector"]["matchLabels"]
    assert entry["selector"] == {"matchLabels": {"os": labels["os"], "arch": labels["arch"]}}
    return labels["os"], labels["arch"]


def archive_of(of: tuple[str, str]) -> Path:
    return made(platform_of(of)["uri"].rpartition("/")[2])


def test_the_manifest_follows_the_rules_of_krew() -> None:
    """The rules are those of krew's package validation and of its validate-krew-manifest."""
    found = manifest()
    spec = found["spec"]
    assert (found["apiVersion"], found["kind"]) == ("krew.googlecontainertools.github.com/v1alpha2", "Plugin")
    assert found["metadata"] == {"name": "respread"}
    assert spec["version"] == f"v{__version__}"
    assert "\n" not in spec["shortDescription"]
    assert 0 < len(spec["shortDescription"]) <= 50
    assert [selected(each) for each in spec["platforms"]] == list(CODE_FOR)
    for each in spec["platforms"]:
        assert each.keys() == {"selector", "uri", "sha256", "bin"}  # without files, krew moves all
        assert each["uri"].startswith(f"{spec['homepage']}/releases/download/v{__version__}/")
    assert all(python in spec["caveats"] for python in archives.PYTHONS)


@of_each_platform
def test_krew_accepts_each_archive(of: tuple[str, str]) -> None:
    """Krew unpacks regular files with paths below the folder, links to `bin`, and requires a license."""
    entry = platform_of(of)
    assert hashlib.sha256(archive_of(of).read_bytes()).hexdigest() == entry["sha256"]
    with tarfile.open(archive_of(of)) as tar:
        members = tar.getmembers()
    for member in members:
        assert member.isreg(), member.name
        assert ".." not in member.name
        assert not member.name.startswith(("/", "\\"))
    (program,) = [each for each in members if each.name == entry["bin"]]
    assert program.mode & 0o111 == 0o111
    assert "LICENSE" in {each.name for each in members}
    assert len({each.name.lower() for each in members}) == len(members)  # on macOS, case makes no difference


@of_each_platform
def test_each_archive_holds_all_dependencies_for_its_platform_and_each_python(of: tuple[str, str]) -> None:
    with tarfile.open(archive_of(of)) as tar:
        names = tar.getnames()
        for name in names:
            if name.endswith(".so"):
                code = tar.extractfile(name)
                assert code is not None
                begin = code.read(20)
                assert re.match(CODE_FOR[of], begin, re.DOTALL) or begin.startswith(FOR_SEVERAL_PROCESSORS), name
    packages: dict[str, set[str]] = {}
    for name in names:
        if found := re.match(r"lib/([^/]+)/([^/]+)\.dist-info/WHEEL$", name):
            packages.setdefault(found[1], set()).add(found[2].replace("_", "-").lower())
    for_any = packages.pop("any")
    assert packages.keys() == {f"cpython-{python.replace('.', '')}" for python in archives.PYTHONS}
    pinned = re.findall(r"^([\w.-]+)==(\S+)", (ROOT / "requirements.txt").read_text(encoding="utf-8"), re.MULTILINE)
    expected = {f"{name}-{version}".lower() for name, version in pinned}
    for compiled in packages.values():
        assert compiled | for_any == expected | {f"respread-{__version__}", f"respread-operator-{__version__}"}


def test_the_same_wheels_make_the_same_files(tmp_path: Path) -> None:
    names = (f"{each}-{__version__}-py3-none-any.whl" for each in ("respread_operator", "respread"))
    wheels = [shutil.copyfile(made(name), tmp_path / name) for name in names]
    platforms = [each for each in archives.PLATFORMS if (each.os, each.arch) == HERE]
    archives.make(wheels, tmp_path, platforms)  # from a file of another age
    (again,) = tmp_path.glob("*.tar.gz")
    assert hashlib.sha256(again.read_bytes()).hexdigest() == platform_of(HERE)["sha256"]


class Machine:
    """A machine with kubectl, the given programs called python, and a folder where krew links plugins."""

    def __init__(self, folder: Path, kubectl: Path, pythons: Sequence[str]) -> None:
        self._home = folder
        self._programs = folder / "programs"
        self.plugins = folder / "krew" / "bin"
        for made_folder in (self._programs, self.plugins):
            made_folder.mkdir(parents=True)
        self._programs.joinpath("kubectl").symlink_to(kubectl)
        for name in NEEDED_BY_THE_PROGRAM:
            found = shutil.which(name)
            assert found is not None
            self._programs.joinpath(name).symlink_to(found)
        for name in pythons:
            self.link(name, PYTHON)

    def link(self, name: str, to: Path) -> None:
        self._programs.joinpath(name).symlink_to(to)

    def program(self, name: str, script: str) -> None:
        file = self._programs / name
        file.write_text(script, encoding="utf-8")
        file.chmod(0o755)

    def install(self, archive: Path) -> None:
        """Unpack and link as krew does."""
        store = self._home / "krew" / "store" / "respread" / f"v{__version__}"
        with tarfile.open(archive) as tar:
            for member in tar:
                content = tar.extractfile(member)
                assert content is not None
                (file := store / member.name).parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(content.read())
                file.chmod(member.mode)
        self.plugins.joinpath("kubectl-respread").symlink_to(store / archives.PROGRAM)

    def kubectl(self, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
        path = f"{self.plugins}{os.pathsep}{self._programs}"
        return subprocess.run(
            ["kubectl", *arguments],
            env={"HOME": str(self._home), "PATH": path, "PYTHONPATH": "/nowhere", **environment},
            executable=self._programs / "kubectl",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )


@pytest.fixture(scope="module")
def kubectl(binaries: Binaries) -> Path:
    return binaries.path("kubectl")


@pytest.fixture(scope="module")
def machine(kubectl: Path, tmp_path_factory: pytest.TempPathFactory) -> Machine:
    """A machine with the plugin and a suitable python3."""
    made_machine = Machine(tmp_path_factory.mktemp("machine"), kubectl, ["python3"])
    made_machine.install(archive_of(HERE))
    return made_machine


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> str:
    nodes = [manifest_of_node(f"node-{zone}", f"zone-{zone}") for zone in "ab"]
    web = deployment_pods("web", {"node-a": 2})
    return str(snapshot_of(tmp_path_factory.mktemp("cluster"), [*nodes, *web]))


def test_the_plugin_runs_with_its_own_packages(machine: Machine, snapshot: str) -> None:
    version = machine.kubectl("respread", "version", "--client")
    assert (version.returncode, version.stderr) == (0, "")
    assert __version__ in version.stdout
    skew = machine.kubectl("respread", "skew", "--snapshot", snapshot, "-o", "name")
    assert (skew.returncode, skew.stdout) == (0, "deployment.apps/web\n")
    assert "Usage: kubectl respread plan" in machine.kubectl("respread", "plan", "--help").stdout


def test_the_operator_can_be_run_by_the_plugin(machine: Machine, tmp_path: Path) -> None:
    refused = machine.kubectl("respread", "run", "--kubeconfig", str(tmp_path / "missing"))
    assert refused.returncode == 2
    assert "missing" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_kubectl_completes_the_plugin_after_the_link_that_the_caveats_show(machine: Machine, snapshot: str) -> None:
    (linked,) = re.findall(r"^ *ln -s (\S+) (\S+)$", manifest()["spec"]["caveats"], re.MULTILINE)
    machine.plugins.joinpath(linked[1]).symlink_to(linked[0])
    done = machine.kubectl("__complete", "respread", "skew", "--snapshot", snapshot, "-n", "d")
    assert done.returncode == 0
    assert done.stdout == "default\n:4\n"


@pytest.fixture
def old(kubectl: Path, tmp_path: Path, machine: Machine) -> Machine:
    """A machine whose python3 is too old, with the plugin."""
    found = Machine(tmp_path, kubectl, [])
    found.program("python3", "#!/bin/sh\necho cpython-39\n")
    found.plugins.joinpath("kubectl-respread").symlink_to(machine.plugins.joinpath("kubectl-respread").readlink())
    return found


def test_a_suitable_python_is_found_beside_an_old_one(old: Machine) -> None:
    old.link(PYTHON.name, PYTHON)
    shown = old.kubectl("respread", "version", "--client")
    assert (shown.returncode, shown.stderr) == (0, "")


def test_without_a_suitable_python_the_plugin_says_which_to_install(old: Machine) -> None:
    shown = old.kubectl("respread", "version", "--client")
    assert (shown.returncode, shown.stdout) == (2, "")
    assert "needs CPython in one of the versions 3.11, 3.12, 3.13, 3.14, and the PATH has none of these" in shown.stderr
    assert "Install one of them, or set RESPREAD_PYTHON to the path of one" in shown.stderr


def test_the_variable_for_python_has_precedence(old: Machine, machine: Machine) -> None:
    chosen = old.kubectl("respread", "version", "--client", RESPREAD_PYTHON=str(PYTHON))
    assert (chosen.returncode, chosen.stderr) == (0, "")
    wrong = machine.kubectl("respread", "version", "--client", RESPREAD_PYTHON="/nowhere/python3")
    assert wrong.returncode == 2
    assert "RESPREAD_PYTHON=/nowhere/python3 is none of these" in wrong.stderr


def test_packages_for_another_processor_are_named_in_one_line(kubectl: Path, tmp_path: Path) -> None:
    other = Machine(tmp_path, kubectl, ["python3"])
    other.install(archive_of(next(each for each in CODE_FOR if each[0] == HERE[0] and each != HERE)))
    shown = other.kubectl("respread", "version", "--client")
    assert shown.returncode == 2
    assert shown.stderr.startswith("Error: the plugin's packages can't be loaded by ")
    assert len(shown.stderr.splitlines()) == 1


class Krew:
    """Krew with its own root, and with an index in a git repository on this machine."""

    def __init__(self, machine: Machine, folder: Path) -> None:
        self.machine = machine
        self._index = folder / "index"
        self._root = machine.plugins.parent
        (self._index / "plugins").mkdir(parents=True)
        self._git("init", "--quiet")

    def runs(self, *arguments: str, **environment: str) -> str:
        """Run krew, and return its output."""
        own = {"KREW_ROOT": str(self._root), "KREW_DEFAULT_INDEX_URI": f"file://{self._index}"}
        done = self.machine.kubectl("krew", *arguments, KREW_NO_UPGRADE_CHECK="1", **own, **environment)
        assert done.returncode == 0, done.stderr
        return done.stdout + done.stderr

    def publish(self, text: str) -> None:
        """Put a manifest into the index."""
        (self._index / "plugins" / "respread.yaml").write_text(text, encoding="utf-8")
        self._git("add", "--all")
        self._git("-c", "user.name=test", "-c", "user.email=test@localhost", "commit", "--quiet", "--message=respread")

    def kept(self) -> list[str]:
        """Return the installed versions of the plugin."""
        store = self._root / "store" / "respread"
        return sorted(each.name for each in store.iterdir()) if store.exists() else []

    def _git(self, *arguments: str) -> None:
        subprocess.run(["git", *arguments], cwd=self._index, check=True)


@pytest.fixture
def krew(kubectl: Path, tmp_path: Path) -> Krew:
    git = shutil.which("git")
    if KREW is None or git is None:
        pytest.skip("krew (or kubectl-krew) and git are not on the PATH")
    machine = Machine(tmp_path, kubectl, ["python3"])
    machine.link("kubectl-krew", Path(KREW))
    machine.link("git", Path(git))
    return Krew(machine, tmp_path)


@contextmanager
def served(folder: Path) -> Iterator[str]:
    """Serve the files of a folder while the context lasts, and yield the URL."""
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(SimpleHTTPRequestHandler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@of_each_platform
def test_krew_installs_each_archive_without_the_network(krew: Krew, of: tuple[str, str]) -> None:
    files = (f"--manifest={made('krew/respread.yaml')}", f"--archive={archive_of(of)}")
    said = krew.runs("install", *files, KREW_OS=of[0], KREW_ARCH=of[1])
    assert "Installed plugin: respread" in said
    assert "kubectl_complete-respread" in said  # the caveats
    assert krew.kept() == [f"v{__version__}"]


def test_krew_installs_upgrades_and_removes_the_plugin(krew: Krew, snapshot: str) -> None:
    later = "v91.2.3"
    with served(DIST) as url:
        text = made("krew/respread.yaml").read_text(encoding="utf-8")
        text = text.replace(f"{archives.DOWNLOADS}/v{__version__}", url)
        krew.publish(text)
        krew.runs("update")
        krew.runs("install", "respread")
        assert __version__ in krew.machine.kubectl("respread", "version", "--client").stdout

        krew.publish(text.replace(f"version: v{__version__}", f"version: {later}"))
        assert f"v{__version__} -> {later}" in krew.runs("upgrade", "respread")
        assert krew.kept() == [later]
    skew = krew.machine.kubectl("respread", "skew", "--snapshot", snapshot, "-o", "name")
    assert (skew.returncode, skew.stdout) == (0, "deployment.apps/web\n")

    krew.runs("uninstall", "respread")
    assert krew.kept() == []
    assert krew.machine.kubectl("respread", "version", "--client").returncode != 0
