"""A control plane whose only nodes are those that Karpenter launches, with the operator."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from respread_sandbox import Binaries, Sandbox, SandboxOptions
from respread_sandbox.components import KARPENTER
from tests.integration.operator_process import OperatorProcess, evictions, install
from tests.integration.workloads import ZONE, pods, scale
from tests.processes import wait_until

ZONES = ("zone-a", "zone-b", "zone-c")
NODE_POOL = "/apis/karpenter.sh/v1/nodepools/default"
NODE_CLAIMS = "/apis/karpenter.sh/v1/nodeclaims"
PATIENCE_SECONDS = 180
"""The longest time for Karpenter, which looks for consolidation every 10 s and waits 15 s before it acts."""
_REPLACEMENT = re.compile(r"its replacement (\S+)")


class KarpenterCluster:
    """Karpenter's nodes, the pods on them and the operator's policy."""

    def __init__(self, sandbox: Sandbox, operator: OperatorProcess) -> None:
        self.sandbox = sandbox
        self.operator = operator

    # Karpenter

    def set_pool(self, *, zones: tuple[str, ...] = ZONES, consolidate_after: str = "Never", **template: Any) -> None:
        """Set where Karpenter may launch nodes, when it consolidates, and more fields of the nodes' template."""
        in_zones = {"key": ZONE, "operator": "In", "values": list(zones)}
        on_demand = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]}
        spec = {
            "limits": None,
            "disruption": {"consolidateAfter": consolidate_after},
            "template": {"spec": {"requirements": [on_demand, in_zones], "startupTaints": None, **template}},
        }
        self.sandbox.api.request("PATCH", NODE_POOL, {"spec": spec})

    def nodes(self) -> dict[str, dict[str, Any]]:
        """Return the nodes by name."""
        return {node["metadata"]["name"]: node for node in self.sandbox.api.get("/api/v1/nodes")["items"]}

    def nodes_of(self, zone: str) -> list[str]:
        """Return the names of a zone's nodes."""
        return [name for name, node in self.nodes().items() if node["metadata"]["labels"].get(ZONE) == zone]

    def node_in(self, zone: str) -> str:
        """Wait until Karpenter has launched one node in a zone, and return its name."""
        self.wait_until(lambda: len(self.nodes_of(zone)) == 1, f"a node in {zone}")
        return self.nodes_of(zone)[0]

    def claim_of(self, node: str) -> dict[str, Any]:
        """Return the NodeClaim of a node once it names the node."""

        def claims() -> list[dict[str, Any]]:
            found = self.sandbox.api.get(NODE_CLAIMS)["items"]
            return [each for each in found if each.get("status", {}).get("nodeName") == node]

        self.wait_until(lambda: len(claims()) == 1, f"the NodeClaim of {node}")
        return claims()[0]

    # Pods

    def pods(self, namespace: str, app: str) -> list[dict[str, Any]]:
        """Return the pods of an app that are not terminating."""
        return [pod for pod in pods(self.sandbox, namespace, app) if "deletionTimestamp" not in pod["metadata"]]

    def zones(self, namespace: str, app: str) -> Counter[str]:
        """Return the number of an app's pods in each zone with nodes. Pods without a node are not counted."""
        zones = {name: str(node["metadata"]["labels"][ZONE]) for name, node in self.nodes().items()}
        counts = Counter(dict.fromkeys(zones.values(), 0))
        counts.update(
            zones[name] for pod in self.pods(namespace, app) if (name := pod["spec"].get("nodeName")) in zones
        )
        return counts

    # The operator

    def enforce(self, namespace: str, **spec: Any) -> None:
        """Create a policy that evicts in a namespace."""
        hurried = {"mode": "Enforce", "quietPeriod": "1s", "victims": {"minAge": "0s"}, **spec}
        policy = {"apiVersion": "respread.dev/v1alpha1", "kind": "RebalancePolicy", "spec": hurried}
        self.sandbox.apply(json.dumps({**policy, "metadata": {"name": "all", "namespace": namespace}}))

    def status(self, namespace: str) -> dict[str, Any]:
        """Return the status of the namespace's policy."""
        path = f"/apis/respread.dev/v1alpha1/namespaces/{namespace}/rebalancepolicies/all"
        status: dict[str, Any] = self.sandbox.api.get(path).get("status", {})
        return status

    def condition(self, namespace: str, name: str) -> str:
        """Return the status of a condition of the namespace's policy; empty before there is one."""
        conditions = self.status(namespace).get("conditions", ())
        return next((str(each["status"]) for each in conditions if each["type"] == name), "")

    def messages(self, namespace: str) -> str:
        """Return the violations of the namespace's policy."""
        return "; ".join(each["message"] for each in self.status(namespace).get("violations", ()))

    def evicted(self, namespace: str) -> list[str]:
        """Return the pods that the API server evicted for the operator, in order."""
        references = (entry["objectRef"] for entry in evictions(self.sandbox))
        return [reference["name"] for reference in references if reference["namespace"] == namespace]

    def replacements(self) -> set[str]:
        """Return the replacements of the pods that the operator evicted, according to its log."""
        ended = (line["how"] for line in self.operator.lines() if line["event"].startswith("Move ended"))
        return {found[1] for how in ended if (found := _REPLACEMENT.match(how))}

    def kinds_of_requests(self) -> list[str]:
        """Return the kinds of the objects with which the operator requested nodes, from its log."""
        return [str(line["kind"]) for line in self.operator.lines() if line["event"] == "Room is asked for"]

    def wait_until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait until a condition is true, with a limit that fits Karpenter."""
        wait_until(condition, lambda: f"{what}; {self._karpenter_says()}", seconds=PATIENCE_SECONDS)

    def _karpenter_says(self) -> str:
        return self.sandbox.log(KARPENTER).read_text(encoding="utf-8")[-3000:]


@contextmanager
def karpenter_cluster(binaries: Binaries, folder: Path, *flags: str) -> Iterator[KarpenterCluster]:
    """Run a control plane with Karpenter and the operator, without nodes. The operator must exit successfully.

    Args:
        binaries: the programs of the control plane.
        folder: for the operator's log.
        flags: options of Karpenter.
    """
    options = SandboxOptions(nodes=0, audit=True, karpenter=True, karpenter_flags=flags)
    with Sandbox.start(options, binaries=binaries) as sandbox:
        sandbox.api.request("PATCH", NODE_POOL, {"spec": {"limits": {"cpu": "0"}}})  # no node for the operator
        install(sandbox)
        scale(sandbox, "respread-system", "respread", 0)
        wait_until(lambda: not pods(sandbox, "respread-system"), "the installed operator's pods to be gone")
        with OperatorProcess(sandbox, folder) as operator:
            operator.wait_until_ready()
            yield KarpenterCluster(sandbox, operator)
            assert operator.stop() == 0
