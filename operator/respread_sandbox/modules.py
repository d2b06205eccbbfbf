"""The Go modules that pin the control plane's programs: one for the newest Kubernetes, and one for each older minor."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final

import msgspec

from respread_sandbox.errors import SandboxError

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
    _FOLDER,
    {"kubelet": "k8s.io/kubernetes/cmd/kubelet", "kube-proxy": "k8s.io/kubernetes/cmd/kube-proxy"},
)
"""What a real node runs besides its container runtime. The sandbox itself has simulated nodes only."""


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
