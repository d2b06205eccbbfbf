"""Makes what krew installs: an archive for each platform, and the manifest that names them.

    python -m krew.archives dist/respread_operator-0.1.0-py3-none-any.whl dist/respread-0.1.0-py3-none-any.whl dist

An archive holds Respread, its pinned dependencies and a program that starts them with the Python of the machine.
Dependencies with compiled parts are in it once for each minor version of Python. The same wheels always make the same
archives.
"""

from __future__ import annotations

import csv
import gzip
import hashlib
import re
import subprocess
import sys
import tarfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).parents[1]
HERE: Final = Path(__file__).parent
DOWNLOADS: Final = "https://github.com/respread/respread/releases/download"
PROGRAM: Final = "kubectl-respread"
PYTHONS: Final = ("3.11", "3.12", "3.13", "3.14")
_PURE_TOO: Final = {"immutables"}
"""Packages that work without their compiled part, more slowly."""
_NO_WHEEL_YET: Final = {"3.14": {"immutables"}}
"""Packages, of those that work without their compiled part, that have none for a version of Python."""
_BY_THE_INSTALLER: Final = {"INSTALLER", "RECORD", "REQUESTED", "direct_url.json", "uv_cache.json"}


class Platform(NamedTuple):
    """An operating system and a processor, as krew names them."""

    os: str
    arch: str
    of_uv: str
    """As uv names it, with the oldest C library that counts: 2.28 is that of Debian 10 and RHEL 8."""


PLATFORMS: Final = (
    Platform("linux", "amd64", "x86_64-manylinux_2_28"),
    Platform("linux", "arm64", "aarch64-manylinux_2_28"),
    Platform("darwin", "amd64", "x86_64-apple-darwin"),
    Platform("darwin", "arm64", "aarch64-apple-darwin"),
)


def make(wheels: Sequence[Path], target: Path, platforms: Sequence[Platform] = PLATFORMS) -> Path:
    """Write the archives into a folder and return the manifest, which is in its subfolder krew.

    Args:
        wheels: of Respread; their names have the version.
        target: where to write.
        platforms: for which to make archives.

    Raises:
        subprocess.CalledProcessError: a dependency can't be installed for a platform; uv has printed why.
    """
    version = wheels[0].name.split("-")[1]
    manifest = (HERE / "respread.yaml").read_text(encoding="utf-8") + f"  version: v{version}\n  platforms:\n"
    for platform in platforms:
        archive = target / f"{PROGRAM}-{version}-{platform.os}-{platform.arch}.tar.gz"
        with TemporaryDirectory() as folder:
            _write(archive, _files_for(platform, wheels, Path(folder)))
        manifest += (
            f"    - selector: {{matchLabels: {{os: {platform.os}, arch: {platform.arch}}}}}\n"
            f"      uri: {DOWNLOADS}/v{version}/{archive.name}\n"
            f"      sha256: {hashlib.sha256(archive.read_bytes()).hexdigest()}\n"
            f"      bin: {PROGRAM}\n"
        )
    written = target / "krew" / "respread.yaml"  # it must be called like the plugin
    written.parent.mkdir(exist_ok=True)
    written.write_text(manifest, encoding="utf-8")
    return written


def _files_for(platform: Platform, wheels: Sequence[Path], folder: Path) -> dict[str, Path]:
    """Install everything into subfolders of a folder, and return the files of the archive by path in it."""
    files = {"LICENSE": ROOT / "LICENSE", PROGRAM: HERE / PROGRAM, "lib/__main__.py": HERE / "start.py"}
    pinned = re.split(r"\n(?=\S)", (ROOT / "requirements.txt").read_text(encoding="utf-8"))
    for python in PYTHONS:
        missing = _NO_WHEEL_YET.get(python, set())
        requirements = folder / f"{python}.txt"
        requirements.write_text(
            "\n".join(each for each in pinned if each.partition("==")[0] not in missing), encoding="utf-8"
        )
        uv = [sys.executable, "-m", "uv", "pip", "install", "--quiet", "--native-tls", "--no-deps"]
        for_whom = [f"--python-platform={platform.of_uv}", f"--python-version={python}", f"--target={folder / python}"]
        dependencies = ["--only-binary=:all:", "--require-hashes", f"--requirement={requirements}"]
        for what in (dependencies, list(map(str, wheels))):
            subprocess.run([*uv, *for_whom, *what], check=True)  # noqa: S603 - all are our own arguments
        for package in (folder / python).glob("*.dist-info"):
            files |= _files_of(package, f"cpython-{python.replace('.', '')}")
    return files


def _files_of(package: Path, made_for: str) -> Iterator[tuple[str, Path]]:
    """Yield the files of an installed package, without programs, and their paths in the archive.

    Args:
        package: its folder with metadata.
        made_for: the folder in the archive, if it has compiled parts.
    """
    name = package.name.split("-")[0]
    tags = re.findall(r"^Tag: (.*)$", (package / "WHEEL").read_text(encoding="utf-8"), re.MULTILINE)
    for_any = all(tag.endswith("-none-any") for tag in tags)
    with (package / "RECORD").open(encoding="utf-8", newline="") as record:
        paths = [Path(path) for path, *_ in csv.reader(record)]
    for path in paths:
        if path.parts[0] in {"..", "bin"} or (path.parts[0] == package.name and path.name in _BY_THE_INSTALLER):
            continue
        if not for_any:
            yield f"lib/{made_for}/{path.as_posix()}", package.parent / path
        if for_any or (name in _PURE_TOO and path.suffix != ".so"):
            yield f"lib/any/{path.as_posix()}", package.parent / path


def _write(archive: Path, files: Mapping[str, Path]) -> None:
    """Write an archive whose files are sorted and as old as the epoch, and belong to root."""
    with (
        archive.open("wb") as raw,
        gzip.GzipFile(filename="", fileobj=raw, mode="wb", compresslevel=6, mtime=0) as compressed,
        tarfile.open(fileobj=compressed, mode="w", format=tarfile.GNU_FORMAT) as tar,
    ):
        for path, file in sorted(files.items()):
            entry = tarfile.TarInfo(path)
            entry.size = file.stat().st_size
            entry.mode = 0o755 if path == PROGRAM else 0o644
            with file.open("rb") as content:
                tar.addfile(entry, content)


def main() -> None:
    """Make the archives and the manifest."""
    *wheels, target = map(Path, sys.argv[1:])
    sys.stdout.write(f"{make(wheels, target)}\n")


if __name__ == "__main__":
    main()
