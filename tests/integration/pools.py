"""Parallel scenarios on one control plane: each has its own nodes, namespace and RebalancePolicy."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from itertools import product
from typing import Any

from click.testing import CliRunner

from respread_cli.main import respread
from respread_sandbox import NodeShape, Sandbox
from tests.integration.operator_process import evictions
from tests.integration.workloads import (
    ZONE,
    budget,
    create_deployment,
    deployment,
    is_ready,
    pods,
    wait_for_ready_pods,
    wait_until,
)

POOL = "example.com/pool"
NO_NODE = "no node"


class Pool:
    """The nodes of one scenario, which only its pods may use, and its namespace of the same name."""

    def __init__(self, sandbox: Sandbox, name: str) -> None:
        """Create the namespace, without nodes."""
        self.sandbox = sandbox
        self.name = sandbox.create_namespace(name)
        self._zone_of: dict[str, str] = {}

    # Nodes

    def add_zone(self, zone: str, nodes: int = 1, **shape: Any) -> list[str]:
        """Add nodes to a zone, wait until they are ready, and return their names."""
        added = self.sandbox.nodes.add(nodes, zone, NodeShape(labels={POOL: self.name}, **shape))
        self._zone_of.update(dict.fromkeys(added, zone))
        # Until then, a constraint that honors taints may hold without these nodes.
        wait_until(lambda: self.sandbox.nodes.ready().issuperset(added), f"the nodes of {zone} to be Ready")
        return added

    def remove_zone(self, zone: str) -> None:
        """Remove a zone's nodes and their pods."""
        gone = [name for name, of in self._zone_of.items() if of == zone]
        self.sandbox.nodes.remove(*gone)
        for name in gone:
            del self._zone_of[name]

    # Pods

    def deploy(self, name: str, replicas: int, labels: Mapping[str, str] | None = None, **fields: Any) -> None:
        """Create a Deployment whose pods go to the pool, with more labels and pod spec fields, and wait for it."""
        manifest = deployment(name, replicas=replicas, nodeSelector={POOL: self.name}, **fields)
        manifest["spec"]["template"]["metadata"]["labels"].update(labels or {})
        create_deployment(self.sandbox, self.name, manifest)
        wait_for_ready_pods(self.sandbox, self.name, name, replicas)

    def guard(self, app: str, max_unavailable: int) -> None:
        """Create a PodDisruptionBudget for the pods of an app."""
        path = f"/apis/policy/v1/namespaces/{self.name}/poddisruptionbudgets"
        self.sandbox.api.request("POST", path, budget(app, max_unavailable))

    def wait_for(self, replicas: int) -> None:
        """Wait until there are this many pods, all Ready."""
        wait_until(lambda: self.is_ready(replicas), f"{replicas} Ready pods in {self.name}")

    def is_ready(self, replicas: int) -> bool:
        """Return whether there are this many pods, all Ready."""
        found = self.pods()
        return len(found) == replicas and all(map(is_ready, found))

    def pods(self) -> list[dict[str, Any]]:
        """Return all its pods, including terminating ones."""
        return pods(self.sandbox, self.name)

    def uids(self) -> set[str]:
        """Return its pods' UIDs."""
        return {pod["metadata"]["uid"] for pod in self.pods()}

    def counts(self, key: str = ZONE) -> dict[str, int]:
        """Return its pods in each zone, or on each node; `no node` counts those without one."""
        counts = dict.fromkeys(self._zone_of.values() if key == ZONE else self._zone_of, 0)
        for pod in self.pods():
            node = pod["spec"].get("nodeName")
            domain = NO_NODE if node is None else self._zone_of[node] if key == ZONE else node
            counts[domain] = counts.get(domain, 0) + 1
        return counts

    # The policy

    def rebalance(self, **spec: Any) -> None:
        """Create a policy that evicts without waiting times."""
        hurried = {"mode": "Enforce", "quietPeriod": "1ms", "victims": {"minAge": "0s"}, **spec}
        policy = {"apiVersion": "respread.dev/v1alpha1", "kind": "RebalancePolicy", "spec": hurried}
        self.sandbox.apply(json.dumps({**policy, "metadata": {"name": "all", "namespace": self.name}}))

    def status(self) -> dict[str, Any]:
        """Return the policy's status."""
        path = f"/apis/respread.dev/v1alpha1/namespaces/{self.name}/rebalancepolicies/all"
        status: dict[str, Any] = self.sandbox.api.get(path).get("status", {})
        return status

    def condition(self, name: str) -> dict[str, Any]:
        """Return a condition of the policy; empty before it exists."""
        found = [each for each in self.status().get("conditions", ()) if each["type"] == name]
        return found[0] if found else {}

    def wait_until_balanced(self, replicas: int, evictions: int) -> None:
        """Wait until the policy reports that all constraints hold, after so many evictions or more, and pods are Ready.

        Without the number of evictions, its first report could satisfy this before it has observed the newest nodes.
        """

        def balanced() -> bool:
            return self.condition("Balanced").get("status") == "True" and len(self.evicted()) >= evictions

        wait_until(balanced, f"{self.name} to be balanced after {evictions} evictions")
        self.wait_for(replicas)

    def wait_until_blocked(self, replicas: int, reason: str, *words: str) -> None:
        """Wait until the policy reports violations with these words as blocked, for this reason.

        All pods are Ready then.
        """
        wait_until(lambda: self.is_blocked(reason, *words), lambda: f"{reason} {words}; it says {self.status()}")
        self.wait_for(replicas)

    def is_blocked(self, reason: str, *words: str) -> bool:
        """Return whether the policy reports violations with these words as blocked, for this reason.

        Earlier reports may be based on an incomplete view of the cluster, because each kind is watched separately.
        """
        status = self.status()
        said = {each["type"]: (each["status"], each["reason"]) for each in status.get("conditions", ())}
        messages = " ".join(each["message"] for each in status.get("violations", ()))
        at_the_end = said.get("Blocked") == ("True", reason) and said["Progressing"][0] == "False"
        return at_the_end and all(word in messages for word in words)

    def held_pods(self) -> dict[str, int]:
        """Return the numbers of pods in the policy's `status.blocked`, by reason."""
        return {each["reason"]: each["pods"] for each in self.status().get("blocked", ())}

    def explain(self, target: str) -> dict[str, Any]:
        """Return the output of `respread explain` for an object in the namespace."""
        command = ["explain", target, "-n", self.name, "-o", "json"]
        done = CliRunner().invoke(respread, command, env={"KUBECONFIG": str(self.sandbox.kubeconfig)})
        report: dict[str, Any] = json.loads(done.stdout)
        return report

    def evicted(self) -> list[str]:
        """Return the pods that the API server evicted for the operator, in order, from its audit log."""
        references = (entry["objectRef"] for entry in evictions(self.sandbox))
        return [reference["name"] for reference in references if reference["namespace"] == self.name]


def holds(counts: Iterable[int], max_skew: int = 1) -> bool:
    """Return whether a constraint holds whose eligible domains have these numbers of pods."""
    found = list(counts)
    return max(found) - min(found) <= max_skew


def fewest_moves(counts: Mapping[str, int], max_skew: int = 1) -> int:
    """Return the fewest pods that must move until a constraint holds, by trying all placements."""
    before = list(counts.values())
    total = sum(before)
    ways = (way for way in product(range(total + 1), repeat=len(before) - 1) if sum(way) <= total)
    return min(
        sum(max(0, was - will_be) for was, will_be in zip(before, (*way, total - sum(way)), strict=True))
        for way in ways
        if holds((*way, total - sum(way)), max_skew)
    )
