"""Ranks keep the spread over many scale-ups, scale-downs and node failures with few patches."""

from __future__ import annotations

import pytest

from respread.cluster.pod import PodSpec
from respread.prevention.deletion_costs import Purpose
from tests.properties.prevention.churn import Churn, levelled
from tests.worlds import HOSTNAME, ZONE, constraint, spec

ZONE_ONLY = spec(constraint(ZONE))
SOFT_HOSTS = spec(constraint(ZONE), constraint(HOSTNAME, when="ScheduleAnyway"))
HARD_HOSTS = spec(constraint(ZONE), constraint(HOSTNAME))
MOST_REPLICAS = 24
SMALL = 12
"""Few enough pods to examine every possible result of a scale-down."""


@pytest.mark.parametrize("of", [ZONE_ONLY, SOFT_HOSTS, HARD_HOSTS], ids=["zone", "zone-and-soft-host", "zone-and-host"])
@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.long)])
def test_a_thousand_scale_events_need_about_one_patch_per_pod(of: PodSpec, seed: int) -> None:
    churn = Churn(seed, of, hard_hosts=of is HARD_HOSTS)
    rng = churn.rng
    churn.scale(6)
    for _ in range(1_000):
        churn.wait(rng.choice((0.5, 10.0, 90.0)))
        what = rng.random()
        down = sorted(churn.zone_of.keys() - churn.up)
        if what < 0.08 and len(down) < 3:
            churn.fail(rng.choice(sorted(churn.up)))
        elif what < 0.15 and down:
            churn.recover(rng.choice(down))
        elif what < 0.18:
            churn.restart()
        elif what < 0.6:
            churn.scale(min(MOST_REPLICAS, churn.replicas + rng.randint(1, 6)))
        else:
            churn.wait(90.0)
            before, places = churn.counts(), churn.places()
            churn.scale(max(1, churn.replicas - rng.randint(1, 6)))
            if len(places) <= churn.replicas:
                continue  # a pod without a node is always deleted first
            if of is not HARD_HOSTS:
                assert sorted(churn.counts().values()) == levelled(before.values(), churn.replicas)
            elif len(places) <= SMALL:
                model = churn.model()
                assert model.violation(churn.places()) == model.least(places, churn.replicas)
    assert churn.placed > 900
    assert churn.patched.total() <= 1.2 * churn.placed
    # Most patches are the first one of a pod.
    assert churn.patched[Purpose.RANK] <= churn.placed
    assert churn.patched[Purpose.RERANK] <= 0.1 * churn.placed
    assert churn.patched[Purpose.REMOVE] == 0


@pytest.mark.parametrize("of", [ZONE_ONLY, SOFT_HOSTS], ids=["zone", "zone-and-soft-host"])
def test_an_oscillating_autoscaler_costs_one_patch_per_created_pod(of: PodSpec) -> None:
    churn = Churn(3, of)
    churn.scale(10)
    for _ in range(200):
        churn.wait(15)
        churn.scale(13)
        churn.wait(15)
        churn.scale(10)
    assert churn.created == 10 + 200 * 3
    assert churn.patched[Purpose.RANK] == churn.created
    assert churn.patched[Purpose.RERANK] <= 2
    if of is ZONE_ONLY:
        # The newest pods are deleted first, so the initial pods still exist.
        assert {each.name for each in churn.pods} == {f"web-{number}" for number in range(1, 11)}


def test_restarts_repeat_no_patch() -> None:
    churn = Churn(4, SOFT_HOSTS)
    churn.scale(12)
    for _ in range(5):
        churn.restart()
        churn.wait(400)
    assert churn.patched == {Purpose.RANK: 12}
