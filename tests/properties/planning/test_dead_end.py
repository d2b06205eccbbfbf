"""A cluster in which single safe steps lead to a dead end. Its plan once had an unnecessary eviction or left excess."""

from __future__ import annotations

import pytest

from tests.plans import plan_cluster
from tests.properties.planning.bound import bound_of
from tests.properties.planning.scheduler_model import SchedulerModel
from tests.properties.planning.small_worlds import (
    HOSTNAME,
    NOW,
    PLENTY,
    Host,
    Place,
    Rule,
    Shape,
    World,
    policy_of,
    snapshot_of,
)

WEB = (("app", "web"),)


def host(number: int, zone: int, rack: int = 0, room: int = PLENTY) -> Host:
    return Host({HOSTNAME: f"n{number}", "zone": f"z{zone}", "rack": f"z{zone}-{rack}"}, room)


FEWEST = 7


def world_with_a_dead_end() -> World:
    """Return a cluster in which single safe steps lead to a dead end, and a step of two pods to a solution."""
    hosts = (host(0, 0, room=7), host(1, 1), host(2, 2, room=5), host(3, 3), host(4, 4), host(5, 5), host(6, 0, 1))
    soft = Rule(HOSTNAME, 1, WEB, hard=False)
    shapes = (
        Shape({"app": "web", "tier": "front"}, (Rule("zone", 1, WEB), Rule("rack", 1, WEB), soft)),
        Shape({"app": "web"}, (soft,)),
        Shape({"app": "web", "tier": "front"}, (soft,)),
    )
    movable = (1, 0), (2, 6), (2, 0), (2, 6), (2, 2), (1, 1), (2, 2), (1, 4), (2, 1), (0, 0), (0, 1), (2, 0), (2, 1)
    pods = (
        *(Place(shape, at) for shape, at in (*movable, (1, 2), (2, 2))),
        *(Place(shape, at, movable=False) for shape, at in ((2, 1), (2, 4), (0, 1), (0, 0))),
    )
    return World(hosts, shapes, pods, restores_soft=True, restored_keys=("zone",))


def test_a_step_of_two_pods_is_found_where_single_steps_are_safe_too() -> None:
    world = world_with_a_dead_end()
    plan = plan_cluster(snapshot_of(world), [policy_of(world)], now=NOW)
    assert plan.blocked == ()
    assert len(plan.moves) == FEWEST


@pytest.mark.long
def test_a_plan_around_a_dead_end_has_the_fewest_evictions() -> None:
    bound = bound_of(SchedulerModel(world_with_a_dead_end()))
    assert bound is not None
    assert bound.evictions == FEWEST
