"""Liveness by age, readiness by kind, and how both read."""

from __future__ import annotations

import pytest

from respread.telemetry.health import Check, Freshness, Health, HealthReport, Synced


class Clock:
    """Seconds that pass when a test says so."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def health(clock: Clock) -> Health:
    return Health(["pods", "nodes"], loop_limit_seconds=30, watch_limit_seconds=300, clock=clock)


def test_it_is_live_from_the_start_but_not_ready(health: Health) -> None:
    assert health.live().passed
    assert not health.ready().passed
    assert health.ready().render() == (
        "[-]pods-synced failed: not listed yet\n[-]nodes-synced failed: not listed yet\nreadyz check failed\n"
    )


def test_it_is_ready_once_every_kind_is_synced(health: Health) -> None:
    health.synced.mark_synced("pods")
    assert (health.ready().passed, health.synced.complete) == (False, False)
    health.synced.mark_synced("nodes")
    assert (health.ready().passed, health.synced.complete) == (True, True)
    assert health.ready().render() == "[+]pods-synced ok\n[+]nodes-synced ok\nreadyz check passed\n"


def test_it_is_no_longer_ready_when_a_kind_falls_out_of_sync(health: Health) -> None:
    health.synced.mark_synced("pods")
    health.synced.mark_synced("nodes")
    health.synced.mark_unsynced("pods", "the list was cut short; listing again")
    assert health.ready().checks == (
        Check("pods-synced", False, "the list was cut short; listing again"),
        Check("nodes-synced", True),
    )


def test_a_loop_that_stops_turning_is_not_live(health: Health, clock: Clock) -> None:
    clock.now += 30
    assert health.live().passed
    clock.now += 1
    assert health.live().render() == (
        "[-]control-loop failed: last sign of life 31 s ago, limit 30 s\n"
        "[+]pods-watch ok\n[+]nodes-watch ok\nlivez check failed\n"
    )
    health.beat()
    assert health.live().passed


def test_one_silent_watch_is_enough_not_to_be_live(health: Health, clock: Clock) -> None:
    for _ in range(20):
        clock.now += 20
        health.beat()
        health.watches.touch("nodes")
    assert [check.name for check in health.live().checks if not check.passed] == ["pods-watch"]
    health.watches.touch("pods")
    assert health.live().passed


def test_ages_count_from_each_things_own_last_sign(health: Health, clock: Clock) -> None:
    clock.now += 5
    health.watches.touch("pods")
    clock.now += 2
    assert health.watches.ages_seconds() == {"pods": 2, "nodes": 7}


def test_readiness_does_not_depend_on_age(health: Health, clock: Clock) -> None:
    health.synced.mark_synced("pods")
    health.synced.mark_synced("nodes")
    clock.now += 1e6
    assert health.ready().passed


def test_each_thing_has_its_own_limit(clock: Clock) -> None:
    freshness = Freshness({"fast": 1, "slow": 100}, clock=clock)
    clock.now += 50
    assert [(check.name, check.passed) for check in freshness.checks()] == [("fast", False), ("slow", True)]


@pytest.mark.parametrize(
    "note", [lambda: Synced(["pods"]).mark_synced("nodes"), lambda: Freshness({}, clock=Clock()).touch("pods")]
)
def test_a_name_that_nobody_expects_is_an_error(note: object) -> None:
    assert callable(note)
    with pytest.raises(KeyError):
        note()


def test_a_report_without_checks_passes() -> None:
    assert HealthReport("livez", ()).passed
    assert HealthReport("livez", ()).render() == "livez check passed\n"
