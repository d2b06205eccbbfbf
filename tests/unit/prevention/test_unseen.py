"""However long the watch is silent, a pod with a cost is not patched a second time."""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Mapping
from typing import Any

from immutables import Map

from respread.cluster.annotations import POD_DELETION_COST
from respread.cluster.decode.field_ownership import FIELD_MANAGER
from respread.cluster.objects import Namespace
from respread.cluster.state import ClusterState
from respread.controller.prevention_loop import CAREFUL_SECONDS, PreventionLoop
from respread.kube.requests import Response
from respread.prevention.deletion_costs import DeletionCosts
from respread.prevention.prevention import SEEN_WITHIN_SECONDS
from tests.fake_requests import FakeRequests
from tests.informer_parts import Parts
from tests.spreads import spread_of
from tests.unit.prevention.test_decisions import policy, web
from tests.worlds import node

PODS = 3


class Pods(FakeRequests):
    """The pods of an API server, with counts of patches and reads."""

    def __init__(self, uids: Mapping[str, str]) -> None:
        super().__init__()
        self._uids = uids
        self.annotations: dict[str, dict[str, str]] = {}
        self.patched = Counter[str]()
        self.read = Counter[str]()

    async def answer(self, method: str, path: str, names: Mapping[str, str], **options: Any) -> Response:
        del path
        name = names["name"]
        if method == "PATCH":
            self.patched[name] += 1
            self.annotations[name] = options["body"]["metadata"]["annotations"]
        else:
            self.read[name] += 1
        owned: dict[str, Any] = {"f:metadata": {"f:annotations": {f"f:{POD_DELETION_COST}": {}}}}
        fields = [{"manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": owned}]
        metadata: dict[str, Any] = {"name": name, "uid": self._uids[name]}
        if name in self.annotations:
            metadata |= {"annotations": self.annotations[name], "managedFields": fields}
        return Response(status_code=200, body=json.dumps({"metadata": metadata}).encode())


def test_a_pod_is_read_before_a_second_patch_if_the_watch_never_showed_the_first() -> None:
    bare = [web(f"web-{number}", f"{zone}1") for number, zone in enumerate("abc", 1)]
    pods = Pods({each.name: each.uid for each in bare})
    now = 0.0
    loop = PreventionLoop(
        DeletionCosts(pods),
        leads=lambda: True,
        exclusive_seconds=lambda: 10.0,
        metrics=Parts().metrics,
        clock=lambda: now,
    )
    state = ClusterState()
    state.replace("nodes", [node(f"{zone}1", zone) for zone in "abc"])
    state.replace("namespaces", [Namespace(name="default")])
    state.apply("pods", [(each.key, each) for each in bare])
    policies = Map({"prevents": policy()})

    async def until(done: Any) -> None:
        async with asyncio.timeout(30):
            while not done():
                loop.observe(state.snapshot, spread_of(state.snapshot), policies, (), 1, {})
                await asyncio.sleep(0.01)

    async def scenario() -> None:
        nonlocal now
        running = asyncio.create_task(loop.run())
        loop.observe(state.snapshot, spread_of(state.snapshot), policies, (), 1, {})
        now = CAREFUL_SECONDS + 1  # its first patches are not of the time in which everything is read
        await until(lambda: pods.patched.total() == PODS)
        assert not pods.read
        for times in (1, 2, 3):  # the watch stays silent
            now += SEEN_WITHIN_SECONDS + 1
            await until(lambda times=times: pods.patched.total() > PODS or pods.read.total() == times * PODS)
            assert set(pods.patched.values()) == {1}
        loop.stop()
        await running

    asyncio.run(scenario())
