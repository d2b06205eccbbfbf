"""The leader's reaction to consecutive failures of evictions."""

from __future__ import annotations

from respread.api.policy import ClusterPolicySpec, Policy
from respread.cluster.workload import WorkloadName
from respread.controller.records.history import Expected, History

NOW = 1_800_000_000.0
POLICY = Policy(kind="ClusterRebalancePolicy", object_name="default", spec=ClusterPolicySpec(mode="Enforce"))
FIRST = History(lambda: NOW).breakers.rules.first_seconds


class Clock:
    now = NOW

    def __call__(self) -> float:
        return self.now


def after_failures(clock: Clock) -> History:
    """Return the history after three workloads of one namespace failed, and again on trial."""
    history = History(clock)
    for name in ("a", "b", "c", "a", "b"):
        history.breakers = history.breakers.failed("default", WorkloadName("Deployment", "shop", name), 3, clock.now)
        clock.now = history.breakers.policies["default"].until
    clock.now = history.breakers.policies["default"].until - history.breakers.rules.pause_seconds(3)
    return history


def test_in_the_first_minute_of_a_pause_nothing_is_evicted_in_any_namespace() -> None:
    clock = Clock()
    history = after_failures(clock)
    clock.now += FIRST - 1
    assert history.why_not_tried(POLICY, "shop", ()) is not None
    assert history.why_not_tried(POLICY, "elsewhere", ()) is not None


def test_after_a_minute_another_namespace_may_have_one_move_at_a_time() -> None:
    clock = Clock()
    history = after_failures(clock)
    clock.now += FIRST
    assert history.why_not_tried(POLICY, "shop", ()) is not None
    assert history.why_not_tried(POLICY, "elsewhere", {"shop"}) is None
    assert history.why_not_tried(POLICY, "elsewhere", {"shop", "elsewhere"}) is not None


def test_after_the_pause_the_failing_namespace_waits_for_all_moves_in_flight() -> None:
    clock = Clock()
    history = after_failures(clock)
    clock.now = history.breakers.policies["default"].until
    assert history.why_not_tried(POLICY, "shop", {"elsewhere"}) is not None
    assert history.why_not_tried(POLICY, "shop", ()) is None


def test_without_consecutive_failures_nothing_is_held() -> None:
    assert History(lambda: NOW).why_not_tried(POLICY, "shop", {"shop"}) is None


def test_a_chosen_move_counts_before_it_is_recorded_and_only_once() -> None:
    """Another reconcile may choose while a move waits to be recorded, and must not exceed the limit per hour."""
    history, move = History(lambda: NOW), Expected("default", ("default",), ())
    seen = history.at(NOW, {"uid": move})
    assert seen.history.count_in_last_hour("default", NOW) == 1
    assert history.history.count_in_last_hour("default", NOW) == 0
    history.expect("uid", move)
    assert history.at(NOW, {"uid": move}).history.count_in_last_hour("default", NOW) == 1
    history.made("uid", "default", certain=True)
    assert history.at(NOW, {}).history.count_in_last_hour("default", NOW) == 1
