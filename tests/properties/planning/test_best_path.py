"""The best path: a sequence of safe steps that is as good as any if it says so, however little the search may cost."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from random import Random
from typing import Final

import pytest
from hypothesis import assume
from hypothesis import strategies as st

from respread.cluster.pod import Pod
from respread.planning.search.board import Cost, SearchBudget
from respread.planning.search.search import Path, SearchRules, best_path
from tests.properties.instances import factor, try_on
from tests.properties.planning.boards import Case, board_of, case_of
from tests.properties.planning.small_worlds import (
    HOSTNAME,
    PLENTY,
    TINY,
    Host,
    Place,
    Rule,
    Shape,
    World,
    crowded_worlds,
)
from tests.properties.planning.truth import TooLargeError, Truth, truth_of

PARTS: Final = range(2 if factor() > 1 else 1)
AMPLE: Final = 12_000


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("largest", [1, 3])
def test_with_budget_enough_it_is_the_best_of_all_and_proven(part: int, largest: int) -> None:
    def is_the_best(world: World) -> None:
        case = case_of(world)
        truth = _truth(case, largest)
        path = best_path(case.board, _rules(SearchBudget(AMPLE, AMPLE), largest))
        assert _result(path) == truth
        assert path.proven
        assert not path.cut
        _check_steps(case, path)

    try_on(crowded_worlds(TINY), 120, part, is_the_best)


@pytest.mark.parametrize("part", PARTS)
def test_with_less_budget_it_is_a_sequence_of_safe_steps_and_never_said_to_be_proven_if_it_is_not(part: int) -> None:
    proven: Counter[bool] = Counter()

    def is_honest(drawn: tuple[World, int]) -> None:
        world, seed = drawn
        case, random = case_of(world), Random(seed)
        largest = random.choice((1, 3))
        truth = _truth(case, largest)
        most, reserve = random.choice((0, 1, 2, 4, 8, 16, 32)), random.choice((0, 0, 4, 64))
        before = case.board.position()
        budget, of_greedy = SearchBudget(most, reserve), SearchBudget(0)
        best_path(case.board, _rules(of_greedy, largest))
        path = best_path(case.board, _rules(budget, largest))
        assert case.board.position() == before
        assert budget.spent <= max(of_greedy.spent, most + reserve)
        assert _result(path) >= truth
        assert not path.proven or _result(path) == truth
        _check_steps(case, path)
        proven[path.proven] += 1

    try_on(st.tuples(crowded_worlds(TINY), st.integers(0, 1 << 30)), 150, part, is_honest)
    assert min(proven[True], proven[False]) >= 5


@pytest.mark.parametrize("part", PARTS)
def test_a_path_is_wanted_only_if_it_costs_less_than_what_is_known(part: int) -> None:
    def is_better_or_none(world: World) -> None:
        case = case_of(world)
        truth = _truth(case, 3)
        best = Cost((truth.violated,), truth.excess, truth.evictions)
        worse = best._replace(evictions=best.evictions + 1)
        found = best_path(case.board, _rules(SearchBudget(AMPLE, AMPLE), 3)._replace(known=worse))
        assert found.cost == best
        assert found.proven
        none = best_path(case.board, _rules(SearchBudget(AMPLE, AMPLE), 3)._replace(known=best))
        assert none.cost >= best
        assert not none.proven or none.cost == best
        _check_steps(case, none)

    try_on(crowded_worlds(TINY), 80, part, is_better_or_none)


def test_a_pod_that_moves_may_open_a_zone_to_those_with_affinity_to_it() -> None:
    """Pods of api must be in a zone with one of web. When that has moved to zone 2, there is room beside it."""
    web, api = (Rule("zone", 1, (("app", app),)) for app in ("web", "api"))
    world = World(
        hosts=tuple(
            Host({HOSTNAME: f"n{number}", "zone": f"z{number}"}, room) for number, room in enumerate((3, 4, PLENTY, 1))
        ),
        shapes=(Shape({"app": "api"}, (api,), near="web"), Shape({"app": "web"}, (web,))),
        pods=tuple(Place(shape, host) for shape, host in ((1, 0), (0, 1), (1, 0), (0, 0), (1, 1), (0, 1))),
    )
    board, _ = board_of(world)
    path = best_path(board, _rules(SearchBudget(AMPLE), 1))
    assert _result(path) == Truth(violated=0, excess=0, evictions=2)


@pytest.mark.parametrize(
    ("zones", "pods", "room", "expected"),
    [("abb", (5, 3, 0), PLENTY, Cost((0,), 0, 1)), ("abc", (7, 3, 3), 3, Cost((1,), 2, 1))],
)
def test_no_search_goes_on_when_a_path_costs_what_the_groups_to_restore_must_cost(
    zones: str, pods: tuple[int, ...], room: int, expected: Cost
) -> None:
    """The soft constraint is not to be restored. In the second cluster, zone b is full and stays so."""
    by_zone = Rule("zone", 1, (("app", "web"),))
    rooms = (PLENTY, room, PLENTY)
    world = World(
        hosts=tuple(Host({HOSTNAME: f"n{at}", "zone": zone}, rooms[at]) for at, zone in enumerate(zones)),
        shapes=(Shape({"app": "web"}, (by_zone, by_zone._replace(key=HOSTNAME, hard=False))),),
        pods=tuple(Place(0, host, movable=host == 0) for host, number in enumerate(pods) for _ in range(number)),
    )
    board, _ = board_of(world)
    budget, of_greedy = SearchBudget(AMPLE), SearchBudget(0)
    assert best_path(board, _rules(budget, 1)).cost == board.reach() == expected
    best_path(board, _rules(of_greedy, 1))
    assert budget.spent == of_greedy.spent


def _truth(case: Case, largest: int) -> Truth:
    try:
        return truth_of(case.model, largest=largest)
    except TooLargeError:
        assume(False)
        raise


def _rules(search_budget: SearchBudget, largest: int) -> SearchRules:
    def together(pods: Sequence[Pod]) -> bool:
        assert len(pods) > 1, "one is no question"
        return len(pods) <= largest

    return SearchRules(lambda pod, _: pod.name, together, search_budget)


def _result(path: Path) -> Truth:
    return Truth(sum(path.cost.violated), path.cost.excess, path.cost.evictions)


def _check_steps(case: Case, path: Path) -> None:
    """Check by the model that each step is safe, and that the path leaves what it says."""
    assert case.board.position() == (frozenset(), frozenset()), "it is left as it was"
    position, gone = case.start, set()
    for choice in path.choices:
        assert len(choice.step) == len(choice.victims)
        step = tuple(sorted(map(case.kind_of, choice.step)))
        ends = case.model.outcomes_if_safe(position, step)
        assert ends is not None
        for kind, pod in zip(map(case.kind_of, choice.step), choice.victims, strict=True):
            assert pod.name not in gone
            gone.add(pod.name)
            assert case.world.pods[int(pod.name)][:2] == kind
            position = position.evict(kind)
        for spot in choice.outcome.placed:
            position = position.place(case.place_of(spot))
        assert position in ends
    excesses = case.model.excesses(position)
    left = [excesses[at] for at in case.model.to_restore(case.start)]
    assert (sum(each > 0 for each in left), sum(left)) == (sum(path.cost.violated), path.cost.excess)
