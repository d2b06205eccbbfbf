"""The directories of sandboxes, how running ones are found and stopped, and those of dead ones removed.

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
import signal
import stat
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import msgspec

from respread_sandbox.options import SandboxError

NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,30}[a-z0-9])?")
LOCK_FILE: Final = "lock"
NAMELESS_PREFIX: Final = "_"
DESCRIPTION_FILE: Final = "sandbox.json"
STOP_SECONDS: Final = 30
POLL_SECONDS: Final = 0.02


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


class NamedSandbox(msgspec.Struct, frozen=True, kw_only=True):
    """The facts about a sandbox that are known without a request to its API server."""

    name: str
    directory: Path
    supervisor_pid: int
    server: str = ""
    """Empty while the sandbox starts."""
    kubeconfig: Path = Path()
    kubectl: Path = Path()
    nodes_per_zone: dict[str, int] = {}
    """The options that the sandbox was started with."""
    started_at: float = 0
    """Unix time."""

    @property
    def is_started(self) -> bool:
        """Whether the sandbox has started and can be used."""
        return bool(self.server)


def living() -> list[Path]:
    """Return the directories of running named sandboxes, by name."""
    root = root_directory()
    with _locked(root):
        _sweep(root)
        return sorted(path for path in root.iterdir() if path.is_dir() and not path.name.startswith(NAMELESS_PREFIX))


def running() -> list[NamedSandbox]:
    """Return all named sandboxes of this user, by name."""
    found = []
    for directory in living():
        with contextlib.suppress(FileNotFoundError, ValueError):  # stopped, or begun to start, in this moment
            found.append(_read(directory))
    return found


def stop(name: str) -> None:
    """Stop a sandbox and wait until its processes and files are gone.

    Raises:
        SandboxError: There is none of that name, or it does not end.
    """
    by_name = {each.name: each for each in running()}
    if name not in by_name:
        others = f"up: {', '.join(by_name)}" if by_name else "none is up"
        raise SandboxError(f"there is no sandbox {name} ({others})")
    sandbox = by_name[name]
    os.kill(sandbox.supervisor_pid, signal.SIGTERM)
    deadline = time.monotonic() + STOP_SECONDS
    while sandbox.directory.exists():
        if time.monotonic() > deadline:
            raise SandboxError(f"sandbox {name} (process {sandbox.supervisor_pid}) does not end: {sandbox.directory}")
        time.sleep(POLL_SECONDS)


def _read(directory: Path) -> NamedSandbox:
    try:
        content = (directory / DESCRIPTION_FILE).read_bytes()
    except FileNotFoundError:
        pid = int((directory / LOCK_FILE).read_text(encoding="ascii"))
        return NamedSandbox(name=directory.name, directory=directory, supervisor_pid=pid)
    return msgspec.json.decode(content, type=NamedSandbox, dec_hook=_decode_path)


def _decode_path(_kind: type, value: str) -> Path:
    return Path(value)


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
