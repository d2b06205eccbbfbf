"""A policy whose moves fail for one workload after another is paused, and then makes one trial move."""

from __future__ import annotations

from math import inf

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from respread.api.record import MAX_FAILED_WORKLOADS
from respread.cluster.pod import WorkloadName
from respread.holds.backoff import PAUSE, Breakers

NOW = 1_800_000_000.0


def workload(name: str) -> WorkloadName:
    return WorkloadName("Deployment", "shop", name)


def after(*names: str, most: int = 3, at: float = NOW) -> Breakers:
    breakers = Breakers()
    for name in names:
        breakers = breakers.failed("default", workload(name), most, at)
    return breakers


def test_consecutive_failures_of_a_few_workloads_pause_a_policy_and_are_named() -> None:
    assert after("a", "b").paused("default", 3, NOW) is None
    held = after("a", "b", "c").paused("default", 3, NOW + 10)
    assert str(held) == (
        "Paused: evictions in the name of policy default failed in a row, of pods of Deployment/a in shop, "
        "Deployment/b in shop, Deployment/c in shop; nothing is evicted in its name until 2027-01-15T08:01:00Z, and "
        "then one pod is tried"
    )
    assert "Deployment/c in shop, Deployment/d in shop and 1 more;" in str(after(*"abcd").paused("default", 3, NOW))
    assert after("a", most=1).paused("default", 1, NOW) is not None
    assert after("a", "b", "c").paused("other", 3, NOW) is None
    assert after(*["a"] * 50, "b").paused("default", 3, NOW) is None, "one workload fails repeatedly"


def test_a_success_resets_the_consecutive_failures() -> None:
    breakers = after("a", "b").succeeded("default")
    assert breakers.failed("default", workload("c"), 3, NOW).paused("default", 3, NOW) is None
    assert after("a").succeeded("other") == after("a")


def test_zero_never_pauses_and_a_changed_limit_applies_at_once() -> None:
    breakers = after("a", "b", "c", most=0)
    assert breakers.paused("default", 0, NOW) is breakers.single("default", 0) is None
    assert breakers.single("default", 3) is not None  # without a pause, the policy still starts with a trial
    assert after("a", "b", "c").paused("default", 4, NOW) is None


def test_simultaneous_failures_cause_one_pause() -> None:
    """The moves that are in flight when a policy is paused may fail, too."""
    (known,) = after("a", "b", "c", "d", "e").policies.values()
    assert (known.until, known.pauses) == (NOW + 60, 1)


def test_after_a_pause_one_move_is_made_and_pauses_grow_until_one_succeeds() -> None:
    breakers, now, pauses = after("a", "b", "c"), NOW, []
    for _ in range(10):
        end = breakers.policies["default"].until
        assert breakers.next_end(end - 1) == end
        pauses.append(end - now)
        now = end
        assert breakers.paused("default", 3, now) is None
        single = breakers.single("default", 3)
        assert single is not None
        assert single.message.endswith("one pod is tried before others are evicted")
        breakers = breakers.failed("default", workload("a"), 3, now)
        assert breakers.paused("default", 3, now) is not None
    assert pauses == [60, 120, 240, 480, 960, 1920, 3840, 7680, 14400, 14400]
    breakers = breakers.succeeded("default")
    assert breakers.paused("default", 3, now) is None
    assert breakers.single("default", 3) is None
    assert breakers.next_end(now) == inf
    again = breakers
    for at, name in enumerate("abc"):
        again = again.failed("default", workload(name), 3, now + 100 * at)
    assert again.next_end(now + 200) == now + 260


def test_namespaces_without_failures_wait_only_for_the_first_pause() -> None:
    breakers, now = after("a", "b", "c"), NOW
    for _ in range(4):
        now = breakers.policies["default"].until
        breakers = breakers.failed("default", workload("a"), 3, now)
    assert breakers.policies["default"].until == now + 960
    assert breakers.paused("default", 3, now + 59, "elsewhere") is not None
    assert (breakers.next_end(now), breakers.next_end(now + 60)) == (now + 60, now + 960)
    assert breakers.paused("default", 3, now + 60, "elsewhere") is None
    assert breakers.paused("default", 3, now + 959, "shop") is not None
    assert breakers.paused("default", 3, now + 959) is not None
    assert breakers.failing_namespaces("default") == {"shop"}


def test_an_undecided_trial_move_repeats_the_pause_with_the_same_length() -> None:
    breakers = after("a", "b", "c")
    assert breakers.undecided("default", 3, NOW + 30) is breakers  # the move began before the pause
    assert breakers.undecided("default", 3, NOW + 60).next_end(NOW + 60) == NOW + 120
    assert after("a").undecided("default", 3, NOW) == after("a")


def test_a_clock_set_back_does_not_pause_a_policy_for_years() -> None:
    assert after("a", "b", "c", at=NOW + 1e9).paused("default", 3, NOW) is None
    assert after("a", "b", "c", at=NOW + 1e9).next_end(NOW) == inf


def test_no_more_failures_are_kept_than_a_status_can_hold() -> None:
    (known,) = after(*map(str, range(100))).policies.values()
    assert len(known.workloads) == MAX_FAILED_WORKLOADS


@given(st.integers(-(2**70), 2**70))
def test_a_large_number_of_pauses_causes_no_overflow(pauses: int) -> None:
    assert 60 <= PAUSE.seconds(pauses) <= 4 * 3600
    (known,) = after("a", "b", "c").policies.values()
    breakers = after("a", "b", "c")
    broken = Breakers(breakers.policies.set("default", msgspec.structs.replace(known, pauses=pauses, until=0.0)))
    assert broken.failed("default", workload("d"), 3, NOW).paused("default", 3, NOW) is not None
