"""Finding the programs of the control plane: KUBEBUILDER_ASSETS first, then a cache of this user, then Go."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

import msgspec

from respread_sandbox.build import GO_MOD, GO_SUM, build_flags, build_missing, is_whole
from respread_sandbox.components import BINARIES
from respread_sandbox.errors import SandboxError
from respread_sandbox.progress import BuildProgress, choose_progress

ASSETS_VARIABLE: Final = "KUBEBUILDER_ASSETS"
"""envtest's convention: a folder with etcd, kube-apiserver and kubectl, or more of them."""


class Binaries(msgspec.Struct, frozen=True):
    """Where each program is."""

    paths: dict[str, Path]

    def path(self, name: str) -> Path:
        """The file of one program."""
        return self.paths[name]

    @classmethod
    def find(cls, environment: Mapping[str, str] = os.environ) -> tuple[Self, tuple[str, ...]]:
        """What is there already, and the names of what is missing.

        Raises:
            SandboxError: KUBEBUILDER_ASSETS names a folder that does not exist.

        """
        found: dict[str, Path] = {}
        assets = _assets_directory(environment)
        cache = cache_directory(environment)
        for name in BINARIES:
            if assets is not None and _is_program(assets / name):
                found[name] = assets / name
            elif _is_program(cache / name) and is_whole(cache / name):
                found[name] = cache / name
        return cls(found), tuple(name for name in BINARIES if name not in found)

    @classmethod
    def find_or_build(cls, environment: Mapping[str, str] = os.environ, progress: BuildProgress | None = None) -> Self:
        """Every program, after building what is missing; the first time that takes minutes.

        Raises:
            ToolchainError: Something is missing, and so is Go.
            BuildError: Go failed.

        """
        binaries, missing = cls.find(environment)
        if missing:
            build_missing(missing, cache_directory(environment), environment, progress or choose_progress())
            binaries, missing = cls.find(environment)
        if missing:
            raise SandboxError(f"{', '.join(missing)} vanished from {cache_directory(environment)} after being built")
        return binaries


def cache_directory(environment: Mapping[str, str]) -> Path:
    """This user's cache of binaries for exactly these modules, build flags and this platform."""
    base = environment.get("XDG_CACHE_HOME") or str(Path(environment.get("HOME") or Path.home()) / ".cache")
    identity = hashlib.sha256()
    for part in (GO_MOD.read_bytes(), GO_SUM.read_bytes(), *(flag.encode() for flag in build_flags())):
        identity.update(part + b"\0")
    identity.update(f"{sys.platform} {platform.machine()}".encode())
    return Path(base) / "respread" / "controlplane" / identity.hexdigest()[:16]


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
