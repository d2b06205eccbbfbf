"""Pod deletion costs are sent as they are decided, and each answer has its consequence."""

from __future__ import annotations

import asyncio
import json
import random
import re
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from itertools import pairwise
from typing import Any

import msgspec
import pytest
from immutables import Map

from respread.cluster.decode.metadata import FIELD_MANAGER
from respread.cluster.meta import POD_DELETION_COST
from respread.cluster.objects import Namespace
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterState
from respread.controller.permission import Leading
from respread.controller.prevention_loop import AT_ONCE, CAREFUL_SECONDS, PreventionLoop
from respread.kube.requests import NoResponseError, Response
from respread.planning.victims.policies import PolicySetting
from respread.prevention.prevention import REST_SECONDS, SEEN_WITHIN_SECONDS
from respread.spread.index import SpreadIndex
from tests.fake_requests import FakeRequests
from tests.informer_parts import Parts
from tests.unit.prevention.test_decisions import policy, web
from tests.worlds import node

pytestmark = pytest.mark.virtual_time

LOST, NOT_SENT, BUG, REFUSED = range(4)
"""Answers beside status codes."""
BEGAN = CAREFUL_SECONDS
PODS = tuple(web(f"web-{number}", f"{zone}1") for number, zone in enumerate("abc", 1))
MANY = tuple(web(f"web-{number}", f"{'abc'[number % 3]}1") for number in range(15))
OTHER = policy("other", prevents=False, namespaceSelector={"matchLabels": {"of": "nobody"}})
PREVENTS, LEAVES = PolicySetting((policy(), OTHER)), PolicySetting((policy(prevents=False), OTHER))


class Prevented(FakeRequests):
    """Prevention in virtual time, and an API server with pods, whose watch shows patches unless it is silent."""

    def __init__(self, pods: Sequence[Pod] = PODS, answers: Iterable[int] = (), *, applied: bool = False) -> None:
        """The answers are those to requests for the first pod, whose patch is `applied` even if they are errors."""
        super().__init__()
        self.pods, self.answers, self.applied = pods, iter(answers), applied
        self.late, self.answer_seconds, self.silent = 0, 0.0, False
        """The number of the patch that is applied and answered with 504."""
        self.setting, self.leads, self.leaving = PREVENTS, True, set[str]()
        self.costs: dict[str, dict[str, str]] = {}
        self.asked: list[tuple[str, str, float]] = []
        """The method, pod and time of each request."""
        self.made = self.notified = 0
        self.parts = Parts()
        self._state, self._spread = ClusterState(), SpreadIndex()
        self._state.replace("nodes", [node(f"{zone}{number}", zone) for zone in "abc" for number in (1, 2)])
        self._state.replace("namespaces", [Namespace(name="default")])
        leading = Leading(lambda: self.leads, lambda: 1)
        self.loop = PreventionLoop(
            self, leading, metrics=self.parts.metrics, notify=self._notify, clock=lambda: self.now
        )

    @property
    def now(self) -> float:
        return asyncio.get_running_loop().time()

    @property
    def patched(self) -> Counter[str]:
        return Counter(pod for method, pod, _ in self.asked if method == "PATCH")

    def _notify(self) -> None:
        self.notified += 1

    async def answer(self, method: str, path: str, names: Mapping[str, str], **options: Any) -> Response:
        del path
        name = names["name"]
        self.asked.append((method, name, self.now))
        await asyncio.sleep(self.answer_seconds)
        code = next(self.answers, 200) if name == self.asked[0][1] else 200
        if method == "PATCH":
            assert options["query"] == {"fieldManager": FIELD_MANAGER}  # without force
            if code == 200 or self.applied:
                self.costs[name] = options["body"]["metadata"].get("annotations", {})
            if self.patched.total() == self.late:
                code = 504
            self.made += code == 200
        if code == BUG:
            raise ZeroDivisionError
        if code in {LOST, NOT_SENT}:
            raise NoResponseError("no answer", sent=code == LOST)
        owned: dict[str, Any] = {"f:metadata": {"f:annotations": {f"f:{POD_DELETION_COST}": {}}}}
        fields = [{"manager": FIELD_MANAGER, "operation": "Apply", "fieldsV1": owned}]
        cost = {"annotations": self.costs[name], "managedFields": fields} if name in self.costs else {}
        uid = next(pod.uid for pod in self.pods if pod.name == name)
        details = {"kind": "pods", "causes": [{"reason": "FieldManagerConflict"}]}
        body = json.dumps({"metadata": {"name": name, "uid": uid, **cost}, "details": details}).encode()
        if code == REFUSED:
            return Response(status_code=403, body=body, sent=False)
        return Response(status_code=code, body=body, retry_after_seconds=7.0 if code == 429 else None)

    def value(self, metric: str, **labels: str) -> float | None:
        """Return the value of a metric about the policy."""
        labels = {"policy_namespace": "", "policy": "prevents", **labels}
        return self.parts.registry.get_sample_value(f"respread_prevention_{metric}_total", labels)

    def _shown(self, pod: Pod) -> Pod:
        if self.silent or (cost := self.costs.get(pod.name)) is None:
            return pod
        return msgspec.structs.replace(pod, annotations=Map(cost), deletion_cost_is_ours=bool(cost))

    async def observe(self, seconds: float = 0.0, term: int | None = 1) -> None:
        """Observe the cluster each second."""
        until = self.now + seconds
        while True:
            self.pods = [self._shown(each) for each in self.pods]
            gone = set(self._state.snapshot.pods) - {each.key for each in self.pods}
            self._state.apply("pods", [*((each.key, each) for each in self.pods), *((key, None) for key in gone)])
            snapshot = self._state.snapshot
            self.loop.observe(snapshot, self._spread.update(snapshot), self.setting, self.leaving, term, ())
            await asyncio.sleep(max(0.0, min(1.0, until - self.now)))
            if self.now >= until:
                return


@asynccontextmanager
async def running(cluster: Prevented, *, for_seconds: float = BEGAN) -> AsyncIterator[Prevented]:
    """Run prevention, first without a pod: in its first minute, it reads each before it patches it."""
    task = asyncio.create_task(cluster.loop.run())
    await asyncio.sleep(0)  # it runs before anything is observed
    pods, cluster.pods = cluster.pods, ()
    await cluster.observe(for_seconds)
    cluster.pods = pods
    yield cluster
    cluster.loop.stop()
    await task


@pytest.mark.parametrize(
    ("answers", "applied", "result", "requests"),
    [
        ((200,), True, "", "PATCH 0"),
        ((404,), False, "Gone", "PATCH 0, GET 60, PATCH 60"),
        ((409,), False, "Foreign", "PATCH 0, GET 60, PATCH 60"),
        ((422,), False, "Invalid", "PATCH 0, GET 60, PATCH 60"),
        ((403,), False, "Forbidden", "PATCH 0, PATCH 60"),
        ((REFUSED, REFUSED), False, "", "PATCH 0, PATCH 15, PATCH 30"),
        ((429,), False, "Throttled", "PATCH 0, PATCH 7"),
        ((NOT_SENT,), False, "Unreachable", "PATCH 0, PATCH 0"),
        ((504,), True, "ServerError", "PATCH 0, GET 0"),
        ((504,), False, "ServerError", "PATCH 0, GET 0, PATCH 0"),
        ((504, 404), False, "ServerError", "PATCH 0, GET 0, GET 60, PATCH 60"),
        ((504, 403), False, "ServerError", "PATCH 0, GET 0, PATCH 60"),
        ((504, REFUSED), False, "ServerError", "PATCH 0, GET 0, PATCH 15"),
        ((LOST,), True, "Unknown", "PATCH 0, GET 10"),
        ((LOST,), False, "Unknown", "PATCH 0, GET 10, PATCH 10"),
        ((LOST, LOST), True, "Unknown", "PATCH 0, GET 10, GET 10"),
        ((BUG,), False, "", "PATCH 0, GET 60, PATCH 60"),
    ],
)
async def test_each_answer_has_its_consequence_for_the_pod(
    answers: Sequence[int], applied: bool, result: str, requests: str
) -> None:
    async with running(Prevented(PODS, answers, applied=applied)) as cluster:
        await cluster.observe(61)
    first = cluster.asked[0][1]
    asked = [f"{method} {round(at - BEGAN)}" for method, pod, at in cluster.asked if pod == first]
    assert ", ".join(asked) == requests
    assert all(cluster.patched[each.name] == 1 for each in PODS if each.name != first)
    assert cluster.value("patches", result="Applied") == cluster.made
    assert cluster.value("patches", result="NotPermitted") is None
    assert not result or cluster.value("patches", result=result) == 1


async def test_eight_patches_are_sent_at_once_and_one_after_each_answer(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    cluster = Prevented(MANY)
    cluster.setting = PolicySetting((policy(),))
    async with running(cluster):
        cluster.answer_seconds = 2.0
        await cluster.observe(20)
    assert [round(at - BEGAN) for _, _, at in cluster.asked] == [0] * AT_ONCE + [2] * (len(MANY) - AT_ONCE)
    said = [each.getMessage() for each in caplog.records if "costs set" in each.getMessage()]
    assert [f"'ranked': {len(MANY)}" in each for each in said] == [True]


@pytest.mark.parametrize(("answer", "late", "halves"), [(429, 2, {0, 14}), (LOST, 0, {0, 1, 20})])
async def test_a_pause_holds_all_patches_and_no_shorter_one_ends_it(answer: int, late: int, halves: set[int]) -> None:
    async with running(Prevented(MANY, [answer])) as cluster:
        cluster.late = late
        await cluster.observe(30)
    assert {round(2 * (at - BEGAN)) for _, _, at in cluster.asked} == halves


async def test_pauses_grow_until_a_patch_is_made(caplog: pytest.LogCaptureFixture) -> None:
    async with running(Prevented(PODS, [*[NOT_SENT] * 5, 200, NOT_SENT])) as cluster:
        await cluster.observe(20)
        cluster.costs = {name: {} for name in cluster.costs}  # by another writer
        await cluster.observe(20)
    first = cluster.asked[0][1]
    gaps = [after - before for before, after in pairwise(at for _, pod, at in cluster.asked if pod == first)]
    for gap, most in zip(gaps[:5] + gaps[6:], (0.5, 0.5, 1.0, 2.0, 4.0, 0.5), strict=True):
        assert most / 2 <= gap <= most + 0.001
    assert {len(each) for each in re.findall(r"'pause_seconds': ([\d.]+)", caplog.text)} == {len("0.5")}


@pytest.mark.parametrize(
    ("answer_seconds", "answers", "first_seconds"), [(3.0, [200], 3), (3.0, [LOST], 13), (0.0, [LOST], 10)]
)
async def test_a_new_term_reads_each_pod_once_no_patch_of_the_last_one_can_be_on_its_way(
    answer_seconds: float, answers: Sequence[int], first_seconds: float
) -> None:
    async with running(Prevented(PODS, answers, applied=True)) as cluster:
        cluster.silent, cluster.answer_seconds = True, answer_seconds
        await cluster.observe(1)
        await cluster.observe(term=None)
        await cluster.observe(20, term=2)
    assert [(method, round(at - BEGAN)) for method, _, at in cluster.asked[3:]] == [("GET", first_seconds)] * 3


@pytest.mark.parametrize("change", ["another leads", "nobody leads", "a new term", "stop"])
async def test_nothing_is_sent_once_another_replica_may_lead_or_it_is_stopped(change: str) -> None:
    async with running(Prevented(), for_seconds=0) as cluster:
        cluster.answer_seconds = 3.0
        await cluster.observe(1)
        assert [method for method, _, _ in cluster.asked] == ["GET"] * 3
        if change == "stop":
            cluster.loop.stop()
        cluster.leads = "leads" not in change
        await cluster.observe(4, term=1 if change in {"stop", "nobody leads"} else 2)
        assert [method for method, _, _ in cluster.asked] == ["GET"] * (6 if change == "a new term" else 3)
        cluster.leads = True
        await asyncio.sleep(7)
    assert cluster.patched.total() == (0 if change == "stop" else 3)


@pytest.mark.parametrize(("why", "answer"), [("", LOST), ("leaving", LOST), ("gone", LOST), ("leaving", 429)])
async def test_a_pod_that_goes_is_neither_read_nor_patched_again(why: str, answer: int) -> None:
    async with running(Prevented(PODS, [answer])) as cluster:
        await cluster.observe(1)
        first = next(each for each in cluster.pods if each.name == cluster.asked[0][1])
        if why == "leaving":
            cluster.leaving = {first.uid}
        if why == "gone":
            cluster.pods = [each for each in cluster.pods if each is not first]
        await cluster.observe(20)
    assert ("GET" in {method for method, _, _ in cluster.asked}) is not bool(why)
    assert cluster.patched[first.name] == (1 if why else 2)


@pytest.mark.parametrize(("term", "answer"), [(1, 200), (2, 200), (1, 422), (2, 422)])
async def test_costs_are_removed_once_no_policy_asks_for_them_but_only_by_the_leader(term: int, answer: int) -> None:
    async with running(Prevented(PODS, [answer])) as cluster:
        await cluster.observe(5)
        cluster.setting = LEAVES
        if term == 2:
            await cluster.observe(5, term=None)
            assert len(cluster.asked) == 3
        await cluster.observe(5, term=term)
    refused = "" if answer == 200 else cluster.asked[0][1]
    assert cluster.costs == {each.name: {} for each in PODS if each.name != refused}


async def test_a_scale_down_by_costs_is_counted_with_the_evictions_that_it_saves() -> None:
    async with running(Prevented(MANY)) as cluster:
        await cluster.observe(2 * REST_SECONDS)
        cluster.pods = sorted(cluster.pods, key=lambda each: int(cluster.costs[each.name][POD_DELETION_COST]))[6:]
        await cluster.observe()
        await asyncio.sleep(2 * REST_SECONDS)  # it looks by itself
        assert cluster.value("evictions_avoided") == 1


async def test_others_who_remove_costs_are_told_of_once_a_second(caplog: pytest.LogCaptureFixture) -> None:
    async with running(Prevented()) as cluster:
        for times in (1, 2, 3):
            await cluster.observe(70)
            for name in cluster.costs:
                cluster.costs[name] = {}  # by another writer
                await cluster.observe()
            await cluster.observe(2)
            assert cluster.value("costs_lost") == 3 * times
        (contested,) = cluster.loop.contested["prevents"]
        assert contested.times == 3
        assert cluster.notified == 2
    assert caplog.text.count("Somebody else removes") == 2
    assert not [each for each in caplog.records if each.levelname == "ERROR"]


async def test_a_pod_is_read_before_a_second_patch_if_the_watch_never_showed_the_first() -> None:
    async with running(Prevented()) as cluster:
        cluster.silent = True
        await cluster.observe(SEEN_WITHIN_SECONDS - 1)
        for times in range(3):
            assert cluster.patched == dict.fromkeys((each.name for each in PODS), 1)
            assert len(cluster.asked) == 3 * (times + 1)
            await cluster.observe(SEEN_WITHIN_SECONDS)


@pytest.mark.parametrize("late", [1, 4, 8])
@pytest.mark.parametrize("seed", range(8))
async def test_an_applied_patch_that_was_answered_with_an_error_does_not_change_the_ranks(seed: int, late: int) -> None:
    """Nine pods are patched, eight of them at once. Ranking a pod again with the ninth could swap the two."""
    places = [f"{zone}1" for zone in "abc" for _ in range(3)]
    random.Random(seed).shuffle(places)
    pods = [web(f"web-{number}", place) for number, place in enumerate(places)]
    async with running(Prevented(pods)) as cluster:
        cluster.silent, cluster.late = True, late
        await cluster.observe(SEEN_WITHIN_SECONDS - 1)
    assert cluster.patched == dict.fromkeys((each.name for each in pods), 1)
