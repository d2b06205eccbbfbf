"""No move leaves a pod Pending, even if pods terminate slowly and replacements are created late."""

from __future__ import annotations

from typing import Final

import pytest

from respread.api.policy import Limits
from tests.properties.instances import factor
from tests.properties.planning.bound import bound_of
from tests.properties.planning.scheduler_model import SchedulerModel
from tests.properties.planning.small_worlds import HOSTNAME, Host, Place, Rule, Shape, World
from tests.properties.planning.tight_loop import run
from tests.properties.planning.tight_worlds import TightWorld, tight_world

WORLDS: Final = 2
"""The number of clusters for each part. `make test-all` runs 25 times as many, `make tight` 250 times."""
PARTS: Final = 4
MOST_PER_FEWEST: Final = 1.02


@pytest.mark.parametrize("part", range(PARTS))
@pytest.mark.timeout(3600)
def test_no_move_leaves_a_pod_pending_and_few_evictions_are_unnecessary(part: int) -> None:
    evicted = fewest = compared = 0
    worlds = WORLDS * factor()
    for seed in range(part * worlds, (part + 1) * worlds):
        tight = tight_world(seed)
        ended = run(tight, seed)
        compared += ended.compared
        if ended.preemptions or len(tight.foreign) > 1 or ended.excess:
            continue  # preempted pods get other nodes, so later pods found another cluster
        hosts = tuple(host._replace(room=room) for host, room in zip(tight.world.hosts, ended.room, strict=True))
        if (bound := bound_of(SchedulerModel(tight.world._replace(hosts=hosts)))) is not None:
            evicted += ended.evictions
            fewest += bound.evictions
    assert compared >= 0.9 * worlds
    assert evicted <= max(MOST_PER_FEWEST * fewest, fewest + 1)


def test_a_pod_that_follows_a_replacement_leaves_no_other_one_pending() -> None:
    """In zone z2 is room for two pods. A third one can go there as soon as a replacement of app0 has landed."""
    hosts = tuple(
        Host({HOSTNAME: f"n{zone}", "zone": f"z{zone}", "pool": pool}, room=room)
        for zone, (pool, room) in enumerate((("x", 4), ("x", 2), ("y", 2)))
    )
    apps = [Shape({"app": name}, (Rule("zone", 1, (("app", name),)),)) for name in ("app0", "app1")]
    follower = Shape({"app": "follower"}, (), pools=("y",), near="app0")
    pods = tuple(Place(shape, host) for shape in (0, 1) for host in (0, 0, 1))
    for seed in range(16):
        tight = TightWorld(World(hosts, (*apps, follower), pods), 2, frozenset(), ((2,),), 2, Limits())
        assert run(tight, seed).evictions


@pytest.mark.parametrize("key", ["zone", HOSTNAME])
def test_a_replacement_takes_no_room_that_the_constraint_of_waiting_pods_needs(key: str) -> None:
    """Nodes of pool x get one of the waiting pods each before any gets a second one, and only one has much room."""
    rooms = {"zone": (("x", 20), ("x", 2), ("y", 5)), HOSTNAME: (("x", 20), ("x", 2), ("x", 2), ("y", 5))}[key]
    zones = {"zone": (0, 1, 2), HOSTNAME: (0, 1, 1, 2)}[key]
    hosts = tuple(
        Host({HOSTNAME: f"n{at}", "zone": f"z{zone}", "pool": pool}, room=room)
        for at, (zone, (pool, room)) in enumerate(zip(zones, rooms, strict=True))
    )
    app = Shape({"app": "app"}, (Rule("zone", 1, (("app", "app"),)),))
    waits = Shape({"app": "waits"}, (Rule(key, 1, (("app", "waits"),)),), pools=("x",))
    last = len(hosts) - 1
    pods = tuple(Place(0, host) for host in (0, 0, 0, 1, last))
    for seed in range(16):
        tight = TightWorld(World(hosts, (app, waits), pods), 1, frozenset(), ((1, 1, 1),), 2, Limits())
        ended = run(tight, seed)
        assert ended.compared
        assert not ended.pending


def test_moves_wait_for_the_room_that_a_move_of_another_group_leaves_in_the_emptiest_zone() -> None:
    """Zones z0 and z1 have no pod of app, and z1 has room for one only when a pod of other has left it."""
    hosts = tuple(
        Host({HOSTNAME: f"n{zone}", "zone": f"z{zone}", "pool": "x"}, room=room) for zone, room in enumerate((4, 2, 10))
    )
    app, other = (Shape({"app": name}, (Rule("zone", 1, (("app", name),)),)) for name in ("app", "other"))
    pods = tuple(Place(shape, host) for shape, host, number in ((0, 2, 5), (1, 0, 2), (1, 1, 2)) for _ in range(number))
    for seed in range(16):
        tight = TightWorld(World(hosts, (app, other), pods), 2, frozenset(), ((),), 2, Limits(in_flight_per_workload=3))
        ended = run(tight, seed)
        assert ended.evictions
        assert not ended.pending
