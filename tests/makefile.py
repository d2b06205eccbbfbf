"""Runs targets of the Makefile."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
_HANDED_ON_BY_MAKE: Final = {"MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "GNUMAKEFLAGS"}


def make(
    *arguments: str, folder: Path = ROOT, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run make without the options of a make that started the tests.

    Args:
        arguments: targets, and variables such as `TO=1.2.3`.
        folder: the folder with the Makefile.
        environment: variables in addition to this process's.
    """
    own = {name: text for name, text in os.environ.items() if name not in _HANDED_ON_BY_MAKE}
    return subprocess.run(
        ["make", *arguments],
        cwd=folder,
        env={**own, **(environment or {})},
        capture_output=True,
        text=True,
        check=False,
    )
