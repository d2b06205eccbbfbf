"""The operator as its own process, with exactly the permissions of manifests/, and its requests to the API server."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Self

from prometheus_client.parser import text_string_to_metric_families
from prometheus_client.samples import Sample

from respread_sandbox import Sandbox
from tests.integration.definitions import wait_until_served
from tests.integration.pod_process import PodProcess
from tests.policy_specs import policy_manifest
from tests.processes import PATIENCE_SECONDS

REPOSITORY = Path(__file__).parents[2]
ACCOUNT = "system:serviceaccount:respread-system:respread"


def install(sandbox: Sandbox) -> None:
    """Apply crds/ and manifests/; wait until policies can be created."""
    sandbox.apply(REPOSITORY / "crds")
    wait_until_policies_are_served(sandbox)
    sandbox.kubectl("apply", "-k", str(REPOSITORY / "manifests" / "base"))


def wait_until_policies_are_served(sandbox: Sandbox) -> None:
    """Wait until the API server serves what crds/ defines."""
    definitions = [path.stem for path in (REPOSITORY / "crds").glob("*.respread.dev.yaml")]
    sandbox.wait_for_definitions(*definitions)
    wait_until_served(sandbox, "respread.dev/v1alpha1", *(each.partition(".")[0] for each in definitions))


def policy(name: str = "test", *, mode: str = "Enforce", **spec: Any) -> dict[str, Any]:
    """Return a ClusterRebalancePolicy that has precedence over the default one, without waiting times."""
    hurried = {"mode": mode, "priority": 1, "quietPeriod": "1ms", "victims": {"minAge": "0s"}}
    return policy_manifest(name, {**hurried, **spec})


def status_of(sandbox: Sandbox, name: str = "test") -> dict[str, Any]:
    """Return the status of a ClusterRebalancePolicy; empty before it has one."""
    found = sandbox.api.get(f"/apis/respread.dev/v1alpha1/clusterrebalancepolicies/{name}")
    status: dict[str, Any] = found.get("status", {})
    return status


class LoggingProcess:
    """A process that logs JSON. It is killed when the context ends."""

    def __init__(self, log: Path, command: Sequence[str], environment: Mapping[str, str] | None = None) -> None:
        self.log = log
        with log.open("w") as output:
            self.process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()

    def lines(self) -> list[dict[str, Any]]:
        """Return its log."""
        return [json.loads(line) for line in self.log.read_text().splitlines() if line.startswith("{")]

    def stop(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Stop it, and return its exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(seconds)


class OperatorProcess(LoggingProcess):
    """A running `respread run`."""

    def __init__(self, sandbox: Sandbox, directory: Path, *options: str, pod: PodProcess | None = None) -> None:
        """Start the operator, as in a pod if one is given. It is not ready yet."""
        self.sandbox = sandbox
        self._served_at = ""
        environment = {"PYTHONWARNINGS": "error"}
        listening = ["--listen-address", "127.0.0.1:0", "--leader-election"]
        command = ["-m", "respread.program.main", "run", *listening, *options]
        if pod is None:
            kubeconfig = sandbox.kubeconfig_for_service_account("respread-system", "respread")
            place = ["--kubeconfig", str(kubeconfig), "--lease-namespace", "respread-system"]
            command, environment = [sys.executable, *command, *place], os.environ | environment
        else:
            command, environment = pod.command(*command), pod.environment() | environment
        super().__init__(directory / f"operator-{time.monotonic_ns()}.log", command, environment)

    def wait_until_ready(self, seconds: float = PATIENCE_SECONDS) -> None:
        """Wait until `/readyz` succeeds."""
        deadline = time.monotonic() + seconds
        while not self._is_ready():
            if self.process.poll() is not None or time.monotonic() > deadline:
                raise AssertionError(f"the operator is not ready; its log:\n{self.log.read_text()[-4000:]}")
            time.sleep(0.1)

    def get(self, path: str) -> str:
        """Send a request to its telemetry server."""
        with urllib.request.urlopen(f"http://{self.address()}{path}", timeout=30) as response:
            body: bytes = response.read()
        return body.decode()

    def metric(self, series: str) -> float:
        """Return the sum of the samples that a selector such as `name{policy="test"}` matches, 0 if there are none."""
        return sum(sample.value for sample in matching(series, self.get("/metrics")))

    def _is_ready(self) -> bool:
        try:
            return "readyz check passed" in self.get("/readyz?verbose")
        except (OSError, ValueError):
            return False

    def address(self) -> str:
        """Return the address of its telemetry."""
        if not self._served_at:
            (address,) = [line["address"] for line in self.lines() if line["event"].startswith("Serving")]
            self._served_at = str(address)
        return self._served_at


@contextmanager
def operated(sandbox: Sandbox, folder: Path) -> Iterator[Sandbox]:
    """Run the operator beside a cluster in which it is installed, until the context ends."""
    with OperatorProcess(sandbox, folder) as operator:
        operator.wait_until_ready()
        yield sandbox
        assert operator.stop() == 0


def matching(series: str, metrics: str) -> Iterator[Sample]:
    """Yield the samples that a selector such as `name{policy="test"}` matches, whatever other labels they have."""
    name, _, labels = series.partition("{")
    wanted = dict(re.findall(r'(\w+)="([^"]*)"', labels))
    for family in text_string_to_metric_families(metrics):
        for sample in family.samples:
            if sample.name == name and wanted.items() <= sample.labels.items():
                yield sample


def audited(sandbox: Sandbox, *words: str) -> list[str]:
    """Return the lines of the audit log that contain all the words.

    If the log was emptied, the file starts with null bytes.
    """
    with sandbox.files.audit_log.open("rb", buffering=0) as log:
        try:
            log.seek(0, os.SEEK_DATA)
        except OSError:
            return []  # nothing was written since
        whole, _, _ = log.readall().lstrip(b"\0").rpartition(b"\n")  # the last line may be incomplete
    wanted = [word.encode() for word in words]
    return [line.decode() for line in whole.splitlines() if all(word in line for word in wanted)]


def requests(sandbox: Sandbox, *words: str) -> list[dict[str, Any]]:
    """Return the operator's requests in the lines of the audit log that contain all the words."""
    entries = [json.loads(line) for line in audited(sandbox, ACCOUNT, *words)]
    return [entry for entry in entries if entry["user"]["username"] == ACCOUNT]


def evictions(sandbox: Sandbox) -> list[dict[str, Any]]:
    """Return the evictions that the API server made for the operator."""
    return [
        entry
        for entry in requests(sandbox, '"eviction"')
        if entry.get("objectRef", {}).get("subresource") == "eviction" and entry["responseStatus"]["code"] == 201
    ]


def refused(sandbox: Sandbox) -> list[str]:
    """Return the operator's requests that were forbidden."""
    return [
        f"{entry['verb']} {entry['requestURI']}"
        for entry in requests(sandbox)
        if entry.get("responseStatus", {}).get("code") in {401, 403}
    ]
