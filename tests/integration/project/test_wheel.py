"""Each wheel contains only its own files, all work when installed, and the image runs without write access."""

from __future__ import annotations

import ast
import email
import email.message
import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from collections.abc import Sequence
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from respread import __version__
from tests.unit.kube.test_access import write_kubeconfig

ROOT = Path(__file__).parents[3]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


class Wheels(NamedTuple):
    commands: Path
    operator: Path
    sandbox: Path


OF_A_DEPENDENCY = {"urllib3", "yarl"}
"""Packages of which requests and aiohttp have values in their interfaces."""
COPIED = re.findall(r"^COPY (?!--from)(.*) (\S+)$", DOCKERFILE, re.MULTILINE)
"""The sources and targets of the image's COPY instructions."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the Dockerfile copies before it builds the wheels of the operator and of the commands."""
    directory = tmp_path_factory.mktemp("src")
    for sources, target in COPIED:
        for each in sources.split():
            if (ROOT / each).is_dir():
                shutil.copytree(ROOT / each, directory / target, ignore=shutil.ignore_patterns("__pycache__"))
            else:
                shutil.copy(ROOT / each, directory / target)
    return directory


@pytest.fixture(scope="module")
def wheels(source: Path, tmp_path_factory: pytest.TempPathFactory) -> Wheels:
    """The wheels, built as in the Dockerfile: by the installed hatchling, without the network."""
    directory = tmp_path_factory.mktemp("wheels")
    build = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-build-isolation", "--no-deps"]
    projects = [source / "operator" / "respread", source, ROOT / "operator" / "respread_sandbox"]
    subprocess.run([*build, "--quiet", "--no-index", "--wheel-dir", directory, *projects], check=True)
    return Wheels(*sorted(directory.glob("*.whl")))


def pinned(name: str) -> set[str]:
    """Return the packages of a file with pins. Each must have a hash."""
    found: set[str] = set()
    for entry in re.split(r"\n(?=\S)", (ROOT / name).read_text(encoding="utf-8")):
        if match := re.match(r"([\w.-]+)==", entry):
            assert "--hash=sha256:" in entry
            found.add(canonicalize_name(match[1]))
    return found


def install(environment: Path, dependencies: set[str], *what: str | Path) -> None:
    """Install into a new environment with dependencies from here, but without this checkout and the network."""
    venv.create(environment, with_pip=False, symlinks=True)
    library = environment / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    borrowed = environment / "borrowed"
    borrowed.mkdir()
    for distribution in metadata.distributions():
        if canonicalize_name(distribution.name) in dependencies:
            for name in {each.parts[0] for each in distribution.files or ()} - {"..", "__pycache__"}:
                (borrowed / name).symlink_to(Path(str(distribution.locate_file(name))))
    (library / "borrowed.pth").write_text(f"{borrowed}\n", encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", f"--python={environment}/bin/python", "install"]
    subprocess.run([*pip, "--quiet", "--no-compile", "--no-index", *map(str, what)], check=True)
    compile_all = [sys.executable, "-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash"]
    subprocess.run([*compile_all, str(library)], check=True)


@pytest.fixture(scope="module")
def image(wheels: Wheels, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The content of /opt/respread in the image: compiled, without pip, here with this environment's dependencies."""
    environment = tmp_path_factory.mktemp("image") / "respread"
    install(environment, pinned("requirements-operator.txt"), wheels.operator)
    ((to, link),) = re.findall(r"ln -s (\S+) /opt/respread/(\S+)", DOCKERFILE)
    (environment / link).symlink_to(to)
    return environment


@pytest.fixture(scope="module")
def commands(wheels: Wheels, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment after `pip install respread` from these wheels."""
    environment = tmp_path_factory.mktemp("commands") / "respread"
    install(environment, pinned("requirements.txt"), f"--find-links={wheels.commands.parent}", "respread")
    return environment


@pytest.fixture(scope="module")
def with_sandbox(wheels: Wheels, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment after `pip install respread[sandbox]` from these wheels."""
    environment = tmp_path_factory.mktemp("with-sandbox") / "respread"
    install(environment, pinned("requirements.txt"), f"--find-links={wheels.commands.parent}", "respread[sandbox]")
    return environment


def install_line() -> list[str]:
    """Return the command by which the README installs from a clone."""
    (line,) = re.findall(r"^pip install .*$", (ROOT / "README.md").read_text(encoding="utf-8"), re.MULTILINE)
    return str(line).split()


def run(environment: Path, *arguments: str, cwd: Path, program: str = "respread") -> subprocess.CompletedProcess[str]:
    variables = {"PATH": os.defpath, "HOME": "/nonexistent", "TMPDIR": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"}
    command: list[str | Path] = [environment / "bin" / program, *arguments]
    return subprocess.run(command, cwd=cwd, env=variables, check=False, capture_output=True, text=True)


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def files(*folders: str) -> set[str]:
    """Return all files of the project's folders except caches, by path."""
    found = (path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file())
    return {str(path.relative_to(ROOT)) for path in found if "__pycache__" not in path.parts}


def test_the_wheels_have_this_version_and_run_on_any_platform(wheels: Wheels) -> None:
    names = ["respread", "respread_operator", "respread_sandbox"]
    assert [wheel.name for wheel in wheels] == [f"{name}-{__version__}-py3-none-any.whl" for name in names]


def modules_of(package: str) -> set[str]:
    return {path.removeprefix("operator/") for path in files(f"operator/{package}")}


def test_each_wheel_contains_only_its_package(wheels: Wheels) -> None:
    shipped = {f"respread_cli/{path}" for path in files("crds", "manifests")}
    assert "respread_cli/manifests/base/deployment.yaml" in shipped
    expected = (
        modules_of("respread_cli") | shipped,
        modules_of("respread") - {"respread/pyproject.toml", "respread/LICENSE"},
        modules_of("respread_sandbox") - {"respread_sandbox/pyproject.toml"},
    )
    for wheel, inside in zip(wheels, expected, strict=True):
        assert {name for name in contents(wheel) if ".dist-info/" not in name} == inside


def metadata_of(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(archive.read(name))


def test_the_wheel_has_the_license_and_the_project_urls(wheels: Wheels) -> None:
    assert {metadata_of(wheel)["License-Expression"] for wheel in wheels} == {"Apache-2.0"}
    for wheel in (wheels.commands, wheels.operator):
        with zipfile.ZipFile(wheel) as archive:
            name = "-".join(wheel.name.split("-")[:2])
            licence = archive.read(f"{name}.dist-info/licenses/{metadata_of(wheel)['License-File']}")
        assert licence == (ROOT / "LICENSE").read_bytes()
    urls = dict(entry.split(", ") for entry in metadata_of(wheels.commands).get_all("Project-URL", []))
    assert set(urls) == {"Homepage", "Documentation", "Changelog", "Issues"}
    for url in urls.values():
        _, _, path = url.partition("/blob/main/")
        assert not path or (ROOT / path).is_file()


def test_type_checkers_use_the_annotations_of_the_wheels(wheels: Wheels) -> None:
    for wheel, package in zip(wheels, ("respread_cli", "respread", "respread_sandbox"), strict=True):
        assert f"{package}/py.typed" in contents(wheel)


def requirements_of(wheel: Path) -> list[str]:
    return metadata_of(wheel).get_all("Requires-Dist", [])


def test_only_the_sandbox_wheel_can_build_and_start_a_control_plane(wheels: Wheels) -> None:
    inside = {path.removeprefix("respread_sandbox/") for path in contents(wheels.sandbox)}
    assert {"go.mod", "go.sum", "supervisor.py", "demo/story.py"} <= inside
    for name in contents(wheels.operator) | contents(wheels.commands):
        assert not re.search(r"go\.(mod|sum)$|supervis|sandbox|demo", name)


def test_the_wheels_require_each_other_in_the_same_version(wheels: Wheels) -> None:
    assert f"respread-operator[credential-plugins]=={__version__}" in requirements_of(wheels.commands)
    assert f"respread-sandbox=={__version__}; extra == 'sandbox'" in requirements_of(wheels.commands)
    assert f"respread=={__version__}" in requirements_of(wheels.sandbox)
    assert not [each for each in requirements_of(wheels.operator) if each.startswith("respread")]


@pytest.mark.parametrize(
    ("of", "pins"), [(["operator"], "requirements-operator.txt"), (Wheels._fields, "requirements.txt")]
)
def test_every_dependency_is_pinned_with_a_hash(wheels: Wheels, of: Sequence[str], pins: str) -> None:
    requirements = [Requirement(each) for name in of for each in requirements_of(getattr(wheels, name))]
    always = [each.name for each in requirements if each.marker is None or "extra" not in str(each.marker)]
    needed = set(map(canonicalize_name, always)) - {"respread", "respread-operator", "respread-sandbox"}
    assert len(needed) > 10
    assert needed <= pinned(pins)


def imported_by(package: str) -> set[str]:
    """Return the top-level packages that a package's modules import, also those imported within functions."""
    found = set()
    for path in (ROOT / "operator" / package).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Import):
                found |= {each.name.split(".")[0] for each in node.names}
            elif isinstance(node, ast.ImportFrom) and node.module:
                found.add(node.module.split(".")[0])
    return found - sys.stdlib_module_names


@pytest.mark.parametrize(
    ("field", "package"), [("commands", "respread_cli"), ("operator", "respread"), ("sandbox", "respread_sandbox")]
)
def test_each_wheel_requires_what_its_modules_import(wheels: Wheels, field: str, package: str) -> None:
    required = {canonicalize_name(Requirement(each).name) for each in requirements_of(getattr(wheels, field))}
    provided = metadata.packages_distributions()
    ours = ["respread", "respread_cli", "respread_sandbox"]
    imported = imported_by(package)
    assert imported.isdisjoint(ours[ours.index(package) + 1 :])
    for name in imported.difference(ours):
        assert required & {canonicalize_name(each) for each in provided[name]} or name in OF_A_DEPENDENCY, name


def test_the_image_contains_only_what_the_operator_needs(image: Path, tmp_path: Path) -> None:
    """Among its packages are no HTTP client that only commands use, and no commands."""
    ask = "import importlib.metadata as m; print(*sorted(each.name for each in m.distributions()))"
    inside = set(map(canonicalize_name, run(image, "-c", ask, cwd=tmp_path, program="python").stdout.split()))
    assert inside <= pinned("requirements-operator.txt") | {"respread-operator"}
    assert {"respread-operator", "kopf"} <= inside
    assert inside.isdisjoint({"kubernetes", "pykube-ng", "requests", "respread", "rich"})


def test_the_operator_starts_from_a_read_only_image(image: Path, tmp_path: Path) -> None:
    before = sorted(image.rglob("*"))
    for program in ("respread", "respread-operator"):
        shown = run(image, "run", "--help", cwd=tmp_path, program=program)
        assert "Usage: respread run" in shown.stdout
        assert (shown.returncode, shown.stderr) == (0, "")
    assert __version__ in run(image, "--version", cwd=tmp_path).stdout
    assert "there is no kubeconfig" in run(image, "run", cwd=tmp_path).stderr
    assert sorted(image.rglob("*")) == before


def test_the_image_says_where_the_commands_are(image: Path, tmp_path: Path) -> None:
    refused = run(image, "skew", "-n", "shop", cwd=tmp_path)
    assert refused.returncode == 2
    assert "pip install respread" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_the_image_says_what_an_exec_plugin_needs(image: Path, tmp_path: Path) -> None:
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/false", "interactiveMode": "Never"}
    kubeconfig = write_kubeconfig(tmp_path / "config", {"exec": plugin})
    refused = run(image, "run", "--kubeconfig", str(kubeconfig), cwd=tmp_path)
    assert refused.returncode == 2
    assert "Python's package kubernetes" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_the_commands_are_installed(commands: Path, tmp_path: Path) -> None:
    for program in ("respread", "kubectl-respread"):
        shown = run(commands, "skew", "--help", cwd=tmp_path, program=program)
        assert "Usage:" in shown.stdout
        assert (shown.returncode, shown.stderr) == (0, "")
    assert __version__ in run(commands, "version", "--client", cwd=tmp_path).stdout


@pytest.mark.parametrize("command", [["demo"], ["demo", "--seed", "2"], ["sandbox", "up", "--nodes", "3"]])
def test_without_the_sandbox_wheel_its_commands_say_what_to_install(
    commands: Path, tmp_path: Path, command: list[str]
) -> None:
    refused = run(commands, *command, cwd=tmp_path)
    assert refused.returncode == 2
    assert "pip install 'respread[sandbox]'" in refused.stderr
    assert f"in a clone: {' '.join(install_line())}" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_the_install_line_of_the_readme_installs_every_command(tmp_path: Path) -> None:
    environment = tmp_path / "respread"
    needed = pinned("requirements.txt") | pinned("requirements-build.txt")
    install(environment, needed, "--no-build-isolation", *(ROOT / each for each in install_line()[2:]))
    for command in (["--help"], ["demo", "--help"], ["sandbox", "up", "--help"], ["ui", "--help"], ["run", "--help"]):
        shown = run(environment, *command, cwd=tmp_path)
        assert (shown.returncode, shown.stderr) == (0, "")
        assert "Usage:" in shown.stdout


def test_with_the_sandbox_wheel_its_commands_exist(with_sandbox: Path, tmp_path: Path) -> None:
    assert "--patience" in run(with_sandbox, "demo", "--help", cwd=tmp_path).stdout
    assert "--zones" in run(with_sandbox, "sandbox", "up", "--help", cwd=tmp_path).stdout
    ask = "import respread as r, respread_cli as c, respread_sandbox as s; print(r.__file__, c.__file__, s.__file__)"
    answer = run(with_sandbox, "-c", ask, cwd=tmp_path, program="python")
    assert answer.stdout.count("/site-packages/") == 3
    assert all(Path(path).is_relative_to(with_sandbox) for path in answer.stdout.split())


@pytest.mark.usefixtures("binaries")
def test_an_installed_sandbox_starts_a_control_plane(with_sandbox: Path, tmp_path: Path) -> None:
    start = (
        "from respread_sandbox import Sandbox, SandboxOptions\n"
        "with Sandbox.start(SandboxOptions(nodes=1, scheduler=False, controller_manager=False)) as sandbox:\n"
        "    print(sandbox.api.get('/version')['gitVersion'])\n"
    )
    command = [str(with_sandbox / "bin" / "python"), "-I", "-c", start]
    started = subprocess.run(command, cwd=tmp_path, check=True, capture_output=True, text=True)
    assert started.stdout.startswith("v1.")


def test_the_image_runs_its_own_package_and_not_the_checkout(image: Path, tmp_path: Path) -> None:
    ask = "import respread, respread.program.main as m; print(respread.__file__, m.__cached__)"
    answer = subprocess.run(
        [image / "bin" / "python", "-I", "-c", ask], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    for path in answer.stdout.split():
        assert Path(path).is_relative_to(image)
        assert Path(path).is_file()


def test_the_dockerfile_copies_only_files_of_the_build_context() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    seen = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    assert {each for sources, _ in COPIED for each in sources.split()} == seen


def test_the_image_has_a_supported_python_version() -> None:
    (python,) = re.findall(r"^ARG PYTHON_IMAGE=python:(3\.\d+)-slim-\w+@sha256:[0-9a-f]{64}$", DOCKERFILE, re.MULTILINE)
    assert int(python.split(".")[1]) >= 11
