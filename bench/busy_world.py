"""The clusters of bench/busy and bench/pace: workloads with spread constraints on simulated nodes, and what changes.

Either all workloads are scaled down at once, or zones come back whose nodes were missing.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Final, Literal, NamedTuple

from bench.busy_judge import BusyJudge
from bench.sides import cost_of
from respread_sandbox import Binaries, Sandbox, SandboxOptions
from respread_sandbox.components import API_SERVER, CONTROLLER_MANAGER, ETCD, KWOK, SCHEDULER
from tests.integration.operator_process import install
from tests.integration.workloads import HOSTNAME, ZONE, budget, constraint, deployment
from tests.processes import wait_until

MAX_SKEW: Final = 1
LEFT_OF_15: Final = (5, 9)
"""The scale-down leaves 5 to 9 of 15 replicas, and proportionally of other numbers."""
FILL_SECONDS: Final = 900
POLL_SECONDS: Final = 0.2
QUIET_SECONDS: Final = 45.0
QUIET_WINDOW_SECONDS: Final = 3.0
QUIET_CORES: Final = 0.3
"""The time in which 300 nodes send their heartbeats."""
AT_ONCE: Final = 8
LEAST_GRACE_SECONDS: Final = 30


class World(NamedTuple):
    """The setup, the same for each side."""

    nodes: int = 300
    zones: int = 3
    namespaces: int = 1
    deployments: int = 400
    replicas: int = 15
    hostname: bool = False
    """Whether there is a constraint over hostnames besides the one over zones."""
    soft: bool = False
    """Whether the constraints have ScheduleAnyway."""
    ready_seconds: float = 0
    """How long a pod takes to become Ready once it has a node."""
    stop_seconds: float = 0
    """How long a deleted pod terminates."""
    kind: Literal["Deployment", "Parallel", "OrderedReady"] = "Deployment"
    """The workloads: Deployments, or StatefulSets with this podManagementPolicy."""
    max_unavailable: str = ""
    """The maxUnavailable of each workload's PodDisruptionBudget; empty without budgets."""
    zones_back: int = 0
    """How many zones, the last ones, have no nodes until they come back; if none, workloads are scaled down instead."""
    outage: bool = False
    """Whether these zones have nodes at first, which are removed while the program runs."""
    seed: int = 1

    def namespace(self, number: int) -> str:
        """Return the namespace of a Deployment, by its number."""
        return f"busy-{number % self.namespaces}"

    def in_the_end(self) -> dict[tuple[str, str], int]:
        """Return the replicas of each workload after the change, by namespace and name."""
        if self.zones_back:
            return dict.fromkeys(self.workloads(), self.replicas)
        draw = random.Random(self.seed)
        least, most = (self.replicas * left // 15 for left in LEFT_OF_15)
        return {key: draw.randint(least, most) for key in self.workloads()}

    def workloads(self) -> list[tuple[str, str]]:
        """Return the namespace and name of each workload."""
        return [(self.namespace(number), f"app-{number}") for number in range(self.deployments)]

    def nodes_per_zone(self) -> dict[str, int]:
        """Return the number of nodes of each zone, including zones that come back."""
        return SandboxOptions(nodes=self.nodes, zones=self.zones).zone_sizes()

    def returning(self) -> dict[str, int]:
        """Return the number of nodes of each zone that comes back."""
        return dict(list(self.nodes_per_zone().items())[self.zones - self.zones_back :])

    def describe(self) -> str:
        """Return a description."""
        over = "zones and hostnames" if self.hostname else "zones"
        kind = "Deployment" if self.kind == "Deployment" else f"{self.kind} StatefulSet"
        return (
            f"{self.nodes:,} nodes in {self.zones} zones, {self.deployments * self.replicas:,} pods of"
            f" {_number(self.deployments, kind)} in {_number(self.namespaces, 'namespace')}, spread over {over}"
            f"{' with ScheduleAnyway' if self.soft else ''}"
        )


@contextmanager
def at_rest(world: World, say: Callable[[str], None]) -> Iterator[tuple[Sandbox, BusyJudge]]:
    """Yield a control plane at rest after its Deployments were scaled down, and a judge."""
    with filled(world, say) as (sandbox, judge):
        scale_down(sandbox, judge, world, say)
        yield sandbox, judge


@contextmanager
def filled(
    world: World, say: Callable[[str], None], *, binaries: Binaries | None = None
) -> Iterator[tuple[Sandbox, BusyJudge]]:
    """Yield a control plane whose workloads have all pods, correctly spread over the zones with nodes, and a judge.

    Args:
        world: the cluster.
        say: called with what is done.
        binaries: the programs of the control plane; by default they are found or built.
    """
    with Sandbox.start(_options(world), binaries=binaries) as sandbox:
        install(sandbox)
        say(f"filling it: {world.describe()} …")
        _create(sandbox, world)
        judge = BusyJudge(sandbox.api, zone_skew=MAX_SKEW, host_skew=MAX_SKEW if world.hostname else None)
        try:
            wait_for(judge, dict.fromkeys(world.workloads(), world.replicas))
            if judge.violated():
                raise SystemExit(f"the scheduler itself left constraints violated: {judge.violated()[:3]}")
            yield sandbox, judge
        finally:
            judge.close()


def change(sandbox: Sandbox, judge: BusyJudge, world: World) -> None:
    """Bring the missing zones back, or scale all workloads down at once. Pods are not waited for."""
    if world.zones_back:
        added = {name for zone, nodes in world.returning().items() for name in sandbox.nodes.add(nodes, zone)}
        wait_until(lambda: sandbox.nodes.ready() >= added, f"{len(added)} nodes to be Ready")
        judge.read_nodes()
        return
    wanted = world.in_the_end()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda key: _scale(sandbox, world, key, wanted[key]), wanted))


def scale_down(sandbox: Sandbox, judge: BusyJudge, world: World, say: Callable[[str], None]) -> None:
    """Scale all workloads down at once, and wait until the cluster is at rest."""
    say("scaling down …")
    change(sandbox, judge, world)
    wait_for(judge, world.in_the_end())
    say(f"the control plane uses {quiet(sandbox):.2f} cores")


def lose_zones(sandbox: Sandbox, judge: BusyJudge, world: World) -> None:
    """Remove the nodes of the zones that will come back, and wait until their pods are replaced elsewhere."""
    lost = world.returning()
    items = sandbox.api.get("/api/v1/nodes")["items"]
    sandbox.nodes.remove(*(node["metadata"]["name"] for node in items if node["metadata"]["labels"][ZONE] in lost))
    judge.read_nodes()
    wait_for(judge, dict.fromkeys(world.workloads(), world.replicas))


def quiet(sandbox: Sandbox) -> float:
    """Wait a limited time until the control plane has finished the work of a change, and return its CPU use.

    For a minute after the last pod was deleted, Events are written and KWOK deletes pods a second time. No side should
    be measured meanwhile.
    """
    deadline = time.monotonic() + QUIET_SECONDS
    processes = [sandbox.process_id(name) for name in (ETCD, API_SERVER, SCHEDULER, CONTROLLER_MANAGER, KWOK)]
    while True:
        before = sum(cost_of(process).cpu_seconds for process in processes)
        time.sleep(QUIET_WINDOW_SECONDS)
        cores = (sum(cost_of(process).cpu_seconds for process in processes) - before) / QUIET_WINDOW_SECONDS
        if cores < QUIET_CORES or time.monotonic() > deadline:
            return cores


def wait_for(judge: BusyJudge, wanted: dict[tuple[str, str], int]) -> None:
    """Wait until each workload has this number of pods, all Ready and none terminating."""
    deadline = time.monotonic() + FILL_SECONDS
    while not (judge.all_ready() and judge.sizes() == wanted):
        if time.monotonic() > deadline:
            raise SystemExit(f"the cluster did not come to rest within {FILL_SECONDS} s: {judge.describe()}")
        time.sleep(POLL_SECONDS)


def _number(number: int, of: str) -> str:
    return f"{number:,} {of}{'' if number == 1 else 's'}"


def _options(world: World) -> SandboxOptions:
    absent = 0 if world.outage else world.zones_back
    return SandboxOptions(
        nodes_per_zone=tuple(world.nodes_per_zone().values())[: world.zones - absent],
        pod_ready_seconds=world.ready_seconds,
        pod_termination_seconds=world.stop_seconds,
    )


def _create(sandbox: Sandbox, world: World) -> None:
    for name in sorted({namespace for namespace, _ in world.workloads()}):
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        sandbox.api.request("POST", "/api/v1/namespaces", body)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda key: _create_workload(sandbox, world, *key), world.workloads()))


def _create_workload(sandbox: Sandbox, world: World, namespace: str, name: str) -> None:
    keys = (ZONE, HOSTNAME) if world.hostname else (ZONE,)
    when = "ScheduleAnyway" if world.soft else "DoNotSchedule"
    manifest = deployment(
        name,
        replicas=world.replicas,
        constraints=[constraint(key, name, max_skew=MAX_SKEW, when_unsatisfiable=when) for key in keys],
        cpu="50m",
        terminationGracePeriodSeconds=max(LEAST_GRACE_SECONDS, round(world.stop_seconds)),
    )
    if world.kind != "Deployment":
        manifest["kind"] = "StatefulSet"
        manifest["spec"] |= {"serviceName": name, "podManagementPolicy": world.kind}
    if world.max_unavailable:
        path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
        sandbox.api.request("POST", path, budget(name, world.max_unavailable))
    sandbox.api.request("POST", _path(world, namespace), manifest)


def _scale(sandbox: Sandbox, world: World, key: tuple[str, str], replicas: int) -> None:
    namespace, name = key
    sandbox.api.request("PATCH", f"{_path(world, namespace)}/{name}/scale", {"spec": {"replicas": replicas}})


def _path(world: World, namespace: str) -> str:
    return f"/apis/apps/v1/namespaces/{namespace}/{'deployments' if world.kind == 'Deployment' else 'statefulsets'}"
