"""A pod with a cost is not patched a second time even if the watch is silent."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import pytest

from respread.cluster.decode.metadata import FIELD_MANAGER
from respread.cluster.meta import POD_DELETION_COST
from respread.cluster.objects import Namespace
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterState
from respread.controller.permission import Leading
from respread.controller.prevention_loop import CAREFUL_SECONDS, PreventionLoop
from respread.kube.requests import Response
from respread.planning.victims.policies import PolicySetting
from respread.prevention.prevention import SEEN_WITHIN_SECONDS
from tests.fake_requests import FakeRequests
from tests.informer_parts import Parts
from tests.spreads import spread_of
from tests.unit.prevention.test_decisions import policy, web
from tests.worlds import node

PODS = 3


class Pods(FakeRequests):
    """The pods of an API server, with counts of patches and reads."""

    def __init__(self, uids: Mapping[str, str], late: Collection[int] = ()) -> None:
        super().__init__()
        self._late = late
        """The numbers of the patches that are applied and answered with 504."""
        self._uids = uids
        self.annotations: dict[str, dict[str, str]] = {}
        self.patched = Counter[str]()
        self.read = Counter[str]()

    async def answer(self, method: str, path: str, names: Mapping[str, str], **options: Any) -> Response:
        del path
        name = names["name"]
        if method == "PATCH":
            assert options["query"] == {"fieldManager": FIELD_MANAGER}  # without force
            self.patched[name] += 1
            self.annotations[name] = options["body"]["metadata"]["annotations"]
            if self.patched.total() in self._late:
                return Response(status_code=504, body=b"{}")
        else:
            self.read[name] += 1
        owned: dict[str, Any] = {"f:metadata": {"f:annotations": {f"f:{POD_DELETION_COST}": {}}}}
        fields = [{"manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": owned}]
        metadata: dict[str, Any] = {"name": name, "uid": self._uids[name]}
        if name in self.annotations:
            metadata |= {"annotations": self.annotations[name], "managedFields": fields}
        return Response(status_code=200, body=json.dumps({"metadata": metadata}).encode())


class Watchless:
    """Prevention in a cluster whose watch shows no patch, with a clock of the test."""

    def __init__(self, bare: Sequence[Pod], pods: Pods) -> None:
        self.now = 0.0
        self.loop = PreventionLoop(
            pods, Leading(lambda: True, lambda: 1), metrics=Parts().metrics, clock=lambda: self.now
        )
        self._state = ClusterState()
        self._state.replace("nodes", [node(f"{zone}1", zone) for zone in "abc"])
        self._state.replace("namespaces", [Namespace(name="default")])
        self._state.apply("pods", [(each.key, each) for each in bare])
        self._setting = PolicySetting((policy(),))

    def observe(self) -> None:
        snapshot = self._state.snapshot
        self.loop.observe(snapshot, spread_of(snapshot), self._setting, (), 1, ())

    async def until(self, done: Callable[[], bool], *, seconds_a_look: float = 0.0) -> None:
        async with asyncio.timeout(120):
            while not done():
                self.now += seconds_a_look
                self.observe()
                await asyncio.sleep(0.001)


async def test_a_pod_is_read_before_a_second_patch_if_the_watch_never_showed_the_first() -> None:
    bare = [web(f"web-{number}", f"{zone}1") for number, zone in enumerate("abc", 1)]
    pods = Pods({each.name: each.uid for each in bare})
    cluster = Watchless(bare, pods)
    running = asyncio.create_task(cluster.loop.run())
    cluster.observe()
    cluster.now = CAREFUL_SECONDS + 1  # after the time in which every pod is read before its patch
    await cluster.until(lambda: pods.patched.total() == PODS)
    assert not pods.read
    for times in (1, 2, 3):  # the watch stays silent
        cluster.now += SEEN_WITHIN_SECONDS + 1
        await cluster.until(lambda times=times: pods.patched.total() > PODS or pods.read.total() == times * PODS)  # type: ignore[misc]  # no types for defaults
        assert set(pods.patched.values()) == {1}
    cluster.loop.stop()
    await running


@pytest.mark.parametrize("late", [1, 4, 8])
@pytest.mark.parametrize("seed", range(8))
async def test_an_applied_patch_that_was_answered_with_an_error_does_not_change_the_ranks(seed: int, late: int) -> None:
    """Nine pods are patched, eight of them at once. Ranking a pod again with the ninth could swap the two."""
    places = [f"{zone}1" for zone in "abc" for _ in range(3)]
    random.Random(seed).shuffle(places)
    bare = [web(f"web-{number}", place) for number, place in enumerate(places)]
    pods = Pods({each.name: each.uid for each in bare}, late={late})
    cluster = Watchless(bare, pods)
    running = asyncio.create_task(cluster.loop.run())
    cluster.observe()
    at_rest = SEEN_WITHIN_SECONDS - 1
    await cluster.until(lambda: cluster.now >= at_rest, seconds_a_look=0.25)
    cluster.loop.stop()
    await running
    assert pods.patched == dict.fromkeys((each.name for each in bare), 1)
