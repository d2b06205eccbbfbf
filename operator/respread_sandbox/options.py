"""The options of a sandbox."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import msgspec

from respread.program.command_line import CommandError

LOOPBACK: Final = "127.0.0.1"
ALPHABET: Final = "abcdefghijklmnopqrstuvwxyz"


class SandboxError(CommandError):
    """A sandbox cannot be built, started or used; the message says what to do."""


class NodeShape(msgspec.Struct, frozen=True, kw_only=True):
    """The capacity of a simulated node, as Kubernetes quantities."""

    cpu: str = "8"
    memory: str = "32Gi"
    pods: int = 110
    labels: dict[str, str] = {}
    """Labels in addition to the well-known ones: hostname, zone, region, operating system and architecture."""
    taints: tuple[dict[str, str], ...] = ()
    """Taints as in `spec.taints`, with key, value and effect."""


class SandboxOptions(msgspec.Struct, frozen=True, kw_only=True):
    """The nodes of a sandbox and its components; by default it has all components."""

    nodes: int = 12
    """The number of nodes. They are spread evenly over the zones; the first zones get the rest."""
    zones: int = 3
    """The number of zones; they are named zone-a, zone-b, and so on."""
    nodes_per_zone: tuple[int, ...] = ()
    """The nodes of each zone, instead of `nodes` and `zones`: (5, 1) means five nodes in zone-a and one in zone-b."""
    shape: NodeShape = NodeShape()

    kubernetes_version: str = ""
    """Such as 1.34: of kube-apiserver, kube-scheduler and kube-controller-manager. Empty: what the environment variable
    RESPREAD_SANDBOX_KUBERNETES_VERSION says, or else the newest."""
    scheduler: bool = True
    controller_manager: bool = True
    """Without it there are no default ServiceAccounts, so the ServiceAccount admission plugin is off as well, and nodes
    keep their initial taints."""
    kwok: bool = True
    """Without it pods never start and, after 50 s, the controller manager finds the nodes unreachable."""
    karpenter: bool = False
    """Karpenter 1.15 with its KWOK provider, which adds simulated nodes in these zones for pods that need them, and
    takes them away again, as its NodePool `default` says. It leaves the nodes alone that the sandbox starts with."""

    pod_ready_seconds: float = 0
    """The earliest time at which a pod becomes Ready after it was scheduled; up to 1 s later, because pods record whole
    seconds. A pod's annotation `sandbox.respread.dev/ready-after-seconds` has precedence; with "never" it runs without
    becoming Ready."""
    pod_termination_seconds: float = 0
    """How long a deleted pod terminates, within its grace period. `sandbox.respread.dev/terminate-after-seconds` has
    precedence."""
    node_monitor_grace_seconds: int = 50
    """How long a node without heartbeats stays Ready (kube-controller-manager --node-monitor-grace-period)."""

    address: str = LOOPBACK
    """The address at which kube-apiserver listens. At another, pods on real nodes reach it by its Service."""
    certificates: Path | None = None
    """A folder with apiserver.crt, followed by its authority, and apiserver.key. By default, kube-apiserver creates a
    certificate of its own."""
    scheduler_configuration: str = ""
    """A KubeSchedulerConfiguration as YAML. The sandbox sets clientConnection and leaderElection."""
    audit: bool = False
    """Whether the API server writes the user, verb and resource of every request to `Sandbox.files.audit_log`."""
    apiserver_flags: tuple[str, ...] = ()
    scheduler_flags: tuple[str, ...] = ()
    controller_manager_flags: tuple[str, ...] = ()
    karpenter_flags: tuple[str, ...] = ()

    def zone_sizes(self) -> dict[str, int]:
        """Return the number of nodes of each zone.

        Raises:
            SandboxError: The numbers make no sense.
        """
        if self.zones < 1 and not self.nodes_per_zone:
            raise SandboxError(f"a cluster needs at least one zone, not {self.zones}")
        each, left_over = divmod(self.nodes, max(1, self.zones))
        sizes = self.nodes_per_zone or tuple(each + (index < left_over) for index in range(self.zones))
        if min(sizes) < 0:
            raise SandboxError(f"there cannot be {min(sizes)} nodes in a zone")
        return {f"zone-{letters(index)}": size for index, size in enumerate(sizes)}


def letters(index: int) -> str:
    """Return the letters for a number, as a spreadsheet names its columns: 0 is a, 25 is z, 26 is aa."""
    name = ""
    index += 1
    while index:
        index, letter = divmod(index - 1, len(ALPHABET))
        name = ALPHABET[letter] + name
    return name
