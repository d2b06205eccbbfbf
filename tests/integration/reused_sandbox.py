"""A control plane that several tests use one after another, reset to its initial state before each."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any, Final

import msgspec

from respread_sandbox import Binaries, Sandbox, SandboxOptions
from respread_sandbox.api import NotFoundError
from tests.integration.operator_process import install
from tests.integration.workloads import scale, wait_until

NAMESPACES: Final = "/api/v1/namespaces"
POLICIES: Final = "/apis/respread.dev/v1alpha1/clusterrebalancepolicies"
OF_THE_CLUSTER: Final = (
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings",
    "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies",
    "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
    "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/respread-system/rolebindings",
    "/apis/rbac.authorization.k8s.io/v1/namespaces/respread-system/roles",
)
"""The kinds of objects that tests create outside their own namespaces, besides nodes and policies."""
OWNERS: Final = (
    "/apis/apps/v1/namespaces/{}/deployments",
    "/apis/apps/v1/namespaces/{}/statefulsets",
    "/apis/apps/v1/namespaces/{}/replicasets",
    "/api/v1/namespaces/{}/replicationcontrollers",
)
WRITTEN: Final = (
    "/apis/coordination.k8s.io/v1/namespaces/respread-system/leases",
    "/apis/events.k8s.io/v1/namespaces/respread-system/events",
    "/apis/events.k8s.io/v1/namespaces/default/events",
    "/api/v1/namespaces/respread-system/podtemplates",
)
"""Objects that operators leave outside the tests' namespaces."""


def lay_out(sandbox: Sandbox, *nodes_per_zone: int) -> Sandbox:
    """Add zone-a, zone-b, and so on with these numbers of nodes, wait until they are ready, and return the sandbox."""
    sizes = SandboxOptions(nodes_per_zone=nodes_per_zone).zone_sizes()
    added = [name for zone, size in sizes.items() for name in sandbox.nodes.add(size, zone)]
    wait_until(lambda: sandbox.nodes.ready().issuperset(added), "the nodes to be Ready")
    return sandbox


def is_emptied(sandbox: Sandbox, namespace: str) -> bool:
    """Delete the objects in a namespace, and return whether nothing is left that would delay its deletion.

    Call it again until it returns True, because a controller may still create an object.
    """
    for path in OWNERS:
        sandbox.api.request("DELETE", f"{path.format(namespace)}?propagationPolicy=Background")
    pods = f"{NAMESPACES}/{namespace}/pods"
    sandbox.api.request("DELETE", f"{pods}?gracePeriodSeconds=0")
    return not sandbox.api.get(pods)["items"]


@contextlib.contextmanager
def start_reused_sandbox(options: SandboxOptions, binaries: Binaries) -> Iterator[ReusedSandbox]:
    """Start a control plane without nodes, and install Respread without running its pods.

    Nodes are removed and added again with the same names. That makes KWOK 0.8 forget Leases at times: an entry that
    stands twice in its queue holds up those behind it. No node becomes NotReady by that alone.
    """
    patient = msgspec.structs.replace(options, node_monitor_grace_seconds=24 * 3600)
    with Sandbox.start(patient, binaries=binaries) as running:
        install(running)
        scale(running, "respread-system", "respread", 0)  # its pods would use room on the first nodes
        yield ReusedSandbox(running)


class ReusedSandbox:
    """A sandbox, and its initial objects: no node, and policies without a status."""

    def __init__(self, sandbox: Sandbox) -> None:
        """Remember the initial objects."""
        self.sandbox = sandbox
        self._names = {path: self._names_in(path) for path in (NAMESPACES, *OF_THE_CLUSTER)}
        self._policies = sandbox.api.get(POLICIES)["items"]

    def reset(self) -> Sandbox:
        """Delete everything that was added, including nodes, empty the audit log, and return the sandbox."""
        api = self.sandbox.api
        for name in self._since(NAMESPACES):
            wait_until(lambda name=name: is_emptied(self.sandbox, name), f"namespace {name} to be empty")  # type: ignore[misc]  # no types for defaults
            with contextlib.suppress(NotFoundError):  # it may be deleted already
                api.request("DELETE", f"{NAMESPACES}/{name}")
        self.sandbox.nodes.remove(*self.sandbox.nodes.names())
        for path in OF_THE_CLUSTER:
            for name in self._since(path):
                api.request("DELETE", f"{path}/{name}")
        for path in (POLICIES, *WRITTEN):
            api.request("DELETE", path)
        for each in self._policies:
            metadata = {"name": each["metadata"]["name"], "labels": each["metadata"].get("labels", {})}
            api.request("POST", POLICIES, {**each, "metadata": metadata, "status": {}})
        wait_until(lambda: not self._since(NAMESPACES), "namespaces to be gone")
        with contextlib.suppress(FileNotFoundError):
            os.truncate(self.sandbox.files.audit_log, 0)
        return self.sandbox

    def _since(self, path: str) -> set[str]:
        return self._names_in(path) - self._names[path]

    def _names_in(self, path: str) -> set[str]:
        items: list[dict[str, Any]] = self.sandbox.api.get(path)["items"]
        return {each["metadata"]["name"] for each in items}
