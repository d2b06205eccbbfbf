"""Finds the programs of the control plane: in KUBEBUILDER_ASSETS, then in a cache of this user, else with Go."""

from __future__ import annotations

import hashlib
import os
import platform
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

import msgspec

from respread_sandbox.build import build_missing, is_whole
from respread_sandbox.components import BINARIES
from respread_sandbox.errors import SandboxError
from respread_sandbox.modules import COMPONENTS, NEWEST, VERSION_VARIABLE, Module, modules_for
from respread_sandbox.progress import BuildProgress, choose_progress

ASSETS_VARIABLE: Final = "KUBEBUILDER_ASSETS"
"""envtest's convention: a folder with etcd, kube-apiserver and kubectl, or more of them."""


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
            progress = progress or choose_progress()
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
