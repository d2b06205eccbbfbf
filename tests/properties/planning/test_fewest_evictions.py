"""Plans are minimal: equal to the exact result in tiny clusters, and to the lower bound in larger ones if reachable."""

from __future__ import annotations

import pytest
from hypothesis import assume

from respread.cluster.state import ClusterSnapshot
from respread.planning.plan import Plan
from tests.plans import plan_cluster
from tests.properties.instances import factor, try_on
from tests.properties.planning.bound import bound_of, order_of
from tests.properties.planning.scheduler_model import SchedulerModel
from tests.properties.planning.small_worlds import NOW, SMALL, TINY, World, policy_of, snapshot_of, worlds
from tests.properties.planning.truth import TooLargeError, Truth, truth_of
from tests.spreads import spread_of

PARTS = range(4)
OF_LARGER_WORLDS = PARTS if factor() > 1 else (1, 3)
"""The sizes of clusters for which an exhaustive search is quick."""


def left_after(plan: Plan, snapshot: ClusterSnapshot) -> tuple[int, int]:
    """Return how many of the groups that the plan restores stay violated, and their total excess."""
    spread = spread_of(snapshot)
    excesses: list[int] = []
    for key in plan.policies:
        group = spread.groups[key]
        if group.violated:
            counts = plan.counts_after.get(key, group.counts)
            every = [counts.get(domain, 0) for domain in group.domains.nodes]
            minimum = 0 if len(every) < key.min_domains else min(every)
            excesses.append(sum(max(0, count - minimum - key.max_skew) for count in every))
    return sum(excess > 0 for excess in excesses), sum(excesses)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.timeout(900 * factor())
def test_in_tiny_clusters_a_plan_is_the_best_of_all_sequences_of_safe_steps(part: int) -> None:
    def equals_the_truth(world: World) -> None:
        model = SchedulerModel(world)
        assume(model.to_restore(model.start()))
        try:
            truth = truth_of(model)
        except TooLargeError:
            assume(False)
            raise
        snapshot = snapshot_of(world)
        plan = plan_cluster(snapshot, [policy_of(world)], now=NOW)
        assert Truth(*left_after(plan, snapshot), len(plan.moves)) == truth
        assert plan.lower_bound <= len(plan.moves)
        assert bool(plan.blocked) == bool(truth.excess)

    try_on(worlds(TINY), 20, part, equals_the_truth)


@pytest.mark.parametrize("part", OF_LARGER_WORLDS)
@pytest.mark.timeout(900 * factor())
def test_in_larger_clusters_a_plan_meets_the_lower_bound_if_its_moves_have_a_safe_order(part: int) -> None:
    def meets_the_bound(world: World) -> None:
        model = SchedulerModel(world)
        assume(model.to_restore(model.start()))
        bound = bound_of(model)
        snapshot = snapshot_of(world)
        plan = plan_cluster(snapshot, [policy_of(world)], now=NOW)
        _, excess = left_after(plan, snapshot)
        if bound is None:
            assert excess > 0
        elif excess or len(plan.moves) != bound.evictions:
            assert excess or len(plan.moves) > bound.evictions
            assert order_of(model, bound) is None

    try_on(worlds(SMALL), 10, part, meets_the_bound)
