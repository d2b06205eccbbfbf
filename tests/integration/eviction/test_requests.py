"""The requests of evictions: two reads and the eviction each, and the shared ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from respread.eviction.answers import EvictionResult
from respread.kube.requests import Requests, Response
from respread_sandbox import Sandbox
from tests.eviction_moves import move
from tests.fake_requests import PassedOn, Send
from tests.integration.eviction.carrying import Carrying, results
from tests.integration.eviction_cluster import with_requests
from tests.integration.snapshots import take_snapshot
from tests.integration.workloads import create_deployment, deployment, wait_for_ready_pods, wait_until

WORKLOADS: Final = 10


class Kinds(PassedOn):
    """Requests, counted by what they request."""

    def __init__(self, requests: Requests) -> None:
        super().__init__(requests)
        self.counts: Counter[str] = Counter()

    async def pass_on(self, path: str, names: Mapping[str, str], send: Send, **options: Any) -> Response:
        self.counts[path.rpartition("/namespaces/{namespace}/")[2]] += 1
        return await super().pass_on(path, names, send, **options)


def test_moves_of_different_workloads_share_all_reads_but_two(sandbox: Sandbox, namespace: str) -> None:
    for number in range(WORKLOADS):
        create_deployment(sandbox, namespace, deployment(f"web-{number}", replicas=3, cpu="1m"))
    for number in range(WORKLOADS):
        wait_for_ready_pods(sandbox, namespace, f"web-{number}", 3)
    path = f"/apis/apps/v1/namespaces/{namespace}/deployments"
    wait_until(
        lambda: all(each["status"].get("updatedReplicas") == 3 for each in sandbox.api.get(path)["items"]),
        "the Deployments' statuses",
    )
    snapshot = take_snapshot(sandbox)
    pods = [each for key, each in snapshot.pods.items() if key.namespace == namespace]
    one_each = list({pod.controller: pod for pod in pods}.values())

    async def scenario(requests: Requests) -> Counter[str]:
        kinds = Kinds(requests)
        # Time stands still, so that what is read is fresh for all moves, however slow the machine is.
        carried = await Carrying(kinds, clock=lambda: 0.0).carry_out(
            [move(pod, groups=(), from_domains=(), to_domains=()) for pod in one_each], snapshot
        )
        assert results(carried) == [EvictionResult.EVICTED] * WORKLOADS
        return kinds.counts

    counts = with_requests(sandbox.kubeconfig, scenario)
    lists = counts.pop("pods")
    assert lists <= WORKLOADS // 2
    assert counts == {
        "limitranges": 1,
        "resourcequotas": 1,
        "replicasets/{name}": WORKLOADS,
        "deployments/{name}": WORKLOADS,
        "pods/{name}/eviction": WORKLOADS,
    }
