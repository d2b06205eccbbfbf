"""Respread needs no connections besides those that its NetworkPolicy allows.

The real nodes have no network plugin that enforces NetworkPolicies, so these tests write the rules into nftables.
"""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

import pytest

from tests.faults.operators import NAMESPACE
from tests.node.installation import Installation
from tests.node.rebalance import FEWEST_EVICTIONS, POLICY, Rebalance
from tests.processes import wait_until

NETWORK_POLICY: Final = f"/apis/networking.k8s.io/v1/namespaces/{NAMESPACE}/networkpolicies/respread"
KUBELET_PORT: Final = 10250
_CONNECT: Final = "import socket, sys; socket.create_connection((sys.argv[1], int(sys.argv[2])), 10).close()"


def accepted(rules: Sequence[dict[str, Any]], named: dict[str, int]) -> str:
    """Return nftables rules that accept what rules of a NetworkPolicy without peers accept."""
    assert not any({"to", "from"} & rule.keys() for rule in rules)
    ports = [port for rule in rules for port in rule["ports"]]
    return "; ".join(
        f"{port['protocol'].lower()} dport {named.get(port['port'], port['port'])} accept" for port in ports
    )


def ruleset(policy: dict[str, Any], named: dict[str, int], pods: str) -> str:
    """Return the rules of a NetworkPolicy for all pods of a node. A node may always connect to its own pods."""
    spec = policy["spec"]
    return f"""table inet network_policy {{
  chain from_pods {{ {accepted(spec["egress"], named)}; reject; }}
  chain to_pods {{ {accepted(spec["ingress"], named)}; reject; }}
  chain forward {{
    type filter hook forward priority 0; ct state established,related accept;
    ip saddr {pods} jump from_pods; ip daddr {pods} jump to_pods;
  }}
  chain input {{
    type filter hook input priority 0; ct state established,related accept; ip saddr {pods} jump from_pods;
  }}
}}
"""


def connects(installation: Installation, pod: dict[str, Any], address: str, port: int) -> bool:
    """Return whether a process in a pod's network can connect."""
    (process,) = installation.node_of(pod).process_ids(pod)
    command = ["nsenter", f"--target={process}", "--net", "python3", "-c", _CONNECT, address, str(port)]
    return subprocess.run(command, check=False, capture_output=True).returncode == 0


@pytest.fixture
def restricted(installation: Installation) -> Iterator[Installation]:
    """Respread behind the rules of its NetworkPolicy, and started behind them."""
    sandbox = installation.cluster.sandbox
    port = urlsplit(sandbox.server).port
    installation.install("networkPolicy.enabled=true", f"networkPolicy.apiServerPorts={{{port}}}")
    first = installation.leader()
    assert connects(installation, first, first["status"]["hostIP"], KUBELET_PORT)
    (container,) = first["spec"]["containers"]
    named = {each["name"]: each["containerPort"] for each in container["ports"]}
    policy = sandbox.api.get(NETWORK_POLICY)
    nodes = installation.cluster.nodes.values()
    for node in nodes:
        node.nft(ruleset(policy, named, node.place.pods))
    sandbox.kubectl("rollout", "restart", "deployment/respread", "-n", NAMESPACE)
    sandbox.kubectl("rollout", "status", "deployment/respread", "-n", NAMESPACE, "--timeout=240s")
    installation.spread()
    yield installation
    for node in nodes:
        node.nft("delete table inet network_policy")


def test_replicas_rebalance_hand_over_and_are_scraped_behind_the_network_policy(
    restricted: Installation, namespace: str
) -> None:
    sandbox = restricted.cluster.sandbox
    for pod in restricted.pods():
        assert not connects(restricted, pod, pod["status"]["hostIP"], KUBELET_PORT)
    rebalance = Rebalance(sandbox, namespace)
    rebalance.begin()
    leader = restricted.lease()["holderIdentity"]
    restricted.delete(restricted.leader())
    wait_until(lambda: restricted.lease().get("holderIdentity") not in {leader, "", None}, "another leader")
    rebalance.wait_until_over()
    sandbox.kubectl("delete", "clusterrebalancepolicy", POLICY)
    assert rebalance.evicted() == FEWEST_EVICTIONS
    restricted.wait_until_ready()
    assert set(restricted.restarts().values()) == {0}
    service = sandbox.api.get(f"/api/v1/namespaces/{NAMESPACE}/services/respread")
    for node in restricted.cluster.nodes.values():
        assert "respread_leader" in node.get(f"http://{service['spec']['clusterIP']}:8080/metrics")
