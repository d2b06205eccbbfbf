"""The program that benches compare with Respread: kubernetes-sigs/descheduler, built from its Go module.

    python -m bench.peer

It prints where the program is, after building it unless it is there: some minutes, once for a version. It is kept in
the cache beside the control plane's programs. It plays no part in the product, so nothing but benches asks for it.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

from respread_sandbox.binaries import cache_directory

MODULE: Final = "sigs.k8s.io/descheduler"
VERSION: Final = "v0.36.0"
PROGRAM: Final = "descheduler"
# The module's own Makefile stamps its version the same way.
FLAGS: Final = (
    "-mod=readonly",
    "-trimpath",
    "-buildvcs=false",
    f"-ldflags=-s -w -X {MODULE}/pkg/version.version={VERSION}",
)


def find_or_build() -> Path:
    """Return the program, after building it if necessary.

    Raises:
        SystemExit: Go is missing or failed; the message says what it said and what it needs.
    """
    program = _program()
    if not is_built():
        _say(f"Building {PROGRAM} {VERSION} from its Go module: some minutes, once …")
        program.parent.mkdir(parents=True, exist_ok=True)
        partial = program.with_name(f".{PROGRAM}.{os.getpid()}.partial")
        try:
            # In the module's own folder, for its replace directives only count there.
            run_go("build", *FLAGS, "-o", str(partial), f"./cmd/{PROGRAM}", directory=module_directory(program.parent))
            partial.rename(program)
        finally:
            partial.unlink(missing_ok=True)
    return program


def is_built() -> bool:
    """Return whether the program exists."""
    return os.access(_program(), os.X_OK)


def _program() -> Path:
    return cache_directory(os.environ).parent.parent / "peer" / f"{PROGRAM}-{VERSION}" / PROGRAM


def cache_folder() -> Path:
    """Return the folder in the cache for what is made from this version of the module."""
    return _program().parent


def module_directory(working_directory: Path) -> Path:
    """Return where Go has put the module, after downloading it if necessary."""
    downloaded = run_go("mod", "download", "-json", f"{MODULE}@{VERSION}", directory=working_directory)
    return Path(json.loads(downloaded)["Dir"])


def run_go(*arguments: str, directory: Path, variables: Mapping[str, str] = MappingProxyType({})) -> str:
    """Run the go command in a folder, with additional environment variables, and return what it prints.

    Raises:
        SystemExit: Go is missing or failed.
    """
    go = shutil.which("go")
    if go is None:
        raise SystemExit(f"Go was not found. {PROGRAM} is built with Go 1.26 or newer: install it (https://go.dev/dl)")
    done = subprocess.run(  # noqa: S603 - the go command from the person's PATH is what is wanted
        [go, *arguments],
        cwd=directory,
        env={**_environment(os.environ), **variables},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        said = (done.stderr or done.stdout).strip()
        raise SystemExit(
            f"go {arguments[0]} failed for {MODULE} {VERSION}:\n{said}\nIt needs the Go module proxy (`go env GOPROXY`)"
            " and some 3 GB of disk space for Go's own caches."
        )
    return done.stdout


def _environment(inherited: Mapping[str, str]) -> dict[str, str]:
    """Return the user's environment without settings for other builds."""
    foreign = {"GOOS", "GOARCH", "GOFLAGS", "GOEXPERIMENT", "GOBIN"}
    return {name: value for name, value in inherited.items() if name not in foreign} | {
        "CGO_ENABLED": "0",
        "GOWORK": "off",
    }


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    print(find_or_build())
