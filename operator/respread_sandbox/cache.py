"""The folder of programs that are built once for all sandboxes of a user."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path


def cache_root(environment: Mapping[str, str]) -> Path:
    """Return `respread` below `$XDG_CACHE_HOME`, or below `~/.cache`."""
    base = environment.get("XDG_CACHE_HOME") or str(Path(environment.get("HOME") or Path.home()) / ".cache")
    return Path(base) / "respread"
