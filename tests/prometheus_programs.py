"""Prometheus and promtool for tests of monitoring: from the PATH, or from Debian's package in the cache.

    python -m tests.prometheus_programs

It downloads the package with apt if the programs are missing, and prints where they are.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

import pytest

from respread_sandbox.binaries import cache_directory

_NAMES: Final = ("prometheus", "promtool")


def require(name: str) -> Path:
    """Return one of the programs. Without it, the test is skipped."""
    found = _find(name)
    if found is None:
        pytest.skip(f"{name} is not installed: `make prometheus` fetches it from Debian's package")
    return found


def is_installed(name: str) -> bool:
    """Return whether one of the programs is there."""
    return _find(name) is not None


def _folder() -> Path:
    return cache_directory(os.environ).parent.parent / "tools" / "prometheus"


def _find(name: str) -> Path | None:
    on_path = shutil.which(name)
    kept = _folder() / "usr" / "bin" / name
    return Path(on_path) if on_path else kept if os.access(kept, os.X_OK) else None


def main() -> None:
    """Fetch the package if necessary, and print where the programs are."""
    if any(_find(name) is None for name in _NAMES):
        if shutil.which("apt-get") is None:
            sys.exit("There is no apt-get here: install Prometheus, so that prometheus and promtool are on the PATH")
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["apt-get", "download", "--quiet", "prometheus"], cwd=folder, check=True)
            (package,) = Path(folder).glob("*.deb")
            _folder().mkdir(parents=True, exist_ok=True)
            subprocess.run(["dpkg", "--extract", package, _folder()], check=True)
    for name in _NAMES:
        sys.stdout.write(f"{_find(name)}\n")


if __name__ == "__main__":
    main()
