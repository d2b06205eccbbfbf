"""Which steps are safe, which pods may go, and what may come of it, equal the exact answers in tiny clusters.

The search looks at one of several equivalent nodes only. So what it finds is compared by what does not depend on which
of them it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from itertools import combinations_with_replacement
from random import Random
from typing import Final

import pytest
from hypothesis import assume
from hypothesis import strategies as st

from respread.planning.search.board import Board, SearchBudget
from respread.planning.search.safety import StepOutcome, assess
from respread.planning.search.search import Options, SearchRules
from tests.properties.instances import factor, try_on
from tests.properties.planning.boards import Case, board_of, case_of
from tests.properties.planning.scheduler_model import Kind, Position, SchedulerModel
from tests.properties.planning.small_worlds import (
    HOSTNAME,
    TINY,
    Host,
    Place,
    Rule,
    Shape,
    World,
    crowded_worlds,
    worlds,
)

PARTS: Final = range(2 if factor() > 1 else 1)
UNBOUNDED: Final = 1 << 40
MOST_PAIRS: Final = 12


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("fine", [False, True])
def test_a_step_of_one_pod_is_safe_if_every_landing_is_and_lands_where_the_scheduler_may_put_it(
    part: int, fine: bool
) -> None:
    def equals_the_model(world: World) -> None:
        case = case_of(world)
        case.board.fine = fine
        before = _state(case.board)
        for kind in case.model.kinds(case.start):
            expected = case.model.outcomes_if_safe(case.start, (kind,))
            found = assess(case.board, (case.spot_of[kind],), SearchBudget(UNBOUNDED))
            assert _state(case.board) == before
            assert (found is None) == (expected is None), kind
            if found is not None and expected is not None:
                assert set(_ends(case, (kind,), found.likely)) == expected
                every = {host for each in found.outcomes for host in case.hosts(each.nodes[0])}
                assert every == _may_land(case, kind)
                assert every == set(case.hosts(found.nodes(case.spot_of[kind].piece)))
                assert found.certain == _is_certain(case, kind)

    try_on(crowded_worlds(TINY), 150, part, equals_the_model)


def _pairs_equal_the_model(world: World) -> None:
    case = case_of(world)
    case.board.fine = True
    before = _state(case.board)
    kinds = case.model.kinds(case.start)
    pairs = [
        pair
        for pair in combinations_with_replacement(kinds, 2)
        if all(pair.count(kind) <= case.start.movable[kind[0]][kind[1]] for kind in pair)
    ]
    for pair in pairs[:MOST_PAIRS]:
        expected = case.model.outcomes_if_safe(case.start, pair)
        step = tuple(sorted(case.spot_of[kind] for kind in pair))
        found = assess(case.board, step, SearchBudget(UNBOUNDED))
        assert _state(case.board) == before
        assert (found is None) == (expected is None), pair
        if found is not None and expected is not None:
            without = case.start.evict(pair[0]).evict(pair[1])
            ends = {
                each: without.place(case.place_of(each.placed[0])).place(case.place_of(each.placed[1]))
                for each in found.outcomes
            }
            represented = {ends[each] for each in found.likely}
            assert found.certain == all(_is_better(case, end) for end in ends.values())
            assert represented <= expected
            assert {_excess(case, each) for each in represented} == {_excess(case, each) for each in expected}


@pytest.mark.parametrize("part", PARTS)
def test_a_step_of_several_pods_is_safe_if_all_its_courses_are(part: int) -> None:
    try_on(crowded_worlds(TINY), 80, part, _pairs_equal_the_model)


def test_nodes_are_told_apart_by_what_the_other_replacement_of_a_step_finds_and_pods_by_namespace() -> None:
    web = (("app", "web"),)
    hosts = [
        Host({HOSTNAME: f"n{at}", "zone": zone, "rack": f"r{at}"}, room=room)
        for at, (zone, room) in enumerate((("z0", 100), ("z0", 2), ("z1", 1)))
    ]
    shapes = (
        Shape({"app": "web"}, (Rule("rack", 2, web, hard=False),), near="web"),
        Shape({"app": "web"}, (Rule("rack", 1, web),)),
    )
    world = World(tuple(hosts), shapes, (Place(0, 1), Place(1, 0), Place(0, 0)))
    of_two = tuple(shapes[1]._replace(namespace=name) for name in ("default", "other"))  # with the same labels
    for each in (world, world._replace(shapes=of_two, pods=(Place(1, 0), Place(1, 0), Place(0, 1)))):
        try_on(st.just(each), 1, 0, _pairs_equal_the_model)


@pytest.mark.parametrize("part", PARTS)
def test_a_pod_that_is_replaced_when_it_is_gone_leaves_its_room_to_the_replacement(part: int) -> None:
    def equals_the_model(world: World) -> None:
        stateful = range(len(world.shapes))
        case = case_of(world, stateful=stateful)
        before = _state(case.board)
        for kind in case.model.kinds(case.start):
            expected = case.model.outcomes_if_safe(case.start, (kind,), when_gone=True)
            found = assess(case.board, (case.spot_of[kind],), SearchBudget(UNBOUNDED))
            assert _state(case.board) == before
            assert (found is None) == (expected is None), kind
            if found is not None and expected is not None:
                assert set(_ends(case, (kind,), found.likely)) == expected
            if case.start.movable[kind[0]][kind[1]] > 1:
                assert assess(case.board, (case.spot_of[kind],) * 2, SearchBudget(UNBOUNDED)) is None

    try_on(crowded_worlds(TINY), 150, part, equals_the_model)


@pytest.mark.parametrize("part", PARTS)
def test_a_step_beside_replacements_that_wait_is_safe_if_all_their_courses_are(part: int) -> None:
    answers: Counter[bool] = Counter()

    def equals_the_model(drawn: tuple[World, int]) -> None:
        world, seed = drawn
        random = Random(seed)
        waiting = random.sample(range(len(world.pods)), random.choice((1, 1, 2)))
        case = case_of(world, waiting)
        staying = tuple(pod for at, pod in enumerate(world.pods) if at not in waiting)
        assume(case.model.groups == SchedulerModel(world._replace(pods=staying)).groups)
        shapes = tuple(sorted(world.pods[at].shape for at in waiting))
        before = _state(case.board)
        for kind in case.model.kinds(case.start):
            expected = case.model.outcomes_if_safe(case.start, (kind,), shapes)
            found = assess(case.board, (case.spot_of[kind],), SearchBudget(UNBOUNDED), case.board.waiting)
            assert _state(case.board) == before
            assert (found is None) == (expected is None), kind
            answers[found is None] += 1

    try_on(st.tuples(crowded_worlds(TINY), st.integers(0, 1 << 30)), 80, part, equals_the_model)
    assert min(answers[True], answers[False]) > 10


@pytest.mark.parametrize("part", PARTS)
def test_every_safe_step_of_up_to_three_pods_is_an_option(part: int) -> None:
    def are_the_same(world: World) -> None:
        case = case_of(world)
        case.board.fine = True
        expected = {
            (len(step), frozenset(_excess(case, each) for each in outcomes))
            for step, outcomes in case.model.safe_steps(case.start)
        }
        rules = SearchRules(lambda *_: 0, lambda _: True, SearchBudget(UNBOUNDED))
        options = Options(case.board, rules).every(jointly=True)
        assert {(len(each.step), frozenset(after.excess for after in each.potentials)) for each in options} == expected

    try_on(crowded_worlds(TINY), 60, part, are_the_same)


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.parametrize("overfull", [False, True])
def test_pods_may_go_that_count_in_a_group_to_be_restored_or_in_one_of_its_overfull_domains(
    part: int, overfull: bool
) -> None:
    def are_the_same(world: World) -> None:
        case = case_of(world)
        expected = {
            _likeness(case, kind) for kind in case.model.kinds(case.start) if _may_go(case, kind, overfull=overfull)
        }
        found = [_likeness(case, case.kind_of(spot)) for spot in case.board.spots(overfull=overfull)]
        assert sorted(map(repr, found)) == sorted(map(repr, expected))

    try_on(crowded_worlds(TINY), 60, part, are_the_same)


@pytest.mark.parametrize("part", PARTS)
def test_nodes_of_one_kind_are_alike_for_all_that_the_search_can_do(part: int) -> None:
    alike: Counter[bool] = Counter()

    def are_alike(world: World) -> None:
        assume(not any(shape.near for shape in world.shapes))  # kinds don't tell the domains of affinity apart
        assume(any(pod.movable for pod in world.pods))  # else nobody needs room
        case = case_of(world)
        case.board.fine = True
        by_kind: dict[Hashable, set[Hashable]] = {}
        for slot, name in enumerate(case.board.placement.table.names):
            if name:
                (host,) = case.hosts(1 << slot)
                by_kind.setdefault(case.board.kind(slot), set()).add(_use(case, host))
        assert all(len(uses) == 1 for uses in by_kind.values())
        alike[len(by_kind) < len(world.hosts)] += 1

    try_on(crowded_worlds(TINY), 100, part, are_alike)
    assert min(alike[True], alike[False]) > 10


@pytest.mark.parametrize("part", PARTS)
def test_touched_nodes_with_room_for_all_movable_pods_are_ample(part: int) -> None:
    found: Counter[bool] = Counter()

    def are_ample(world: World) -> None:
        assume(not any(shape.near for shape in world.shapes))
        case = case_of(world)
        model, start = case.model, case.start
        for kind in model.kinds(start):
            assess(case.board, (case.spot_of[kind],), SearchBudget(UNBOUNDED))
        wanted = sum(shape.size * sum(row) for shape, row in zip(world.shapes, start.movable, strict=True))
        touched = set(case.hosts(case.board.touched))
        roomy = {host for host in touched if model.free(host, start, []) >= wanted}
        assert set(case.hosts(case.board.ample().nodes)) == roomy
        found[roomy == touched] += 1
        waiting, _ = board_of(world, [0])
        assert not waiting.ample().nodes

    try_on(st.one_of(worlds(TINY), crowded_worlds(TINY)), 60, part, are_ample)
    assert min(found[True], found[False]) > 5


def _use(case: Case, host: int) -> Hashable:
    """Return what a host is for the search: its pods, the pods that it takes, and how many of them."""
    model, start = case.model, case.start
    sizes = [shape.size for shape in case.world.shapes]
    most = sum(size * count for size, row in zip(sizes, start.movable, strict=True) for count in row)
    return (
        tuple(row[host] for row in start.movable),
        tuple(host in model.feasible(shape, start, []) for shape in range(len(sizes))),
        min(model.free(host, start, []), most),
        tuple(model.counts(group, start).get(group.domain_of[host] or "", None) for group in model.groups),
    )


def _state(board: Board) -> Hashable:
    return (
        board.position(),
        tuple(tuple(map(tally.count, tally.domains.nodes)) for tally in board.tallies),
        tuple(tally.excess for tally in board.tallies),
        tuple(piece.replacement.admitted() for piece in board.pieces),
        board.potential(),
    )


def _ends(case: Case, step: Sequence[Kind], outcomes: Sequence[StepOutcome]) -> Iterator[Position]:
    """Yield the positions that the outcomes of a step of one pod represent."""
    ((shape, host),) = step
    for outcome in outcomes:
        (nodes,) = outcome.nodes
        for there in case.hosts(nodes):
            yield case.start.evict((shape, host)).place((shape, there))


def _landings(case: Case, kind: Kind) -> tuple[Position, set[int], set[int]]:
    """Return the position without a pod, and the feasible hosts for its replacement while it is there, and then."""
    without = case.start.evict(kind)
    return (without, set(case.model.feasible(kind[0], without, [kind])), set(case.model.feasible(kind[0], without, [])))


def _may_land(case: Case, kind: Kind) -> set[int]:
    _, held, gone = _landings(case, kind)
    return held | gone


def _is_certain(case: Case, kind: Kind) -> bool:
    """Whether a DoNotSchedule constraint to be restored is better wherever the replacement lands."""
    without, held, gone = _landings(case, kind)
    return all(_is_better(case, without.place((kind[0], host))) for host in held | gone)


def _is_better(case: Case, position: Position) -> bool:
    """Whether a DoNotSchedule constraint to be restored is better than at the start."""
    model = case.model
    changes = zip(model.groups, model.excesses(position), model.excesses(case.start), strict=True)
    return any(group.hard and group.restored and after < before for group, after, before in changes)


def _excess(case: Case, position: Position) -> int:
    """Return the excess of the constraints to be restored."""
    excesses = case.model.excesses(position)
    return sum(excesses[at] for at in case.model.to_restore(case.start))


def _likeness(case: Case, kind: Kind) -> Hashable:
    """Return what tells a kind of pods from those that are not equivalent."""
    shape, host = kind
    of_groups = []
    for group in case.model.groups:
        domain, counts = group.domain_of[host], case.model.counts(group, case.start)
        is_single = len([each for each in group.domain_of if each is not None]) == len(group.domains)
        of_groups.append(counts[domain] if is_single and domain is not None else domain)
    return shape, tuple(of_groups)


def _may_go(case: Case, kind: Kind, *, overfull: bool) -> bool:
    shape, host = kind
    for at in case.model.to_restore(case.start):
        group = case.model.groups[at]
        if not group.counts[shape]:
            continue
        counts = case.model.counts(group, case.start)
        domain = group.domain_of[host]
        limit = case.model.minimum(group, counts) + group.max_skew
        if not overfull or (domain is not None and counts[domain] > limit):
            return True
    return False
