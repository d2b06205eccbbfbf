"""Costs for a deletion order are increasing integers with few changes and with gaps for new pods."""

from __future__ import annotations

from itertools import combinations, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from respread.prevention.ranks import LEAST_COST, STEP, NoRoomError, assign_costs
from respread.prevention.replica_set import OUTSIDE, Constraint, Layout
from respread.prevention.search import best_order, insert


@pytest.mark.parametrize(
    ("order", "held", "changed"),
    [
        ([7, 5, 6], {}, {7: -3 * STEP, 5: -2 * STEP, 6: -STEP}),
        ([9, 1, 2, 3], {1: -3000, 2: -2000, 3: -1000}, {9: -4000}),
        ([1, 9, 2, 3], {1: -3000, 2: -2000, 3: -1000}, {9: -2500}),
        ([1, 2, 3, 9], {1: -3000, 2: -2000, 3: -1000}, {9: -500}),
        ([1, 8, 9, 2], {1: -2000, 2: -1000}, {8: -1667, 9: -1334}),
        ([2, 3, 1, 4, 5], {1: -5000, 2: -4000, 3: -3000, 4: -2000, 5: -1000}, {1: -2500}),
        ([1, 2], {1: -1000, 2: -1000}, {1: -2000}),
        ([1, 2], {1: 5, 2: -1000}, {1: -2000}),
    ],
)
def test_few_costs_change_and_they_share_gaps_evenly(
    order: list[int], held: dict[int, int], changed: dict[int, int]
) -> None:
    assert assign_costs(order, held) == changed


def test_domains_that_cross_are_ordered_without_a_violation_where_the_next_best_pod_each_time_causes_one() -> None:
    rule = Constraint(hard=True, max_skew=1, counts=(0, 0, 0))
    assert best_order(Layout((rule, rule), ((0, 2), (0, 0), (2, 2), (1, 0), (2, 1)))).violation == 0


def test_a_pod_outside_of_all_domains_is_deleted_before_one_of_a_domain_that_is_not_too_full() -> None:
    rule = Constraint(hard=False, max_skew=1, counts=(0,), elsewhere=((3, 1), (0, 1)))
    layout = Layout((rule,), ((0,), (OUTSIDE,)))
    assert best_order(layout).pods == insert(layout, [], [0, 1]).pods == [1, 0]
    hostname = Constraint(hard=False, max_skew=1, counts=(0, 0), elsewhere=((0, 8),))
    layout = Layout((rule, hostname), ((0, 0), (OUTSIDE, 1)))
    assert best_order(layout).pods == insert(layout, [1], [0]).pods == [1, 0]


def test_too_little_room_is_an_error() -> None:
    assert assign_costs([1, 2], {1: -9, 2: -5}, above=-7) == {1: -6}
    assert assign_costs([1, 2, 3], {}, above=-4) == {1: -3, 2: -2, 3: -1}
    with pytest.raises(NoRoomError, match="3 pods can't have different costs between -3 and 0"):
        assign_costs([1, 2, 3], {}, above=-3)


@given(
    st.permutations(range(7)),
    st.dictionaries(st.integers(0, 6), st.integers(-30, 5)),
    st.sampled_from((LEAST_COST - 1, -40, -20, -9)),
)
def test_costs_rise_along_the_order_and_as_many_as_can_be_stay(
    order: list[int], held: dict[int, int], above: int
) -> None:
    changed = assign_costs(order, held, above=above)
    costs = {**held, **changed}
    assert all(costs[one] < costs[other] for one, other in pairwise(order))
    assert all(above < costs[pod] < 0 for pod in order)
    assert all(held.get(pod) != cost for pod, cost in changed.items())
    assert len(order) - len(changed) == max(
        size
        for size in range(len(order) + 1)
        if any(_may_stay(order, chosen, held, above) for chosen in combinations(range(len(order)), size))
    )


def _may_stay(order: list[int], chosen: tuple[int, ...], held: dict[int, int], above: int) -> bool:
    """Return whether pods at these positions can keep their costs, with gaps for all others."""
    if any(order[at] not in held for at in chosen):
        return False
    bounds = [(-1, above), *((at, held[order[at]]) for at in chosen), (len(order), 0)]
    return all(high - low >= after - before for (before, low), (after, high) in pairwise(bounds))
