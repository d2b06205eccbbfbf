"""The directories of sandboxes, and how those of dead ones are found and removed.

Every sandbox has a directory below one root per user. Its supervisor holds a lock (flock) on a file in it as long as it
lives, whatever becomes of the sandbox's owner; a directory whose lock is free belongs to nobody and is removed when the
next sandbox starts.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from respread_sandbox.errors import SandboxError

NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?")
LOCK_FILE: Final = "lock"
NAMELESS_PREFIX: Final = "_"


class SandboxDirectory(msgspec.Struct, frozen=True):
    """A directory that is locked through `lock_fd`, which its owner must close."""

    path: Path
    lock_fd: int


def root_directory() -> Path:
    """Return the directory that contains this user's sandboxes, after creating it if necessary.

    Raises:
        SandboxError: Somebody else made it, or others may write to it: the kubeconfigs in it could be theirs.

    """
    root = Path(tempfile.gettempdir()) / f"respread-sandboxes-{os.getuid()}"
    with contextlib.suppress(FileExistsError):
        root.mkdir(mode=0o700)
    status = root.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise SandboxError(f"{root} must be a directory of yours that nobody else can use; remove it, or set TMPDIR")
    return root


def claim(name: str | None) -> SandboxDirectory:
    """Create and lock a sandbox's directory, after removing those of dead ones.

    Raises:
        SandboxError: The name is no name, or a living sandbox has it.

    """
    if name is not None and not NAME.fullmatch(name):
        message = f"{name!r} cannot be a sandbox's name: up to 32 lower case letters, digits and, between them, dashes"
        raise SandboxError(message)
    root = root_directory()
    with _locked(root):
        _sweep(root)
        path = root / (name or NAMELESS_PREFIX + secrets.token_hex(5))
        try:
            path.mkdir(mode=0o700)
        except FileExistsError:
            message = f"sandbox {name} is up already; use it, stop it (respread sandbox down), or choose another name"
            raise SandboxError(message) from None
        lock_fd = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT, 0o600)
        fcntl.flock(lock_fd, fcntl.LOCK_EX)
    return SandboxDirectory(path, lock_fd)


def living() -> list[Path]:
    """Return the directories of running named sandboxes, by name."""
    root = root_directory()
    with _locked(root):
        _sweep(root)
        return sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith(NAMELESS_PREFIX))


def _sweep(root: Path) -> None:
    for path in root.iterdir():
        if path.is_dir() and not _is_locked(path / LOCK_FILE):
            shutil.rmtree(path, ignore_errors=True)


def _is_locked(file: Path) -> bool:
    try:
        descriptor = os.open(file, os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False


@contextlib.contextmanager
def _locked(root: Path) -> Iterator[None]:
    descriptor = os.open(root / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)
