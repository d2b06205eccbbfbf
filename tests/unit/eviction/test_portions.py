"""A wave is made a portion at a time, of sizes that fit the time."""

from __future__ import annotations

from typing import Any

from immutables import Map

from respread.cluster.meta import OwnerReference
from respread.eviction.steps import FIRST_PORTION, LEAST_PORTION, PORTION_SECONDS, Portions
from respread.planning.plan import Move
from tests.eviction_moves import SPEC, move
from tests.worlds import pod


def victim(number: int, app: str = "", **fields: Any) -> Move:
    app = app or f"app-{number}"
    controller = OwnerReference("apps/v1", "ReplicaSet", app, f"uid-{app}")
    return move(pod(f"{app}-{number}", "node-1", SPEC, labels=Map(app=app), controller=controller), **fields)


def test_all_moves_come_once_in_the_plans_order_within_a_portion() -> None:
    moves = [victim(number) for number in range(500)]
    portions = Portions(moves)
    taken: list[Move] = []
    while portions:
        portion = portions.take()
        assert list(portion) == [each for each in moves if each in portion]
        taken += portion
        portions.took(len(portion), 1.0)
    assert taken == moves


def test_the_size_follows_from_how_long_the_one_before_took() -> None:
    portions = Portions([victim(number) for number in range(1000)])
    assert len(portions.take()) == FIRST_PORTION
    portions.took(FIRST_PORTION, PORTION_SECONDS / 2)
    assert len(portions.take()) == 2 * FIRST_PORTION
    portions.took(2 * FIRST_PORTION, 100 * PORTION_SECONDS)
    assert len(portions.take()) == LEAST_PORTION
    portions.took(LEAST_PORTION, 0.0)
    assert portions
    assert len(portions.take()) > LEAST_PORTION


def test_what_shares_a_controller_goes_in_one_portion() -> None:
    moves = [victim(number, "web") for number in range(2 * FIRST_PORTION)]
    portions = Portions([*moves, victim(999)])
    assert len(portions.take()) == 2 * FIRST_PORTION
    assert len(portions.take()) == 1
    assert not portions
