"""The files that `make dist` has made."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from respread import __version__

ROOT: Final = Path(__file__).parents[2]
DIST: Final = ROOT / "dist"


def made(name: str) -> Path:
    """Return a file of dist/; a test without it fails. VERSION in the name stands for this version."""
    found = DIST / name.replace("VERSION", __version__)
    if not found.exists():
        pytest.fail(f"{found.relative_to(ROOT)} is not there: run `make dist` first", pytrace=False)
    return found
