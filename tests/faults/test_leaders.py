"""Two replicas, one of which leads, are killed, stopped and frozen. No eviction is made twice or forgotten."""

from __future__ import annotations

import itertools
import random
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from respread.cluster.stores import POLICY_KINDS
from respread.controller.records.codec import situation_of
from respread.moves.codec import group_name
from respread_sandbox import Sandbox
from tests.faults.operators import LEASE, Replica, holder
from tests.faults.proxy import Asked, Fault, FaultProxy
from tests.faults.rounds import Workload, balanced, close_zones, create, enforce, outage, remove, wait_for
from tests.faults.watcher import App, PodWatcher
from tests.integration.records import status_and_record, write_record
from tests.integration.reused_sandbox import ReusedSandbox, lay_out
from tests.integration.snapshots import take_snapshot
from tests.integration.workloads import scale
from tests.processes import PATIENCE_SECONDS
from tests.properties.instances import factor
from tests.spreads import spread_of

LEASE_SECONDS = 3
LONG_LEASE_SECONDS = 60
"""Long enough to distinguish an expired Lease from a released one, which is checked every 2 s."""
POLICY = "/apis/respread.dev/v1alpha1/clusterrebalancepolicies/faults"


class Cluster:
    """A cluster with a watcher, and any number of replicas."""

    def __init__(self, sandbox: Sandbox, watcher: PodWatcher, directory: Path, stack: ExitStack) -> None:
        self.sandbox = sandbox
        self.watcher = watcher
        self.proxies: list[FaultProxy] = []
        self._directory = directory
        self._stack = stack
        self._workloads: list[Workload] = []

    def replica(self, name: str, *options: str) -> Replica:
        """Prepare a replica with its own proxy. It does not run yet."""
        proxy = self._stack.enter_context(FaultProxy(self.sandbox))
        self.proxies.append(proxy)
        given = options or ("--leader-election", "--lease-seconds", str(LEASE_SECONDS))
        replica = Replica(self.sandbox, proxy, self._directory, name, *given)
        self._stack.callback(replica.kill)
        return replica

    def skewed(self, namespace: str, *replicas: int) -> list[Workload]:
        """Create Deployments of these sizes with all pods in one of three zones."""
        workloads = [Workload(namespace, f"web-{number}", size, 1) for number, size in enumerate(replicas)]
        close_zones(self.sandbox, closed=True)
        create(self.sandbox, self.watcher, workloads, random.Random(1))
        close_zones(self.sandbox, closed=False)
        self._workloads += workloads
        return workloads

    def evicted(self, workloads: list[Workload]) -> int:
        return _of(workloads, self.watcher.evicted())

    def evicted_by_now(self, workloads: list[Workload]) -> int:
        return _of(workloads, self.watcher.evicted_by_now())

    def wait_until_balanced(self, workloads: list[Workload]) -> None:
        wait_for(lambda: balanced(self.sandbox, workloads), "the spread to be restored")

    def clean_up(self) -> None:
        remove(self.sandbox, self.watcher, self._workloads)
        if self.sandbox.api.exists(POLICY):
            self.sandbox.api.request("DELETE", POLICY)

    def status(self) -> dict[str, Any]:
        return status_and_record(self.sandbox, POLICY)


def _of(workloads: list[Workload], evicted: Counter[App]) -> int:
    return sum(evicted[each.namespace, each.name] for each in workloads)


@pytest.fixture(scope="module")
def watched(reused_sandbox: ReusedSandbox) -> Iterator[tuple[Sandbox, PodWatcher]]:
    """A cluster with Respread installed, and an independent watcher of its pods."""
    sandbox = lay_out(reused_sandbox.reset(), 3, 3, 3)
    with PodWatcher(sandbox) as watcher:
        yield sandbox, watcher


@pytest.fixture
def cluster(watched: tuple[Sandbox, PodWatcher], tmp_path: Path) -> Iterator[Cluster]:
    with ExitStack() as stack:
        made = Cluster(*watched, tmp_path, stack)
        stack.callback(made.clean_up)
        yield made
    assert watched[1].breaches == []


def fewest(workloads: list[Workload]) -> int:
    return sum(each.fewest_evictions for each in workloads)


def test_repeatedly_killed_leaders_evict_no_pod_too_many(cluster: Cluster) -> None:
    workloads = cluster.skewed("killed", *((7, 6) if factor() > 1 else (5, 4)))
    enforce(cluster.sandbox, quietPeriod="1s", limits={"inFlight": 2})
    replicas = [cluster.replica("one"), cluster.replica("two")]
    for each in replicas:
        each.start()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not balanced(cluster.sandbox, workloads) and time.monotonic() < deadline:
        before = cluster.evicted(workloads)
        wait_for(lambda seen=before: cluster.evicted(workloads) > seen or balanced(cluster.sandbox, workloads), "work")  # type: ignore[misc]  # no types for defaults
        time.sleep(0.3)
        for each in replicas:
            if each.leads():
                each.kill()
                each.start()
                break
    cluster.wait_until_balanced(workloads)
    time.sleep(2)
    assert cluster.evicted_by_now(workloads) == fewest(workloads)


def test_a_clean_stop_hands_the_lease_over_at_once(cluster: Cluster) -> None:
    enforce(cluster.sandbox)
    long = ("--leader-election", "--lease-seconds", str(LONG_LEASE_SECONDS))
    one, two = cluster.replica("one", *long), cluster.replica("two", *long)
    one.start()
    wait_for(one.leads, "the first to lead")
    two.start()
    two.wait_until_ready()
    assert one.stop() == 0
    assert holder(cluster.sandbox) != one.identity()
    wait_for(two.leads, "the other to lead, and not to wait for the Lease to run out", LONG_LEASE_SECONDS / 2)
    workloads = cluster.skewed("handed-over", 5)
    cluster.wait_until_balanced(workloads)
    assert two.stop() == 0
    assert cluster.evicted_by_now(workloads) == fewest(workloads)


def test_a_frozen_leader_evicts_nothing_after_it_resumes(cluster: Cluster) -> None:
    enforce(cluster.sandbox, quietPeriod="1s")
    one, two = cluster.replica("one"), cluster.replica("two")
    one.start()
    wait_for(one.leads, "the first to lead")
    two.start()
    two.wait_until_ready()
    workloads = cluster.skewed("frozen", 8, *((8, 8) if factor() > 1 else (4,)))
    wait_for(lambda: cluster.evicted(workloads) >= 2, "the first evictions")
    one.freeze()
    wait_for(two.leads, "the other to lead")
    one.thaw()
    cluster.wait_until_balanced(workloads)
    wait_for(
        lambda: any(line["event"] == "This replica does not lead any more" for line in one.lines()),
        "the first to know that it does not lead",
    )
    time.sleep(1)
    assert cluster.evicted_by_now(workloads) == fewest(workloads)


def slow_evictions(asked: Asked) -> Fault | None:
    """Delay each eviction by a second, so that a test can act during the wave."""
    return Fault("delay", 1.0) if asked.is_eviction else None


@pytest.mark.parametrize(
    ("how", "watch"),
    [
        ("deleted", "that is silent"),
        pytest.param("deleted", "that works", marks=pytest.mark.long),
        pytest.param("switched to DryRun", "that is silent", marks=pytest.mark.long),
        ("switched to DryRun", "that works"),
    ],
)
def test_deleting_a_policy_stops_its_wave(cluster: Cluster, how: str, watch: str) -> None:
    """The result does not depend on the watch of policies, because the operator reads the API server in the wave."""
    workloads = cluster.skewed(f"mid-wave-{how.split(maxsplit=1)[0]}-{watch.rpartition(' ')[2]}", 6, 6, 6)
    replica = cluster.replica("one", "--no-leader-election")
    cluster.proxies[0].choose = slow_evictions
    limits = {"inFlight": 10, "inFlightPerWorkload": 3, "inFlightPerNode": 10}
    enforce(cluster.sandbox, limits=limits)
    replica.start()
    wait_for(lambda: cluster.evicted(workloads) >= 1, "the first eviction")
    if watch == "that is silent":
        cluster.proxies[0].silent = {kind.path for kind in POLICY_KINDS}
    if how == "deleted":
        cluster.sandbox.api.request("DELETE", POLICY)
    else:
        cluster.sandbox.api.request("PATCH", POLICY, {"spec": {"mode": "DryRun"}})
    # The wave ends within a second and a request. Evictions sent before are answered a second after they were sent. A
    # wave that continued would make all needed evictions.
    sent = -1
    while (now := sum(each.is_eviction for each in cluster.proxies[0].asked)) != sent:
        sent = now
        time.sleep(4)
    assert cluster.evicted_by_now(workloads) < fewest(workloads)
    assert replica.runs
    if how == "deleted":
        assert not any(line["level"] in {"error", "critical"} for line in replica.lines())


def test_the_limit_per_hour_holds_across_a_crash(cluster: Cluster) -> None:
    workloads = cluster.skewed("per-hour", 6, 6)
    enforce(cluster.sandbox, limits={"perHour": 3})
    for name in ("one", "two", "three"):
        replica = cluster.replica(name, "--no-leader-election")
        replica.start()
        replica.wait_until_ready()
        wait_for(lambda: cluster.evicted(workloads) >= 1, "an eviction")
        time.sleep(0.5)
        replica.kill()
    last = cluster.replica("last", "--no-leader-election")
    last.start()
    last.wait_until_ready()

    def counted() -> int:
        return sum(each["evictions"] for each in cluster.status()["recentEvictions"])

    # The next leader makes a move that a killed leader recorded and did not make within 75 s. If it can't, another move
    # is made once it is certain that the first was not made.
    wait_for(
        lambda: cluster.evicted(workloads) >= 3,
        lambda: f"what the limit allows: {cluster.evicted(workloads)} of {cluster.status()}",
        2 * PATIENCE_SECONDS,
    )
    time.sleep(4)
    assert cluster.evicted_by_now(workloads) == counted() == 3
    cluster.sandbox.api.request("PATCH", POLICY, {"spec": {"limits": {"perHour": 100}}})
    cluster.wait_until_balanced(workloads)
    assert cluster.evicted_by_now(workloads) == fewest(workloads)


def test_a_back_off_in_a_record_keeps_the_next_process_from_evicting(cluster: Cluster) -> None:
    enforce(cluster.sandbox)
    workloads = cluster.skewed("left-alone", 4)
    ((group, situation),) = {
        (group_name(key), situation_of(group))
        for key, group in spread_of(take_snapshot(cluster.sandbox)).groups.items()
        if key.namespace == "left-alone" and group.violated and key.when_unsatisfiable == "DoNotSchedule"
    }
    until = datetime.now(UTC) + timedelta(minutes=10)
    failed = {"group": group, "failures": 3, "until": until.isoformat(), "situation": situation}
    write_record(cluster.sandbox, POLICY, {"backOffs": [failed]})
    replica = cluster.replica("one", "--no-leader-election")
    replica.start()

    def reported() -> str:
        return " ".join(f"{each['reason']}: {each['message']}" for each in cluster.status().get("violations", ()))

    wait_for(lambda: reported().startswith("BackingOff: 3 moves in a row"), "the reason to be reported")
    assert [each["group"] for each in cluster.status()["backOffs"]] == [group]
    time.sleep(2)
    assert cluster.evicted_by_now(workloads) == 0
    # Another pod changes the situation, so the group is tried again.
    scale(cluster.sandbox, "left-alone", "web-0", 5)
    wait_for(lambda: cluster.evicted(workloads) > 0, "a new chance")


@pytest.mark.long
def test_repeated_deletion_of_the_lease_makes_no_second_leader(cluster: Cluster) -> None:
    """A recreated Lease counts its holders from 0 again, and nothing relies on that count."""
    workloads = cluster.skewed("deleted-lease", 8, 7, 6)
    enforce(cluster.sandbox, quietPeriod="1s", limits={"inFlight": 2})
    replicas = [cluster.replica("one"), cluster.replica("two")]
    for each in replicas:
        each.start()
    deadline = time.monotonic() + PATIENCE_SECONDS
    deleted = 0
    while not balanced(cluster.sandbox, workloads) and time.monotonic() < deadline:
        before = cluster.evicted(workloads)
        wait_for(lambda seen=before: cluster.evicted(workloads) > seen or balanced(cluster.sandbox, workloads), "work")  # type: ignore[misc]  # no types for defaults
        if cluster.sandbox.api.exists(LEASE):
            cluster.sandbox.api.request("DELETE", LEASE)
            deleted += 1
        if deleted % 3 == 0:  # and the leader restarts as a process that has never seen the Lease
            for each in replicas:
                if each.leads():
                    each.kill()
                    each.start()
    cluster.wait_until_balanced(workloads)
    time.sleep(2)
    assert deleted > 3
    assert cluster.evicted_by_now(workloads) == fewest(workloads)


@pytest.mark.parametrize("what", ["kube-apiserver", pytest.param("etcd", marks=pytest.mark.long)])
def test_a_restart_of_the_control_plane_causes_no_unnecessary_eviction(cluster: Cluster, what: str) -> None:
    workloads = cluster.skewed(f"restarted-{what.removeprefix('kube-')}", *((8, 7) if factor() > 1 else (6, 5)))
    enforce(cluster.sandbox, quietPeriod="1s", limits={"inFlight": 2})
    replica = cluster.replica("one")
    replica.start()
    for _ in range(2):
        before = cluster.evicted(workloads)
        wait_for(lambda seen=before: cluster.evicted(workloads) > seen or balanced(cluster.sandbox, workloads), "work")  # type: ignore[misc]  # no types for defaults
        outage(cluster.sandbox, what, 1)
    cluster.wait_until_balanced(workloads)
    time.sleep(2)
    assert cluster.evicted_by_now(workloads) == fewest(workloads)
    assert replica.runs


@pytest.mark.long
def test_an_etcd_that_is_stuck_again_and_again_causes_no_unnecessary_eviction(cluster: Cluster) -> None:
    """As on a slow disk: requests take seconds, and the Lease may be lost while evictions are on their way."""
    workloads = cluster.skewed("slow-disk", 8, 7, 6)
    enforce(cluster.sandbox, quietPeriod="1s", limits={"inFlight": 3})
    for name in ("one", "two"):
        cluster.replica(name).start()
    deadline = time.monotonic() + PATIENCE_SECONDS
    stuck_seconds = itertools.cycle((0.5, 2.5, 5))
    while not balanced(cluster.sandbox, workloads) and time.monotonic() < deadline:
        cluster.sandbox.freeze_component("etcd")
        time.sleep(next(stuck_seconds))
        cluster.sandbox.thaw_component("etcd")
        time.sleep(1)
    cluster.wait_until_balanced(workloads)
    time.sleep(2)
    assert cluster.evicted_by_now(workloads) == fewest(workloads)


def test_a_rotated_token_does_not_stop_the_operator(cluster: Cluster) -> None:
    workloads = cluster.skewed("rotated", *((8, 7) if factor() > 1 else (6, 5)))
    enforce(cluster.sandbox, quietPeriod="1s", limits={"inFlight": 2})
    replica, (proxy,) = cluster.replica("one"), cluster.proxies
    replica.start()
    for _ in range(3):
        before = cluster.evicted(workloads)
        wait_for(lambda seen=before: cluster.evicted(workloads) > seen or balanced(cluster.sandbox, workloads), "work")  # type: ignore[misc]  # no types for defaults
        proxy.valid_token = replica.rotate_token()
    cluster.wait_until_balanced(workloads)
    time.sleep(2)
    assert cluster.evicted_by_now(workloads) == fewest(workloads)
    assert proxy.counts["401"] > 0
    assert replica.runs
