"""The operator is ready once every kind is listed, and alive while every kind receives data or sends requests."""

from __future__ import annotations

from respread.telemetry.health import IDLE_LIMIT_SECONDS, SILENCE_LIMIT_SECONDS, WatchHealth
from tests.virtual_time import Clock


def failed(health: WatchHealth) -> dict[str, str]:
    return {each.name: each.message for each in health.watch_checks() if not each.passed}


def test_the_operator_is_ready_once_every_kind_was_listed() -> None:
    health = WatchHealth(["pods", "nodes"])
    assert not health.synced
    health.listed("pods")
    assert health.has_synced("pods")
    assert not health.synced
    assert [(each.name, each.passed, each.message) for each in health.sync_checks() if not each.passed] == [
        ("sync-nodes", False, "not listed yet")
    ]
    health.listed("nodes")
    assert health.synced
    assert all(each.passed for each in health.sync_checks())


def test_the_obstacle_of_a_kind_is_reported_until_a_request_succeeds() -> None:
    health = WatchHealth(["pods"])
    health.listed("pods")
    health.hindered("pods", "not allowed to list and watch pods")
    (check,) = health.sync_checks()
    assert (check.passed, check.message) == (False, "not allowed to list and watch pods")
    health.answered("pods")
    assert health.sync_checks()[0].passed


def test_the_age_of_a_watch_counts_from_its_last_data() -> None:
    clock = Clock(1000.0)
    health = WatchHealth(["pods", "nodes"], clock)
    clock.now += 10
    health.heard("pods")
    health.asked("nodes")
    clock.now += 5
    assert health.ages_seconds() == {"pods": 5, "nodes": 15}


def test_a_kind_without_requests_is_stuck() -> None:
    clock = Clock(1000.0)
    health = WatchHealth(["pods", "nodes"], clock)
    clock.now += IDLE_LIMIT_SECONDS
    health.heard("pods")
    assert not failed(health)
    clock.now += 1
    assert list(failed(health)) == ["watch-nodes"]
    assert "nothing heard for 181 s, nothing asked for 181 s" in failed(health)["watch-nodes"]
    health.heard("nodes")
    assert not failed(health)


def test_a_kind_whose_requests_fail_has_a_longer_limit() -> None:
    clock = Clock(1000.0)
    health = WatchHealth(["pods"], clock)
    while clock.now < 1000 + SILENCE_LIMIT_SECONDS:
        clock.now += 30
        health.asked("pods")
        assert not failed(health)
    clock.now += 1
    assert list(failed(health)) == ["watch-pods"]
