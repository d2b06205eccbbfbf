"""The process that holds a sandbox's components, so that none of them outlives the sandbox's owner.

Started by file name with an isolated interpreter: standard library only, one thread, up in some hundredths of a second.
It reads one JSON command a line from its standard input and writes one JSON answer a line to its standard output:

    {"do": "spawn", "name": …, "argv": […], "env": {…}, "log": PATH} → {"pid": …}
    {"do": "send_signal", "name": …, "number": …}                    → {}
    {"do": "status"}                                                 → {"components": {NAME: {"pid": …, "exit": …}}}
    {"do": "keep_running", "names": […]}                             → {}
    {"do": "reserve_port"}                                           → {"port": …}
    {"do": "detach"}                                                 → {}

Each command carries an ``id``, which its answer repeats; what the operating system refused is answered by ``error``.

Components that are kept running are restarted when they exit, as a kubelet does with those of a real
control plane: kube-scheduler exits when its cache turns out to be wrong. One that was killed with SIGKILL stays down.

Three things end it, and with it every component and the sandbox's directory: its input closes or its parent changes
(the owner has gone, however it went), or it gets SIGTERM. After ``detach`` only SIGTERM does. Should the supervisor
itself be killed with SIGKILL, then Linux kills the components (PR_SET_PDEATHSIG), and the directory, whose lock falls
with its holder, is swept by the next sandbox that starts.
"""

import contextlib
import ctypes
import json
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import time
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

TICK_MILLISECONDS = 250
RESTART_SECONDS = 1.0
"""The shortest time between two starts of a component, so that one that cannot start uses little CPU."""
PR_SET_PDEATHSIG = 1


def _dying_with(parent_pid: int) -> Callable[[], None] | None:
    """Return a function that a child calls before exec to end with this process; None without kernel support."""
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None, use_errno=True).prctl

    def prepare() -> None:
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
        if os.getppid() != parent_pid:  # it went between fork and prctl: nobody would tell us any more
            os._exit(1)

    return prepare


class Supervisor:
    """Components by name, reserved ports, and the directory that goes with them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._owner_pid = os.getppid()
        self._detached = False
        self._prepare_child = _dying_with(os.getpid())
        self._components: dict[str, subprocess.Popen[bytes]] = {}
        self._start: dict[str, Callable[[], subprocess.Popen[bytes]]] = {}
        self._started_at: dict[str, float] = {}
        self._kept: frozenset[str] = frozenset()
        self._reserved: list[socket.socket] = []

    def spawn(self, name: str, argv: list[str], env: dict[str, str], log: str) -> dict[str, Any]:
        """Start a component; no other with its name may run."""
        previous = self._components.get(name)
        if previous is not None and previous.poll() is None:
            return {"error": f"{name} is running already, with process id {previous.pid}"}

        def start() -> subprocess.Popen[bytes]:
            with Path(log).open("ab") as output:
                return subprocess.Popen(  # noqa: S603  # the owner's commands, over a private pipe
                    argv,
                    env=env,
                    cwd=self._directory,
                    stdin=subprocess.DEVNULL,
                    stdout=output,
                    stderr=subprocess.STDOUT,
                    preexec_fn=self._prepare_child,  # noqa: PLW1509  # one thread only: no lock is held at the fork
                )

        self._components[name] = start()
        self._start[name] = start
        self._started_at[name] = time.monotonic()
        return {"pid": self._components[name].pid}

    def keep_running(self, names: list[str]) -> dict[str, Any]:
        """Restart these components, and no others, whenever they exit."""
        self._kept = frozenset(names)
        return {}

    def send_signal(self, name: str, number: int) -> dict[str, Any]:
        """Send a signal, also to a component that has ended. After SIGKILL and SIGSTOP, wait until it has an effect.

        Where processors are busy, threads continue until the one that gets SIGSTOP has been scheduled.
        """
        component = self._components[name]
        if component.poll() is None:
            component.send_signal(number)
            if number == signal.SIGKILL:
                component.wait()
            elif number == signal.SIGSTOP and sys.platform == "linux":
                os.waitid(os.P_PID, component.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)
        return {}

    def status(self) -> dict[str, Any]:
        """Process id and exit code (None while it runs, negative a signal) of every component ever started."""
        self._restart_ended()
        return {"components": {name: {"pid": each.pid, "exit": each.poll()} for name, each in self._components.items()}}

    def reserve_port(self) -> dict[str, Any]:
        """Return a TCP port of 127.0.0.1 that is reserved while this process lives.

        Held by a socket that is bound and never listens; the component shares it with SO_REUSEPORT, which the kernel
        allows to processes of the same user that ask for it, and never gives to one that asks for any free port.
        """
        holder = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        holder.bind(("127.0.0.1", 0))
        self._reserved.append(holder)
        return {"port": holder.getsockname()[1]}

    def detach(self) -> dict[str, Any]:
        """Keep running without the owner, until SIGTERM."""
        self._detached = True
        return {}

    def run(self) -> None:
        """Serve commands until the owner ends or SIGTERM arrives, then stop everything."""
        signal.signal(signal.SIGTERM, _raise_exit)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the owner's to handle
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        try:
            self._serve()
        finally:
            self._end()

    def _serve(self) -> None:
        commands = select.poll()
        commands.register(0, select.POLLIN | select.POLLHUP)
        pending = b""
        while True:
            ready = commands.poll(TICK_MILLISECONDS)
            self._restart_ended()
            if ready:
                chunk = os.read(0, 1 << 20)
                if not chunk:
                    if not self._detached:
                        return
                    commands.unregister(0)
                *lines, pending = (pending + chunk).split(b"\n")
                for line in lines:
                    self._answer(line)
            if not self._detached and os.getppid() != self._owner_pid:
                return  # something else still holds our input open, but the owner has gone

    def _restart_ended(self) -> None:
        """Reap the processes that have ended, and restart the components that must keep running."""
        now = time.monotonic()
        for name, component in self._components.items():
            ended_by_itself = component.poll() not in {None, -signal.SIGKILL}
            if ended_by_itself and name in self._kept and now - self._started_at[name] >= RESTART_SECONDS:
                with contextlib.suppress(OSError):  # whatever it lacks may be there the next time
                    self._components[name] = self._start[name]()
                self._started_at[name] = now

    def _answer(self, line: bytes) -> None:
        command = json.loads(line)
        number = command.pop("id")
        commands: dict[str, Callable[..., dict[str, Any]]] = {
            "spawn": self.spawn,
            "send_signal": self.send_signal,
            "status": self.status,
            "keep_running": self.keep_running,
            "reserve_port": self.reserve_port,
            "detach": self.detach,
        }
        try:
            answer = commands[command.pop("do")](**command)
        except OSError as error:
            answer = {"error": str(error)}
        with contextlib.suppress(BrokenPipeError):  # who asked has gone: the end of input follows
            os.write(1, json.dumps({"id": number, **answer}).encode() + b"\n")

    def _end(self) -> None:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        for component in self._components.values():
            if component.poll() is None:
                component.kill()
        for component in self._components.values():
            component.wait()
        removed = self._directory.with_name(f"_removed-{os.getpid()}")  # its name is free for the next one at once
        with contextlib.suppress(FileNotFoundError):
            self._directory.rename(removed)
        shutil.rmtree(removed, ignore_errors=True)


def _raise_exit(number: int, _frame: types.FrameType | None) -> None:
    raise SystemExit(128 + number)


if __name__ == "__main__":
    Supervisor(Path(sys.argv[1])).run()
