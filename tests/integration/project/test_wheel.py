"""Each wheel contains only its own files, both work when installed, and the image runs without write access."""

from __future__ import annotations

import email
import email.message
import os
import re
import shutil
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path
from typing import NamedTuple

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from respread import __version__

ROOT = Path(__file__).parents[3]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


class Wheels(NamedTuple):
    respread: Path
    sandbox: Path


COPIED = re.findall(r"^COPY (?!--from)(.*) (\S+)$", DOCKERFILE, re.MULTILINE)
"""The sources and targets of the image's COPY instructions."""


@pytest.fixture(scope="module")
def source(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files that the Dockerfile copies before it builds the wheel."""
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
    projects = [source, ROOT / "operator" / "respread_sandbox"]
    subprocess.run([*build, "--quiet", "--no-index", "--wheel-dir", directory, *projects], check=True)
    return Wheels(*sorted(directory.glob("*.whl")))


def install(environment: Path, *what: str | Path) -> None:
    """Install into a new environment with the dependencies, but without this checkout and the network."""
    venv.create(environment, with_pip=False, symlinks=True)
    library = environment / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    borrowed = environment / "borrowed"
    borrowed.mkdir()
    for path in Path(sysconfig.get_path("purelib")).iterdir():
        if "respread" not in path.name:
            (borrowed / path.name).symlink_to(path)
    (library / "borrowed.pth").write_text(f"{borrowed}\n", encoding="utf-8")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", f"--python={environment}/bin/python", "install"]
    subprocess.run([*pip, "--quiet", "--no-compile", "--no-index", *map(str, what)], check=True)
    compile_all = [sys.executable, "-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash"]
    subprocess.run([*compile_all, str(library)], check=True)


@pytest.fixture(scope="module")
def image(wheels: Wheels, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The content of /opt/respread in the image: compiled, without pip, here with this environment's dependencies."""
    environment = tmp_path_factory.mktemp("image") / "respread"
    install(environment, wheels.respread)
    return environment


@pytest.fixture(scope="module")
def with_sandbox(wheels: Wheels, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment after `pip install respread[sandbox]` from these two wheels."""
    environment = tmp_path_factory.mktemp("with-sandbox") / "respread"
    install(environment, f"--find-links={wheels.respread.parent}", "respread[sandbox]")
    return environment


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
    assert wheels.respread.name == f"respread-{__version__}-py3-none-any.whl"
    assert wheels.sandbox.name == f"respread_sandbox-{__version__}-py3-none-any.whl"


def test_the_wheel_contains_only_the_package_the_crds_and_the_manifests(wheels: Wheels) -> None:
    expected = {path.removeprefix("operator/") for path in files("operator/respread", "operator/respread_cli")}
    expected |= {f"respread/{path}" for path in files("crds", "manifests")}
    assert "respread/manifests/base/deployment.yaml" in expected
    inside = {name for name in contents(wheels.respread) if not name.startswith(f"respread-{__version__}.dist-info/")}
    assert inside == expected


def metadata_of(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [each for each in archive.namelist() if each.endswith(".dist-info/METADATA")]
        return email.message_from_bytes(archive.read(name))


def test_the_wheel_has_the_license_and_the_project_urls(wheels: Wheels) -> None:
    metadata = metadata_of(wheels.respread)
    assert metadata_of(wheels.sandbox)["License-Expression"] == metadata["License-Expression"] == "Apache-2.0"
    with zipfile.ZipFile(wheels.respread) as archive:
        licence = archive.read(f"respread-{__version__}.dist-info/licenses/{metadata['License-File']}")
    assert licence == (ROOT / "LICENSE").read_bytes()
    urls = dict(entry.split(", ") for entry in metadata.get_all("Project-URL", []))
    assert set(urls) == {"Homepage", "Documentation", "Changelog", "Issues"}
    for url in urls.values():
        _, _, path = url.partition("/blob/main/")
        assert not path or (ROOT / path).is_file()


def test_type_checkers_use_the_annotations_of_the_wheels(wheels: Wheels) -> None:
    assert "respread/py.typed" in contents(wheels.respread)
    assert "respread_sandbox/py.typed" in contents(wheels.sandbox)


def requirements_of(wheel: Path) -> list[str]:
    return metadata_of(wheel).get_all("Requires-Dist", [])


def test_only_the_sandbox_wheel_can_build_and_start_a_control_plane(wheels: Wheels) -> None:
    expected = {path.removeprefix("operator/") for path in files("operator/respread_sandbox")}
    expected.remove("respread_sandbox/pyproject.toml")
    assert {"go.mod", "go.sum", "supervisor.py", "demo/story.py"} <= {
        path.removeprefix("respread_sandbox/") for path in expected
    }
    metadata_folder = f"respread_sandbox-{__version__}.dist-info/"
    assert {name for name in contents(wheels.sandbox) if not name.startswith(metadata_folder)} == expected
    for name in contents(wheels.respread):
        assert not re.search(r"go\.(mod|sum)$|supervis|sandbox|demo", name)


def test_the_two_wheels_require_each_other_in_the_same_version(wheels: Wheels) -> None:
    assert f"respread-sandbox=={__version__}; extra == 'sandbox'" in requirements_of(wheels.respread)
    assert f"respread=={__version__}" in requirements_of(wheels.sandbox)


def test_every_dependency_is_pinned_with_a_hash(wheels: Wheels) -> None:
    requirements = map(Requirement, requirements_of(wheels.respread) + requirements_of(wheels.sandbox))
    needed = {canonicalize_name(each.name) for each in requirements} - {"respread", "respread-sandbox"}
    pinned = set()
    for entry in re.split(r"\n(?=\S)", (ROOT / "requirements.txt").read_text(encoding="utf-8")):
        if match := re.match(r"([\w.-]+)==", entry):
            assert "--hash=sha256:" in entry
            pinned.add(canonicalize_name(match[1]))
    assert len(needed) > 10
    assert needed <= pinned


def test_the_programs_run_from_a_read_only_image(image: Path, tmp_path: Path) -> None:
    before = sorted(image.rglob("*"))
    for program in ("respread", "kubectl-respread"):
        shown = run(image, "--help", cwd=tmp_path, program=program)
        assert "Usage:" in shown.stdout
        assert (shown.returncode, shown.stderr) == (0, "")
    assert __version__ in run(image, "--version", cwd=tmp_path).stdout
    assert sorted(image.rglob("*")) == before


@pytest.mark.parametrize("command", [["demo"], ["demo", "--seed", "2"], ["sandbox", "up", "--nodes", "3"]])
def test_without_the_sandbox_wheel_its_commands_say_what_to_install(
    image: Path, tmp_path: Path, command: list[str]
) -> None:
    refused = run(image, *command, cwd=tmp_path)
    assert refused.returncode == 2
    assert "pip install 'respread[sandbox]'" in refused.stderr
    assert "Traceback" not in refused.stderr


def test_with_the_sandbox_wheel_its_commands_exist(with_sandbox: Path, tmp_path: Path) -> None:
    assert "--patience" in run(with_sandbox, "demo", "--help", cwd=tmp_path).stdout
    assert "--zones" in run(with_sandbox, "sandbox", "up", "--help", cwd=tmp_path).stdout
    ask = "import respread, respread_sandbox as s; print(respread.__file__, s.__file__)"
    answer = run(with_sandbox, "-c", ask, cwd=tmp_path, program="python")
    assert answer.stdout.count("/site-packages/") == 2
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
    ask = "import respread, respread_cli.main as m; print(respread.__file__, m.__cached__)"
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
