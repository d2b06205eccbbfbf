"""Pods and budgets in any state, in a cluster with only an API server."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TypeVar

from respread.cluster.pod import Pod, PodSpec
from respread.kube.access import load_access
from respread.kube.requests import Requests, open_requests
from respread_sandbox import ApiError, Sandbox, SandboxError

SPEC = PodSpec()

_T = TypeVar("_T")


def requests_to(kubeconfig: Path) -> AbstractAsyncContextManager[Requests]:
    """Open requests to the API server of a kubeconfig."""
    return open_requests(load_access(kubeconfig=str(kubeconfig)))


def with_requests(kubeconfig: Path, act: Callable[[Requests], Awaitable[_T]]) -> _T:
    """Run a function with requests to the API server of a kubeconfig, in a new event loop."""

    async def run() -> _T:
        async with requests_to(kubeconfig) as requests:
            return await act(requests)

    return asyncio.run(run())


class EvictionCluster:
    """A namespace of a cluster with only an API server, and its pods and budgets."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.sandbox = sandbox
        self.namespace = sandbox.create_namespace(f"eviction-{secrets.token_hex(4)}")

    def add_pod(
        self,
        name: str,
        *,
        phase: str = "Running",
        ready: bool = True,
        labels: Mapping[str, str] | None = None,
        finalizer: bool = False,
        grace_period_seconds: int = 0,
    ) -> Pod:
        """Create a pod on a node that does not exist, so that only the API server changes it."""
        manifest = {
            "metadata": {
                "name": name,
                "labels": dict(labels or {"app": "web"}),
                "finalizers": ["respread.dev/test"] if finalizer else [],
            },
            "spec": {
                "nodeName": "nowhere",
                "terminationGracePeriodSeconds": grace_period_seconds,
                "containers": [{"name": "main", "image": "simulated"}],
            },
        }
        self.request("POST", "/api/v1/{}/pods", manifest)
        conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
        status = {"status": {"phase": phase, "conditions": conditions}}
        self.request("PATCH", f"/api/v1/{{}}/pods/{name}/status", status)
        return self.pod(name)

    def pod(self, name: str) -> Pod:
        """Return a pod as the operator decodes it."""
        found = self.request("GET", f"/api/v1/{{}}/pods/{name}")
        metadata, status = found["metadata"], found["status"]
        return Pod(
            namespace=self.namespace,
            name=name,
            uid=metadata["uid"],
            spec=SPEC,
            node_name=found["spec"].get("nodeName", ""),
            phase=status["phase"],
            ready=any(each["type"] == "Ready" and each["status"] == "True" for each in status.get("conditions", ())),
        )

    def exists(self, name: str) -> bool:
        """Return whether a pod of that name exists and is not terminating."""
        try:
            return "deletionTimestamp" not in self.request("GET", f"/api/v1/{{}}/pods/{name}")["metadata"]
        except ApiError as error:
            if error.status == 404:
                return False
            raise

    def add_budget(self, name: str = "web", *, spec: Mapping[str, Any] | None = None, **status: Any) -> None:
        """Create a budget for the pods with label app=web, with a status as the disruption controller writes it."""
        selector = {"selector": {"matchLabels": {"app": "web"}}}
        manifest = {"metadata": {"name": name}, "spec": {**selector, "minAvailable": 2, **(spec or {})}}
        self.request("POST", "/apis/policy/v1/{}/poddisruptionbudgets", manifest)
        written = {
            "observedGeneration": 1,
            "disruptionsAllowed": 1,
            "currentHealthy": 3,
            "desiredHealthy": 2,
            "expectedPods": 3,
            **status,
        }
        self.request("PATCH", f"/apis/policy/v1/{{}}/poddisruptionbudgets/{name}/status", {"status": written})

    def budget_status(self, name: str = "web") -> dict[str, Any]:
        """Return a budget's status."""
        status: dict[str, Any] = self.request("GET", f"/apis/policy/v1/{{}}/poddisruptionbudgets/{name}")["status"]
        return status

    def may(self, kubeconfig: Path, verb: str, resource: str) -> bool:
        """Return whether the user of a kubeconfig currently has a permission in the namespace."""
        try:
            self.sandbox.kubectl("auth", "can-i", verb, resource, "-n", self.namespace, kubeconfig=kubeconfig)
        except SandboxError:
            return False
        return True

    def request(self, method: str, path: str, body: Any = None) -> Any:
        """Send a request; `{}` in the path stands for the namespace."""
        return self.sandbox.api.request(method, path.format(f"namespaces/{self.namespace}"), body)
