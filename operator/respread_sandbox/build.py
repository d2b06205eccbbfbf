"""Builds the programs of the control plane from the Go module proxy, once for all processes of a user."""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import select
import shutil
import subprocess
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final

from respread_sandbox.errors import BuildError, ToolchainError
from respread_sandbox.modules import NEWEST, Module
from respread_sandbox.progress import BuildProgress

GO_MINIMUM: Final = (1, 26)
FOREIGN_VARIABLES: Final = ("GOOS", "GOARCH", "GOFLAGS", "GOEXPERIMENT", "GOBIN")
"""Environment variables of the user that would build for another machine or break this build."""
SAME_PROGRAM_SOONER: Final = ("-gcflags=all=-dwarf=false",)
"""A flag of the compiler only: the linker leaves what debuggers read out of the programs anyway."""
COMPILER_MEMORY: Final = {"GOGC": "1000", "GOMEMLIMIT": "2GiB"}
"""How much garbage a compiler or linker may have, in percent of what it uses, and in all, unless the user's environment
says it. With 400 %, a build takes a tenth longer."""
_REMEDY: Final = (
    "The sandbox builds a Kubernetes control plane once, for which it needs Go"
    f" {'.'.join(map(str, GO_MINIMUM))} or newer. Install it (see https://go.dev/dl) so that `go` is on the PATH, or"
    f" set KUBEBUILDER_ASSETS to a folder that holds {', '.join(NEWEST.packages)}."
)
LOCK_POLL_SECONDS: Final = 0.3
TICK_SECONDS: Final = 1.0
ERROR_LINES: Final = 15
PARTIAL_SUFFIX: Final = ".partial"


def build_missing(
    module: Module, names: Sequence[str], directory: Path, environment: Mapping[str, str], progress: BuildProgress
) -> None:
    """Build programs of a module into a directory, by one `go build`. Each appears there completely or not at all.

    One command for all loads the packages once, and compiles for one program while it links another.
    Only one process builds at a time; another one that wants the same waits and then finds them there.

    Raises:
        ToolchainError: Go is missing or too old.
        BuildError: Go failed.

    """
    directory.mkdir(parents=True, exist_ok=True)
    with progress, _only_builder(directory.with_suffix(".lock"), progress):
        left = [name for name in names if not is_whole(directory / name)]
        if not left:
            return
        go = _go(module, environment)
        for leftover in directory.glob(f".*{PARTIAL_SUFFIX}"):
            shutil.rmtree(leftover)
        progress.building(left)
        _build(go, module, left, directory, environment, progress)
        progress.built()


def is_whole(program: Path) -> bool:
    """Return whether a cached program is complete. A full disk or a broken copy leaves a file of another size."""
    try:
        return program.stat().st_size == int(_size_file(program).read_text(encoding="ascii"))
    except (OSError, ValueError):
        return False


def _size_file(program: Path) -> Path:
    return program.with_name(f".{program.name}.size")


def _build(
    go: str,
    module: Module,
    names: Sequence[str],
    directory: Path,
    environment: Mapping[str, str],
    progress: BuildProgress,
) -> None:
    partial = directory / f".{os.getpid()}{PARTIAL_SUFFIX}"  # a killed builder's go may still write to its own
    partial.mkdir()
    packages = [module.packages[name] for name in names]
    command = [go, "build", *module.build_flags(), *SAME_PROGRAM_SOONER, "-v", "-o", f"{partial}/", *packages]
    process = subprocess.Popen(  # noqa: S603  # the go command from the person's PATH is what is wanted
        command,
        cwd=module.folder,
        env=build_environment(environment),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    tail: deque[str] = deque(["starting"], maxlen=ERROR_LINES)
    try:
        with process:
            for count, line in _lines(process):
                if line is not None:
                    tail.append(line)
                progress.working(count, tail[-1])
    except BaseException:
        process.kill()
        raise
    if process.returncode != 0:
        said = "\n".join(f"  {line}" for line in tail)
        raise BuildError(
            f"building {', '.join(names)} failed: {' '.join(command)}\n{said}\nIt needs the Go module proxy"
            " (`go env GOPROXY`) and some 6 GB of disk space. Or set KUBEBUILDER_ASSETS to a folder that holds the"
            " programs."
        )
    for name, package in zip(names, packages, strict=True):
        program = partial / _name_by_go(package)
        _size_file(directory / name).write_text(str(program.stat().st_size), encoding="ascii")
        program.rename(directory / name)
    partial.rmdir()


def _name_by_go(package: str) -> str:
    """Return how Go names the program of a package: as the package's folder, without that of a major version."""
    return re.sub(r"/v[0-9]+$", "", package).rpartition("/")[2]


def _lines(process: subprocess.Popen[bytes]) -> Iterator[tuple[int, str | None]]:
    """Yield the lines of a process's output, numbered, and None after each second without output."""
    if process.stdout is None:
        return
    count, pending = 0, b""
    while True:
        ready, _, _ = select.select([process.stdout], [], [], TICK_SECONDS)
        if not ready:
            yield count, None
            continue
        chunk = os.read(process.stdout.fileno(), 1 << 16)
        if not chunk:
            return
        *lines, pending = (pending + chunk).split(b"\n")
        for line in lines:
            count += 1
            yield count, line.decode(errors="replace")


def build_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the user's environment without the settings that would break a build."""
    kept = {name: value for name, value in environment.items() if name not in FOREIGN_VARIABLES}
    return COMPILER_MEMORY | kept | {"CGO_ENABLED": "0", "GOWORK": "off"}


def find_go(environment: Mapping[str, str]) -> str:
    """Return the path of the go command.

    Raises:
        ToolchainError: There is none on the PATH.

    """
    go = shutil.which("go", path=environment.get("PATH", ""))
    if go is None:
        raise ToolchainError(f"Go was not found. {_REMEDY}")
    return go


def _go(module: Module, environment: Mapping[str, str]) -> str:
    """Return the path of the go command, if it is installed and new enough.

    Since 1.21 an older Go downloads the version that go.mod asks for by itself, unless GOTOOLCHAIN forbids it.
    """
    go = find_go(environment)
    asked = subprocess.run(  # noqa: S603  # as above
        [go, "env", "GOVERSION"],
        cwd=module.folder,
        env=build_environment(environment),
        capture_output=True,
        text=True,
        check=False,
    )
    version = re.match(r"go(\d+)\.(\d+)", asked.stdout)
    if asked.returncode != 0 or version is None or (int(version[1]), int(version[2])) < GO_MINIMUM:
        said = (asked.stderr or asked.stdout).strip()
        raise ToolchainError(f"{go} is too old or does not work ({said}). {_REMEDY}")
    return go


@contextlib.contextmanager
def _only_builder(lock: Path, progress: BuildProgress) -> Iterator[None]:
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        while not _try_lock(descriptor):
            progress.waiting()
            time.sleep(LOCK_POLL_SECONDS)
        yield
    finally:
        os.close(descriptor)


def _try_lock(descriptor: int) -> bool:
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
