"""What the audit says about random clusters is true in the model of the scheduler.

The model knows nothing of the audit. "Ineffective" must mean that the model's answers don't depend on where the pods of
the workload are; "unsatisfiable now" that no order of placing them leaves none Pending.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable
from itertools import product

import pytest
from hypothesis.strategies import SearchStrategy

from respread.planning.audit.auditor import Auditor
from respread.planning.audit.finding import AuditRule, Finding
from respread.planning.audit.limit_rules import Level, can_hold
from respread.scheduling.predictor import Predictor
from respread.scheduling.view.cluster_view import ClusterView
from respread.spread.group import GroupKey
from respread.spread.index import group_keys_of
from tests.properties.instances import factor, try_on
from tests.properties.planning.scheduler_model import Position, SchedulerModel
from tests.properties.planning.small_worlds import TINY, World, snapshot_of, worlds
from tests.spreads import spread_of

PLACEMENTS = 20
SEEN: Counter[AuditRule] = Counter()


def findings_of(world: World, *, room: bool = False) -> dict[tuple[int, int], Finding]:
    """Return what is found, by the number of a shape and of its rule; with room, also for want of it."""
    snapshot = snapshot_of(world)
    predictor = Predictor(ClusterView()) if room else None
    findings = Auditor().update(snapshot, spread_of(snapshot), predictor)
    found: dict[tuple[int, int], Finding] = {}
    named = sorted(snapshot.pods.values(), key=lambda pod: pod.name)
    shapes = {pod.name: place.shape for pod, place in zip(named, world.pods, strict=True)}
    for pod in snapshot.pods.values():
        keys: tuple[GroupKey, ...] = group_keys_of(pod)
        for number, key in enumerate(keys):
            for each in findings.get(key, ()):
                if pod.controller is not None and any(name.name == pod.controller.name for name in each.workloads):
                    found[shapes[pod.name], number] = each.finding
    return found


def _is_ineffective(world: World) -> None:
    chance = random.Random(1)
    model = SchedulerModel(world)
    for (shape, number), finding in findings_of(world).items():
        rule = world.shapes[shape].rules[number]
        if finding.state != "Ineffective" or not rule.hard:
            continue
        SEEN[finding.rule] += 1
        group = model.groups[model.group_of(shape, number)]
        there = [host for host, domain in enumerate(group.domain_of) if domain is not None]
        own = sum(place.shape == shape for place in world.pods)
        others = [place for place in world.pods if place.shape != shape]
        answers = set()
        for _ in range(PLACEMENTS):
            moved = [chance.choice(range(len(world.hosts))) for _ in range(own - 1)]
            position = position_of(
                world, [*((place.shape, place.host) for place in others), *((shape, at) for at in moved)]
            )
            answers.add(tuple(model.admits(shape, number, host, position) for host in there))
        assert len(answers) <= 1, (finding, world)


def _half_full(world: World) -> World:
    """Return a world in which every other host has no room for another pod."""
    used = Counter[int]()
    for place in world.pods:
        used[place.host] += world.shapes[place.shape].size
    hosts = [host if at % 2 else host._replace(room=used[at]) for at, host in enumerate(world.hosts)]
    return world._replace(hosts=tuple(hosts))


def _takes_no_pod(world: World) -> None:
    model = SchedulerModel(world)
    now = position_of(world, [(place.shape, place.host) for place in world.pods])
    for (shape, _), finding in findings_of(world, room=True).items():
        if finding.rule is AuditRule.FULL_DOMAINS:
            SEEN[finding.rule] += 1
            assert model.feasible(shape, now, []) == [], (finding, world)
            shapes = list(world.shapes)
            shapes[shape] = shapes[shape]._replace(rules=())
            free_to_go = SchedulerModel(world._replace(shapes=tuple(shapes)))
            assert free_to_go.feasible(shape, now, []), (finding, world)


def position_of(world: World, placed: list[tuple[int, int]]) -> Position:
    empty = tuple((0,) * len(world.hosts) for _ in world.shapes)
    counts = Counter(placed)
    staying = tuple(
        tuple(counts[shape, host] for host in range(len(world.hosts))) for shape in range(len(world.shapes))
    )
    return Position(empty, staying)


def _leaves_one_pending(world: World) -> None:
    chance = random.Random(1)
    for (shape, number), finding in findings_of(world).items():
        if finding.state != "Unsatisfiable":
            continue
        SEEN[finding.rule] += 1
        extra = finding.when == "NextScaleUp"
        group = SchedulerModel(world)
        counted = group.groups[group.group_of(shape, number)].counts
        own = [place.shape for place in world.pods if counted[place.shape]]
        own += [shape] * extra
        others = [(place.shape, place.host) for place in world.pods if not counted[place.shape]]
        for _ in range(PLACEMENTS):
            assert pending(world, own, others, chance), (finding, world)


def pending(world: World, shapes: list[int], others: list[tuple[int, int]], chance: random.Random) -> bool:
    """Roll the pods of some shapes out from scratch, in random order, and return whether one finds no node."""
    model, placed = SchedulerModel(world), list(others)
    for shape in chance.sample(shapes, len(shapes)):
        feasible = model.feasible(shape, position_of(world, placed), [])
        if not feasible:
            return True
        placed.append((shape, chance.choice(feasible)))
    return False


def test_two_nested_constraints_hold_what_an_exhaustive_search_can_place() -> None:
    for nodes in ((1, 1), (1, 2), (1, 3), (2, 2), (1, 1, 2), (0, 1), (0, 2)):
        for pods, outer, inner, zero in product(range(1, 8), (1, 2), (1, 2), (False, True)):
            levels = Level(outer, False), Level(inner, zero)
            assert can_hold(pods, nodes, *levels) == _placeable(pods, nodes, *levels), (nodes, pods, levels)


def _placeable(pods: int, nodes: tuple[int, ...], outer: Level, inner: Level) -> bool:
    every = [host for host, count in enumerate(nodes) for _ in range(count)]
    for counts in product(range(pods + 1), repeat=len(every)):
        if sum(counts) != pods:
            continue
        zones = [
            sum(count for count, zone in zip(counts, every, strict=True) if zone == at) for at in range(len(nodes))
        ]
        least = 0 if inner.minimum_is_zero else min(counts)
        if max(counts) - least <= inner.max_skew and max(zones) - min(zones) <= outer.max_skew:
            return True
    return False


@pytest.mark.timeout(900 * factor())
@pytest.mark.parametrize(
    ("drawn", "number", "holds", "seen"),
    [
        pytest.param(worlds(TINY), 60, _is_ineffective, 5, id="an ineffective constraint answers the same everywhere"),
        pytest.param(worlds(TINY), 60, _leaves_one_pending, 3, id="some pod of an unsatisfiable one stays Pending"),
        pytest.param(worlds(TINY).map(_half_full), 150, _takes_no_pod, 3, id="with full domains left no pod goes"),
    ],
)
@pytest.mark.parametrize("part", range(2))
def test_a_finding_is_true(
    drawn: SearchStrategy[World], number: int, part: int, holds: Callable[[World], None], seen: int
) -> None:
    SEEN.clear()
    try_on(drawn, number, part, holds)
    assert SEEN.total() > seen
