"""Operators that run through proxies, and are killed, frozen and started again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, Self

from respread_sandbox import Sandbox
from tests.faults.proxy import FaultProxy
from tests.processes import PATIENCE_SECONDS

NAMESPACE = "respread-system"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{NAMESPACE}/leases/respread"


class Replica:
    """One replica of the operator, with at most one process at a time."""

    def __init__(self, sandbox: Sandbox, proxy: FaultProxy, directory: Path, name: str, *options: str) -> None:
        self.name = name
        self.log = directory / f"{name}.log"
        self.process: subprocess.Popen[bytes] | None = None
        self._sandbox = sandbox
        self._proxy = proxy
        self._kubeconfig = directory / f"{name}.kubeconfig"
        self._options = options
        self.rotate_token()

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def rotate_token(self) -> str:
        """Write a new token into the replica's token file, and return the token."""
        original = self._sandbox.kubeconfig_for_service_account(NAMESPACE, "respread")
        self._proxy.kubeconfig(original, self._kubeconfig)
        text = self._kubeconfig.read_text(encoding="utf-8")
        return text.rpartition("token:")[2].split()[0]

    def start(self) -> None:
        """Start it if it does not run."""
        if self.runs:
            return
        command = [sys.executable, "-m", "respread.program.main", "run", "--kubeconfig", str(self._kubeconfig)]
        options = ["--listen-address", "127.0.0.1:0", "--lease-namespace", NAMESPACE, "--log-format", "json"]
        with self.log.open("ab") as log:
            self.process = subprocess.Popen([*command, *options, *self._options], stdout=log, stderr=log)

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def ended_by_itself(self) -> bool:
        """Whether it exited without having been killed or stopped."""
        return self.process is not None and self.process.poll() not in {None, 0, -signal.SIGKILL, -signal.SIGTERM}

    @property
    def pid(self) -> int:
        assert self.process is not None
        return self.process.pid

    def kill(self) -> None:
        """Kill it, as in a crash."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def stop(self, seconds: float = 60) -> int:
        """Stop it as Kubernetes does, and return its exit code."""
        assert self.process is not None
        self.process.terminate()
        return self.process.wait(seconds)

    def freeze(self) -> None:
        os.kill(self.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.kill(self.pid, signal.SIGCONT)

    def lines(self) -> list[dict[str, Any]]:
        """Return the log of all its processes."""
        text = self.log.read_text(encoding="utf-8") if self.log.exists() else ""
        return [json.loads(line) for line in text.splitlines() if line.startswith("{") and line.endswith("}")]

    def identity(self) -> str:
        """Return the holder identity of its current process; empty if it never held the Lease."""
        found = [line["identity"] for line in self.lines() if line["event"] == "This replica leads"]
        return str(found[-1]) if found else ""

    def leads(self) -> bool:
        """Return whether it is the holder of the Lease."""
        return bool(self.identity()) and holder(self._sandbox) == self.identity()

    def wait_until_ready(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until it has listed every kind."""
        deadline = time.monotonic() + seconds
        kinds = 12
        while len({line["kind"] for line in self.lines() if line["event"] == "Listed"}) < kinds:
            assert self.process is not None
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"{self.name} is not ready; its log:\n{self.log.read_text()[-4000:]}")
            time.sleep(0.1)


def holder(sandbox: Sandbox) -> str:
    """Return the holder of the Lease; empty if there is none."""
    lease = sandbox.api.get(LEASE) if sandbox.api.exists(LEASE) else {"spec": {}}
    return str(lease["spec"].get("holderIdentity", ""))
