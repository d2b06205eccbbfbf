"""The cgroups of a run, in every hierarchy of cgroup v1. They outlive processes and namespaces."""

from __future__ import annotations

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.processes import wait_until

ROOT: Final = Path("/sys/fs/cgroup")
VARIABLE: Final = "RESPREAD_NODE_CGROUP"
"""The environment variable for the name of the run's cgroup. Only processes in the run's namespaces have it."""
_PREFIX: Final = "respread-node-"


def folder(controller: str, path: str) -> Path:
    """Return the folder of a cgroup in the hierarchy of a controller."""
    return ROOT / controller / path.lstrip("/")


def create(path: str) -> None:
    """Create a cgroup and its parents."""
    for hierarchy in _hierarchies():
        cgroup = hierarchy
        for name in path.strip("/").split("/"):
            cgroup /= name
            cgroup.mkdir(exist_ok=True)
            for each in ("cpuset.cpus", "cpuset.mems"):  # empty in a new cgroup: no process could run in it
                file = cgroup / each
                if file.exists() and not file.read_text(encoding="ascii").strip():
                    file.write_text((cgroup.parent / each).read_text(encoding="ascii"), encoding="ascii")


@contextlib.contextmanager
def claimed() -> Iterator[str]:
    """Create a cgroup and return its name. Remove it with all in it when the context ends.

    Also remove those of runs that were killed. A living run holds a lock on its own.
    """
    for name in {path.name for hierarchy in _hierarchies() for path in hierarchy.glob(f"{_PREFIX}*")}:
        with _locked(name) as is_ours:
            if is_ours:
                _try_to_remove(name)
    name = f"{_PREFIX}{secrets.token_hex(5)}"
    create(name)
    with _locked(name):
        try:
            yield name
        finally:
            wait_until(lambda: _try_to_remove(name), f"the last processes of {name} to end")


@contextlib.contextmanager
def _locked(name: str) -> Iterator[bool]:
    """Lock a cgroup unless a living run has locked it. Yield whether it is locked."""
    cgroup = folder("memory", name)
    cgroup.mkdir(exist_ok=True)  # where a removal was interrupted, other hierarchies still have it
    descriptor = os.open(cgroup, os.O_RDONLY | os.O_DIRECTORY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            yield False
        else:
            yield True
    finally:
        os.close(descriptor)


def _try_to_remove(name: str) -> bool:
    """Remove a cgroup and all in it. Return whether it is gone: it stays as long as there are processes."""
    cgroups = [path for hierarchy in _hierarchies() if (path := hierarchy / name).is_dir()]
    for cgroup in cgroups:
        for at, _, _ in os.walk(cgroup, topdown=False):
            with contextlib.suppress(OSError):
                Path(at).rmdir()
    return not any(path.exists() for path in cgroups)


def _hierarchies() -> Iterator[Path]:
    yield from (path for path in ROOT.iterdir() if path.is_dir() and not path.is_symlink())
