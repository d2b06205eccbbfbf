"""The client of a supervisor: starts it, and asks it to start, signal and report components."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

from respread_sandbox import supervisor
from respread_sandbox.options import SandboxError

END_SECONDS: Final = 30


class ComponentError(SandboxError):
    """A component ended or did not become ready; the message ends with the last lines of its log."""


def last_lines(file: Path, lines: int = 15) -> str:
    """Return the last lines of a log, indented for an error message, or a note that the log is empty or missing."""
    try:
        text = file.read_text(encoding="utf-8", errors="replace")
    except OSError as error:
        return f"  (no log: {error})"
    return "\n".join(f"  {line}" for line in text.splitlines()[-lines:]) or "  (its log is empty)"


class ProcessStatus(msgspec.Struct, frozen=True):
    """A component's process."""

    pid: int
    exit: int | None
    """The exit code, or the negative number of the signal that ended the process; None while it runs."""


class SupervisedProcesses:
    """The processes of one sandbox. Closing it, or the end of this process in any way, ends them all.

    Usable from several threads.
    """

    def __init__(self, directory: Path, lock_fd: int | None = None, *, within: Sequence[str] = ()) -> None:
        """Start the supervisor of a directory, which removes the directory at its end.

        Its errors go to `supervisor.log` there. It inherits the descriptor that holds the directory's lock, and so
        keeps the lock. `within` is a command that runs the supervisor, such as one that creates namespaces.
        """
        self._log = directory / "supervisor.log"
        self._numbers = itertools.count(1)
        self._one_at_a_time = threading.Lock()
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(  # noqa: S603  # this interpreter, with a file of this package
                [*within, sys.executable, "-I", "-S", supervisor.__file__, str(directory)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                pass_fds=() if lock_fd is None else (lock_fd,),
                start_new_session=True,  # Ctrl-C on the owner's terminal is not for the components
            )

    @property
    def pid(self) -> int:
        """The supervisor's process id; SIGTERM to it ends the sandbox."""
        return self._process.pid

    def spawn(self, name: str, argv: Sequence[str], env: Mapping[str, str], log: Path) -> int:
        """Start a component, its output appended to `log`, and return its process id.

        Raises:
            SandboxError: The operating system refused, for instance because the file is no program.
        """
        try:
            pid: int = self._ask("spawn", name=name, argv=list(argv), env=dict(env), log=str(log))["pid"]
        except SandboxError as error:
            raise SandboxError(f"{name} cannot be started from {argv[0]}: {error}") from None
        return pid

    def send_signal(self, name: str, number: signal.Signals) -> None:
        """Send a signal to a component that may have ended. After SIGKILL it has ended, after SIGSTOP stopped."""
        self._ask("send_signal", name=name, number=int(number))

    def keep_running(self, names: Sequence[str]) -> None:
        """Make the supervisor restart these components whenever they exit, with any exit code."""
        self._ask("keep_running", names=list(names))

    def status(self) -> dict[str, ProcessStatus]:
        """Return all components that were ever started, by name."""
        return msgspec.convert(self._ask("status")["components"], dict[str, ProcessStatus])

    def reserve_port(self) -> int:
        """Return a TCP port of 127.0.0.1 that is reserved for a component that binds it with SO_REUSEPORT."""
        port: int = self._ask("reserve_port")["port"]
        return port

    def detach(self) -> None:
        """Keep the components running after this process ends, until the supervisor receives SIGTERM."""
        self._ask("detach")
        self._process.returncode = 0  # no longer ours to wait for: Popen would complain of a child left running
        self._close_pipes()

    def close(self) -> None:
        """End every component and remove the directory before returning. A second call does nothing."""
        self._close_pipes()
        if self._process.returncode is not None:
            return
        try:
            self._process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    def _close_pipes(self) -> None:
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _ask(self, do: str, **arguments: Any) -> dict[str, Any]:
        number = next(self._numbers)
        stdin, stdout = self._process.stdin, self._process.stdout
        if stdin is None or stdout is None or stdin.closed:
            raise SandboxError("this sandbox has been stopped")
        with self._one_at_a_time:
            try:
                os.write(stdin.fileno(), json.dumps({"do": do, "id": number, **arguments}).encode() + b"\n")
                answers = (json.loads(line) for line in stdout)
                # one that is not ours is left over from a question that was interrupted
                answer: dict[str, Any] | None = next((each for each in answers if each["id"] == number), None)
            except BrokenPipeError:
                answer = None
        if answer is None:
            message = f"the sandbox's supervisor has ended, and with it all components:\n{last_lines(self._log)}"
            raise SandboxError(message)
        if "error" in answer:
            raise SandboxError(answer["error"])
        return answer
