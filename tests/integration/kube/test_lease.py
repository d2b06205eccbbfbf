"""The Lease on a real API server, with only the necessary permissions. tests/unit tests its timing."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from respread.cluster.meta import ObjectKey
from respread.kube.leadership import Elector, LeaseTimes
from respread.kube.requests import Requests
from respread_sandbox import Sandbox
from respread_sandbox.api import NotFoundError
from tests.integration.eviction_cluster import EvictionCluster, requests_to
from tests.processes import wait_until

TIMES = LeaseTimes(9)
"""Times with frequent renewals that do not lose the Lease on a busy machine."""


class Candidates:
    """A namespace with a ServiceAccount that may hold Leases there."""

    def __init__(self, sandbox: Sandbox) -> None:
        self.cluster = EvictionCluster(sandbox)
        self.lease = ObjectKey(self.cluster.namespace, "respread")
        self.path = "/apis/coordination.k8s.io/v1/{}/leases/respread"
        sandbox.api.request(
            "POST", f"/api/v1/namespaces/{self.cluster.namespace}/serviceaccounts", {"metadata": {"name": "respread"}}
        )
        rbac = "/apis/rbac.authorization.k8s.io/v1/{}"
        rules = [{"apiGroups": ["coordination.k8s.io"], "resources": ["leases"], "verbs": ["get", "create", "update"]}]
        self.cluster.request("POST", f"{rbac}/roles", {"metadata": {"name": "respread"}, "rules": rules})
        self.cluster.request(
            "POST",
            f"{rbac}/rolebindings",
            {
                "metadata": {"name": "respread"},
                "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "respread"},
                "subjects": [{"kind": "ServiceAccount", "name": "respread", "namespace": self.cluster.namespace}],
            },
        )
        self.kubeconfig: Path = sandbox.kubeconfig_for_service_account(self.cluster.namespace, "respread")
        wait_until(lambda: self.cluster.may(self.kubeconfig, "update", "leases"), "the role to take effect")

    def spec(self) -> dict[str, Any]:
        """Return the spec of the Lease; empty if there is none."""
        try:
            spec: dict[str, Any] = self.cluster.request("GET", self.path)["spec"]
        except NotFoundError:
            return {}
        return spec

    def elector(self, requests: Requests, identity: str) -> Elector:
        return Elector(requests, self.lease, f"{identity}-{secrets.token_hex(2)}", times=TIMES)


@pytest.fixture
def candidates(api_sandbox: Sandbox) -> Candidates:
    return Candidates(api_sandbox)


async def until(condition: Callable[[], bool], *, seconds: float) -> None:
    deadline = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < deadline
        await asyncio.sleep(0.05)


async def test_one_replica_leads_renews_and_hands_over(candidates: Candidates) -> None:
    async with requests_to(candidates.kubeconfig) as requests:
        one, two = candidates.elector(requests, "one"), candidates.elector(requests, "two")
        first = asyncio.create_task(one.run())
        await until(one.holds, seconds=60)
        second = asyncio.create_task(two.run())
        lease = candidates.cluster.request("GET", candidates.path)
        assert lease["spec"]["holderIdentity"] == one.identity
        assert lease["spec"]["leaseDurationSeconds"] == 9
        assert lease["spec"]["leaseTransitions"] == 0
        await until(lambda: candidates.spec()["renewTime"] > lease["spec"]["renewTime"], seconds=60)
        renewed = candidates.spec()
        assert renewed["acquireTime"] == lease["spec"]["acquireTime"]
        assert abs((datetime.now(UTC) - datetime.fromisoformat(renewed["renewTime"])).total_seconds()) < 30
        assert one.holds()
        assert not two.holds()
        first.cancel()
        await asyncio.wait([first])
        await until(two.holds, seconds=60)
        spec = candidates.spec()
        assert (spec["holderIdentity"], spec["leaseTransitions"]) == (two.identity, 1)
        second.cancel()
        await asyncio.wait([second])
        assert "holderIdentity" not in candidates.spec()


async def test_the_lease_survives_being_edited_and_being_deleted(candidates: Candidates) -> None:
    async with requests_to(candidates.kubeconfig) as requests:
        one = candidates.elector(requests, "one")
        task = asyncio.create_task(one.run())
        await until(one.holds, seconds=60)
        edited = candidates.cluster.request("PATCH", candidates.path, {"metadata": {"labels": {"team": "a"}}})["spec"]
        await until(lambda: candidates.spec()["renewTime"] > edited["renewTime"], seconds=60)
        assert one.holds()
        assert candidates.cluster.request("GET", candidates.path)["metadata"]["labels"] == {"team": "a"}
        candidates.cluster.request("DELETE", candidates.path)
        await until(lambda: candidates.spec().get("holderIdentity") == one.identity, seconds=60)
        assert one.holds()
        task.cancel()
        await asyncio.wait([task])


async def test_without_permissions_no_replica_leads_and_none_fails(
    candidates: Candidates, caplog: pytest.LogCaptureFixture
) -> None:
    def warned() -> list[str]:
        return [record.getMessage() for record in caplog.records if "out of reach" in record.getMessage()]

    elsewhere = EvictionCluster(candidates.cluster.sandbox)
    candidates.lease = ObjectKey(elsewhere.namespace, "respread")
    async with requests_to(candidates.kubeconfig) as requests:
        one = candidates.elector(requests, "one")
        task = asyncio.create_task(one.run())
        await until(lambda: bool(warned()), seconds=60)
        await asyncio.sleep(4)  # time for several attempts
        assert not one.holds()
        assert not task.done()
        task.cancel()
        await asyncio.wait([task])
    (said,) = warned()  # once, not at every attempt
    assert "needs the rights to get, create and update leases" in said
