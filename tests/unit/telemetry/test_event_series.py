"""Repeated Events are counted in a series, bursts about one object are limited, and temporary errors are retried."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from aiohttp import web

from respread.kube.events import OBJECT_BURST, REMEMBERED, Event, EventObject, EventRecorder, EventType, SeriesBook
from respread.kube.requests import open_requests
from tests.integration.stub_api_server import StubApiServer, nobody_at

START = datetime(2026, 1, 1, tzinfo=UTC)


def make_event(name: str = "web", note: str = "Moved", reason: str = "Evicted", kind: str = "Deployment") -> Event:
    regarding = EventObject(api_version="apps/v1", kind=kind, namespace="shop", name=name, uid=f"uid-{name}")
    return Event(regarding=regarding, reason=reason, action="Evict", note=note)


class Book:
    """A SeriesBook with its clock."""

    def __init__(self) -> None:
        self.book = SeriesBook()
        self.now = 0.0

    def see(self, event: Event) -> str:
        series = self.book.see(event, time=START + timedelta(seconds=self.now), now_seconds=self.now)
        return "refused" if series is None else "new" if series.count == 1 else "counted"

    def see_written(self, event: Event) -> None:
        """Record a new Event that is written at once."""
        series = self.book.see(event, time=START, now_seconds=self.now)
        assert series is not None
        assert series.count == 1
        series.written_count, series.written_seconds = 1, self.now


@pytest.fixture
def book() -> Book:
    return Book()


def test_a_repeated_event_is_counted(book: Book) -> None:
    assert book.see(make_event()) == "new"
    book.now = 5
    series = book.book.see(make_event(), time=START + timedelta(seconds=5), now_seconds=5)
    assert series is not None
    assert (series.count, series.first_time, series.last_time) == (2, START, START + timedelta(seconds=5))


@pytest.mark.parametrize(
    "other",
    [
        make_event(name="api"),
        make_event(note="Moved again"),
        make_event(reason="Blocked"),
        make_event(kind="StatefulSet"),
        Event(regarding=make_event().regarding, reason="Evicted", action="Plan", note="Moved"),
        Event(regarding=make_event().regarding, reason="Evicted", action="Evict", note="Moved", type=EventType.WARNING),
    ],
)
def test_any_difference_makes_a_new_event(book: Book, other: Event) -> None:
    book.see(make_event())
    assert book.see(other) == "new"


def test_a_series_ends_after_ten_quiet_minutes(book: Book) -> None:
    book.see(make_event())
    for _ in range(3):
        book.now += 600
        assert book.see(make_event()) == "counted"
    book.now += 601
    assert book.see(make_event()) == "new"


def test_counts_are_written_once_a_minute(book: Book) -> None:
    book.see_written(make_event())
    assert book.book.due(1000) == []
    book.now = 1
    book.see(make_event())
    book.see(make_event())
    assert book.book.due(59) == []
    (series,) = book.book.due(60)
    assert series.count == 3
    series.written_count, series.written_seconds = 3, 60
    assert book.book.due(1000) == []


def test_the_count_of_an_event_that_is_not_created_yet_is_not_written(book: Book) -> None:
    assert [book.see(make_event()) for _ in range(2)] == ["new", "counted"]
    assert book.book.uncounted() == book.book.due(1000) == []


def test_a_burst_of_events_about_one_object_is_limited(book: Book) -> None:
    verdicts = [book.see(make_event(note=str(n))) for n in range(OBJECT_BURST + 2)]
    assert verdicts == ["new"] * OBJECT_BURST + ["refused"] * 2
    assert book.see(make_event(name="api")) == "new"
    assert book.see(make_event(note="0")) == "counted"


def test_the_event_limit_of_an_object_refills_with_time(book: Book) -> None:
    for n in range(OBJECT_BURST + 1):
        book.see(make_event(note=str(n)))
    book.now = 9
    assert book.see(make_event(note="a")) == "refused"
    book.now = 10
    assert book.see(make_event(note="b")) == "new"
    assert book.see(make_event(note="c")) == "refused"
    book.now = 100000
    verdicts = [book.see(make_event(note=f"later {n}")) for n in range(OBJECT_BURST + 1)]
    assert verdicts == ["new"] * OBJECT_BURST + ["refused"]


def test_a_forgotten_event_is_new_again(book: Book) -> None:
    series = book.book.see(make_event(), time=START, now_seconds=0)
    assert series is not None
    book.book.forget(series)
    assert book.see(make_event()) == "new"
    book.book.forget(series)
    assert book.see(make_event()) == "counted"


def test_the_most_recent_events_are_kept_up_to_a_limit() -> None:
    book = Book()
    for n in range(REMEMBERED + 10):
        assert book.see(make_event(name=str(n))) == "new"
    assert book.see(make_event(name=str(REMEMBERED + 9))) == "counted"
    assert book.see(make_event(name="10")) == "counted"
    assert book.see(make_event(name="9")) == "new"
    assert len(book.book._series) == REMEMBERED
    assert len(book.book._allowances) == REMEMBERED


def test_each_new_event_has_a_unique_name(book: Book) -> None:
    seen = [book.book.see(make_event(note=str(n)), time=START, now_seconds=0) for n in range(3)]
    assert len({series.name for series in seen if series is not None and series.name.startswith("web.")}) == 3


@asynccontextmanager
async def recording(*answers: int, **options: Any) -> AsyncIterator[tuple[EventRecorder, list[Any]]]:
    """Yield a recorder and the bodies of its requests, which get these answers."""
    stub, left = StubApiServer(), iter(answers)

    async def answer(_: web.Request) -> web.Response:
        return web.json_response({"kind": "Status"}, status=next(left))

    stub.on("POST", "", answer)
    stub.on("PATCH", "", answer)
    async with stub.running() as requests, EventRecorder(requests, instance="us", **options).writing() as recorder:
        yield recorder, stub.bodies


async def until(number: int, bodies: Sequence[Any]) -> None:
    async with asyncio.timeout(90):
        while len(bodies) < number:  # noqa: ASYNC110 - the server sets no asyncio.Event
            await asyncio.sleep(0.05)


@pytest.mark.parametrize(
    ("answers", "attempts", "complaint"),
    [
        ((201,), 1, ""),
        ((503, 201), 2, ""),
        ((429, 201), 2, ""),
        ((500, 409), 2, ""),
        ((422,), 1, "422 "),
        ((503, 503, 503), 3, "503 "),
    ],
)
async def test_only_temporary_errors_are_retried(
    caplog: pytest.LogCaptureFixture, answers: tuple[int, ...], attempts: int, complaint: str
) -> None:
    async with recording(*answers) as (recorder, bodies):
        recorder.record(make_event())
        await until(attempts, bodies)
        await asyncio.sleep(0.1)
    assert len(bodies) == attempts
    assert len({body["metadata"]["name"] for body in bodies}) == 1
    assert complaint in caplog.text
    assert ("could not be written" in caplog.text) == bool(complaint)


@pytest.mark.parametrize(("interval_seconds", "written"), [(0.1, 2), (600.0, 1)])
async def test_counts_are_written_when_they_are_due_or_at_the_end(interval_seconds: float, written: int) -> None:
    async with recording(201, 200, count_interval_seconds=interval_seconds) as (recorder, bodies):
        recorder.record(make_event())
        await until(1, bodies)
        for _ in range(3):
            recorder.record(make_event())
        await until(written, bodies)
        await asyncio.sleep(0.3)
        assert len(bodies) == written
    assert [body.get("series", {}).get("count", 1) for body in bodies] == [1, 4]


async def test_no_more_events_wait_than_there_are_places_and_those_of_cluster_scoped_objects_are_in_default() -> None:
    regarding = EventObject(api_version="v1", kind="Node", namespace="", name="a1", uid="uid-a1")
    async with recording(201, 201, queue_size=2) as (recorder, bodies):
        for note in "abc":
            recorder.record(Event(regarding=regarding, reason="Blocked", action="Plan", note=note))
    assert [(body["note"], body["metadata"]["namespace"]) for body in bodies] == [("a", "default"), ("b", "default")]


async def test_an_unreachable_server_does_not_stop_the_recorder(caplog: pytest.LogCaptureFixture) -> None:
    async with (
        open_requests(nobody_at("http://127.0.0.1:1")) as requests,
        EventRecorder(requests, instance="respread-0", queue_size=3).writing() as recorder,
    ):
        for n in range(10):
            recorder.record(make_event(note=str(n)))
        await asyncio.sleep(0)
    assert "Events are dropped: too many wait to be written" in caplog.text
