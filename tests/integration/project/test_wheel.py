"""The wheel holds all that Respread needs to run, and the Dockerfile's steps make it run with nothing writable."""

from __future__ import annotations

import email
import email.message
import os
import re
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from respread import __version__

ROOT = Path(__file__).parents[3]
DOCKERFILE = (ROOT / "Dockerfile").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built as the Dockerfile does it: by the installed hatchling, without the network."""
    directory = tmp_path_factory.mktemp("wheels")
    build = [sys.executable, "-m", "pip", "--disable-pip-version-check", "wheel", "--no-build-isolation", "--no-deps"]
    subprocess.run([*build, "--quiet", "--no-index", "--wheel-dir", directory, ROOT], check=True)
    (built,) = directory.glob("*.whl")
    return built


@pytest.fixture(scope="module")
def image(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What the Dockerfile leaves in /opt/respread: compiled, without pip; here with borrowed dependencies."""
    environment = tmp_path_factory.mktemp("image") / "respread"
    venv.create(environment, with_pip=False, symlinks=True)
    library = environment / "lib" / f"python{sys.version_info.major}.{sys.version_info.minor}" / "site-packages"
    install = [
        sys.executable,
        "-m",
        "pip",
        "--disable-pip-version-check",
        f"--python={environment}/bin/python",
        "install",
    ]
    subprocess.run([*install, "--quiet", "--no-compile", "--no-deps", "--no-index", wheel], check=True)
    # Only the dependencies: the path file that makes this checkout importable is not read from there.
    (library / "borrowed.pth").write_text(sysconfig.get_path("purelib") + "\n", encoding="utf-8")
    compile_all = ["-m", "compileall", "-q", "-j", "0", "--invalidation-mode", "unchecked-hash"]
    subprocess.run([sys.executable, *compile_all, library / "respread"], check=True)
    return environment


def contents(wheel: Path) -> set[str]:
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist())


def files(*folders: str) -> set[str]:
    """Everything in folders of the project but caches, by path from its root."""
    found = (path for folder in folders for path in (ROOT / folder).rglob("*") if path.is_file())
    return {str(path.relative_to(ROOT)) for path in found if "__pycache__" not in path.parts}


def test_the_wheel_is_of_this_version_and_any_platform(wheel: Path) -> None:
    assert wheel.name == f"respread-{__version__}-py3-none-any.whl"


def test_the_wheel_holds_the_package_its_crds_and_its_manifests_and_nothing_else(wheel: Path) -> None:
    expected = {path.removeprefix("operator/") for path in files("operator/respread")}
    expected |= {f"respread/{path}" for path in files("crds", "manifests")}
    assert {"respread/sandbox/go.mod", "respread/sandbox/go.sum", "respread/manifests/base/deployment.yaml"} <= expected
    inside = {name for name in contents(wheel) if not name.startswith(f"respread-{__version__}.dist-info/")}
    assert inside == expected


def metadata_of(wheel: Path) -> email.message.Message:
    with zipfile.ZipFile(wheel) as archive:
        return email.message_from_bytes(archive.read(f"respread-{__version__}.dist-info/METADATA"))


def test_the_wheel_says_its_licence_and_where_the_project_lives(wheel: Path) -> None:
    metadata = metadata_of(wheel)
    assert metadata["License-Expression"] == "Apache-2.0"
    with zipfile.ZipFile(wheel) as archive:
        licence = archive.read(f"respread-{__version__}.dist-info/licenses/{metadata['License-File']}")
    assert licence == (ROOT / "LICENSE").read_bytes()
    urls = dict(entry.split(", ") for entry in metadata.get_all("Project-URL", []))
    assert set(urls) == {"Homepage", "Documentation", "Changelog", "Issues"}
    for url in urls.values():
        _, _, path = url.partition("/blob/main/")
        assert not path or (ROOT / path).is_file()


def test_type_checkers_believe_the_annotations_of_the_wheel(wheel: Path) -> None:
    assert "respread/py.typed" in contents(wheel)


def test_every_dependency_is_pinned_with_a_hash(wheel: Path) -> None:
    metadata = metadata_of(wheel)
    needed = {canonicalize_name(Requirement(text).name) for text in metadata.get_all("Requires-Dist", [])}
    pinned = set()
    for entry in re.split(r"\n(?=\S)", (ROOT / "requirements.txt").read_text(encoding="utf-8")):
        if match := re.match(r"([\w.-]+)==", entry):
            assert "--hash=sha256:" in entry
            pinned.add(canonicalize_name(match[1]))
    assert len(needed) > 10
    assert needed <= pinned


def test_the_programs_run_from_the_image_with_nothing_writable(image: Path, tmp_path: Path) -> None:
    before = sorted(image.rglob("*"))
    environment = {"PATH": os.defpath, "HOME": "/nonexistent", "TMPDIR": "/nonexistent", "PYTHONDONTWRITEBYTECODE": "1"}
    for program in ("respread", "kubectl-respread"):
        shown = subprocess.run(
            [image / "bin" / program, "--help"],
            cwd=tmp_path, env=environment, check=True, capture_output=True, text=True,
        )  # fmt: skip
        assert "Usage:" in shown.stdout
        assert shown.stderr == ""
    version = subprocess.run(
        [image / "bin" / "respread", "--version"], env=environment, check=True, capture_output=True, text=True
    )
    assert __version__ in version.stdout
    assert sorted(image.rglob("*")) == before


def test_the_image_runs_its_own_package_not_this_checkout(image: Path, tmp_path: Path) -> None:
    ask = "import respread, respread.cli.main as m; print(respread.__file__, m.__cached__)"
    answer = subprocess.run(
        [image / "bin" / "python", "-c", ask], cwd=tmp_path, check=True, capture_output=True, text=True
    )
    for path in answer.stdout.split():
        assert Path(path).is_relative_to(image)
        assert Path(path).is_file()


def test_the_container_runs_as_a_number_that_is_not_root() -> None:
    (user,) = re.findall(r"^USER (\S+)$", DOCKERFILE, re.MULTILINE)
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", user)
    assert DOCKERFILE.index("\nUSER ") > DOCKERFILE.index("\nFROM ${PYTHON_IMAGE}\n")
    assert DOCKERFILE.endswith('ENTRYPOINT ["respread"]\nCMD ["run"]\n')


def test_the_dockerfile_copies_only_what_the_build_may_see() -> None:
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").split()
    seen = {line.removeprefix("!") for line in ignored if line.startswith("!")}
    copied = {
        source
        for line in re.findall(r"^COPY (?!--from)(.*)$", DOCKERFILE, re.MULTILINE)
        for source in line.split()[:-1]
    }
    assert copied == seen
    for source in copied:
        assert (ROOT / source).exists()


def test_the_image_has_a_python_that_respread_runs_on() -> None:
    (python,) = re.findall(r"^ARG PYTHON_IMAGE=python:(3\.\d+)-slim-\w+$", DOCKERFILE, re.MULTILINE)
    assert int(python.split(".")[1]) >= 11
    assert set(re.findall(r"lib/python(3\.\d+)", DOCKERFILE)) == {python}
