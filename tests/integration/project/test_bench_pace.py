"""bench/pace measures real programs while a real control plane changes under them."""

from __future__ import annotations

import pytest

from bench.balancing import Patience
from bench.busy_world import World
from bench.live import measure
from bench.pace import targets
from bench.sides import Side
from respread_sandbox import Binaries

ZONE_COMES_BACK = World(
    nodes=3, zones_back=1, deployments=2, replicas=6, ready_seconds=1, stop_seconds=5, max_unavailable="34%"
)
SCALE_DOWN = World(nodes=3, deployments=3, replicas=12, stop_seconds=5)
PATIENCE = Patience(longest_seconds=240, stays_seconds=1)


@pytest.mark.parametrize(
    ("side", "world"),
    [
        ("respread", ZONE_COMES_BACK),
        pytest.param("evictions", ZONE_COMES_BACK, marks=pytest.mark.long),
        pytest.param("respread", SCALE_DOWN, marks=pytest.mark.long),
    ],
)
def test_the_spread_is_restored_after_a_change_with_the_fewest_evictions(
    binaries: Binaries, side: Side, world: World
) -> None:
    live = measure(side, world, PATIENCE, binaries=binaries)
    outcome = live.outcome
    assert outcome.evictions == outcome.fewest > 0
    assert (outcome.still_violated, outcome.pending, outcome.refused) == (0, 0, 0)
    assert outcome.done_seconds is not None
    assert live.quiet_seconds <= outcome.first_seconds <= outcome.last_seconds <= outcome.done_seconds
    assert live.ideal_seconds > world.ready_seconds
    assert outcome.cost.cpu_seconds > 0
    assert list(targets("any", {side: live})) or side != "respread"
