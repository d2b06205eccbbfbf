"""Respread's installation on real nodes."""

from __future__ import annotations

from datetime import datetime
from http import HTTPStatus
from itertools import pairwise
from typing import Any, Final

from tests.faults.operators import LEASE, NAMESPACE, holder
from tests.integration.helm import CHART, Helm
from tests.integration.operator_process import requests
from tests.integration.workloads import is_ready, pods
from tests.node.cluster import RealCluster
from tests.node.real_node import RealNode
from tests.processes import wait_until

RELEASE: Final = "respread"
_RESTRICTED: Final = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in ("enforce", "warn")}
_PAGE: Final = "respread-ui-"
_DEPLOYMENT: Final = f"/apis/apps/v1/namespaces/{NAMESPACE}/deployments/respread"


class Installation:
    """The release in a cluster, and its pods."""

    def __init__(self, cluster: RealCluster, helm: Helm) -> None:
        self.cluster = cluster
        self._helm = helm
        self._values: tuple[str, ...] | None = None

    def install(self, *values: str) -> None:
        """Install the chart with these values and no others, or upgrade to them. Wait until all replicas are Ready.

        The namespace accepts only pods that need no privilege.
        """
        if self._values != values:
            self._create_namespace()
            options = ["--reset-values", *(part for value in values for part in ("--set", value))]
            command = ["upgrade", "--install", RELEASE, str(CHART), "-n", NAMESPACE, "--wait", "--timeout=200s"]
            try:
                self._helm(*command, *options)
            except AssertionError as error:
                raise AssertionError(f"{error}\n{self.describe()}") from error
            self._values = values
        self.wait_until_ready()

    def uninstall(self) -> None:
        """Uninstall the release if there is one, and wait until its pods are gone."""
        if self._values is None:
            return
        self._values = None
        self._helm("uninstall", RELEASE, "-n", NAMESPACE, "--wait", "--timeout=200s")
        wait_until(lambda: not self.pods(), "the pods of Respread to be gone")

    def wait_until_ready(self) -> None:
        """Wait until there are as many pods as replicas, all Ready, and one of them leads."""

        def ready() -> bool:
            found = self.pods()
            replicas = self.cluster.sandbox.api.get(_DEPLOYMENT)["spec"]["replicas"]
            leader = holder(self.cluster.sandbox).rpartition("_")[0]
            names = {pod["metadata"]["name"] for pod in found}
            return len(found) == replicas and all(map(is_ready, found)) and leader in names

        wait_until(ready, lambda: f"Respread to be Ready:\n{self.describe()}")

    def spread(self) -> None:
        """Wait until the replicas are Ready on two nodes, and move one if they are on the same."""
        self.wait_until_ready()
        if len({pod["spec"]["nodeName"] for pod in self.pods()}) == 1:
            follower = next(pod for pod in self.pods() if pod["metadata"]["name"] != self.leader()["metadata"]["name"])
            self.delete(follower)
            self.wait_until_ready()

    def pods(self) -> list[dict[str, Any]]:
        """Return the pods of the operator, also terminating ones."""
        return [pod for pod in self._pods("respread-") if not pod["metadata"]["name"].startswith(_PAGE)]

    def page_pods(self) -> list[dict[str, Any]]:
        """Return the pods of the page, also terminating ones."""
        return self._pods(_PAGE)

    def _pods(self, prefix: str) -> list[dict[str, Any]]:
        return [pod for pod in pods(self.cluster.sandbox, NAMESPACE) if pod["metadata"]["name"].startswith(prefix)]

    def pod(self, name: str) -> dict[str, Any]:
        """Return one of its pods."""
        return next(pod for pod in self.pods() if pod["metadata"]["name"] == name)

    def delete(self, pod: dict[str, Any]) -> None:
        """Delete a pod gracefully."""
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{pod['metadata']['name']}"
        self.cluster.sandbox.api.request("DELETE", path)

    def handovers_seconds(self, since: float) -> list[float]:
        """Return for each change of the leader since a Unix time how long nobody led who had written the Lease."""
        writes = sorted(
            (moment(entry["stageTimestamp"]), entry["user"]["extra"]["authentication.kubernetes.io/pod-name"])
            for entry in requests(self.cluster.sandbox, '"leases"', '"name":"respread"')
            if entry["verb"] in {"update", "patch"} and entry["responseStatus"]["code"] == HTTPStatus.OK
            if moment(entry["stageTimestamp"]) > since
        )
        return [later - earlier for (earlier, one), (later, other) in pairwise(writes) if one != other]

    def leader(self) -> dict[str, Any]:
        """Return the pod that holds the Lease."""
        return self.pod(holder(self.cluster.sandbox).rpartition("_")[0])

    def node_of(self, pod: dict[str, Any]) -> RealNode:
        """Return the node that a pod runs on."""
        return self.cluster.nodes[pod["spec"]["nodeName"]]

    def lease(self) -> dict[str, Any]:
        """Return the spec of the Lease."""
        spec: dict[str, Any] = self.cluster.sandbox.api.get(LEASE)["spec"]
        return spec

    def restarts(self) -> dict[str, int]:
        """Return how many restarts the container of each pod has had."""
        return {
            pod["metadata"]["name"]: sum(each["restartCount"] for each in pod["status"].get("containerStatuses", ()))
            for pod in self.pods()
        }

    def warnings(self) -> list[str]:
        """Return the Warning Events of its namespace."""
        events = self.cluster.sandbox.api.get(f"/api/v1/namespaces/{NAMESPACE}/events")["items"]
        return [
            f"{each['involvedObject']['kind']} {each['involvedObject']['name']}: {each['reason']} {each['message']}"
            for each in events
            if each["type"] == "Warning"
        ]

    def describe(self) -> str:
        """Return what a user would look at if it did not work."""
        return self.cluster.sandbox.kubectl("describe", "pods", "-n", NAMESPACE)[-6000:]

    def _create_namespace(self) -> None:
        if not self.cluster.sandbox.api.exists(f"/api/v1/namespaces/{NAMESPACE}"):
            namespace = {"metadata": {"name": NAMESPACE, "labels": _RESTRICTED}}
            self.cluster.sandbox.api.request("POST", "/api/v1/namespaces", namespace)


def moment(text: str) -> float:
    """Return the Unix time of a time in the API."""
    return datetime.fromisoformat(text).timestamp()
