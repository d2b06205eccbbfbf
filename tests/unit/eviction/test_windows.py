"""Windows follow the wall clock of their time zone, also when daylight saving time changes."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respread.api.policy import Window
from respread.holds.holds import Windows

BERLIN = ZoneInfo("Europe/Berlin")


def windows(schedule: str, hours: float = 2, time_zone: str = "Europe/Berlin") -> Windows:
    return Windows.of([Window(schedule=schedule, duration=timedelta(hours=hours), time_zone=time_zone)])


def utc(text: str) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=UTC)


def open_minutes(of: Windows, start: str, hours: int) -> list[str]:
    """Return the minutes, in UTC, at which windows open and close."""
    times, before = [], of.is_open(utc(start) - timedelta(minutes=1))
    for minute in range(hours * 60):
        moment = utc(start) + timedelta(minutes=minute)
        if of.is_open(moment) != before:
            before = not before
            times.append(f"{moment:%d %H:%M}")
    return times


def test_a_window_opens_on_the_minute_and_closes_after_its_duration() -> None:
    nightly = windows("0 2 * * *")
    assert not nightly.is_open(utc("2026-11-21T00:59:59.999999"))
    assert nightly.is_open(utc("2026-11-21T01:00:00"))
    assert nightly.is_open(utc("2026-11-21T02:59:59.999999"))
    assert not nightly.is_open(utc("2026-11-21T03:00:00"))
    held = nightly.why_closed(datetime(2026, 11, 21, 12, tzinfo=BERLIN))
    assert str(held) == "WindowClosed: the policy's windows are all closed; the next one opens at 2026-11-22 01:00 UTC"


def test_one_open_window_or_none_at_all_is_enough_and_the_next_to_open_is_named() -> None:
    assert Windows.of([]).why_closed(utc("2026-11-21T03:00")) is None
    both = Windows.of(
        [
            Window(schedule="0 2 * * *", duration=timedelta(hours=1)),
            Window(schedule="0 1 * * SAT", duration=timedelta(hours=1)),
        ]
    )
    assert both.is_open(utc("2026-11-21T01:30"))  # a Saturday
    assert both.why_closed(utc("2026-11-21T01:30")) is None
    assert not both.is_open(utc("2026-11-20T01:30"))
    assert both.next_opening(utc("2026-11-20T03:00")) == utc("2026-11-21T01:00")


# On 29 March 2026, Berlin's clocks change from 02:00 (01:00 UTC) to 03:00, and on 25 October from 03:00 (01:00 UTC) to
# 02:00.
@pytest.mark.parametrize(
    ("schedule", "hours", "start", "times"),
    [
        ("0 2 * * *", 2, "2026-03-28T00:00", ["28 01:00", "28 03:00", "29 01:00", "29 03:00", "30 00:00", "30 02:00"]),
        ("30 2 * * *", 1, "2026-03-28T00:00", ["28 01:30", "28 02:30", "29 01:00", "29 02:00", "30 00:30", "30 01:30"]),
        ("30 1 * * *", 2, "2026-03-28T12:00", ["29 00:30", "29 02:30", "29 23:30", "30 01:30"]),
        ("0 3 * * *", 1, "2026-03-28T12:00", ["29 01:00", "29 02:00", "30 01:00", "30 02:00"]),
        ("0 2 * * *", 2, "2026-10-24T12:00", ["25 00:00", "25 02:00", "26 01:00", "26 03:00"]),
        ("30 2 * * *", 0.25, "2026-10-24T12:00", ["25 00:30", "25 00:45", "26 01:30", "26 01:45"]),
        ("0 3 * * *", 1, "2026-10-24T12:00", ["25 02:00", "25 03:00", "26 02:00", "26 03:00"]),
        # every hour, also in both occurrences of the repeated hour
        (
            "15 * * * *",
            0.5,
            "2026-10-25T00:00",
            ["25 00:15", "25 00:45", "25 01:15", "25 01:45", "25 02:15", "25 02:45"],
        ),
    ],
)
def test_windows_follow_daylight_saving_time(schedule: str, hours: float, start: str, times: list[str]) -> None:
    span = 3 if schedule.startswith("15 *") else 64 if start.endswith("00:00") else 40
    assert open_minutes(windows(schedule, hours), start, span) == times


def test_windows_longer_than_their_schedule_merge_and_may_span_the_end_of_the_year() -> None:
    assert open_minutes(windows("0 */6 * * *", 8, "UTC"), "2026-11-21T00:00", 24) == []
    assert windows("0 */6 * * *", 8, "UTC").is_open(utc("2026-11-21T05:59"))
    late = windows("0 23 31 12 *", 4, "UTC")
    assert late.is_open(utc("2027-01-01T02:59"))
    assert not late.is_open(utc("2027-01-01T03:00"))


moments = st.integers(0, 10 * 366 * 86400).map(lambda seconds: utc("2020-01-01T00:00") + timedelta(seconds=seconds))
schedules = st.sampled_from(["0 2 * * *", "30 2 * * *", "*/20 * * * *", "15 1-3 * * *", "0 0 1 * *", "30 3 * * SUN"])
zones = st.sampled_from(["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Asia/Kathmandu"])


@given(moments, schedules, zones, st.integers(1, 300))
def test_the_next_opening_is_the_next_time_at_which_a_window_is_open(
    moment: datetime, schedule: str, time_zone: str, minutes: int
) -> None:
    of = windows(schedule, minutes / 60, time_zone)
    opens = of.next_opening(moment)
    assert opens is not None
    assert opens > moment
    assert of.is_open(opens)
    if not of.is_open(moment):
        between = [moment + (opens - moment) * part / 8 for part in range(8)]
        assert not any(of.is_open(each) for each in between)
