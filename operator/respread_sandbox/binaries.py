"""The programs of the control plane, which Go modules pin: one for the newest Kubernetes, and one for each older minor.

They are found in KUBEBUILDER_ASSETS, then in a cache of this user, else built from the Go module proxy, once for all of
a user's processes.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import platform
import re
import select
import shutil
import subprocess
import sys
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, Self

import msgspec

from respread_sandbox.components import BINARIES
from respread_sandbox.options import SandboxError
from respread_sandbox.progress import BuildProgress

VERSION_VARIABLE: Final = "RESPREAD_SANDBOX_KUBERNETES_VERSION"
"""The default version of sandboxes."""
_FOLDER: Final = Path(__file__).parent
_OLDER: Final = _FOLDER / "older"
COMPONENTS: Final = {
    "kube-apiserver": "k8s.io/kubernetes/cmd/kube-apiserver",
    "kube-scheduler": "k8s.io/kubernetes/cmd/kube-scheduler",
    "kube-controller-manager": "k8s.io/kubernetes/cmd/kube-controller-manager",
}
"""The programs of the requested version, with their packages."""
GO_MINIMUM: Final = (1, 26)
FOREIGN_VARIABLES: Final = ("GOOS", "GOARCH", "GOFLAGS", "GOEXPERIMENT", "GOBIN")
"""Environment variables of the user that would build for another machine or break this build."""
SAME_PROGRAM_SOONER: Final = ("-gcflags=all=-dwarf=false",)
"""A flag of the compiler only: the linker leaves what debuggers read out of the programs anyway."""
COMPILER_MEMORY: Final = {"GOGC": "1000", "GOMEMLIMIT": "2GiB"}
"""How much garbage a compiler or linker may have, in percent of what it uses, and in all, unless the user's environment
says it. With 400 %, a build takes a tenth longer."""
LOCK_POLL_SECONDS: Final = 0.3
TICK_SECONDS: Final = 1.0
ERROR_LINES: Final = 15
PARTIAL_SUFFIX: Final = ".partial"
ASSETS_VARIABLE: Final = "KUBEBUILDER_ASSETS"
"""envtest's convention: a folder with etcd, kube-apiserver and kubectl, or more of them."""


class Module(msgspec.Struct, frozen=True):
    """A folder with a go.mod and a go.sum, and the programs that are built from it."""

    folder: Path
    packages: dict[str, str]
    """The package of each program."""

    @property
    def kubernetes_version(self) -> str:
        """The Kubernetes version that it requires, such as 1.36.3; empty if it requires none."""
        required = re.search(r"^\s*(?:require )?k8s\.io/kubernetes v(\S+)", self._go_mod(), re.MULTILINE)
        return "" if required is None else required[1]

    @property
    def go_files(self) -> tuple[bytes, ...]:
        """The source to build is determined by the content of go.mod and of go.sum."""
        return tuple((self.folder / name).read_bytes() for name in ("go.mod", "go.sum"))

    def build_flags(self) -> tuple[str, ...]:
        """Return the flags of `go build`. Without a version, kube-apiserver is v0.0.0, and clients misbehave."""
        linker = "-s -w"
        if version := self.kubernetes_version:
            major, minor, _ = version.split(".", 2)
            stamp = "k8s.io/component-base/version."
            linker += f" -X {stamp}gitVersion=v{version} -X {stamp}gitMajor={major} -X {stamp}gitMinor={minor}"
        return ("-mod=readonly", "-trimpath", "-buildvcs=false", f"-ldflags={linker}")

    def _go_mod(self) -> str:
        return (self.folder / "go.mod").read_text(encoding="utf-8")


NEWEST: Final = Module(
    _FOLDER,
    {
        "etcd": "go.etcd.io/etcd/server/v3",
        **COMPONENTS,
        "kwok": "sigs.k8s.io/kwok/cmd/kwok",
        "kubectl": "k8s.io/kubernetes/cmd/kubectl",
    },
)
REAL_NODE: Final = Module(
    _FOLDER, {"kubelet": "k8s.io/kubernetes/cmd/kubelet", "kube-proxy": "k8s.io/kubernetes/cmd/kube-proxy"}
)
"""What a real node runs besides its container runtime. The sandbox itself has simulated nodes only."""
_REMEDY: Final = (
    "The sandbox builds a Kubernetes control plane once, for which it needs Go"
    f" {'.'.join(map(str, GO_MINIMUM))} or newer. Install it (see https://go.dev/dl) so that `go` is on the PATH, or"
    f" set KUBEBUILDER_ASSETS to a folder that holds {', '.join(NEWEST.packages)}."
)


def kubernetes_versions() -> dict[str, str]:
    """Return the patch version of each minor that can be built, the oldest minor first: 1.33 is 1.33.13, and so on."""
    versions = [module.kubernetes_version for module in (*_older(), NEWEST)]
    return {version.rpartition(".")[0]: version for version in sorted(versions, key=_numbers)}


def modules_for(kubernetes_version: str) -> tuple[Module, ...]:
    """Return the modules of a version such as 1.34, v1.34 or 1.34.4, or of the newest if it is empty.

    A program is built in the first of them that has it: etcd, KWOK and kubectl are the newest ones in each.

    Raises:
        SandboxError: The version is none of those that can be built.
    """
    asked = kubernetes_version.removeprefix("v")
    if not asked or _is(asked, NEWEST):
        return (NEWEST,)
    for module in _older():
        if _is(asked, module):
            return (module, NEWEST)
    there = ", ".join(f"{minor} ({version})" for minor, version in kubernetes_versions().items())
    raise SandboxError(f"Kubernetes {kubernetes_version} is none that the sandbox builds; choose one of {there}")


def _older() -> list[Module]:
    return [Module(folder, COMPONENTS) for folder in _OLDER.iterdir() if (folder / "go.mod").is_file()]


def _is(asked: str, module: Module) -> bool:
    version = module.kubernetes_version
    return asked in (version, version.rpartition(".")[0])


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(number) for number in re.findall(r"\d+", version))


class ToolchainError(SandboxError):
    """Programs are missing, and Go is missing or too old to build them."""


class BuildError(SandboxError):
    """Go could not build a program; the message ends with the last lines of its output."""


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


class Binaries(msgspec.Struct, frozen=True):
    """The path of each program."""

    paths: dict[str, Path]

    def path(self, name: str) -> Path:
        """Return the path of one program."""
        return self.paths[name]

    @classmethod
    def find(
        cls, environment: Mapping[str, str] = os.environ, *, kubernetes_version: str = ""
    ) -> tuple[Self, tuple[str, ...]]:
        """Return the programs that exist, and the names of the missing ones.

        Args:
            environment: Which says where to look, and the version where nobody else does.
            kubernetes_version: Such as 1.34. One that is named is not looked for in KUBEBUILDER_ASSETS, since nobody
                knows which version that is.

        Raises:
            SandboxError: KUBEBUILDER_ASSETS names a folder that does not exist, or the version is not to be had.
        """
        found: dict[str, Path] = {}
        version = _version(kubernetes_version, environment)
        assets = _assets_directory(environment)
        for name, module in _module_of_each(version).items():
            cached = cache_directory(environment, module) / name
            if assets is not None and not (version and name in COMPONENTS) and _is_program(assets / name):
                found[name] = assets / name
            elif _is_program(cached) and is_whole(cached):
                found[name] = cached
        return cls(found), tuple(name for name in BINARIES if name not in found)

    @classmethod
    def find_or_build(
        cls,
        environment: Mapping[str, str] = os.environ,
        progress: BuildProgress | None = None,
        *,
        kubernetes_version: str = "",
    ) -> Self:
        """Return every program, after building missing ones; the first time that takes minutes. Arguments as of `find`.

        Raises:
            ToolchainError: Something is missing, and so is Go.
            BuildError: Go failed.
            SandboxError: As `find`.
        """
        binaries, missing = cls.find(environment, kubernetes_version=kubernetes_version)
        if missing:
            modules = _module_of_each(_version(kubernetes_version, environment))
            progress = progress or BuildProgress()
            for module in modules_for(_version(kubernetes_version, environment)):
                if names := [name for name in missing if modules[name] == module]:
                    build_missing(module, names, cache_directory(environment, module), environment, progress)
            binaries, missing = cls.find(environment, kubernetes_version=kubernetes_version)
        if missing:
            raise SandboxError(f"{', '.join(missing)} vanished from the cache after being built; build once more")
        return binaries


def _version(named: str, environment: Mapping[str, str]) -> str:
    return named or environment.get(VERSION_VARIABLE, "")


def _module_of_each(kubernetes_version: str) -> dict[str, Module]:
    modules = modules_for(kubernetes_version)
    return {name: next(module for module in modules if name in module.packages) for name in BINARIES}


def cache_directory(environment: Mapping[str, str], module: Module = NEWEST) -> Path:
    """Return this user's cache folder for exactly this module, its build flags and this platform."""
    identity = hashlib.sha256()
    for part in (*module.go_files, *(flag.encode() for flag in module.build_flags())):
        identity.update(part + b"\0")
    identity.update(f"{sys.platform} {platform.machine()}".encode())
    return cache_root(environment) / "controlplane" / identity.hexdigest()[:16]


def _assets_directory(environment: Mapping[str, str]) -> Path | None:
    value = environment.get(ASSETS_VARIABLE)
    if not value:
        return None
    directory = Path(value)
    if not directory.is_dir():
        raise SandboxError(f"{ASSETS_VARIABLE} is {value}, which is no folder; correct it, or unset it")
    return directory


def _is_program(file: Path) -> bool:
    return file.is_file() and os.access(file, os.X_OK)


def cache_root(environment: Mapping[str, str]) -> Path:
    """Return `respread` below `$XDG_CACHE_HOME`, or below `~/.cache`."""
    base = environment.get("XDG_CACHE_HOME") or str(Path(environment.get("HOME") or Path.home()) / ".cache")
    return Path(base) / "respread"
