"""Of the operators outside a cluster and the one installed in it, only one acts at a time."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from respread_sandbox import Sandbox, SandboxOptions
from tests.integration.operator_process import REPOSITORY, LoggingProcess, OperatorProcess, install
from tests.processes import wait_until

LEASES = "/apis/coordination.k8s.io/v1/namespaces/{}/leases/respread"
ROLE = "/apis/rbac.authorization.k8s.io/v1/namespaces/respread-system/roles/respread-leader-election"
HURRIED = ("--lease-seconds", "3")


class Laptop(LoggingProcess):
    """`respread run` as a user with a kubeconfig starts it."""

    def __init__(self, kubeconfig: Path, directory: Path, name: str, *options: str) -> None:
        command = [sys.executable, "-m", "respread.program.main", "run", "--kubeconfig", str(kubeconfig)]
        self.listening = ["--listen-address", "127.0.0.1:0", "--log-format", "json"]
        super().__init__(directory / f"{name}.log", [*command, *self.listening, *options])

    def says(self, event: str) -> bool:
        return any(event in line["event"] for line in self.lines())


def holder(sandbox: Sandbox, namespace: str) -> str:
    """Return who holds the Lease; empty if it was never taken, released, or has expired."""
    path = LEASES.format(namespace)
    spec = sandbox.api.get(path)["spec"] if sandbox.api.exists(path) else {}
    if "renewTime" not in spec:
        return ""
    until = datetime.fromisoformat(spec["renewTime"]) + timedelta(seconds=spec["leaseDurationSeconds"])
    return str(spec.get("holderIdentity") or "") if datetime.now(UTC) < until else ""


def terms(lines: list[dict[str, Any]]) -> list[tuple[datetime, datetime]]:
    """Return the time span in which a process led, according to its log."""
    found: list[tuple[datetime, datetime]] = []
    since: datetime | None = None
    for line in lines:
        at = datetime.fromisoformat(line["timestamp"])
        if line["event"] == "This replica leads":
            since = at
        elif since is not None and line["event"] in {"This replica does not lead any more", "Stopping"}:
            found.append((since, at))
            since = None
    return [*found, *([(since, datetime.fromisoformat(lines[-1]["timestamp"]))] if since is not None else [])]


def test_two_operators_use_the_lease_of_the_installed_one(
    start_sandbox: Callable[[SandboxOptions], Sandbox], tmp_path: Path
) -> None:
    sandbox = start_sandbox(SandboxOptions(nodes=1))
    sandbox.apply(REPOSITORY / "crds")
    with (
        Laptop(sandbox.kubeconfig, tmp_path, "one", *HURRIED) as one,
        Laptop(sandbox.kubeconfig, tmp_path, "two", *HURRIED) as two,
    ):
        wait_until(lambda: bool(holder(sandbox, "default")), "one of them to lead")
        wait_until(lambda: all(each.says("Taking part") for each in (one, two)), "both to take part")
        install(sandbox)
        wait_until(lambda: bool(holder(sandbox, "respread-system")), "the Lease of the installed operator to be held")
        wait_until(lambda: not holder(sandbox, "default"), "the other Lease to be given up")
        with OperatorProcess(sandbox, tmp_path, *HURRIED) as installed:
            installed.wait_until_ready()
            first, second = (one, two) if terms(one.lines()) else (two, one)
            assert first.stop() == 0
            assert second.stop() == 0
            wait_until(lambda: bool(terms(installed.lines())), "the installed one to lead")
            assert installed.stop() == 0
        led = sorted(term for each in (one, two, installed) for term in terms(each.lines()))
    assert len(led) >= 3
    assert all(before[1] <= after[0] for before, after in pairwise(led)), led


@pytest.fixture
def no_permission(installed_sandbox: Sandbox) -> Iterator[Sandbox]:
    """A cluster in which the operator has no permission for its Lease."""
    role = installed_sandbox.api.get(ROLE)
    installed_sandbox.api.request("DELETE", ROLE)
    yield installed_sandbox
    metadata = {"name": role["metadata"]["name"], "labels": role["metadata"]["labels"]}
    installed_sandbox.api.request("POST", ROLE.rpartition("/")[0], {"metadata": metadata, "rules": role["rules"]})


def test_without_permission_for_the_lease_the_error_says_what_to_do(no_permission: Sandbox, tmp_path: Path) -> None:
    sandbox = no_permission
    kubeconfig = sandbox.kubeconfig_for_service_account("respread-system", "respread")
    with Laptop(kubeconfig, tmp_path, "one") as laptop:
        assert laptop.process.wait(200) == 2
        said = " ".join(laptop.log.read_text().split())
    assert "no leader can be elected by the Lease respread-system/respread" in said
    assert "get, create and update leases in namespace respread-system" in said
    assert "--lease-namespace" in said
    assert "--no-leader-election" in said
    with Laptop(kubeconfig, tmp_path, "two", "--no-leader-election") as laptop:
        wait_until(lambda: laptop.says("No leader is elected"), "the warning")
        (line,) = [each for each in laptop.lines() if each["event"].startswith("No leader is elected")]
        assert line["level"] == "warning"
        assert "both evict at once" in line["event"]
