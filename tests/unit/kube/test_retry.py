"""Retries have growing delays and jitter, and never end."""

from __future__ import annotations

from itertools import islice

from respread.kube.retry import Retry


def test_delays_double_up_to_the_maximum() -> None:
    retry = Retry(least_seconds=1, greatest_seconds=8)
    delays = list(islice(retry, 50))
    for delay, whole in zip(delays, [1, 2, 4, *[8] * 47], strict=True):
        assert whole / 2 <= delay <= whole
    assert len(set(delays)) == 50, "they have jitter"
    assert next(iter(retry)) <= 1, "iterating again restarts them"


def test_a_success_ends_the_retries() -> None:
    retry = Retry(least_seconds=1, greatest_seconds=64)
    assert not retry.failing
    waited = [retry.failed() for _ in range(6)]
    assert retry.failing
    assert waited[-1] > 10
    retry.succeeded()
    assert not retry.failing
    assert retry.failed() <= 1
