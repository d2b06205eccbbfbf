"""A workload begins with a few moves at once, and has more as its replacements become Ready."""

from __future__ import annotations

import pytest

from respread.cluster.pod import WorkloadName
from respread.eviction.standing import FEW, Trust

WEB, API = WorkloadName("Deployment", "shop", "web"), WorkloadName("Deployment", "shop", "api")


def after(*ready: bool, seconds: float | None = None) -> Trust:
    trust = Trust()
    for at, each in enumerate(ready):
        trust = trust.with_end(WEB, float(at), ready=each, seconds=seconds)
    return trust


@pytest.mark.parametrize(
    ("ready", "most"),
    [
        ((), FEW),
        ((True,), 2 * FEW),
        ((True,) * 3, 8 * FEW),
        ((False,), 1),
        ((True, True, False), 1),
        ((False, True), 2 * FEW),
        ((True,) * 100, FEW << 12),
    ],
)
def test_each_replacement_that_is_ready_doubles_what_may_be_in_flight(ready: tuple[bool, ...], most: int) -> None:
    trust = after(*ready)
    assert trust.most(WEB, 100.0) == most
    assert trust.most(API, 100.0) == FEW
    assert [trust.has_failed(name, 100.0) for name in (WEB, API)] == [ready[-1:] == (False,), False]


@pytest.mark.parametrize(("ready", "seconds"), [(True, 3_600.0), (False, 86_400.0)])
def test_an_old_outcome_says_nothing_any_more(ready: bool, seconds: float) -> None:
    trust = after(ready)
    assert trust.most(WEB, seconds - 1) != FEW
    assert trust.most(WEB, seconds) == FEW
    assert trust.without_old(seconds - 1) is trust
    assert trust.without_old(seconds) == Trust()


@pytest.mark.parametrize(
    ("ready", "took", "in_flight", "most"),
    [
        (4, 30.0, [], FEW << 4),
        (3, 30.0, [28.0] * 2, FEW << 3),
        (3, 30.0, [29.5] * 2, FEW),  # sent together with those that are Ready
        (3, 1.0, [0.5], FEW << 3),
        (3, 1.0, [0.6], FEW << 1),
        (4, 30.0, [29.5], FEW << 2),
        (5, 30.0, [29.5], FEW << 5),
        (8, 30.0, [29.0] * 40, FEW << 8),
        (8, 30.0, [31.0] * 2, FEW << 4),
        (8, 30.0, [31.0] * 4, FEW),
        (100, 30.0, [31.0] * 10, FEW),
        (0, 30.0, [300.0] * 5, FEW),
    ],
)
def test_moves_that_take_longer_than_those_that_ended_well_undo_what_these_allow(
    ready: int, took: float, in_flight: list[float], most: int
) -> None:
    trust = after(*[True] * ready, seconds=took).beside([(WEB, seconds) for seconds in in_flight], 100.0)
    assert trust.most(WEB, 100.0) == most
    assert trust.most(API, 100.0) == FEW
    assert trust.with_end(WEB, 100.0, ready=True, seconds=35.0).most(WEB, 100.0) > FEW
