"""An operator that is killed after every eviction still knows the outcome of the earlier evictions."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from respread_sandbox import ApiError, Sandbox
from respread_sandbox.components import SCHEDULER
from tests.faults.operators import Replica
from tests.faults.proxy import FaultProxy
from tests.faults.rounds import enforce, in_the_background, wait_for
from tests.faults.watcher import PodWatcher
from tests.integration.records import status_and_record
from tests.integration.reused_sandbox import lay_out
from tests.integration.workloads import ZONE, constraint, create_deployment, deployment, is_ready, pods
from tests.processes import PATIENCE_SECONDS

NAMESPACE = "stubborn"
REPLICAS = 6
BACK_OFF_SECONDS = 60
STATUS = "/apis/respread.dev/v1alpha1/clusterrebalancepolicies/faults"
FULL_ZONE, RIGHT_ZONE = "zone-a", "zone-b"


@pytest.fixture
def cluster(installed_sandbox: Sandbox) -> Iterator[Sandbox]:
    """A control plane without its scheduler."""
    sandbox = lay_out(installed_sandbox, 3, 3, 3)
    sandbox.create_namespace(NAMESPACE)
    sandbox.stop_component(SCHEDULER)
    yield sandbox
    sandbox.start_component(SCHEDULER)


class Scheduler:
    """A scheduler that uses one zone, whatever the constraints of the pods."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.zone: str | None = FULL_ZONE
        """None if it is stopped."""
        self._sandbox = sandbox

    def bind_all(self) -> None:
        """Bind every pod that has no node."""
        if (zone := self.zone) is None:
            return
        for pod in pods(self._sandbox, NAMESPACE):
            if "nodeName" not in pod["spec"] and "deletionTimestamp" not in pod["metadata"]:
                self._bind(pod["metadata"]["name"], zone)

    def _bind(self, name: str, zone: str) -> None:
        nodes = self._sandbox.api.get("/api/v1/nodes")["items"]
        node = next(each["metadata"]["name"] for each in nodes if each["metadata"]["labels"][ZONE] == zone)
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        body = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        try:
            self._sandbox.api.request("POST", f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/binding", body)
        except ApiError as error:
            assert error.status in {404, 409}  # noqa: PT017 - gone, or bound by now


@contextmanager
def deployed(cluster: Sandbox) -> Iterator[tuple[Scheduler, PodWatcher, FaultProxy]]:
    scheduler = Scheduler(cluster)
    with in_the_background(scheduler.bind_all), PodWatcher(cluster) as watcher, FaultProxy(cluster) as proxy:
        web = deployment("web", replicas=REPLICAS, constraints=[constraint(ZONE, "web")])
        create_deployment(cluster, NAMESPACE, web)
        wait_for(lambda: all_ready(cluster), "six Ready pods")
        enforce(cluster)
        yield scheduler, watcher, proxy


def status(sandbox: Sandbox) -> dict[str, Any]:
    return status_and_record(sandbox, STATUS)


def all_ready(sandbox: Sandbox) -> bool:
    return sum(map(is_ready, pods(sandbox, NAMESPACE, "web"))) == REPLICAS


def reasons(sandbox: Sandbox) -> set[str]:
    return {each["reason"] for each in status(sandbox).get("violations", ())}


def allowed(first: float) -> int:
    """Return how many evictions may have been made since the first: on a slow machine, a group's back-off ends."""
    return 1 + int((time.monotonic() - first) / BACK_OFF_SECONDS)


def test_a_crash_after_every_eviction_causes_no_eviction_loop(cluster: Sandbox, tmp_path: Path) -> None:
    with deployed(cluster) as (_, watcher, proxy):
        first = time.monotonic()
        for number in range(4):
            replica = Replica(cluster, proxy, tmp_path, f"process-{number}", "--no-leader-election")
            with replica:
                replica.wait_until_ready()
                # The first process evicts, on a slow machine only after a while. The others could evict a second pod.
                deadline = time.monotonic() + (3 if number else PATIENCE_SECONDS)
                while watcher.evicted().total() == (number > 0) and time.monotonic() < deadline:
                    time.sleep(0.01)
                first = first if number else time.monotonic()
                # killed when the context ends, before it can know or record the outcome of its eviction
            assert watcher.evicted_by_now().total() <= allowed(first), f"process {number} has evicted again"
        with Replica(cluster, proxy, tmp_path, "last", "--no-leader-election"):
            wait_for(lambda: reasons(cluster) == {"BackingOff"}, "the reason to be reported")
        evicted = watcher.evicted_by_now().total()
        assert 1 <= evicted <= allowed(first)
        assert [each["failures"] for each in status(cluster)["backOffs"]] == [evicted]
        assert status(cluster)["movesInFlight"] == []


def test_a_crash_after_every_eviction_does_not_stop_evictions_that_help(cluster: Sandbox, tmp_path: Path) -> None:
    with deployed(cluster) as (scheduler, watcher, proxy):
        for number, zone in enumerate([RIGHT_ZONE, "zone-c"] * 2):
            # The replacement is bound only once the process is dead. A process that saw it Ready would evict the next
            # pod at once, whose replacement would get the same zone.
            scheduler.zone = None
            with Replica(cluster, proxy, tmp_path, f"process-{number}", "--no-leader-election"):
                wait_for(lambda made=number: watcher.evicted().total() > made, "an eviction")  # type: ignore[misc]  # no types for defaults
            assert watcher.evicted_by_now().total() == number + 1
            scheduler.zone = zone
            wait_for(lambda: all_ready(cluster), "its replacement")
        with Replica(cluster, proxy, tmp_path, "last", "--no-leader-election"):
            wait_for(lambda: status(cluster).get("summary", {}).get("violated") == 0, "the spread to be restored")
            wait_for(lambda: not status(cluster)["movesInFlight"], "the last move to end")
        assert watcher.evicted_by_now().total() == 4
        assert status(cluster)["backOffs"] == []
