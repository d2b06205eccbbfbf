"""Helm for a sandbox's cluster."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Final, TypeAlias

from respread_sandbox import Sandbox
from tests.go_programs import PROGRAMS, find_or_build

CHART: Final = Path(__file__).parents[2] / "charts" / "respread"

Helm: TypeAlias = Callable[..., str]
"""Runs Helm with arguments, and returns its output."""


def helm_for(sandbox: Sandbox, home: Path) -> Helm:
    """Return Helm for the sandbox's cluster, with its files in a folder. It is built if it is not in the cache."""
    program = find_or_build(PROGRAMS["helm"])

    def run(*arguments: str) -> str:
        done = subprocess.run(
            [program, *arguments, "--kubeconfig", str(sandbox.kubeconfig)],
            env={"HOME": str(home), "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            check=False,
            timeout=240,
        )
        if done.returncode != 0:
            raise AssertionError(f"helm {' '.join(arguments)}: {done.stderr}")
        return done.stdout

    return run
