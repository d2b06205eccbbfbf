"""What a leader makes of evictions that failed in a row before it makes another one."""

from __future__ import annotations

from respread.api.policy import ClusterPolicySpec, Policy
from respread.cluster.workload import WorkloadName
from respread.controller.record import Record

NOW = 1_800_000_000.0
POLICY = Policy(kind="ClusterRebalancePolicy", object_name="default", spec=ClusterPolicySpec(mode="Enforce"))
FIRST = Record(lambda: NOW).breakers.rules.first_seconds


class Clock:
    now = NOW

    def __call__(self) -> float:
        return self.now


def after_failures(clock: Clock) -> Record:
    """Return what is known after three workloads of one namespace failed, again when they were tried."""
    record = Record(clock)
    for name in ("a", "b", "c", "a", "b"):
        record.breakers = record.breakers.failed("default", WorkloadName("Deployment", "shop", name), 3, clock.now)
        clock.now = record.breakers.policies["default"].until
    clock.now = record.breakers.policies["default"].until - record.breakers.rules.pause_seconds(3)
    return record


def test_for_a_minute_nothing_is_evicted_anywhere() -> None:
    clock = Clock()
    record = after_failures(clock)
    clock.now += FIRST - 1
    assert record.why_not_tried(POLICY, "shop", ()) is not None
    assert record.why_not_tried(POLICY, "elsewhere", ()) is not None


def test_then_another_namespace_has_one_at_a_time_whatever_is_under_way_in_the_failing_one() -> None:
    clock = Clock()
    record = after_failures(clock)
    clock.now += FIRST
    assert record.why_not_tried(POLICY, "shop", ()) is not None
    assert record.why_not_tried(POLICY, "elsewhere", {"shop"}) is None
    assert record.why_not_tried(POLICY, "elsewhere", {"shop", "elsewhere"}) is not None


def test_after_the_pause_the_failing_one_waits_for_whatever_is_under_way() -> None:
    clock = Clock()
    record = after_failures(clock)
    clock.now = record.breakers.policies["default"].until
    assert record.why_not_tried(POLICY, "shop", {"elsewhere"}) is not None
    assert record.why_not_tried(POLICY, "shop", ()) is None


def test_where_nothing_failed_in_a_row_nothing_is_held() -> None:
    assert Record(lambda: NOW).why_not_tried(POLICY, "shop", {"shop"}) is None
