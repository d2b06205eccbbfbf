"""Repeated Events are counted in a series, bursts about one object are limited, and temporary errors are retried."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from respread.kube.events import OBJECT_BURST, REMEMBERED, Event, EventObject, EventRecorder, EventType, SeriesBook
from respread.kube.requests import NoResponseError, Response
from tests.fake_requests import FakeRequests

START = datetime(2026, 1, 1, tzinfo=UTC)
LOST = 0  # instead of a status code


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


@pytest.fixture
def book() -> Book:
    return Book()


def test_a_repeated_event_is_counted(book: Book) -> None:
    book.see(make_event())
    series = book.book.see(make_event(), time=START + timedelta(seconds=5), now_seconds=5)
    assert series is not None
    assert (series.count, series.first_time, series.last_time) == (2, START, START + timedelta(seconds=5))
    assert book.book.uncounted() == book.book.due(1000) == [], "it is not created yet"
    series.written_count = 1
    assert (book.book.due(59), book.book.due(60)) == ([], [series])


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
    assert book.see(make_event()) == "new"
    for _ in range(3):
        book.now += 600
        assert book.see(make_event()) == "counted"
    book.now += 601
    assert book.see(make_event()) == "new"


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
    assert book.see(make_event(name="10", note="again")) == "new"
    assert book.see(make_event(name="9")) == "new"
    assert make_event(name="10").regarding in book.book._allowances
    assert len(book.book._series) == REMEMBERED
    assert len(book.book._allowances) == REMEMBERED


class Server(FakeRequests):
    """Gives answers one after another, and records the bodies and times of the requests."""

    def __init__(self, answers: Iterable[int]) -> None:
        super().__init__()
        self.answers, self.bodies, self.times = iter(answers), list[Any](), list[float]()

    async def answer(self, method: str, path: str, names: Mapping[str, str], **options: Any) -> Response:
        del method, path, names
        self.bodies.append(msgspec.json.decode(msgspec.json.encode(options["body"])))
        self.times.append(round(asyncio.get_running_loop().time(), 3))
        if (status_code := next(self.answers)) == LOST:
            raise NoResponseError("no answer", sent=True)
        return Response(status_code=status_code, body=b"{}")


@asynccontextmanager
async def recording(*answers: int, **options: Any) -> AsyncIterator[tuple[EventRecorder, Server]]:
    """Yield a recorder and its API server, which gives these answers."""
    server, clock = Server(answers), asyncio.get_running_loop().time
    async with EventRecorder(server, instance="us", monotonic=clock, **options).writing() as recorder:
        yield recorder, server


@pytest.mark.virtual_time
@pytest.mark.parametrize(
    ("answers", "times", "complaint"),
    [
        ((201,), [0], ""),
        ((503, 201), [0, 0.5], ""),
        ((429, 201), [0, 0.5], ""),
        ((500, 409), [0, 0.5], ""),
        ((422,), [0], "422 "),
        ((503, 503, 503), [0, 0.5, 2.5], "503 "),
        ((LOST, 503, LOST), [0, 0.5, 2.5], "no answer"),
    ],
)
async def test_only_temporary_errors_are_retried(
    caplog: pytest.LogCaptureFixture, answers: tuple[int, ...], times: list[float], complaint: str
) -> None:
    async with recording(*answers, 201) as (recorder, server):
        for _ in range(2):  # the second time, what could not be written is a new Event
            recorder.record(make_event())
            await asyncio.sleep(10)
    assert server.times[:-1] == times
    *names, last = [body.get("metadata", {}).get("name", "") for body in server.bodies]
    assert (len(set(names)), names[0].partition(".")[0]) == (1, "web")
    assert (last != "", last not in names) == (bool(complaint), True), "else its count is written"
    assert complaint in caplog.text
    assert ("could not be written" in caplog.text) == bool(complaint)


@pytest.mark.virtual_time
@pytest.mark.parametrize(("interval_seconds", "times"), [(60.0, [0, 60.05]), (600.0, [0, 90])])
async def test_counts_are_written_when_they_are_due_or_at_the_end(interval_seconds: float, times: list[float]) -> None:
    async with recording(201, 200, count_interval_seconds=interval_seconds) as (recorder, server):
        for _ in range(4):
            recorder.record(make_event())
            await asyncio.sleep(10)
        await asyncio.sleep(50)
    assert server.times == times
    assert [body.get("series", {}).get("count", 1) for body in server.bodies] == [1, 4]


@pytest.mark.virtual_time
async def test_no_more_events_wait_than_may_and_those_of_nodes_are_in_default(caplog: pytest.LogCaptureFixture) -> None:
    regarding = EventObject(api_version="v1", kind="Node", namespace="", name="a1", uid="uid-a1")
    async with recording(*[201] * 30, queue_size=2) as (recorder, server):
        for note in ("a", "é" * 600, "c", "d"):
            recorder.record(Event(regarding=regarding, reason="Blocked", action="Plan", note=note))
        await asyncio.sleep(60)
        for note in map(str, range(30)):
            recorder.record(Event(regarding=regarding, reason="Blocked", action="Plan", note=note))
            await asyncio.sleep(0.1)
    assert [body["metadata"]["namespace"] for body in server.bodies[:2]] == ["default"] * 2
    assert [body["note"] for body in server.bodies[:2]] == ["a", "é" * 510 + "…"], "at most 1024 bytes"
    assert server.times[:2] == [0, 0.05]
    for which in ("wait to be written", "about one object"):
        assert caplog.text.count(f"Events are dropped: too many {which}") == 1
