"""The last look reads the other controllers of a spread group, with limits of their number and time."""

from __future__ import annotations

import asyncio
import tracemalloc
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any

import msgspec
import pytest

from respread.api.reasons import Held, Reason
from respread.cluster.meta import OwnerReference
from respread.cluster.pod import Pod
from respread.cluster.selectors import Matching, Selector, selector_of_labels
from respread.cluster.state import ClusterSnapshot
from respread.eviction.owners.last_look import AT_ONCE, READING_SECONDS, OtherControllers
from respread.kube.requests import Response
from respread.moves.ledger import Ledger
from tests.eviction_moves import SPEC, group, labels, move
from tests.fake_requests import FakeRequests
from tests.worlds import NOW, cluster, node, pod


def owned(number: int) -> Pod:
    owner = OwnerReference("apps/v1", "ReplicaSet", f"web-{number}", f"uid-{number}")
    return pod(f"pod-{number}", "node-1", SPEC, controller=owner)


def world(controllers: int) -> tuple[ClusterSnapshot, Pod]:
    pods = [owned(number) for number in range(controllers + 1)]
    return cluster([node("node-1", "a")], pods), pods[0]


class Answering(FakeRequests):
    """An API server where every ReplicaSet wants some pods, which answers some requests only on command."""

    def __init__(self, slow: frozenset[str] = frozenset(), *, wanted: int = 1, status_code: int = 200) -> None:
        super().__init__()
        self._status_code = status_code
        self._wanted = wanted
        self.read: Counter[str] = Counter()
        self.most = self._now = 0
        self._slow = slow

    async def answer(self, method: str, path: str, names: Mapping[str, str], **options: Any) -> Response:
        assert (method, path.rpartition("/")[2], options["body"]) == ("GET", "{name}", None)
        name = names["name"]
        self.read[name] += 1
        self._now += 1
        self.most = max(self.most, self._now)
        await asyncio.sleep(0)
        if name in self._slow:
            await asyncio.Event().wait()
        self._now -= 1
        found = {"metadata": {"name": name, "uid": name.replace("web", "uid")}, "spec": {"replicas": self._wanted}}
        return Response(status_code=self._status_code, body=msgspec.json.encode(found))


async def look(requests: Answering, controllers: int, reading_seconds: float = 60.0) -> list[Held | None]:
    """Take the last look at the same move twice in one wave."""
    snapshot, victim = world(controllers)
    others = OtherControllers(requests, lambda: 0.0, reading_seconds)
    planned = move(victim, groups=(group("default"),))
    return [await others.why_incomplete(planned, snapshot, Ledger()) for _ in range(2)]


async def test_each_controller_is_read_once_per_wave_and_several_concurrently() -> None:
    requests = Answering()
    assert await look(requests, 100) == [None, None]
    assert requests.read == {f"web-{number}": 1 for number in range(1, 101)}
    assert requests.most == AT_ONCE


@pytest.mark.parametrize(("wanted", "is_missing"), [(2, False), (3, True)])
def test_a_pod_in_flight_hides_no_other_that_is_missing(wanted: int, *, is_missing: bool) -> None:
    """The watch shows both pods of another controller. One of them was evicted just now, and a third is going."""
    mine, one, two = owned(0), owned(1), msgspec.structs.replace(owned(1), name="pod-2", uid="uid-2")
    going = msgspec.structs.replace(owned(1), name="pod-3", uid="uid-3", deletion_timestamp=NOW)
    snapshot = cluster([node("node-1", "a")], [mine, one, two, going])
    in_flight = Ledger().sent(move(two), snapshot, 0.0)
    others = OtherControllers(Answering(wanted=wanted), lambda: 0.0)
    held = asyncio.run(others.why_incomplete(move(mine, groups=(group("default"),)), snapshot, in_flight))
    assert (held is not None) is is_missing


@pytest.mark.parametrize("kind", [None, "DaemonSet", "Job"])
def test_the_pods_that_no_controller_replaces_are_not_waited_for(kind: str | None) -> None:
    owner = None if kind is None else OwnerReference("apps/v1", kind, "other", "uid-other")
    snapshot = cluster([node("node-1", "a")], [owned(0), pod("other", "node-1", SPEC, controller=owner)])
    requests = Answering()
    others = OtherControllers(requests, lambda: 0.0)
    planned = move(owned(0), groups=(group("default"),))
    assert asyncio.run(others.why_incomplete(planned, snapshot, Ledger())) is None
    assert not requests.read


@pytest.mark.parametrize(
    ("status_code", "reason"), [(404, Reason.IN_MOTION), (500, Reason.API_UNAVAILABLE), (403, Reason.API_UNAVAILABLE)]
)
async def test_another_controller_that_is_gone_holds_the_move_for_a_moment(status_code: int, reason: Reason) -> None:
    """Its pods go, too. One that can't be read holds it until it can."""
    many = Answering(status_code=status_code)
    assert None not in await look(many, 100)
    assert many.read.total() <= 2 * AT_ONCE, "one is enough to hold it"
    held, _ = await look(Answering(status_code=status_code), 1)
    assert str(held).startswith(f"{reason}: pods of another workload are in its spread group, and ReplicaSet web-1 ")


class Fat(Answering):
    """Answers with controllers of a megabyte each."""

    async def answer(self, method: str, path: str, names: Mapping[str, str], **options: Any) -> Response:
        found = msgspec.json.decode((await super().answer(method, path, names, **options)).body)
        found["metadata"]["labels"] = {f"label-{number}": "x" * 50 for number in range(5_000)}
        found["spec"]["template"] = {"spec": {"containers": [{"name": "main", "args": ["x" * 700_000]}]}}
        return Response(status_code=200, body=msgspec.json.encode(found))


def test_many_large_controllers_take_little_memory() -> None:
    requests = Fat()
    snapshot, victim = world(30)
    others = OtherControllers(requests, lambda: 0.0, 600.0)
    tracemalloc.start()
    try:
        held = asyncio.run(others.why_incomplete(move(victim, groups=(group("default"),)), snapshot, Ledger()))
        kept, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held is None
    assert len(requests.read) == 30
    assert kept < 10 << 20


@pytest.mark.virtual_time
async def test_a_selector_over_too_many_controllers_is_reported_with_their_number() -> None:
    requests = Answering(slow=frozenset({"web-7", "web-8"}))
    one, two = await look(requests, 50, READING_SECONDS)
    assert (one and one.reason) is Reason.GROUP_TOO_LARGE
    assert "the pods of 50 other controllers, of which 2 could not be read in the 5 s there are" in str(one)
    assert two is not None, "a wave has so many seconds in all"
    assert two.reason is Reason.GROUP_TOO_LARGE


async def test_no_controller_is_read_if_there_are_too_many_for_a_wave() -> None:
    requests = Answering()
    held, _ = await look(requests, 1_001)
    assert (held and held.reason) is Reason.GROUP_TOO_LARGE
    assert "count the pods of 1001 other controllers, and at most 1000 are read" in str(held)
    assert not requests.read
    assert await look(requests, 1_000) == [None, None]


def label_sets_tried(workloads: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """Return how often a selector or a label set is looked at if one pod of each workload is to be moved."""
    owners = [OwnerReference("apps/v1", "ReplicaSet", f"web-{n}", f"uid-{n}") for n in range(workloads)]
    victims = [
        pod(f"pod-{n}", "node-1", SPEC, labels=labels(f"app-{n}"), controller=owners[n]) for n in range(workloads)
    ]
    groups = [
        msgspec.structs.replace(group("default"), selector=selector_of_labels(victim.labels)) for victim in victims
    ]
    tried = [0]

    def counted(look: Callable[..., Any]) -> Callable[..., Any]:
        def counting(*args: Any) -> Any:
            tried[0] += 1
            return look(*args)

        return counting

    async def run() -> None:
        others = OtherControllers(Answering(), lambda: 0.0)
        snapshot = cluster([node("node-1", "a")], victims)
        with monkeypatch.context() as patch:
            patch.setattr(Selector, "matches", counted(Selector.matches))
            patch.setattr(Matching, "add_labels", counted(Matching.add_labels))
            for victim, own in zip(victims, groups, strict=True):
                assert await others.why_incomplete(move(victim, groups=(own,)), snapshot, Ledger()) is None

    asyncio.run(run())
    return tried[0]


def test_the_cost_grows_at_most_linearly_with_the_workloads(monkeypatch: pytest.MonkeyPatch) -> None:
    work = [label_sets_tried(workloads, monkeypatch) for workloads in (50, 100, 200)]
    assert 0 < work[1] <= 2 * work[0]
    assert work[2] <= 2 * work[1]
