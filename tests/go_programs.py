"""Programs that tests use and that users of Respread install themselves, built from their Go modules into the cache.

    python -m tests.go_programs helm

It prints where each program is. A build takes some minutes, once for a version.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final, NamedTuple

from respread_sandbox.binaries import cache_directory


class GoProgram(NamedTuple):
    """A program of a Go module."""

    name: str
    module: str
    package: str
    """Relative to the module."""
    version: str
    tags: str = ""
    """Build tags."""


_CONTAINERD: Final = ("github.com/containerd/containerd/v2", "v2.3.7", "no_btrfs no_zfs no_devmapper no_tracing")
_NETWORK_PLUGINS: Final = ("github.com/containernetworking/plugins", "v1.9.1")
PROGRAMS: Final = {
    each.name: each
    for each in (
        GoProgram("actionlint", "github.com/rhysd/actionlint", "cmd/actionlint", "v1.7.12"),
        GoProgram("argo-cd", "github.com/argoproj/argo-cd/v3", "cmd", "v3.4.4"),
        GoProgram("argo-rollouts", "github.com/argoproj/argo-rollouts", "cmd/rollouts-controller", "v1.8.3"),
        *(
            GoProgram(name, _CONTAINERD[0], f"cmd/{name}", *_CONTAINERD[1:])
            for name in ("containerd", "containerd-shim-runc-v2", "ctr")
        ),
        GoProgram("cosign", "github.com/sigstore/cosign/v2", "cmd/cosign", "v2.6.1"),
        GoProgram("crane", "github.com/google/go-containerregistry", "cmd/crane", "v0.20.6"),
        GoProgram("crdify", "sigs.k8s.io/crdify", "", "v0.5.0"),
        *(
            GoProgram(f"flux-{name}-controller", f"github.com/fluxcd/{name}-controller", "", version)
            for name, version in (("helm", "v1.6.0"), ("kustomize", "v1.7.3"), ("source", "v1.8.0"))
        ),
        GoProgram("glua", "github.com/yuin/gopher-lua", "cmd/glua", "v1.1.2"),
        GoProgram("helm", "helm.sh/helm/v4", "cmd/helm", "v4.3.1"),
        GoProgram("lws", "sigs.k8s.io/lws", "cmd", "v0.7.0"),
        GoProgram("kruise", "github.com/openkruise/kruise", "", "v1.8.0"),
        *(
            GoProgram(path.rpartition("/")[2], _NETWORK_PLUGINS[0], f"plugins/{path}", _NETWORK_PLUGINS[1])
            for path in ("main/ptp", "main/loopback", "ipam/host-local")
        ),
        GoProgram("kubeconform", "github.com/yannh/kubeconform", "cmd/kubeconform", "v0.8.0"),
        GoProgram(
            "prometheus-operator", "github.com/prometheus-operator/prometheus-operator", "cmd/operator", "v0.85.0"
        ),
    )
}


def find_or_build(program: GoProgram) -> Path:
    """Return the program, after building it if necessary. Other processes that need it wait.

    Raises:
        RuntimeError: Go is missing or failed. The message has its output.
    """
    folder = cache_directory(os.environ).parent.parent / "tools" / f"{program.name}-{program.version}"
    found = folder / program.name
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.access(found, os.X_OK):
            _build(program, folder)
    return found


def _build(program: GoProgram, folder: Path) -> None:
    """Build a program in its module's own folder, because replace directives count only there."""
    partial = folder / f".{program.name}.partial"
    flags = ("-mod=readonly", "-trimpath", "-buildvcs=false", "-ldflags=-s -w", f"-tags={program.tags}")
    try:
        _go(program, source_of(program), "build", *flags, "-o", str(partial), f"./{program.package}")
        partial.rename(folder / program.name)
    finally:
        partial.unlink(missing_ok=True)


def _go(program: GoProgram, directory: Path, *arguments: str) -> str:
    go = shutil.which("go")
    if go is None:
        raise RuntimeError(f"Go was not found; {program.name} is built with it")
    foreign = {"GOOS", "GOARCH", "GOFLAGS", "GOEXPERIMENT", "GOBIN"}
    environment = {name: value for name, value in os.environ.items() if name not in foreign}
    environment |= {"CGO_ENABLED": "0", "GOWORK": "off"}
    done = subprocess.run([go, *arguments], cwd=directory, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"go {' '.join(arguments)} failed:\n{(done.stderr or done.stdout).strip()}")
    return done.stdout


def source_of(program: GoProgram) -> Path:
    """Return the folder of a program's module, with its CustomResourceDefinitions if there are any.

    Raises:
        RuntimeError: Go is missing or failed. The message has its output.
    """
    downloaded = _go(program, Path(__file__).parent, "mod", "download", "-json", f"{program.module}@{program.version}")
    return Path(json.loads(downloaded)["Dir"])


def main() -> None:
    """Build programs and print where they are."""
    for name in sys.argv[1:]:
        sys.stdout.write(f"{find_or_build(PROGRAMS[name])}\n")


if __name__ == "__main__":
    main()
