"""Karpenter with its KWOK provider as a component of a sandbox: its program, its CRDs, and its instance types.

The module asks for a later patch release of Go than many have, so it is built from a copy whose go.mod asks for less.
Its own go.sum holds for what it depends on, and `SUM` for the module itself.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Self

import msgspec
import yaml

from respread_sandbox.binaries import (
    GO_MINIMUM,
    BuildError,
    Module,
    build_environment,
    build_missing,
    cache_root,
    find_go,
    is_whole,
)
from respread_sandbox.components import KARPENTER
from respread_sandbox.nodes import MANAGED_NODE_LABEL
from respread_sandbox.progress import BuildProgress

MODULE: Final = "sigs.k8s.io/karpenter"
VERSION: Final = "v1.15.0"
SUM: Final = "h1:5SEptlAvsOZbNg4qg8OSdF1qi6BEZHZLA020nXY7jGw="
"""The hash of the module's content, as in go.sum."""
DEFINITIONS: Final = ("pkg/apis/crds", "kwok/apis/crds")
CONSOLIDATE_AFTER: Final = "30s"
SIZES: Final = (2, 4, 8)
"""The CPUs of each instance type. It has 4 GiB of memory for each CPU."""
CENTS_PER_CPU: Final = 2


class Karpenter(msgspec.Struct, frozen=True):
    """The paths of the program and of its CustomResourceDefinitions."""

    program: Path
    definitions: tuple[Path, ...]
    """Folders of YAML files."""

    @classmethod
    def find_or_build(cls, environment: Mapping[str, str] = os.environ, progress: BuildProgress | None = None) -> Self:
        """Return Karpenter. The first call builds it, which takes about three minutes of CPU time.

        Raises:
            ToolchainError: Go is missing or too old.
            BuildError: Go failed, or what it downloaded is not what was expected.
        """
        directory = cache_directory(environment)
        source = directory / "source"
        if not is_whole(directory / KARPENTER) or not source.is_dir():
            directory.mkdir(parents=True, exist_ok=True)
            if not source.is_dir():
                _copy_source(source, environment)
            module = Module(source, {KARPENTER: "./kwok"})
            build_missing(module, [KARPENTER], directory, environment, progress or BuildProgress())
        return cls(directory / KARPENTER, tuple(source / folder for folder in DEFINITIONS))

    def definition_files(self) -> list[Path]:
        """Return the files in these folders; each has one CustomResourceDefinition."""
        return [file for folder in self.definitions for file in sorted(folder.glob("*.yaml"))]


def cache_directory(environment: Mapping[str, str]) -> Path:
    """Return this user's cache folder for the source and program of this Karpenter version and platform."""
    identity = hashlib.sha256(f"{SUM} {GO_MINIMUM} {sys.platform} {platform.machine()}".encode()).hexdigest()
    return cache_root(environment) / "karpenter" / f"{VERSION}-{identity[:16]}"


def instance_types(zones: Iterable[str]) -> list[dict[str, Any]]:
    """Return the instance types that Karpenter may launch in each zone; the price depends on the CPUs only."""
    offered_in = list(zones)
    return [
        {
            "name": f"sandbox-{cpus}",
            "architecture": "amd64",
            "operatingSystems": ["linux"],
            "resources": {"cpu": str(cpus), "memory": f"{4 * cpus}Gi", "ephemeral-storage": "20Gi", "pods": "110"},
            "offerings": [
                {
                    "Price": cpus * CENTS_PER_CPU / 100,
                    "Available": True,
                    "Requirements": [
                        {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
                        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]},
                    ],
                }
                for zone in offered_in
            ],
        }
        for cpus in SIZES
    ]


def node_pool() -> str:
    """Return a KWOKNodeClass and a NodePool, both named default, as YAML."""
    key, value = MANAGED_NODE_LABEL.split("=")
    node_class = {"apiVersion": "karpenter.kwok.sh/v1alpha1", "kind": "KWOKNodeClass", "metadata": {"name": "default"}}
    reference = {"group": "karpenter.kwok.sh", "kind": "KWOKNodeClass", "name": "default"}
    template = {
        "metadata": {"labels": {key: value}},
        "spec": {
            "nodeClassRef": reference,
            "expireAfter": "Never",
            "requirements": [{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}],
        },
    }
    disruption = {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": CONSOLIDATE_AFTER}
    pool = {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "default"},
        "spec": {"template": template, "disruption": {**disruption, "budgets": [{"nodes": "100%"}]}},
    }
    text: str = yaml.safe_dump_all([node_class, pool], sort_keys=False)
    return text


def _copy_source(source: Path, environment: Mapping[str, str]) -> None:
    """Extract the module's source, all of it or nothing, with a go.mod that every supported Go version can build."""
    archive = _download(source.parent, environment)
    with tempfile.TemporaryDirectory(dir=source.parent) as folder:
        with zipfile.ZipFile(archive) as module:
            module.extractall(folder)
        unpacked = Path(folder) / f"{MODULE}@{VERSION}"
        go_mod = unpacked / "go.mod"
        least = ".".join(map(str, GO_MINIMUM))
        text = re.sub(r"^go .*$", f"go {least}.0", go_mod.read_text(encoding="utf-8"), count=1, flags=re.MULTILINE)
        go_mod.write_text(text, encoding="utf-8")
        with contextlib.suppress(FileExistsError):  # another process was faster
            unpacked.rename(source)


def _download(directory: Path, environment: Mapping[str, str]) -> Path:
    """Return the module as a zip file; it is downloaded even if the module requires a newer Go."""
    command = [find_go(environment), "mod", "download", "-json", f"{MODULE}@{VERSION}"]
    done = subprocess.run(  # noqa: S603  # the go command from the person's PATH is what is wanted
        command, cwd=directory, env=build_environment(environment), capture_output=True, text=True, check=False
    )
    with contextlib.suppress(json.JSONDecodeError):
        said = json.loads(done.stdout)
        if said.get("Sum") == SUM and "Zip" in said:
            return Path(said["Zip"])
        if "Sum" in said:
            raise BuildError(f"{MODULE} {VERSION} has the checksum {said['Sum']} and not {SUM}: it was changed")
    told = (done.stderr or done.stdout).strip()
    raise BuildError(f"{' '.join(command)} failed:\n{told}\nIt needs the Go module proxy (`go env GOPROXY`).")
