"""Repeated planning and evicting ends, with any scheduler, and makes few unnecessary evictions."""

from __future__ import annotations

import pytest
from hypothesis import assume

from tests.properties.instances import try_on
from tests.properties.planning.bound import bound_of
from tests.properties.planning.closed_loop import SchedulerChoice, run
from tests.properties.planning.scheduler_model import SchedulerModel
from tests.properties.planning.small_worlds import SMALL, TINY, Size, World, worlds


@pytest.mark.parametrize("choice", ["random", "score", "adversarial"])
@pytest.mark.parametrize("size", [TINY, SMALL], ids=["tiny", "small"])
@pytest.mark.timeout(1200)
def test_rebalancing_ends_with_every_pod_placed_and_no_group_worse(choice: SchedulerChoice, size: Size) -> None:
    evicted = fewest = 0

    def ends(world: World) -> None:
        nonlocal evicted, fewest
        model = SchedulerModel(world)
        assume(model.to_restore(model.start()))
        ended = run(world, choice, seed=1)
        bound = bound_of(model)
        if bound is not None and not ended.excess and not world.restores_soft:
            evicted += ended.evictions
            fewest += bound.evictions

    try_on(worlds(size), 20 if size is TINY else 6, 0, ends)
    if choice == "random":
        assert evicted <= max(1.05 * fewest, fewest + 1)
