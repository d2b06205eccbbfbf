"""Programs that tests use and users of Respread bring themselves, built from their Go modules into the cache.

    python -m tests.go_programs helm

It prints where the program is. A build takes some minutes, once for a version.
"""

from __future__ import annotations

import fcntl
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
    package: str
    version: str


PROGRAMS: Final = {"helm": GoProgram("helm", "helm.sh/helm/v4/cmd/helm", "v4.3.1")}


def find_or_build(program: GoProgram) -> Path:
    """Return the program, after building it if need be; whoever else needs it meanwhile waits.

    Raises:
        RuntimeError: Go is missing or failed; the message has what it said.
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
    go = shutil.which("go")
    if go is None:
        raise RuntimeError(f"Go was not found; {program.name} is built with it")
    foreign = {"GOOS", "GOARCH", "GOFLAGS", "GOEXPERIMENT", "GOBIN"}
    environment = {name: value for name, value in os.environ.items() if name not in foreign}
    environment |= {"CGO_ENABLED": "0", "GOWORK": "off", "GOBIN": str(folder)}
    command = [go, "install", "-trimpath", "-ldflags=-s -w", f"{program.package}@{program.version}"]
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr.strip()}")


def main() -> None:
    """Build a program and print where it is."""
    sys.stdout.write(f"{find_or_build(PROGRAMS[sys.argv[1]])}\n")


if __name__ == "__main__":
    main()
