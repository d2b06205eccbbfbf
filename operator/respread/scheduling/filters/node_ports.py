"""NodePorts: two pods on a node can't use the same port of the same address."""

from __future__ import annotations

from typing import ClassVar

from respread.cluster.pod import HostPort
from respread.scheduling.verdict import Plugin, Rejection
from respread.scheduling.view.free_resources import UsedPorts
from respread.scheduling.view.node_table import NodeSet, node_set


class NodePorts:
    """The filter, for a pod with host ports."""

    __slots__ = ("_ports", "_used")
    plugin: ClassVar[Plugin] = "NodePorts"

    def __init__(self, used: UsedPorts, ports: tuple[HostPort, ...]) -> None:
        self._used = used
        self._ports = ports

    def admit(self, nodes: NodeSet) -> NodeSet:
        """Return the nodes among these where all the ports are free."""
        for port in self._ports:
            nodes &= ~node_set(self._used.conflicts(port))
        return nodes

    def reject(self, slot: int) -> Rejection | None:
        """Return which ports are in use."""
        taken = [port for port in self._ports if slot in self._used.conflicts(port)]
        if not taken:
            return None
        named = ", ".join(f"{each.host_ip}:{each.port}/{each.protocol}" for each in taken)
        return Rejection(self.plugin, f"other pods of the node use {named}")


def prepare(used: UsedPorts, ports: tuple[HostPort, ...]) -> NodePorts | None:
    """Return the filter for a pod with these ports, or None if it takes none."""
    return NodePorts(used, ports) if ports else None
