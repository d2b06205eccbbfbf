"""A control plane with real nodes and simulated ones."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any, Final

from respread_sandbox import Sandbox, SandboxOptions
from respread_sandbox.options import NodeShape, letters
from tests.node.certificates import Certificates
from tests.node.programs import Programs
from tests.node.real_node import KUBELET, Place, RealNode
from tests.processes import wait_until

MONITOR_GRACE_SECONDS: Final = 20
SIMULATED: Final = {"key": "simulated", "value": "true", "effect": "NoSchedule"}
"""The taint of simulated nodes, so that Respread's own pods run on real ones."""
_KUBERNETES_SERVICE: Final = "10.0.0.1"


class RealCluster:
    """The control plane, and its real nodes by name."""

    def __init__(self, sandbox: Sandbox, nodes: Sequence[RealNode]) -> None:
        self.sandbox = sandbox
        self.nodes = {node.place.name: node for node in nodes}

    def node_of(self, pod: dict[str, Any]) -> RealNode:
        """Return the real node that a pod runs on."""
        return self.nodes[pod["spec"]["nodeName"]]

    def wait_until_ready(self, node: RealNode) -> None:
        """Wait until a node has the condition Ready."""
        wait_until(lambda: self.is_ready(node), lambda: f"{node.place.name} to be Ready:\n{node.log(KUBELET)}")

    def cordon(self, name: str) -> None:
        """Cordon a node, and wait until controllers have seen it: they may see an eviction sooner."""
        self.sandbox.kubectl("cordon", name)

        def tainted() -> bool:
            taints = self.sandbox.api.get(f"/api/v1/nodes/{name}")["spec"].get("taints", ())
            return any(taint["key"] == "node.kubernetes.io/unschedulable" for taint in taints)

        wait_until(tainted, f"the taint of {name}")

    def is_ready(self, node: RealNode) -> bool:
        """Return whether a node has the condition Ready."""
        return any(
            (condition["type"], condition["status"]) == ("Ready", "True")
            for each in self.sandbox.api.get("/api/v1/nodes")["items"]
            if each["metadata"]["name"] == node.place.name
            for condition in each["status"].get("conditions", ())
        )


@contextmanager
def real_cluster(
    folder: Path,
    programs: Programs,
    cgroup: str,
    *,
    nodes: int = 2,
    simulated: tuple[int, ...] = (1, 1, 3),
    key_identifiers: bool = True,
    number: int = 0,
) -> Iterator[RealCluster]:
    """Run a cluster until the context ends. Its nodes are Ready.

    Args:
        folder: an empty one.
        programs: what the nodes run.
        cgroup: for the cgroups of the nodes.
        nodes: the number of real nodes, each in a zone of its own.
        simulated: the number of simulated nodes in each zone.
        key_identifiers: as of Certificates.
        number: of the cluster in this network namespace.
    """
    gateway, bridge = f"172.30.{number}.1", f"nodes-{number}"
    pairs = folder / "certificates"
    pairs.mkdir()
    certificates = Certificates(pairs, key_identifiers=key_identifiers)
    certificates.for_server("apiserver", [gateway, _KUBERNETES_SERVICE])
    certificates.for_client("kubelet-client", "kube-apiserver-kubelet-client", "system:masters")
    options = SandboxOptions(
        nodes_per_zone=simulated,
        shape=NodeShape(taints=(SIMULATED,)),
        address=gateway,
        certificates=pairs,
        audit=True,
        node_monitor_grace_seconds=MONITOR_GRACE_SECONDS,
        apiserver_flags=(
            "--authorization-mode=Node",
            "--enable-admission-plugins=NodeRestriction",
            f"--client-ca-file={certificates.authority}",
            f"--kubelet-client-certificate={pairs}/kubelet-client.crt",
            f"--kubelet-client-key={pairs}/kubelet-client.key",
            "--kubelet-preferred-address-types=InternalIP",
        ),
        controller_manager_flags=(f"--root-ca-file={certificates.authority}",),
    )
    with ExitStack() as stack:
        stack.enter_context(_bridge(bridge, gateway))
        sandbox = stack.enter_context(Sandbox.start(options))

        def start(index: int) -> RealNode:
            letter = letters(index)
            place = Place(
                name=f"real-{letter}1",
                zone=f"zone-{letter}",
                address=f"172.30.{number}.{11 + index}",
                pods=f"10.244.{10 * number + index}.0/24",
                bridge=bridge,
                gateway=gateway,
            )
            own = f"{cgroup}/{number}/{place.name}"
            node = RealNode(place, folder / place.name, programs, certificates, sandbox.server, own)
            return stack.enter_context(closing(node))

        with ThreadPoolExecutor(nodes) as pool:
            real = list(pool.map(start, range(nodes)))
        cluster = RealCluster(sandbox, real)
        for node in real:
            cluster.wait_until_ready(node)
        yield cluster


@contextmanager
def _bridge(name: str, address: str) -> Iterator[None]:
    for arguments in (
        ("link", "add", name, "type", "bridge"),
        ("address", "add", f"{address}/24", "dev", name),
        ("link", "set", name, "up"),
    ):
        subprocess.run(["ip", *arguments], check=True)
    yield
    subprocess.run(["ip", "link", "delete", name], check=True)
