"""crds/ and manifests/: in the wheel beside the package's modules, in a checkout at the repository's root."""

from __future__ import annotations

from pathlib import Path

from respread.program.command_line import CommandError


def crds() -> Path:
    """Return the folder of the CustomResourceDefinitions."""
    return _folder("crds")


def manifests() -> Path:
    """Return the folder of the kustomize bases and overlays."""
    return _folder("manifests")


def _folder(name: str) -> Path:
    package = Path(__file__).parents[1]
    for root in (package, package.parents[1]):
        if (root / name).is_dir():
            return root / name
    raise CommandError(f"{name}/ came neither with the package in {package} nor is it beside a checkout of it.")
