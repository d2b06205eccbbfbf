"""The host ports in use on each node."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final

from respread.cluster.pod import HostPort

EVERY_ADDRESS: Final = "0.0.0.0"  # noqa: S104 - the API's own word for "every address of the node"


class UsedPorts:
    """The host ports that pods use on their nodes."""

    __slots__ = ("_in_use",)

    def __init__(self) -> None:
        self._in_use: dict[tuple[str, int], dict[int, Counter[str]]] = {}
        """Protocol and port, then slot, then address, with the number of pods."""

    def take(self, slot: int, ports: Iterable[HostPort]) -> None:
        """Add a pod's ports."""
        for port in ports:
            at = self._in_use.setdefault((port.protocol, port.port), {})
            at.setdefault(slot, Counter())[port.host_ip] += 1

    def give_back(self, slot: int, ports: Iterable[HostPort]) -> None:
        """Remove a pod's ports."""
        for port in ports:
            at = self._in_use[port.protocol, port.port]
            addresses = at[slot]
            addresses[port.host_ip] -= 1
            if not addresses[port.host_ip]:
                del addresses[port.host_ip]
                if not addresses:
                    del at[slot]

    def conflicts(self, port: HostPort) -> Iterator[int]:
        """Yield the slots of the nodes where a port is already in use.

        `0.0.0.0` conflicts with every address. `::` is an address like any other.
        """
        for slot, addresses in self._in_use.get((port.protocol, port.port), {}).items():
            if port.host_ip == EVERY_ADDRESS or EVERY_ADDRESS in addresses or port.host_ip in addresses:
                yield slot
