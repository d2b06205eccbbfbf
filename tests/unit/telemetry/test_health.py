"""Checks, heartbeats, and their reports."""

from __future__ import annotations

import pytest

from respread.telemetry.health import Check, HealthReport, Heartbeat
from tests.virtual_time import Clock


@pytest.fixture
def clock() -> Clock:
    return Clock(1000.0)


@pytest.fixture
def heartbeat(clock: Clock) -> Heartbeat:
    return Heartbeat("control-loop", limit_seconds=30, clock=clock)


def test_a_heartbeat_passes_until_its_limit(heartbeat: Heartbeat, clock: Clock) -> None:
    assert heartbeat.check().passed
    clock.now += 30
    assert heartbeat.check().passed
    clock.now += 1
    assert heartbeat.age_seconds == 31
    assert heartbeat.check() == Check("control-loop", False, "last sign of life 31 s ago, limit 30 s")


def test_a_new_heartbeat_makes_it_pass_again(heartbeat: Heartbeat, clock: Clock) -> None:
    clock.now += 100
    heartbeat.beat()
    clock.now += 5
    assert heartbeat.age_seconds == 5
    assert heartbeat.check().passed


def test_a_report_passes_if_every_check_does() -> None:
    report = HealthReport("readyz", (Check("pods", True), Check("nodes", True)))
    assert report.passed
    assert report.render() == "[+]pods ok\n[+]nodes ok\nreadyz check passed\n"


def test_one_failed_check_fails_the_report_with_its_message() -> None:
    report = HealthReport("readyz", (Check("pods", True), Check("nodes", False, "not listed yet")))
    assert not report.passed
    assert report.render() == "[+]pods ok\n[-]nodes failed: not listed yet\nreadyz check failed\n"


def test_a_report_without_checks_passes() -> None:
    report = HealthReport("livez", ())
    assert report.passed
    assert report.render() == "livez check passed\n"
