"""Retries come at growing intervals, out of step, and never end."""

from __future__ import annotations

from itertools import islice, pairwise
from random import Random

from respread.kube.retry import Backoff, Backoffs

GENERATOR = Random(1)


def test_delays_double_up_to_the_greatest() -> None:
    backoffs = Backoffs(least_seconds=1, greatest_seconds=8, generator=GENERATOR)
    delays = list(islice(backoffs, 50))
    for delay, whole in zip(delays, [1, 2, 4, *[8] * 47], strict=True):
        assert whole / 2 <= delay <= whole


def test_delays_are_not_in_step() -> None:
    backoffs = Backoffs(least_seconds=8, greatest_seconds=8, generator=GENERATOR)
    assert all(one != other for one, other in pairwise(islice(backoffs, 20)))


def test_iterating_again_begins_again() -> None:
    backoffs = Backoffs(least_seconds=1, greatest_seconds=64)
    list(islice(backoffs, 6))
    assert next(iter(backoffs)) <= 1


def test_a_success_ends_a_backoff() -> None:
    backoff = Backoff(Backoffs(least_seconds=1, greatest_seconds=64))
    assert not backoff.failing
    waited = [backoff.failed() for _ in range(6)]
    assert backoff.failing
    assert waited[-1] > 10
    backoff.succeeded()
    assert not backoff.failing
    assert backoff.failed() <= 1
