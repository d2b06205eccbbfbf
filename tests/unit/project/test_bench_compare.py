"""The computations of bench/compare agree with bench/busy, and docs/compare.md has its results."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bench.busy_fewest import NEVER, fewest_evictions
from bench.compare.__main__ import ABOUT
from bench.compare.page import PAGE, Report, merged, read, report_of, table, written
from bench.compare.spread import Fewest, fewest, holds
from bench.compare.world import Constraint, Workload, World, Zone
from bench.compare.worlds import WORLDS
from bench.sides import Cost
from tests.unit.project.outcomes import outcome

FEWEST = {
    "scale-down": Fewest(0, 7),
    "zone-comes-up": Fewest(0, 4),
    "max-skew-2": Fewest(0, 3),
    "zone-and-host": Fewest(0, 3),
    "cordoned-zone": Fewest(1, 1),
    "min-domains": Fewest(1, 2),
    "tight-room": Fewest(1, 2),
    "budgets": Fewest(1, 3),
    "rollout": Fewest(0, 1),
    "affinity-and-taints": Fewest(1, 3),
    "soft": Fewest(0, 5),
    "outage": Fewest(0, 2),
    "conflict": Fewest(1, 0),
}
"""The fewest violations and evictions, computed by hand."""


@pytest.mark.parametrize("world", WORLDS, ids=lambda world: world.name)
def test_the_fewest_evictions_of_each_scenario(world: World) -> None:
    assert fewest(world) == FEWEST[world.name]
    assert any(not holds(world, workload, each, world.start(workload)) for workload, each in world.constraints())


@settings(deadline=None, max_examples=60)
@given(
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=2), min_size=2, max_size=3).filter(
        lambda zones: 1 <= sum(map(sum, zones)) <= 6
    ),
    st.integers(1, 2),
    st.none() | st.integers(1, 2),
)
def test_the_fewest_evictions_agree_with_bench_busy(
    sizes: Sequence[Sequence[int]], zone_skew: int, host_skew: int | None
) -> None:
    names = "abc"[: len(sizes)]
    constraints = [Constraint(max_skew=zone_skew)]
    if host_skew is not None:
        constraints.append(Constraint(over="hosts", max_skew=host_skew))
    pods = dict(zip(names, sizes, strict=True))
    world = World(
        "any", "", (Workload("web", pods, tuple(constraints)),), {name: Zone(len(pods[name])) for name in pods}
    )
    best = fewest(world)
    other = fewest_evictions(pods, zone_skew=zone_skew, host_skew=host_skew)
    assert (best.evictions if best.violated == 0 else NEVER) == min(other, NEVER)


# The page


def test_the_page_is_current() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert written(page, read(page), ABOUT) == page, "docs/compare.md is not current: run `make compare`"


def test_the_page_says_where_the_descheduler_was_better() -> None:
    peer = outcome("descheduler", evictions=3, done_seconds=1.5, cost=Cost(0.25, 70.0))
    report = report_of({"soft": [outcome("respread"), peer]})
    assert report.better == {
        "soft": ["- **soft**: restored after 1.5 s instead of 4.0 s; 0.25 s of CPU instead of 1.00 s.\n"]
    }


def test_fewer_evictions_are_not_better_if_more_groups_stay_violated() -> None:
    peer = outcome("descheduler", evictions=0, still_violated=3, done_seconds=None, cost=Cost(2.0, 70.0))
    assert report_of({"soft": [outcome("respread"), peer]}).better == {}
    assert "| 0 (2) | 3 → 3 (0) | 0 | 0 | not |" in report_of({"soft": [peer]}).results["soft"][0]


def test_evictions_are_compared_with_the_fewest_for_each_start() -> None:
    ours, peer = outcome("respread", evictions=4), outcome("descheduler", evictions=4, fewest=4)
    assert report_of({"6000-pods": [ours, peer]}).better["6000-pods"] == [
        "- **6000-pods**: 4 (4) evictions instead of 4 (2).\n"
    ]
    assert report_of({"6000-pods": [peer._replace(side="respread"), ours._replace(side="descheduler")]}).better == {}


def test_fewer_violations_are_not_better_if_pods_are_pending() -> None:
    ours = outcome("respread", evictions=0, still_violated=1, least_violated=1, done_seconds=0.0)
    peer = outcome(
        "descheduler", still_violated=0, pending=2, least_violated=1, done_seconds=None, cost=Cost(2.0, 70.0)
    )
    assert report_of({"conflict": [ours, peer]}).better == {}
    told = report_of({"conflict": [ours, peer._replace(pending=0)]}).better["conflict"]
    assert told == ["- **conflict**: 0 violated in the end instead of 1.\n"]


def test_results_of_the_same_setup_are_kept_beside_new_ones() -> None:
    page = PAGE.read_text(encoding="utf-8")
    both = [outcome("respread"), outcome("descheduler", pending=1, done_seconds=None)]
    first = report_of({"soft": both, "conflict": both})
    kept = read(written(page, first, ABOUT))
    assert kept == first
    again = merged(kept, report_of({"soft": [outcome("respread", evictions=9), both[1]]}))
    assert "| 9 (2) |" in again.results["soft"][0]
    assert again.results["conflict"] == first.results["conflict"]
    other = Report("Run on another day.\n", *report_of({"soft": both})[1:])
    assert merged(kept, other) == other
    assert "| conflict | not run |" in table(other, ABOUT)
