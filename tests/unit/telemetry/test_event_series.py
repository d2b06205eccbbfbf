"""Repeated Events are counted in a series, and bursts about one object are limited."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from respread.kube.events import Event, EventObject, EventPace, EventType, SeriesBook, Verdict

START = datetime(2026, 1, 1, tzinfo=UTC)
PACE = EventPace(
    window_seconds=600, count_interval_seconds=60, object_burst=3, object_interval_seconds=10, remembered=100
)


def make_event(name: str = "web", note: str = "Moved", reason: str = "Evicted", kind: str = "Deployment") -> Event:
    regarding = EventObject(api_version="apps/v1", kind=kind, namespace="shop", name=name, uid=f"uid-{name}")
    return Event(regarding=regarding, reason=reason, action="Evict", note=note)


class Book:
    """A SeriesBook with its clock."""

    def __init__(self, pace: EventPace = PACE) -> None:
        self.names = iter(range(10000))
        self.book = SeriesBook(pace, lambda event: f"{event.regarding.name}.{next(self.names)}")
        self.now = 0.0

    def see(self, event: Event) -> Verdict:
        return self.book.see(event, time=START + timedelta(seconds=self.now), now_seconds=self.now)[0]

    def see_written(self, event: Event) -> None:
        """Record a new Event that is written at once."""
        verdict, series = self.book.see(event, time=START, now_seconds=self.now)
        assert verdict is Verdict.NEW
        assert series is not None
        series.written_count, series.written_seconds = 1, self.now


@pytest.fixture
def book() -> Book:
    return Book()


def test_a_repeated_event_is_counted(book: Book) -> None:
    assert book.see(make_event()) is Verdict.NEW
    book.now = 5
    verdict, series = book.book.see(make_event(), time=START + timedelta(seconds=5), now_seconds=5)
    assert verdict is Verdict.COUNTED
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
    assert book.see(other) is Verdict.NEW


def test_a_series_ends_after_ten_quiet_minutes(book: Book) -> None:
    book.see(make_event())
    for _ in range(3):
        book.now += 600
        assert book.see(make_event()) is Verdict.COUNTED
    book.now += 601
    assert book.see(make_event()) is Verdict.NEW


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
    book.see(make_event())
    book.see(make_event())
    assert book.book.uncounted() == []
    assert book.book.due(1000) == []


def test_a_burst_of_events_about_one_object_is_limited(book: Book) -> None:
    verdicts = [book.see(make_event(note=str(n))) for n in range(5)]
    assert verdicts == [Verdict.NEW] * 3 + [Verdict.REFUSED] * 2
    assert book.see(make_event(name="api")) is Verdict.NEW
    assert book.see(make_event(note="0")) is Verdict.COUNTED


def test_the_event_limit_of_an_object_refills_with_time(book: Book) -> None:
    for n in range(4):
        book.see(make_event(note=str(n)))
    book.now = 9
    assert book.see(make_event(note="a")) is Verdict.REFUSED
    book.now = 10
    assert book.see(make_event(note="b")) is Verdict.NEW
    assert book.see(make_event(note="c")) is Verdict.REFUSED
    book.now = 100000
    verdicts = [book.see(make_event(note=f"later {n}")) for n in range(4)]
    assert verdicts == [Verdict.NEW] * 3 + [Verdict.REFUSED]


def test_a_forgotten_event_is_new_again(book: Book) -> None:
    _, series = book.book.see(make_event(), time=START, now_seconds=0)
    assert series is not None
    book.book.forget(series)
    assert book.see(make_event()) is Verdict.NEW
    book.book.forget(series)
    assert book.see(make_event()) is Verdict.COUNTED


def test_the_most_recent_events_are_kept_up_to_a_limit() -> None:
    book = Book(EventPace(remembered=10))
    for n in range(1000):
        assert book.see(make_event(name=str(n))) is Verdict.NEW
    assert book.see(make_event(name="999")) is Verdict.COUNTED
    assert book.see(make_event(name="990")) is Verdict.COUNTED
    assert book.see(make_event(name="989")) is Verdict.NEW
    assert len(book.book._series) == 10
    assert len(book.book._allowances) == 10


def test_each_new_event_has_a_unique_name(book: Book) -> None:
    seen = [book.book.see(make_event(note=str(n)), time=START, now_seconds=0)[1] for n in range(3)]
    assert [series.name for series in seen if series] == ["web.0", "web.1", "web.2"]
