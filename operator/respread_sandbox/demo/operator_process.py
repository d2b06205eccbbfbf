"""The operator as its own process, with the ServiceAccount of manifests/ and only its permissions."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from respread_sandbox import Sandbox, SandboxError

NAME: Final = "respread"
OPERATOR_NAMESPACE: Final = "respread-system"
SERVICE_ACCOUNT: Final = "respread"
STOP_SECONDS: Final = 15
LOG_LINES: Final = 12


class OperatorProcess:
    """A running `respread run`."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    def check(self) -> None:
        """Raise SandboxError, with the last lines of its log, if it has ended."""
        code = self._sandbox.exit_code(NAME)
        if code is not None:
            raise SandboxError(f"the operator ended with exit code {code}:\n{self.last_lines()}")

    def stop(self) -> int:
        """Stop it, and return its exit code. It is killed if it does not stop."""
        self._sandbox.signal_program(NAME, signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while (code := self._sandbox.exit_code(NAME)) is None:
            if time.monotonic() > deadline:
                self._sandbox.signal_program(NAME, signal.SIGKILL)
            time.sleep(0.05)
        return code

    def last_lines(self) -> str:
        """Return the end of its log."""
        lines = self._sandbox.log(NAME).read_text(encoding="utf-8", errors="replace").splitlines()
        return "\n".join(f"  {line}" for line in lines[-LOG_LINES:])


@contextmanager
def operator_process(sandbox: Sandbox) -> Iterator[OperatorProcess]:
    """Run the operator until the context ends for any reason."""
    kubeconfig = sandbox.kubeconfig_for_service_account(OPERATOR_NAMESPACE, SERVICE_ACCOUNT)
    command = [sys.executable, "-m", "respread.program.main", "run", "--kubeconfig", str(kubeconfig)]
    command += ["--leader-election", "--lease-namespace", OPERATOR_NAMESPACE]
    command += ["--listen-address", "127.0.0.1:0", "--log-format", "json"]
    sandbox.start_program(NAME, command, environment_of_programs())
    running = OperatorProcess(sandbox)
    try:
        yield running
    finally:
        if sandbox.exit_code(NAME) is None:
            running.stop()


def environment_of_programs() -> dict[str, str]:
    """Return our environment without variables that select a cluster or options."""
    return {
        name: value for name, value in os.environ.items() if name != "KUBECONFIG" and not name.startswith("RESPREAD_")
    }
