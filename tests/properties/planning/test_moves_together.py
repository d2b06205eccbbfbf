"""What a plan makes at the same time is safe: any part of it, in any order, wherever replacements land, beside others.

Clusters go through states with moves in flight: pods that terminate, and replacements without a node, which exist or
not. In each state the plan's next moves are judged by every course that they may take (`courses`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import chain, count
from random import Random
from typing import Final

import msgspec
import pytest
from hypothesis import assume
from hypothesis import strategies as st

from respread.api.policy import Limits
from respread.cluster.pod import Pod
from respread.planning.moving_pods import UnderWay
from respread.planning.plan import Move, Plan
from respread.planning.room.demand import Demand
from respread.planning.search.board import Board
from respread.planning.search.together import places_together
from tests.plans import plan_cluster
from tests.properties.instances import factor, try_on
from tests.properties.planning.boards import board_of, with_pods
from tests.properties.planning.courses import Flight, Steps, StuckError, TooManyCoursesError, WorseError, judge
from tests.properties.planning.mixed_worlds import (
    apart_world,
    coupled_world,
    crossing_world,
    filling_world,
    half_bound_world,
    shared_world,
    uneven_world,
)
from tests.properties.planning.scheduler_model import Kind, SchedulerModel
from tests.properties.planning.small_worlds import NOW, PLENTY, TINY, Place, World, policy_of, snapshot_of, worlds

PARTS: Final = range(4 if factor() > 1 else 2)
MOST_ROUNDS: Final = 60
LIMITS: Final = Limits(in_flight=50, in_flight_per_namespace=50, in_flight_per_node=50, in_flight_per_workload=50)


class _Cluster:
    """A world in which moves are made one by one, as chance decides."""

    def __init__(self, world: World, random: Random, others: Sequence[int] = ()) -> None:
        """Others' pods, of these shapes, need a node too."""
        self.model = SchedulerModel(world)
        self._world = world
        self._random = random
        self.pods: dict[str, Place] = {f"{number:02}": place for number, place in enumerate(world.pods)}
        """By name."""
        self.terminating: dict[str, Kind] = {}
        self.waiting = {f"other-{number}": shape for number, shape in enumerate(others)}
        """The shapes of replacements without a node, by the names of the pods that they replace, and of others."""
        self.created = set(self.waiting)
        """Those among them that exist."""
        self._before: dict[str, Sequence[int]] = {}
        """The excesses before each of their moves was made."""
        self.evictions = 0

    def flight(self) -> Flight:
        position = SchedulerModel(self._world._replace(pods=tuple(self.pods.values()))).start()
        return Flight(position, tuple(sorted(self.waiting.values())), tuple(sorted(self.terminating.values())))

    def before(self) -> Sequence[int]:
        """Return the most excess that each constraint had before any of the moves in flight, or now."""
        now = self.model.excesses(self.flight().position)
        ours = self._before.keys() & self.waiting.keys()
        return [max(each) for each in zip(now, *(self._before[name] for name in ours), strict=True)]

    def plan(self) -> Plan:
        names = [*self.pods, *self.terminating, *(name for name in self.waiting if name not in self.terminating)]
        places = [*self.pods.values(), *(Place(*kind) for kind in self.terminating.values())]
        places += [Place(self.waiting[name], 0) for name in names[len(places) :]]
        snapshot = snapshot_of(self._world._replace(pods=tuple(places)))
        by_name = dict(zip(names, sorted(snapshot.pods.values(), key=lambda pod: pod.name), strict=True))
        shown: list[Pod] = []
        unreplaced: list[Pod] = []
        replacements: list[Pod] = []
        in_flight: list[Pod] = []
        for name, pod in by_name.items():
            named = msgspec.structs.replace(pod, name=name, uid=f"uid-{name}")
            if name in self.pods:
                shown.append(named)
                continue
            gone = msgspec.structs.replace(named, deletion_timestamp=NOW)
            if name.startswith("other-"):
                shown.append(msgspec.structs.replace(named, node_name="", phase="Pending", ready=False))
                continue
            in_flight.append(gone)
            if name in self.terminating:
                shown.append(gone)
            if name in self.created:
                new = msgspec.structs.replace(
                    named, name=f"new-{name}", uid=f"uid-new-{name}", node_name="", phase="Pending", ready=False
                )
                shown.append(new)
                replacements.append(new)
            elif name in self.waiting:
                unreplaced.append(named)
        return plan_cluster(
            with_pods(snapshot, shown),
            [policy_of(self._world, LIMITS)],
            now=NOW,
            under_way=UnderWay(tuple(in_flight), tuple(unreplaced), tuple(replacements)),
        )

    def can_land(self) -> bool:
        return any(self.model.feasible(shape, self.flight().position, []) for shape in self.waiting.values())

    def kind(self, move: Move) -> Kind:
        return self.pods[move.pod.name][:2]

    def go_on(self, steps: list[list[Move]]) -> None:
        """Make some of the moves, and let some of everything else happen."""
        for step in steps[: self._random.randint(0 if self.waiting or not steps else 1, len(steps))]:
            before = self.before()
            for move in step:
                self._before[move.pod.name] = before
                place = self.pods.pop(move.pod.name)
                self.terminating[move.pod.name] = (place.shape, place.host)
                self.waiting[move.pod.name] = place.shape
                self.evictions += 1
        for _ in range(self._random.randint(1, 4)):
            happen = self._random.choice((self._create, self._place, self._place, self._go))
            happen()
            assert self.created <= self.waiting.keys(), "nothing is kept of moves that are over"

    def _create(self) -> None:
        self.created.update(name for name in self.waiting if self._random.random() < 0.7)

    def _go(self) -> None:
        for name in list(self.terminating):
            if self._random.random() < 0.5:
                del self.terminating[name]

    def _place(self) -> None:
        flight = self.flight()
        for name in self._random.sample(sorted(self.waiting), len(self.waiting)):
            hosts = self.model.feasible(self.waiting[name], flight.position, list(flight.terminating))
            likely = self.model.likeliest(self.waiting[name], hosts, flight.position)
            if likely:
                shape = self.waiting.pop(name)
                self.created.discard(name)
                self.pods[f"placed-{self.evictions}-{name}"] = Place(shape, self._random.choice(likely))
                break


def _steps(cluster: _Cluster, plan: Plan) -> tuple[list[list[Move]], Steps]:
    by_step: dict[tuple[int, int], list[Move]] = {}
    for move in plan.moves:
        if move.wave == 0:
            by_step.setdefault((move.component, move.step), []).append(move)
    steps = list(by_step.values())
    return steps, tuple(tuple(sorted(map(cluster.kind, step))) for step in steps)


def restore(world: World, seed: int, others: Sequence[int] = ()) -> tuple[int, int]:
    """Restore a world with several moves in flight, and judge each plan beside which others' pods can get a node.

    Return how many moves were in flight together at most, and the evictions.
    """
    cluster = _Cluster(world, Random(seed), others)
    most_together = 0
    for _ in range(MOST_ROUNDS):
        plan = cluster.plan()
        moves, steps = _steps(cluster, plan)
        if not steps and not cluster.terminating and not cluster.can_land():
            return most_together, cluster.evictions
        most_together = max(most_together, len(steps) + len(cluster.waiting))
        try:
            judge(cluster.model, cluster.flight(), steps, cluster.before(), _pending_anyway(cluster) if others else 0)
        except TooManyCoursesError:
            assume(False)
        cluster.go_on(moves)
    raise AssertionError(f"it does not end: {world}")


def _pending_anyway(cluster: _Cluster) -> int:
    """Return how many pods may be left without a node in a course without moves, at most; one if only excess grows."""
    for number in count():
        with suppress(StuckError, WorseError):
            judge(cluster.model, cluster.flight(), (), cluster.before(), number)
            break
    return number


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.timeout(900 * factor())
def test_moves_in_flight_at_the_same_time_are_safe_in_every_course(part: int) -> None:
    seen: Counter[int] = Counter()

    def is_safe(drawn: tuple[World, int]) -> None:
        world, seed = drawn
        model = SchedulerModel(world)
        assume(model.to_restore(model.start()))
        all_hard = all(rule.hard for shape in world.shapes for rule in shape.rules)
        others = Random(seed).choices(range(len(world.shapes)), k=seed % 4 if all_hard else 0)
        seen[restore(world, seed, others)[0]] += 1

    seeded = (_seeded(of) for of in (coupled_world, apart_world, uneven_world, shared_world, filling_world))
    drawn = st.one_of(worlds(TINY), worlds(TINY), *seeded)
    try_on(st.tuples(drawn, st.integers(0, 1 << 30)), 40, part, is_safe)
    assert sum(count for together, count in seen.items() if together > 1) >= 5


@pytest.mark.parametrize(
    ("seed", "others"),
    [
        pytest.param(500_594, (), id="a waiting replacement that is not known to keep a place"),
        pytest.param(3_288, (), id="a waiting replacement takes the node with the best score"),
        pytest.param(22_846, (), id="another takes the only node that those of a step leave to one of them"),
        pytest.param(103_179, (), id="a replacement that may land on more nodes than when it joined"),
        # Two larger ones fit on its only node, and leave it no room, once a pod has left that.
        pytest.param(2_286, (2, 2, 1), id="a pod of others keeps its place though a move leaves room for another"),
    ],
)
def test_moves_of_groups_that_want_the_same_room_are_safe(seed: int, others: Sequence[int]) -> None:
    assert restore(coupled_world(Random(seed)), seed, others)[1]


@pytest.mark.parametrize(
    ("seed", "pods", "waiting"),
    [
        # It is allowed one node of its zone by its constraint over hostnames, and room is on another one, too.
        (501_067, [(0, 3)] * 5 + [(1, 3)] * 2 + [(1, 1), (1, 2)], [1]),
        # One may land where the move lets another one land, which can go to a single node without it.
        (3_022_414, [(0, 0)] * 2 + [(1, 3)] * 2 + [(2, 1), (2, 3)], [0, 1]),
        # The first of two alike may land anywhere. If it lands in z0, the other needs the room that a third may take.
        (1_019_447, [(0, 0)] * 2 + [(1, 2)] * 2 + [(2, 0)] * 2, [0, 0, 2]),
    ],
)
def test_moves_wait_for_a_replacement_without_proof(seed: int, pods: list[tuple[int, int]], waiting: list[int]) -> None:
    cluster = _Cluster(coupled_world(Random(seed))._replace(pods=tuple(Place(*each) for each in pods)), Random(0))
    cluster.waiting.update({f"gone-{number}": shape for number, shape in enumerate(waiting)})
    assert min(move.wave for move in cluster.plan().moves) == 1


def test_a_move_waits_for_replacements_with_a_constraint_that_its_own_replacement_need_not_keep() -> None:
    cluster = _Cluster(half_bound_world(), Random(0))
    cluster.waiting.update({f"gone-{number}": 1 for number in range(4)})
    assert min(move.wave for move in cluster.plan().moves) == 1


def test_a_step_is_made_whose_pods_leave_each_other_a_single_place() -> None:
    """Three of four pods have to leave a node together, and each of three nodes takes one of their replacements."""
    world = coupled_world(Random(22_846))._replace(pods=(*(Place(0, 0) for _ in range(4)), Place(0, 2)))
    assert [move.wave for move in _Cluster(world, Random(0)).plan().moves] == [0, 0, 0]


@pytest.mark.parametrize("part", PARTS)
@pytest.mark.timeout(900 * factor())
def test_the_bound_holds_for_any_pods_that_wait_and_any_moves_beside_them(part: int) -> None:
    """Not only for those of a plan. Nodes have room for all: whether they have is decided elsewhere (`contention`)."""
    shown: Counter[int] = Counter()

    def holds(drawn: tuple[World, int]) -> None:
        world, seed = drawn
        random = Random(seed)
        world = world._replace(hosts=tuple(host._replace(room=PLENTY) for host in world.hosts))
        movable = [at for at, pod in enumerate(world.pods) if pod.movable]
        random.shuffle(movable)
        number = min(random.choice((0, 0, 1, 2, 4)), len(movable) // 2)
        waiting, evicted = movable[:number], movable[number : number + 5]
        board, spots = board_of(world, waiting)
        of_waiting, of_evicted = places_together(board, board.waiting, [spots[at] for at in evicted])
        assume(of_waiting is not None and _have_places(of_waiting))
        places = list(of_evicted.values())
        together = max(n for n in range(len(places) + 1) if _have_places((*(of_waiting or ()), *places[:n])))
        joining = [evicted[number] for number in list(of_evicted)[:together]]
        moves = tuple(((world.pods[at].shape, world.pods[at].host),) for at in joining)
        assume(moves or waiting)
        model = SchedulerModel(world)
        staying = tuple(pod for at, pod in enumerate(world.pods) if at not in waiting)
        start = Flight(
            SchedulerModel(world._replace(pods=staying)).start(), tuple(sorted(world.pods[at].shape for at in waiting))
        )
        assume(model.groups == SchedulerModel(world._replace(pods=staying)).groups)
        try:
            judge(model, start, moves, model.excesses(start.position), 0, _hosts(board, of_waiting, places[:together]))
        except TooManyCoursesError:
            assume(False)
        shown[len(moves) + len(waiting)] += 1

    drawn = st.tuples(
        st.one_of(worlds(TINY), *(_seeded(of) for of in (crossing_world, uneven_world, shared_world, filling_world))),
        st.integers(0, 1 << 30),
    )
    try_on(drawn, 200, part, holds)
    assert sum(count for together, count in shown.items() if together > 1) >= 5


def _seeded(of: Callable[[Random], World]) -> st.SearchStrategy[World]:
    return st.integers(0, 1 << 30).map(lambda seed: of(Random(seed)))


def _have_places(places: Sequence[Demand]) -> bool:
    """Return whether there are nodes enough for pods so many of which may take a whole node from others."""
    return all(
        sum((levels[0] & there).bit_count() for there in levels)
        > min(each.closing, part.siblings, sum(bool(other.nodes & levels[0]) for other in places) - 1)
        for each in places
        for part in each.must_hold
        if each.closing
        for levels in [part.unless_full or (part.nodes, *part.roomy)]
    )


def _hosts(board: Board, *places: Sequence[Demand] | None) -> list[int]:
    """Return the numbers of the hosts on which any of some replacements may land."""
    return [
        int(name.removeprefix("n"))
        for each in chain.from_iterable(some or () for some in places)
        for name in board.placement.names(each.nodes)
    ]
