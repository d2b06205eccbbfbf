"""Sandboxes that run on their own in the background, under a name."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from pathlib import Path
from typing import Final, Self

import msgspec

from respread_sandbox.directory import LOCK_FILE, living
from respread_sandbox.errors import SandboxError
from respread_sandbox.sandbox import Sandbox

DESCRIPTION_FILE: Final = "sandbox.json"
STOP_SECONDS: Final = 30
POLL_SECONDS: Final = 0.02


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

    @classmethod
    def of(cls, sandbox: Sandbox) -> Self:
        """Describe a running sandbox."""
        return cls(
            name=sandbox.name,
            directory=sandbox.files.directory,
            supervisor_pid=sandbox.supervisor_pid,
            server=sandbox.server,
            kubeconfig=sandbox.kubeconfig,
            kubectl=sandbox.kubectl_path,
            nodes_per_zone=sandbox.options.zone_sizes(),
            started_at=time.time(),
        )

    @property
    def is_started(self) -> bool:
        """Whether the sandbox has started and can be used."""
        return bool(self.server)


def leave_running(sandbox: Sandbox) -> NamedSandbox:
    """Keep a sandbox running after this process ends. `running` and `stop` find it by its name."""
    description = NamedSandbox.of(sandbox)
    (description.directory / DESCRIPTION_FILE).write_bytes(msgspec.json.encode(description, enc_hook=str))
    sandbox.detach()
    return description


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
