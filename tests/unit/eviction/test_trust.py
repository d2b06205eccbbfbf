"""A workload begins with a few moves at once, and has more as its replacements become Ready."""

from __future__ import annotations

import pytest

from respread.cluster.pod import WorkloadName
from respread.eviction.limits.standing import FEW, VALID_SECONDS, Trust

WEB, API = WorkloadName("Deployment", "shop", "web"), WorkloadName("Deployment", "shop", "api")


def after(*ready: bool) -> Trust:
    trust = Trust()
    for at, each in enumerate(ready):
        trust = trust.with_end(WEB, float(at), ready=each)
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


def test_an_outcome_an_hour_ago_says_nothing_any_more() -> None:
    trust = after(False)
    assert trust.most(WEB, VALID_SECONDS - 1) == 1
    assert trust.most(WEB, VALID_SECONDS) == FEW
    assert trust.without_old(VALID_SECONDS - 1) is trust
    assert trust.without_old(VALID_SECONDS) == Trust()
