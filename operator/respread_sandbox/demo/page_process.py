"""`respread ui` as its own process, for the demo's cluster."""

from __future__ import annotations

import sys
import time
from typing import Final

from respread_sandbox import Sandbox, SandboxError
from respread_sandbox.demo.operator_process import environment_of_programs

NAME: Final = "respread-ui"
START_SECONDS: Final = 60.0
_SERVING: Final = "Serving "


def serve_page(sandbox: Sandbox) -> str:
    """Serve the page until the sandbox ends, and return its URL.

    Raises:
        SandboxError: it does not start.
    """
    command = [sys.executable, "-m", "respread_cli.main", "ui", "--no-open", "--kubeconfig", str(sandbox.kubeconfig)]
    sandbox.start_program(NAME, command, environment_of_programs())
    deadline = time.monotonic() + START_SECONDS
    while True:
        said = sandbox.log(NAME).read_text(encoding="utf-8", errors="replace")
        for line in said.splitlines():
            if line.startswith(_SERVING):
                return line.removeprefix(_SERVING)
        if sandbox.exit_code(NAME) is not None or time.monotonic() > deadline:
            raise SandboxError(f"the page could not be served:\n{said}")
        time.sleep(0.05)
