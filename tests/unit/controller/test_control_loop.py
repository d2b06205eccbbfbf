"""The control loop in virtual time with a simulated API server."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from itertools import pairwise
from math import inf
from typing import Any

import aiohttp
import pytest
from immutables import Map
from prometheus_client import CollectorRegistry

from respread.cluster.objects import Namespace
from respread.controller.acting import put_together
from respread.controller.announcements import Announcements
from respread.controller.control_loop import ControlLoop
from respread.controller.follow_up import OWED_SECONDS, FollowUp
from respread.controller.permission import Leading
from respread.controller.prevention_loop import PreventionLoop
from respread.controller.records.history import History
from respread.controller.records.journal import Journal
from respread.controller.scheduler_model import SchedulerModel, ServerVersion
from respread.controller.waking import (
    BEAT_SECONDS,
    GATHER_SECONDS,
    LOOP_LIMIT_SECONDS,
    PlanningThread,
    Waiting,
    heartbeat_of_loop,
)
from respread.handlers.informer import ChangeSignal
from respread.holds.backoff import PAUSE, BackOffs
from respread.holds.holds import STALE_SECONDS
from respread.kube.events import Event
from respread.kube.requests import NoResponseError, Response
from respread.moves.entry import STEP_SECONDS, Counting, Outcome
from respread.moves.following import STEADY_SECONDS
from respread.provisioning.room_loop import RoomLoop
from respread.provisioning.room_objects import Buffers, Placeholders
from respread.scheduling.configuration import SchedulerConfiguration
from respread.telemetry.health import HealthReport
from respread.telemetry.metrics import OUTCOMES
from respread.telemetry.server import ListenAddress, serve_telemetry
from tests.eviction_moves import SPEC, move, send
from tests.fake_requests import FakeRequests
from tests.informer_parts import Parts, page
from tests.unit.controller.simulated_cluster import ZONE, AtOnce, SimulatedCluster, no_needs
from tests.virtual_time import until
from tests.worlds import cluster, constraint, node, pod, pods, spec

CLUSTER_POLICIES = "clusterrebalancepolicies"
CLUSTER_RECORDS = "clusterrebalancepolicyrecords"


def policy(name: str, uid: str = "") -> dict[str, Any]:
    metadata = {"name": name, "uid": uid or f"uid-{name}", "generation": 1, "resourceVersion": "5"}
    return {"metadata": metadata, "spec": {"mode": "Enforce"}}


class Scripted(FakeRequests):
    """Answers lists with given policies, and records writes."""

    def __init__(self) -> None:
        super().__init__()
        self.statuses: dict[str, Any] = {}
        """Of the listed policies, by name."""
        self.records: dict[str, Any] = {}
        """Of listed policies, by the same."""
        self.written: list[tuple[str, Any]] = []
        self.recorded: list[dict[str, Any]] = []
        self.lists = 0
        self.refuses_lists = False

    async def answer(self, method: str, path: str, names: Mapping[str, str], **options: Any) -> Response:
        query, body = options.get("query"), options.get("body")
        assert options.get("content_type") is None
        assert "json" in options.get("accept", "application/json")
        if method == "GET":
            if query is None:  # a single object, which no server has
                raise NoResponseError("not now", sent=True)
            self.lists += 1
            if self.refuses_lists:
                raise NoResponseError("not now", sent=True)
            found: list[dict[str, Any]] = []
            if CLUSTER_POLICIES in path:
                for name in {**self.statuses, **self.records}:
                    metadata = {"name": name, "uid": f"uid-{name}"}
                    found.append({"metadata": metadata, "status": self.statuses.get(name, {})})
            elif CLUSTER_RECORDS in path:
                for name, record in self.records.items():
                    found.append({"metadata": {"name": f"uid-{name}"}, "record": json.dumps(record)})
            return Response(status_code=200, body=json.dumps({"metadata": {}, "items": found}).encode())
        assert body is not None
        if "record" in body:
            assert method == "PATCH" or body["policy"] not in self.records, "it exists"
            self.recorded.append(json.loads(body["record"]))
            return Response(status_code=201, body=b"{}")
        self.written.append((names["name"], body["status"]))
        return Response(status_code=200, body=b"{}")


class Loop:
    """A control loop with its informers, requests and clock."""

    def __init__(self, scheduler: SchedulerModel | None = None, requests: Scripted | None = None) -> None:
        self.seconds = 0.0
        self.leads = True
        self.term = 1
        self.parts = Parts()
        self.requests = Scripted() if requests is None else requests
        self.heartbeat = heartbeat_of_loop(self.clock)
        self.events: list[Event] = []
        informers = self.parts.informers
        for informer in informers.all:
            informer.take_page(page())
        self.leading = Leading(lambda: self.leads, lambda: self.term)
        self.acting = put_together(
            self.requests,
            informers,
            self.leading,
            Journal(self.clock, self.wall_clock),
            announcements=Announcements(self.events.append, informers.policies.current),
            metrics=self.parts.metrics,
        )
        self.journal = self.acting.journal
        self.scheduler = scheduler or SchedulerModel()
        placing = Placeholders(self.requests, ""), Buffers(self.requests, "")
        self.room = RoomLoop(
            *placing, namespace=lambda: "x", leads=lambda: True, may_evict=lambda _: True, metrics=self.parts.metrics
        )
        self.loop = self.made()

    def made(self, thread: PlanningThread | None = None) -> ControlLoop:
        """Return a loop that computes in a thread."""
        return ControlLoop(
            self.parts.informers,
            self.acting,
            leading=self.leading,
            prevention=PreventionLoop(self.requests, self.leading, metrics=self.parts.metrics),
            room=self.room,
            needs=no_needs(self.requests, self.clock),
            metrics=self.parts.metrics,
            heartbeat=self.heartbeat,
            scheduler=self.scheduler,
            thread=thread,
        )

    def clock(self) -> float:
        return self.seconds

    def wall_clock(self) -> float:
        return 1_800_000_000.0 + self.seconds

    def set_policies(self, *policies: dict[str, Any], version: int) -> None:
        self.parts.informer(CLUSTER_POLICIES).take_page(page(*policies, version=version))


def test_only_the_leader_writes_statuses_and_continues_from_the_existing_ones() -> None:
    loop = Loop()
    loop.set_policies(policy("one"), version=200)
    loop.requests.statuses = {"one": {"summary": {"evicted": 7}}}
    loop.leads = False
    asyncio.run(loop.loop.reconcile())
    assert loop.requests.written == []
    loop.leads = True
    asyncio.run(loop.loop.reconcile())
    ((name, status),) = loop.requests.written
    assert (name, status["summary"]["evicted"]) == ("one", 7)
    loop.seconds += 60
    asyncio.run(loop.loop.reconcile())
    assert len(loop.requests.written) == 1  # no status has changed
    before, loop.term = loop.requests.lists, 2
    loop.seconds += 60
    loop.requests.statuses = {"one": {"summary": {"evicted": 3}}}
    asyncio.run(loop.loop.reconcile())
    assert loop.requests.lists > before, "every term begins with reading the statuses"
    assert loop.requests.written[-1][1]["summary"]["evicted"] == 3


def test_a_term_that_begins_while_the_statuses_are_read_begins_with_reading_them_again() -> None:
    """What the former leader did in between is not in what was read."""
    loop = Loop()
    loop.set_policies(policy("one"), version=200)
    answer = loop.requests.answer

    async def in_another_term(*args: Any, **options: Any) -> Response:
        loop.term = 2
        return await answer(*args, **options)

    loop.requests.answer = in_another_term  # type: ignore[method-assign]  # it happens in between
    asyncio.run(loop.loop.reconcile())
    before = loop.requests.lists
    asyncio.run(loop.loop.reconcile())
    assert loop.requests.lists > before
    asyncio.run(loop.loop.reconcile())
    assert loop.requests.lists == 2 * before


def test_a_term_begins_only_after_what_the_spread_depends_on_was_requested() -> None:
    version = ServerVersion(Scripted(), lambda: None)
    loop = Loop(SchedulerModel(version=version))
    loop.set_policies(policy("one"), version=200)
    asyncio.run(loop.loop.reconcile())
    assert loop.requests.written == []
    version.asked, version.version = True, "v1.36.3"
    asyncio.run(loop.loop.reconcile())
    assert len(loop.requests.written) == 1
    assert loop.scheduler.predictor.configuration != SchedulerConfiguration(), "it follows the version"
    version.asked = False
    loop.requests.statuses = {}
    loop.set_policies(policy("one"), policy("two"), version=300)
    asyncio.run(loop.loop.reconcile())
    assert loop.requests.written[-1][0] == "two", "what becomes unknown later is waited for by itself"


@pytest.mark.virtual_time
async def test_a_leader_that_can_t_read_the_statuses_evicts_and_writes_nothing() -> None:
    loop = Loop()
    loop.set_policies(policy("one"), version=200)
    loop.requests.refuses_lists = True
    control, changes = loop.made(PlanningThread(AtOnce())), loop.parts.informers.changes
    changes.take()
    await control.reconcile()
    once = loop.requests.lists
    for _ in range(10):
        await control.reconcile()
    assert loop.requests.written == []
    assert loop.requests.lists < 10 * once, "they are not read again at once"
    for attempt in range(8):
        loop.requests.refuses_lists = attempt < 7
        async with asyncio.timeout(5.0):  # however often it failed
            assert await changes.wait() == {"takeover"}
        await control.reconcile()
    assert len(loop.requests.written) == 1


def test_counters_of_a_deleted_policy_namespace_or_group_are_dropped() -> None:
    loop = Loop()
    loop.set_policies(policy("one"), policy("two"), version=200)
    asyncio.run(loop.loop.reconcile())
    for name in ("one", "two"):
        loop.parts.metrics.count(OUTCOMES, policy=name, outcome="Improved")
        loop.journal.history.count(Counting(name, (name,), ()))
        loop.journal.history.serve(name)
    loop.journal.history.back_offs = BackOffs().failed("gone", "", loop.wall_clock() - 3600)
    loop.parts.informers.state.replace("namespaces", [Namespace(name="two")])
    loop.set_policies(policy("two"), version=300)
    asyncio.run(loop.loop.reconcile())
    improved = {"policy_namespace": "", "outcome": "Improved"}
    for name, counted in (("one", None), ("two", 1)):
        found = loop.parts.registry.get_sample_value("respread_eviction_outcomes_total", {"policy": name, **improved})
        assert found == counted
    assert set(loop.journal.history.history.minutes) == set(loop.journal.history.standings.served) == {"two"}
    assert loop.journal.history.back_offs == BackOffs()


async def test_a_failed_reconcile_is_retried_and_does_not_count_as_a_heartbeat(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop()
    turns: list[float] = []
    ages: list[float] = []

    async def reconcile() -> float:
        turns.append(loop.seconds)
        ages.append(loop.heartbeat.age_seconds)
        loop.seconds += 1
        if len(turns) in {1, 2, 4}:
            raise ZeroDivisionError("a bug")
        if len(turns) == 5:
            loop.loop.stop()
        return loop.seconds

    async def pause(_waiting: Waiting, seconds: float) -> None:
        loop.seconds += seconds
        await asyncio.sleep(0)

    monkeypatch.setattr(loop.loop, "reconcile", reconcile)
    monkeypatch.setattr(Waiting, "pause", pause)
    await loop.loop.run()
    # A second for each reconcile, and the wait: two seconds, then longer, and two again after one that succeeded.
    assert [after - before for before, after in pairwise(turns)] == pytest.approx([3, 5, 1 + GATHER_SECONDS, 3])
    assert ages[:3] == [0, 3, 8]
    assert loop.heartbeat.age_seconds <= 1


@pytest.mark.parametrize(("how", "gathered"), [("computes", 3.0), ("waits", GATHER_SECONDS)])
def test_changes_are_gathered_for_the_computing_time_of_a_reconcile(
    monkeypatch: pytest.MonkeyPatch, how: str, gathered: float
) -> None:
    """Replacements get Ready while evictions are made. New moves must not wait for the same time again."""
    loop, found = Loop(), list[float]()
    thread = PlanningThread(cpu_clock=loop.clock)
    loop.loop = loop.made(thread=thread)

    def three_seconds_pass() -> None:
        loop.seconds += 3

    async def reconcile() -> float:
        if how == "computes":
            await thread.compute(three_seconds_pass)
        else:
            three_seconds_pass()
        return loop.seconds

    async def pause(_waiting: Waiting, seconds: float) -> None:
        found.append(seconds)
        if len(found) == 2:
            loop.loop.stop()

    monkeypatch.setattr(loop.loop, "reconcile", reconcile)
    monkeypatch.setattr(Waiting, "pause", pause)
    asyncio.run(loop.loop.run())
    assert found == [gathered] * 2


@pytest.mark.virtual_time
async def test_a_wait_ends_at_its_time_with_a_change_or_a_stop_and_the_heart_beats_meanwhile() -> None:
    loop = asyncio.get_running_loop()
    changes, heartbeat = ChangeSignal(loop.time), heartbeat_of_loop(loop.time)
    waiting = Waiting(changes, heartbeat, loop.time)

    async def waited(seconds: float) -> float:
        started = loop.time()
        await waiting.until(started + seconds)
        return round(loop.time() - started, 3)

    assert await waited(0.5) == 0.55
    loop.call_later(25, changes.notify, "pods")
    assert await waited(60) == 25.05
    assert heartbeat.age_seconds == pytest.approx(5.05)
    waiting.succeeded(computed_seconds=7)
    assert await waited(0.5) == 5.5, "changes are not gathered for longer"
    loop.call_later(1, waiting.stop)
    assert await waited(60) == 1


async def test_time_without_the_cpu_is_not_computing_time() -> None:
    """On a busy machine, most of the time passes without the CPU. Gathering as long again would delay all moves."""
    thread, wait = PlanningThread(), threading.Event().wait
    work = [thread.compute(lambda: wait(0.25) or threading.current_thread().name) for _ in range(2)]
    assert await asyncio.gather(*work) == ["planning_0"] * 2, "one after another, in a thread of its own"
    assert thread.take_seconds() < 0.25


@pytest.mark.parametrize(("leads", "term"), [(True, 1), (True, 2), (False, 1)])
async def test_stopping_ends_the_loop_at_once_and_no_move_and_no_term_begins(*, leads: bool, term: int) -> None:
    loop = Loop()
    running = asyncio.create_task(loop.loop.run())
    reconciles = {"phase": "all"}
    await until(lambda: loop.parts.registry.get_sample_value("respread_reconcile_duration_seconds_count", reconciles))
    assert not running.done()
    before, loop.leads, loop.term = loop.requests.lists, leads, term
    loop.set_policies(policy("one"), version=200)
    loop.loop.stop()
    held = loop.acting.permission.why_not(move("web"), loop.acting.permission.planned_for(Map(), loop.seconds))
    assert (held and held.message) == "this replica is being stopped"
    async with asyncio.timeout(BEAT_SECONDS / 2):
        await running
    assert loop.requests.lists == before > 0
    assert len(loop.requests.written) == (leads and term == 1), "the last status, by who leads still"


@pytest.mark.parametrize("how", ["computes", "waits"])
async def test_a_hanging_reconcile_fails_liveness_until_it_continues(monkeypatch: pytest.MonkeyPatch, how: str) -> None:
    """A hanging reconcile does not fail, so it is not retried, and the server still answers probes."""
    loop = Loop()
    loop.set_policies(policy("one"), version=200)
    goes_on, waits_on = threading.Event(), asyncio.Event()
    plan, answer = loop.loop._plan, loop.requests.answer

    def computing(*args: Any) -> Any:
        goes_on.wait(10)
        return plan(*args)

    async def waiting(*args: Any, **options: Any) -> Response:
        await waits_on.wait()
        return await answer(*args, **options)

    if how == "computes":
        monkeypatch.setattr(loop.loop, "_plan", computing)
    else:
        monkeypatch.setattr(loop.requests, "answer", waiting)

    def failing() -> list[str]:
        report = loop.parts.health.live(loop.heartbeat)
        return [check.name for check in report.checks if not check.passed]

    async with server_of(lambda: loop.parts.health.live(loop.heartbeat)) as status_of_livez:
        running = asyncio.create_task(loop.loop.run())
        await asyncio.sleep(0.2)
        assert await status_of_livez() == 200
        loop.seconds += LOOP_LIMIT_SECONDS
        assert failing() == []
        loop.seconds += 1
        assert failing() == ["control-loop"]
        assert await status_of_livez() == 503
        goes_on.set()
        waits_on.set()
        await until(lambda: not failing())
        assert await status_of_livez() == 200
        loop.loop.stop()
        await running


@asynccontextmanager
async def server_of(report: Callable[[], HealthReport]) -> AsyncIterator[Callable[[], Awaitable[int]]]:
    """Serve a report as `/livez` in this event loop like the operator, and yield a function that reads its status."""
    registry = CollectorRegistry()
    async with (
        serve_telemetry(ListenAddress("127.0.0.1", 0), registry=registry, live=report, ready=report) as address,
        aiohttp.ClientSession() as session,
    ):

        async def ask() -> int:
            async with session.get(f"http://{address}/livez") as response:
                return response.status

        yield ask


@pytest.mark.parametrize(("leads", "counted"), [(True, 1), (False, None)])
def test_the_leader_at_the_end_of_a_move_reports_its_outcome(leads: bool, counted: int | None) -> None:
    loop = Loop()
    patient = {"mode": "Enforce", "eviction": {"readyTimeout": "99s"}}
    loop.set_policies({**policy("default"), "spec": patient}, version=200)
    asyncio.run(loop.loop.reconcile())
    send(loop.journal, move("gone"), cluster([], []))
    asyncio.run(loop.loop.reconcile())
    assert (len(loop.journal.ledger), loop.journal.ledger.ready_seconds) == (1, Map(default=99))
    loop.leads = leads
    loop.seconds += STEP_SECONDS
    asyncio.run(loop.loop.reconcile())
    assert len(loop.journal.ledger) == 0  # the new leader knows the outcome from the record
    outcome = {"policy_namespace": "", "policy": "default", "outcome": "Unknown"}
    assert loop.parts.registry.get_sample_value("respread_eviction_outcomes_total", outcome) == counted
    assert [each.reason for each in loop.events[:1]] == ["SpreadNotImproved"] * leads


@pytest.mark.parametrize(("leads", "is_stale"), [(True, False), (False, False), (True, True)])
async def test_only_the_leader_asks_again_for_an_eviction_that_is_owed_and_not_while_a_watch_is_stale(
    monkeypatch: pytest.MonkeyPatch, *, leads: bool, is_stale: bool
) -> None:
    loop, owed = Loop(), move("web")
    snapshot = cluster([], [owed.pod])
    loop.parts.informers.state.apply("pods", snapshot.pods.items())
    await loop.loop.reconcile()
    send(loop.journal, owed, snapshot)
    loop.journal.owed(owed, snapshot)
    loop.leads = leads
    monkeypatch.setattr(loop.parts.informers.health, "ages_seconds", lambda: {"nodes": STALE_SECONDS + is_stale})
    loop.seconds += OWED_SECONDS
    before = loop.requests.lists
    await loop.loop.reconcile()
    if leads and not is_stale:
        await until(lambda: loop.requests.lists > before)
    else:
        await asyncio.sleep(0.1)
        assert loop.requests.lists == before


@pytest.mark.parametrize("leads", [True, False])
async def test_moves_are_followed_until_a_stop_and_only_the_leader_finds_out_and_tells_what_became_of_them(
    monkeypatch: pytest.MonkeyPatch, *, leads: bool
) -> None:
    asked, told = list[str](), list[Any]()
    for name in ("look_after", "find_out"):
        monkeypatch.setattr(FollowUp, name, lambda *_, name=name: asked.append(name))
    monkeypatch.setattr(History, "follow_trials", lambda _, policies, _snapshot: policies.values())
    monkeypatch.setattr(PreventionLoop, "observe", lambda _, *given: told.append(given))
    loop = Loop()
    loop.set_policies(policy("one"), version=200)
    loop.leads = leads
    await loop.loop.reconcile()
    assert [each.reason for each in loop.events] == ["EvictionsResumed"] * leads
    loop.loop.stop()
    await loop.loop.run()
    assert asked == (["look_after", "find_out"] if leads else ["look_after"])
    assert len(told) == 1 + leads, "pod deletion costs depend on the same"


async def test_each_plan_reaches_the_room_loop_and_ends_the_lag_of_what_it_has_seen() -> None:
    expected = {"topologyKey": ZONE, "values": ["a"], "provision": "Request", "priorityClassName": "low"}
    loop, asking = Loop(), {"mode": "Enforce", "constraints": {"expectedDomains": [expected]}}
    changes = loop.parts.informers.changes
    loop.set_policies({**policy("one"), "spec": asking}, version=200)
    await asyncio.sleep(0.01)
    changes.take()
    assert changes.lag_seconds() > 0
    await loop.loop.reconcile()
    assert changes.lag_seconds() == 0
    before = loop.requests.lists
    running = asyncio.create_task(loop.room.run())
    await until(lambda: loop.requests.lists > before)  # it looks for what earlier leaders asked for
    loop.room.stop()
    await running


def test_a_pause_survives_a_change_of_leader_and_only_the_leader_reports_it() -> None:
    loop = Loop()
    loop.set_policies(policy("one"), version=200)
    until = datetime.fromtimestamp(loop.wall_clock() + 30, UTC).isoformat()
    failed = [f"Deployment/{name} in shop" for name in "abc"]
    loop.requests.records = {"one": {"failuresInARow": {"workloads": failed, "pauses": 1, "pausedUntil": until}}}

    def shown() -> float | None:
        asyncio.run(loop.loop.reconcile())
        return loop.parts.registry.get_sample_value("respread_policy_paused", {"policy_namespace": "", "policy": "one"})

    assert shown() == 1
    (said,) = [each for each in loop.requests.written[-1][1]["conditions"] if each["type"] == "Paused"]
    assert said["status"] == "True"
    assert all(words in said["message"] for words in (*failed, "nothing is evicted"))
    assert loop.requests.recorded[-1]["failuresInARow"]["workloads"] == failed
    loop.leads = False
    assert shown() == 0
    loop.leads = True
    loop.seconds += 60
    assert shown() == 1  # until a trial move succeeds


def test_failures_before_and_after_a_change_of_leader_pause_the_policy_together() -> None:
    loop = Loop()
    loop.set_policies(policy("one"), version=200)
    failed = [f"Deployment/{name} in shop" for name in "ab"]
    loop.requests.records = {"one": {"failuresInARow": {"workloads": failed}}}
    asyncio.run(loop.loop.reconcile())
    send(loop.journal, move("gone", policy="one"), cluster([], []))
    asyncio.run(loop.loop.reconcile())
    assert loop.journal.history.breakers.paused("one", 3, loop.wall_clock()) is None
    loop.seconds += STEP_SECONDS
    asyncio.run(loop.loop.reconcile())
    assert loop.journal.history.breakers.paused("one", 3, loop.wall_clock()) is not None
    asyncio.run(loop.loop.reconcile())
    assert [each.reason for each in loop.events if "Evictions" in each.reason] == ["EvictionsPaused"]


@pytest.mark.parametrize("stays", [False, True])
def test_the_pause_ends_if_the_replacement_of_the_pod_that_was_tried_stays_and_repeats_if_it_is_deleted_at_once(
    *, stays: bool
) -> None:
    loop = Loop()
    loop.set_policies(policy("one"), version=200)
    failed = [f"Deployment/{name} in shop" for name in "abc"]
    until = datetime.fromtimestamp(loop.wall_clock() - 5, UTC).isoformat()
    loop.requests.records = {"one": {"failuresInARow": {"workloads": failed, "pauses": 1, "pausedUntil": until}}}
    asyncio.run(loop.loop.reconcile())
    tried, replacement = move("web-1", policy="one"), pod("web-2", "node-1", SPEC)
    send(loop.journal, tried, cluster([], [tried.pod]))
    after = cluster([], [replacement])
    loop.journal.ledger, _ = loop.journal.ledger.updated(after, loop.seconds, lambda *_: Outcome.IMPROVED)
    assert [each.move for each in loop.journal.ledger.steadying] == [tried]
    if stays:
        loop.parts.informers.state.apply("pods", [(replacement.key, replacement)])
        loop.seconds += STEADY_SECONDS
    asyncio.run(loop.loop.reconcile())
    found = {name: each.until for name, each in loop.journal.history.breakers.policies.items()}
    assert found == ({} if stays else {"one": loop.wall_clock() + PAUSE.first_seconds})
    assert [each.reason for each in loop.events if "Evictions" in each.reason] == ["EvictionsResumed"] * stays


def test_a_new_leader_follows_the_moves_in_flight_of_the_records() -> None:
    loop = Loop()
    loop.set_policies(policy("default"), version=200)
    remembered = {
        "uid": "uid-gone",
        "namespace": "shop",
        "pod": "gone",
        "node": "node-1",
        "workload": "Deployment/web",
        "controllerKind": "ReplicaSet",
        "controllerName": "web-abc",
        "controllerUid": "uid-web",
        "sent": "2027-01-15T07:59:00Z",
        "newest": "2027-01-15T07:00:00Z",
    }
    loop.requests.records = {"default": {"movesInFlight": [remembered]}}
    asyncio.run(loop.loop.reconcile())
    (flight,) = loop.journal.ledger.in_flight
    assert (flight.uid, str(flight.move.workload)) == ("uid-gone", "Deployment/web")
    loop.term = 2
    loop.requests.records = {"default": {"movesInFlight": []}}
    asyncio.run(loop.loop.reconcile())
    assert loop.journal.ledger.in_flight == ()


@pytest.mark.parametrize(
    ("minutes_old", "annotations", "due_at_seconds"),
    [(0, {}, 45), (60, {"karpenter.sh/do-not-disrupt": "61m"}, 45), (60, {"karpenter.sh/do-not-disrupt": "true"}, 61)],
)
def test_the_loop_wakes_when_a_pod_becomes_evictable_by_time_alone(
    minutes_old: int, annotations: dict[str, str], due_at_seconds: float
) -> None:
    """There is no event when a pod becomes old enough or its protection ends."""
    loop = Loop()
    born = datetime.fromtimestamp(loop.wall_clock() - 60 * minutes_old - 15, UTC)
    young = {"annotations": Map(annotations), "creation_timestamp": born, "start_time": born}
    state = loop.parts.informers.state
    state.replace("nodes", [node("a1", "a"), node("b1", "b")])
    state.replace("namespaces", [Namespace(name="default")])
    state.replace("pods", pods({"a1": 3}, spec(constraint()), **young))
    loop.set_policies({**policy("one"), "spec": {"mode": "Enforce", "quietPeriod": "1ms"}}, version=300)
    loop.leads = False  # so that no status is due earlier
    asyncio.run(loop.loop.reconcile())
    loop.seconds += 1  # the quiet period is over
    assert asyncio.run(loop.loop.reconcile()) == pytest.approx(due_at_seconds, abs=0.01)
    loop.seconds = due_at_seconds
    asyncio.run(loop.loop.reconcile())
    assert loop.acting.holds.refusals.next_end() == inf, "a replica that does not lead begins nothing"


@pytest.mark.virtual_time
async def test_nothing_is_evicted_on_a_stale_watch_or_in_dry_run(caplog: pytest.LogCaptureFixture) -> None:
    cluster = SimulatedCluster(1, limits={})
    loop = cluster.control_loop()
    now = [0.0]
    health = type(cluster.parts.health)(cluster.parts.health.kinds, lambda: now[0])
    cluster.parts.informers.health = health
    now[0] = STALE_SECONDS + 1
    for kind in health.kinds:
        if kind != "nodes":
            health.heard(kind)
    await loop.reconcile()
    await asyncio.sleep(6)  # the quiet period is over, and another status is due
    await loop.reconcile()
    assert cluster.acting.journal.ledger.chosen == ()
    (violation,), pace = cluster.written[-1]["violations"], cluster.written[-1]["pace"]
    assert (violation["reason"], violation["plannedMoves"], pace["evictionsLeft"]) == ("ApiUnavailable", 1, 1)
    assert cluster.written[-1]["blocked"] == [{"reason": "ApiUnavailable", "groups": 0, "pods": 1}]
    assert "nothing was heard of nodes" in violation["message"]
    before = len(cluster.written)
    now[0] += 60
    await asyncio.sleep(60)
    await loop.reconcile()
    assert len(cluster.written) == before, "the message stays the same, or the status would be written all the time"
    now[0] = STALE_SECONDS
    for chosen, mode in enumerate(("DryRun", "Enforce")):
        metadata = {**cluster.policy["metadata"], "generation": 2 + chosen, "resourceVersion": f"900{chosen}"}
        changed = {"metadata": metadata, "spec": {**cluster.policy["spec"], "mode": mode}}
        cluster.parts.event("clusterrebalancepolicies", changed)
        await loop.reconcile()
        assert len(cluster.acting.journal.ledger.chosen) == chosen
    await cluster.acting.aclose()
    assert caplog.text.count("Nothing is evicted for now") == 1
