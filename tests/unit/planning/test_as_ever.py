"""What planning finds and proves in drawn clusters is as good as ever.

Other tests show that it is true. Take the numbers anew after a change that shows more, or with fewer looks.
Hypothesis does not draw the clusters, because it draws others if more modules are imported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Mapping
from itertools import combinations_with_replacement
from math import isfinite
from random import Random
from typing import Final
from zlib import crc32

from respread.planning.room.demand import wanted_by
from respread.planning.search.board import Board, SearchBudget, Spot
from respread.planning.search.safety import assess
from respread.planning.search.search import SearchRules, best_path
from respread.planning.search.together import places_together
from respread.planning.victims.protection import victim_order
from tests.properties.planning import mixed_worlds as worlds
from tests.properties.planning.boards import board_of
from tests.properties.planning.scarce_worlds import scarce_world
from tests.properties.planning.small_worlds import HOSTNAME, Host, Place, Rule, Shape, World

PASSING: Final = 0.6
WORLDS: Final = (
    worlds.coupled_world,
    worlds.filling_world,
    lambda random: worlds.mixed_world(random.randrange(1 << 30)).world,
    lambda random: scarce_world(random.randrange(1 << 30)).world,
    worlds.apart_world,
    worlds.crossing_world,
    lambda random: worlds.crossing_world(random, 16),
    worlds.shared_world,
    worlds.uneven_world,
)


def boards(number: int, most_waiting: int = 2) -> Iterator[tuple[Random, Board, Mapping[int, Spot]]]:
    """Yield boards on which some pods wait for a node, with the spots of the movable ones among the others."""
    for seed in range(number):
        random = Random(seed)
        world = WORLDS[seed % len(WORLDS)](random)
        movable = [at for at, pod in enumerate(world.pods) if pod.movable]
        random.shuffle(movable)
        waiting = movable[: min(random.choice((0, 0, 1, 2)[: most_waiting + 2]), len(movable) - 1)]
        board, spots = board_of(world, waiting)
        yield random, board, {at: spots[at] for at in movable if at not in waiting}


def test_the_bound_is_shown_for_as_many_moves_as_ever_with_as_few_places() -> None:
    found: Counter[str] = Counter()
    for random, board, spots in boards(1800):
        overfull = {_likeness(board, spot) for spot in board.spots(overfull=True)}
        evicted = [spot for spot in spots.values() if _likeness(board, spot) in overfull]
        piece = random.choice([spot.piece for spot in evicted] or [0])
        of_waiting, of_evicted = places_together(
            board, board.waiting, [spot for spot in evicted if spot.piece == piece or random.random() < PASSING]
        )
        found["waiting"] += len(of_waiting or ())
        found["evicted"] += len(of_evicted)
        for places in (*(of_waiting or ()), *of_evicted.values()):
            found["nodes"] += places.nodes.bit_count()
            found["parts"] += sum(part.nodes.bit_count() for part in places.must_hold)
            found["alone"] += bool(places.closing)
            found["closing"] += sum(min(places.closing, part.siblings, 40) for part in places.must_hold)
            found["roomy"] += sum(nodes.bit_count() for part in places.must_hold for nodes in part.roomy)
            found["taken"] += sum(wanted_by(places.pod).values())
    assert found == {
        "waiting": 950, "evicted": 3236, "nodes": 13909, "parts": 7637,
        "alone": 1667, "closing": 11199, "roomy": 2796, "taken": 9215
    }  # fmt: skip


def _likeness(board: Board, spot: Spot) -> Hashable:
    return spot.piece, board.kind(spot.slot)


def test_boards_have_bounds_as_tight_as_ever() -> None:
    found: Counter[str] = Counter()
    for _, board, _ in boards(770):
        reach, with_room = board.reach(), board.reach(however_much_room=True)
        found["infinite"] += not isfinite(bound := board.potential().lower_bound)
        found["bound"] += int(bound) if isfinite(bound) else 0
        found["reach"] += sum(reach.violated) + 10 * reach.excess
        found["with room"] += sum(with_room.violated) + 10 * with_room.excess
        found["moves"] += reach.evictions + with_room.evictions
        found["needs"] += sum(board.ample().needs.values())
    assert found == {"infinite": 51, "bound": 1522, "reach": 3076, "with room": 1547, "moves": 3244, "needs": 6387}


def test_as_many_steps_as_ever_are_safe_with_as_few_outcomes() -> None:
    found: Counter[str] = Counter()
    for _, board, spots in boards(310):
        board.fine = len(spots) % 2 == 1
        several = [tuple(sorted(pair)) for pair in combinations_with_replacement(list(spots.values())[:3], 2)]
        for step in (*((spot,) for spot in spots.values()), *several):
            if any(step.count(spot) > board.left(spot) for spot in step):
                continue
            assessment = assess(board, step, SearchBudget(1_000), board.waiting[: len(step) % 2])
            if assessment is not None:
                found[f"safe of {len(step)}"] += 1
                found["certain"] += assessment.certain
                found["outcomes"] += len(assessment.outcomes)
                found["likely"] += sum(each.weight for each in assessment.likely)
                found["nodes"] += assessment.nodes(step[0].piece).bit_count()
    assert found == {
        "safe of 1": 1416, "certain": 1968,
        "outcomes": 9669, "likely": 7917, "nodes": 6996, "safe of 2": 914
    }  # fmt: skip


def test_paths_are_as_short_as_ever_and_found_and_proven_by_as_few_looks() -> None:
    found: Counter[str] = Counter()
    victims = ""
    for random, board, _ in boards(330, 0):
        budget = SearchBudget(random.choice((150, 10)), 100)
        path = best_path(board, SearchRules(victim_order, lambda _: True, budget))
        found["violated"] += sum(path.cost.violated)
        found["excess"] += path.cost.excess
        found["evictions"] += path.cost.evictions
        found["proven"] += path.proven
        found["looks"] += budget.spent
        victims += "".join(pod.name for choice in path.choices for pod in choice.victims)
    assert (found, crc32(victims.encode())) == (
        {"violated": 139, "excess": 318, "evictions": 659, "proven": 272, "looks": 6406},
        2455834527,
    )


def test_twelve_of_many_steps_are_compared_which_look_best_by_the_eviction_alone() -> None:
    """Twenty zones are too full until none of ten others is empty, and then ten, nine and so on."""
    web = Shape({"app": "web"}, (Rule("zone", 1, (("app", "web"),)),))
    hosts = tuple(Host({HOSTNAME: f"n{at}", "zone": f"z{at % 30}"}) for at in range(60))
    board, _ = board_of(World(hosts, (web,), tuple(Place(0, at) for at in range(20) for _ in range(3))))
    budget = SearchBudget(1_000)
    assert best_path(board, SearchRules(victim_order, lambda _: True, budget)).cost.evictions == 20
    assert budget.spent == 10 * 12 + sum(range(1, 11))
