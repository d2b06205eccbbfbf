"""Groups whose moves did not help are held for growing times with jitter, and for shorter times after changes."""

from __future__ import annotations

import pytest
from immutables import Map

from respread.holds import backoff
from respread.holds.backoff import BackOff, BackOffs, delay_seconds

JITTER = backoff.JITTER


@pytest.fixture(autouse=True)
def _without_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "JITTER", 0.0)


def until(backing_off: BackOffs, group: str, situation: str, now: float) -> float:
    """Return when a group is released."""
    held = backing_off.held(group, situation, now)
    assert held is not None
    assert held.until is not None
    return held.until.timestamp()


def test_delays_double_up_to_the_maximum() -> None:
    assert [delay_seconds("web", failures) for failures in range(6, 11)] == [1920, 3840, 7680, 14400, 14400]
    assert delay_seconds("web", 100_000) == 14400


def test_jitter_only_lengthens_delays_and_is_constant_for_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "JITTER", JITTER)
    delays = {group: delay_seconds(group, 1) for group in map(str, range(200))}
    assert all(60 <= delay < 72 for delay in delays.values())
    assert max(delays.values()) > 71
    assert min(delays.values()) < 61
    assert len(set(delays.values())) == 200
    assert delays == {group: delay_seconds(group, 1) for group in delays}


def test_a_group_is_held_until_its_delay_is_over_and_longer_after_the_next_failure() -> None:
    once = BackOffs().failed("web", "3,1,1", now=1000)
    assert once.held("web", "3,1,1", now=1059.9) is not None
    assert once.held("web", "3,1,1", now=1060) is None
    assert once.held("api", "3,1,1", now=1000) is None
    twice = once.failed("web", "3,1,1", now=1060)
    assert (until(once, "web", "3,1,1", 1001), until(twice, "web", "3,1,1", 1101)) == (1060, 1180)
    held = twice.held("web", "3,1,1", now=1060)
    assert str(held) == (
        "BackingOff: 2 moves in a row did not improve it; it is left alone for another 120 s, or for 15 s if its "
        "situation changes"
    )


def test_moves_that_were_in_flight_at_the_same_time_fail_as_one() -> None:
    failed = BackOffs().failed("web", "s", now=1000, took_seconds=300)
    for at in range(1001, 1020):
        failed = failed.failed("web", "s", now=at, took_seconds=300)
    assert until(failed, "web", "s", 1019) == 1079
    assert until(failed.failed("web", "s", now=1319, took_seconds=300), "web", "s", 1319) == 1439


def test_a_changed_situation_shortens_the_delay_but_failures_still_add_up() -> None:
    once = BackOffs().failed("web", "3,1,1", now=1000)
    assert until(once, "web", "3,1,1,0", 1007.4) == 1007.5
    assert once.held("web", "3,1,1,0", now=1007.5) is None
    assert str(once.held("web", "3,1,1", now=1007.5)).endswith("for another 52 s, or until its situation changes")
    again = once.failed("web", "3,1,1,0", now=1008)
    assert again.held("web", "3,1,1,0", now=1127) is not None
    assert again.held("web", "3,1,1", now=1022) is not None
    assert again.held("web", "3,1,1", now=1023) is None


def test_the_minimum_delay_after_a_change_grows_with_the_failures() -> None:
    backing_off, now, floors = BackOffs(), 1000.0, []
    for failures in range(1, 11):
        backing_off = backing_off.failed("web", f"at failure {failures}", now)
        released = until(backing_off, "web", "changed", now)
        assert backing_off.held("web", "changed", now=released - 0.1) is not None
        assert backing_off.held("web", "changed", now=released) is None
        floors.append(released - now)
        now = released
    assert floors == [7.5, 15, 30, 60, 120, 240, 480, 960, 1800, 1800]  # the maximum delay is 4 hours
    held = backing_off.held("web", "changed", now=now - 10)
    assert held is not None
    assert held.message == (
        "10 moves in a row did not improve it; it is left alone for another 10 s at least, although its situation has "
        "changed"
    )


def test_an_improvement_ends_the_back_off() -> None:
    once = BackOffs().failed("web", "s", now=1000)
    assert once.improved("web").held("web", "s", now=1000) is None
    assert once.improved("web").failed("web", "s", now=2000).groups["web"].failures == 1
    assert once.improved("other") is once


def test_a_clock_set_back_does_not_hold_a_group_for_years() -> None:
    once = BackOffs().failed("web", "s", now=2_000_000_000)
    end = 2_000_000_060
    assert [once.held("web", "s", now=end - ahead) is None for ahead in (14_400, 14_401, 10**8)] == [False, True, True]


def test_a_group_is_held_for_all_of_the_longest_delay_with_its_jitter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(backoff, "JITTER", JITTER)
    for group in map(str, range(20)):
        backing_off = BackOffs(groups=Map({group: BackOff(failures=100, until=0.0, situation="s")}))
        backing_off = backing_off.failed(group, "s", now=1000)
        assert backing_off.held(group, "s", now=1000) is not None
        assert backing_off.held(group, "s", now=backing_off.groups[group].until) is None
