"""The cluster of bench/busy: Deployments with spread constraints on simulated nodes, scaled down at once."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from bench.busy_judge import BusyJudge
from bench.sides import cost_of
from respread_sandbox import Sandbox, SandboxOptions
from respread_sandbox.components import API_SERVER, CONTROLLER_MANAGER, ETCD, KWOK, SCHEDULER
from tests.integration.operator_process import install
from tests.integration.workloads import HOSTNAME, ZONE, constraint, create_deployment, deployment, scale

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


class World(NamedTuple):
    """The setup, the same for each side."""

    nodes: int = 300
    zones: int = 3
    namespaces: int = 1
    deployments: int = 400
    replicas: int = 15
    hostname: bool = False
    """Whether there is a constraint over hostnames besides the one over zones."""
    ready_seconds: float = 0
    """How long a pod takes to become Ready once it has a node."""
    seed: int = 1

    def namespace(self, number: int) -> str:
        """Return the namespace of a Deployment, by its number."""
        return f"busy-{number % self.namespaces}"

    def scale_down(self) -> dict[tuple[str, str], int]:
        """Return the replicas that each Deployment is scaled down to, by namespace and name."""
        draw = random.Random(self.seed)
        least, most = (self.replicas * left // 15 for left in LEFT_OF_15)
        return {key: draw.randint(least, most) for key in self.workloads()}

    def workloads(self) -> list[tuple[str, str]]:
        """Return the namespace and name of each Deployment."""
        return [(self.namespace(number), f"app-{number}") for number in range(self.deployments)]

    def describe(self) -> str:
        """Return a description."""
        over = "zones and hostnames" if self.hostname else "zones"
        return (
            f"{self.nodes:,} nodes in {self.zones} zones, {self.deployments * self.replicas:,} pods of"
            f" {self.deployments:,} Deployments in {self.namespaces} namespace{'s' if self.namespaces > 1 else ''},"
            f" spread over {over}"
        )


@contextmanager
def at_rest(world: World, say: Callable[[str], None]) -> Iterator[tuple[Sandbox, BusyJudge]]:
    """Yield a control plane at rest after its Deployments were scaled down, and a judge."""
    with filled(world, say) as (sandbox, judge):
        scale_down(sandbox, judge, world, say)
        yield sandbox, judge


@contextmanager
def filled(world: World, say: Callable[[str], None]) -> Iterator[tuple[Sandbox, BusyJudge]]:
    """Yield a control plane whose Deployments have all pods, correctly spread, and a judge."""
    with Sandbox.start(_options(world)) as sandbox:
        install(sandbox)
        say(f"filling it: {world.describe()} …")
        _create(sandbox, world)
        judge = BusyJudge(sandbox.api, zone_skew=MAX_SKEW, host_skew=MAX_SKEW if world.hostname else None)
        try:
            _wait_for(judge, dict.fromkeys(world.workloads(), world.replicas))
            if judge.violated():
                raise SystemExit(f"the scheduler itself left constraints violated: {judge.violated()[:3]}")
            yield sandbox, judge
        finally:
            judge.close()


def scale_down(sandbox: Sandbox, judge: BusyJudge, world: World, say: Callable[[str], None]) -> None:
    """Scale all Deployments down at once, and wait until the cluster is at rest."""
    say("scaling down …")
    wanted = world.scale_down()
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda key: scale(sandbox, key[0], key[1], wanted[key]), wanted))
    _wait_for(judge, wanted)
    say(f"the control plane uses {_quiet(sandbox):.2f} cores")


def _quiet(sandbox: Sandbox) -> float:
    """Wait a limited time until the control plane has finished the work of the scale-down, and return its CPU use.

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


def _options(world: World) -> SandboxOptions:
    return SandboxOptions(nodes=world.nodes, zones=world.zones, pod_ready_seconds=world.ready_seconds)


def _create(sandbox: Sandbox, world: World) -> None:
    for name in sorted({namespace for namespace, _ in world.workloads()}):
        body = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
        sandbox.api.request("POST", "/api/v1/namespaces", body)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        list(pool.map(lambda key: create_deployment(sandbox, key[0], _deployment(world, key[1])), world.workloads()))


def _deployment(world: World, name: str) -> dict[str, Any]:
    keys = (ZONE, HOSTNAME) if world.hostname else (ZONE,)
    constraints = [constraint(key, name, max_skew=MAX_SKEW) for key in keys]
    return deployment(name, replicas=world.replicas, constraints=constraints, cpu="50m")


def _wait_for(judge: BusyJudge, wanted: dict[tuple[str, str], int]) -> None:
    deadline = time.monotonic() + FILL_SECONDS
    while not (judge.all_ready() and judge.sizes() == wanted):
        if time.monotonic() > deadline:
            raise SystemExit(f"the cluster did not come to rest within {FILL_SECONDS} s: {judge.describe()}")
        time.sleep(POLL_SECONDS)
