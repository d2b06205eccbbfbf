"""Small clusters with skew, for which the fewest evictions are known without a planner.

The nodes of two of three zones are tainted, and the constraints honor taints, so all pods go to the third zone. Once
the taints are removed, every Deployment has [n, 0, 0] pods.
"""

from __future__ import annotations

import json
import random
import secrets
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import requests

from respread_sandbox import ApiError, Sandbox
from tests.faults.watcher import PodWatcher
from tests.integration.operator_process import policy
from tests.integration.workloads import HOSTNAME, ZONE, constraint, deployment, is_ready, pods, wait_until
from tests.processes import PATIENCE_SECONDS

CLOSED = {"key": "faults.test/closed", "effect": "NoSchedule"}
OPEN_ZONE = "zone-a"
POLICY = "faults"
"""The ClusterRebalancePolicy for all pods."""
PLAIN_NODES = {"faults.test/pool": "plain"}
"""The label of the nodes for workloads of a round, if there are other nodes."""
T = TypeVar("T")


class Workload(NamedTuple):
    """A Deployment of a round."""

    namespace: str
    name: str
    replicas: int
    max_skew: int

    @property
    def fewest_evictions(self) -> int:
        """The pods that must leave the first zone of [n, 0, 0] until the constraint holds."""
        stay = min(self.replicas, (self.replicas + 2 * self.max_skew) // 3)
        return self.replicas - stay

    @property
    def most_evictions(self) -> int:
        """The number of evictions if the scheduler never chooses the better of two allowed zones.

        With maxSkew 1 there is always only one such zone in the end, and this is the same number.
        """
        return _most_evictions((self.replicas, 0, 0), self.max_skew)


def _most_evictions(counts: tuple[int, ...], max_skew: int) -> int:
    """Return how many pods must leave the fullest zone, one after another, in the worst case."""
    if max(counts) - min(counts) <= max_skew:
        return 0
    left = sorted(counts)
    left[-1] -= 1
    least = min(left)
    return 1 + max(
        _most_evictions((*left[:zone], left[zone] + 1, *left[zone + 1 :]), max_skew)
        for zone in range(len(left))
        if left[zone] + 1 - least <= max_skew
    )


def patiently(ask: Callable[[], T]) -> T:
    """Repeat a request to the API server until it is available."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while True:
        try:
            return ask()
        except (ApiError, OSError, requests.RequestException) as error:
            refused = isinstance(error, ApiError) and error.status < 500 and error.status != 429
            if refused or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


@contextmanager
def in_the_background(step: Callable[[], None], every_seconds: float = 0.2) -> Iterator[Counter[str]]:
    """Repeat an action of another component until the context ends; yield the count of the repetitions."""
    stopping = threading.Event()
    taken = Counter[str]()

    def go_on() -> None:
        while not stopping.wait(every_seconds):
            step()
            taken["steps"] += 1

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield taken
    finally:
        stopping.set()
        thread.join()


def outage(sandbox: Sandbox, what: str, seconds: float) -> None:
    """Kill kube-apiserver or etcd, and start it again.

    So does the scheduler. One that goes on lists all pods, and may place one before it has seen where the others are.
    """
    for component in ("kube-scheduler", what):
        sandbox.stop_component(component)
    time.sleep(seconds)
    for component in (what, "kube-scheduler"):
        sandbox.start_component(component)


def close_zones(sandbox: Sandbox, *, closed: bool) -> None:
    """Taint or untaint all nodes outside the open zone."""
    taint(sandbox, {name: closed for name, zone in zones_of_nodes(sandbox).items() if zone != OPEN_ZONE})


def taint(sandbox: Sandbox, closed: Mapping[str, bool]) -> None:
    """Taint or untaint nodes, and wait until the scheduler knows it. Until then it may place pods as before.

    It receives nodes in the order of their changes. Once it binds a pod by a new label of the last one, it knows all.
    """
    nodes = "/api/v1/nodes"
    for name, is_closed in closed.items():
        body = {"spec": {"taints": [CLOSED] if is_closed else None}}
        patiently(lambda name=name, body=body: sandbox.api.request("PATCH", f"{nodes}/{name}", body))  # type: ignore[misc]  # no types for defaults
    label = {"faults.test/seen": secrets.token_hex(4)}
    patiently(lambda: sandbox.api.request("PATCH", f"{nodes}/{[*closed][-1]}", {"metadata": {"labels": label}}))
    spec = {
        "nodeSelector": label,
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "main", "image": "simulated"}],
        "terminationGracePeriodSeconds": 0,
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"generateName": "sees-nodes-"}, "spec": spec}
    path = "/api/v1/namespaces/default/pods"
    created = patiently(lambda: sandbox.api.request("POST", path, pod))["metadata"]["name"]

    def is_bound() -> bool:
        return "nodeName" in patiently(lambda: sandbox.api.get(f"{path}/{created}"))["spec"]

    wait_for(is_bound, "the scheduler to bind a pod to the node that was changed last")
    patiently(lambda: sandbox.api.request("DELETE", f"{path}/{created}"))


def random_workloads(namespace: str, chance: random.Random) -> list[Workload]:
    """Return some workloads of different sizes."""
    return [
        Workload(namespace, f"web-{number}", chance.randint(3, 8), chance.choice((1, 1, 1, 2)))
        for number in range(chance.randint(2, 4))
    ]


def create(
    sandbox: Sandbox,
    watcher: PodWatcher,
    workloads: Iterable[Workload],
    chance: random.Random,
    ready_after_seconds: Sequence[int] = (0, 0, 1, 2),
    terminate_after_seconds: Sequence[int] = (0,),
    node_selector: Mapping[str, str] | None = None,
) -> None:
    """Create the workloads in the open zone, each with a budget of one, which the watcher guards.

    Their pods take a random time to become Ready and to terminate.
    """
    namespaces = sorted({each.namespace for each in workloads})
    for namespace in namespaces:
        patiently(lambda namespace=namespace: sandbox.create_namespace(namespace))  # type: ignore[misc]  # no types for defaults
    for each in workloads:
        zone = constraint(ZONE, each.name, max_skew=each.max_skew, nodeTaintsPolicy="Honor")
        host = constraint(HOSTNAME, each.name, when_unsatisfiable="ScheduleAnyway")
        annotations = {
            "sandbox.respread.dev/ready-after-seconds": str(chance.choice(ready_after_seconds)),
            "sandbox.respread.dev/terminate-after-seconds": str(chance.choice(terminate_after_seconds)),
        }
        manifest = deployment(
            each.name,
            replicas=each.replicas,
            constraints=[zone, host],
            annotations=annotations,
            nodeSelector=dict(node_selector or {}),
        )
        budget = {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": each.name},
            "spec": {"maxUnavailable": 1, "selector": {"matchLabels": {"app": each.name}}},
        }
        base = f"namespaces/{each.namespace}"
        for path, body in (
            (f"/apis/policy/v1/{base}/poddisruptionbudgets", budget),
            (f"/apis/apps/v1/{base}/deployments", manifest),
        ):
            patiently(lambda path=path, body=body: sandbox.api.request("POST", path, body))  # type: ignore[misc]  # no types for defaults
    for each in workloads:
        wait_for(lambda each=each: look_at(sandbox, each, zones_of_nodes(sandbox)).lost == 0, f"{each} to be Ready")  # type: ignore[misc]  # no types for defaults
        watcher.guard((each.namespace, each.name), each.replicas - 1)


def remove(sandbox: Sandbox, watcher: PodWatcher, workloads: Iterable[Workload]) -> None:
    """Delete the workloads' namespaces without waiting."""
    for each in workloads:
        watcher.release((each.namespace, each.name))
    remove_namespaces(sandbox, {each.namespace for each in workloads})


def remove_namespaces(sandbox: Sandbox, namespaces: Iterable[str]) -> None:
    """Delete namespaces without waiting."""
    for namespace in namespaces:
        path = f"/api/v1/namespaces/{namespace}"
        patiently(lambda path=path: sandbox.api.request("DELETE", path))  # type: ignore[misc]  # no types for defaults


class Look(NamedTuple):
    """A workload at one moment."""

    lost: int
    """The number of missing Ready pods."""
    unmet: bool
    """Whether its zone constraint is violated."""


def zones_of_nodes(sandbox: Sandbox) -> dict[str, str]:
    """Return the zone of each node."""
    nodes = patiently(lambda: sandbox.api.get("/api/v1/nodes"))["items"]
    return {node["metadata"]["name"]: node["metadata"]["labels"][ZONE] for node in nodes}


def look_at(sandbox: Sandbox, workload: Workload, zones: Mapping[str, str]) -> Look:
    """Read a workload, in these zones of the nodes."""
    counts = dict.fromkeys(zones.values(), 0)
    found = patiently(lambda: pods(sandbox, workload.namespace, workload.name))
    for pod in found:
        if "nodeName" in pod["spec"] and "deletionTimestamp" not in pod["metadata"]:
            counts[zones[pod["spec"]["nodeName"]]] += 1
    return Look(
        lost=workload.replicas - sum(is_ready(pod) for pod in found),
        unmet=max(counts.values()) - min(counts.values()) > workload.max_skew,
    )


def balanced(sandbox: Sandbox, workloads: Iterable[Workload]) -> bool:
    """Return whether every workload has all its pods Ready and satisfies its constraint."""
    zones = zones_of_nodes(sandbox)
    return all(look_at(sandbox, each, zones) == Look(0, unmet=False) for each in workloads)


def wait_for(condition: Callable[[], bool], what: str | Callable[[], str], seconds: float = PATIENCE_SECONDS) -> None:
    """Wait until a condition is true."""
    wait_until(condition, what, seconds=seconds)


def enforce(sandbox: Sandbox, **spec: Any) -> None:
    """Apply a policy without waiting times."""
    sandbox.apply(json.dumps(policy(POLICY, **spec)))


def set_mode(sandbox: Sandbox, mode: str) -> None:
    """Set the mode of the policy for all pods, and wait until the leading operator has observed it."""
    path = f"/apis/respread.dev/v1alpha1/clusterrebalancepolicies/{POLICY}"
    generation = patiently(lambda: sandbox.api.request("PATCH", path, {"spec": {"mode": mode}}))["metadata"][
        "generation"
    ]

    def is_seen() -> bool:
        seen: bool = patiently(lambda: sandbox.api.get(path)).get("status", {}).get("observedGeneration") == generation
        return seen

    wait_for(is_seen, f"an operator to see that the mode is {mode}")
