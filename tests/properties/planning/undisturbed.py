"""The possible ends of pods without a node if nothing is evicted, for any order and choice of the scheduler.

Pods are placed in any order on any feasible host. Without one, pods of lower priority are preempted on any host where
that helps, and may take long to terminate. Like `scheduler_model`, whose rules it uses, it reads only plain data.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple, TypeAlias

from tests.properties.planning.scheduler_model import Kind, Position, SchedulerModel

Waiting: TypeAlias = tuple[tuple[int, int], ...]
"""The shapes of pods without a node, and the host that each is nominated for, if any; sorted."""
NOWHERE = -1
MOST_STATES = 20_000


class Scene(NamedTuple):
    """The state of the cluster."""

    position: Position
    """The pods that are not terminating. None of them moves without an eviction."""
    waiting: Waiting
    terminating: tuple[Kind, ...] = ()
    """The pods without a node, sorted."""


def ends_of(model: SchedulerModel, scene: Scene, stateful: Collection[int]) -> list[Counter[int]] | None:
    """Return the pods that may still wait at the end, by shape; None if there are too many cases.

    Args:
        model: the rules.
        scene: the state of the cluster.
        stateful: the shapes of pods that are replaced only after their deletion.
    """
    ends: set[tuple[int, ...]] = set()
    seen: set[Scene] = set()
    todo = [scene]
    while todo:
        scene = todo.pop()
        if scene in seen:
            continue
        seen.add(scene)
        if len(seen) > MOST_STATES:
            return None
        following = list(_following(model, scene, stateful))
        if not following:
            ends.add(tuple(shape for shape, _ in scene.waiting))
        todo.extend(following)
    return [Counter(end) for end in sorted(ends)]


def feasible(model: SchedulerModel, scene: Scene, who: tuple[int, int]) -> list[int]:
    """Return the hosts for a waiting pod, beside nominated pods that it can't displace.

    Args:
        model: the rules.
        scene: the state of the cluster.
        who: its shape, and the host that it is nominated for.
    """
    found = model.feasible(who[0], scene.position, list(scene.terminating))
    beside = _with_nominated(model, scene, who)
    if beside is scene.position:
        return found
    also = model.feasible(who[0], beside, list(scene.terminating))
    return [host for host in found if host in also]


def preemptable(model: SchedulerModel, scene: Scene, who: tuple[int, int]) -> list[tuple[int, tuple[int, ...]]]:
    """Return the hosts where preemption helps a waiting pod, with the shapes of the preempted pods."""
    shape, nominated = who
    priority = model.world.shapes[shape].priority
    if any(host == nominated and model.world.shapes[other].priority < priority for other, host in scene.terminating):
        return []  # it waits until these are deleted
    position = _with_nominated(model, scene, who)
    hosts = range(len(model.world.hosts))
    found = ((host, _preempted(model, position, scene.terminating, shape, host)) for host in hosts)
    return [(host, gone) for host, gone in found if gone is not None]


def without_claims(model: SchedulerModel, waiting: Waiting, priority: int, host: int) -> Waiting:
    """Return the waiting pods after one is nominated to a host, where those of lower priority lose their nomination."""
    return tuple(
        (shape, NOWHERE if nominated == host and model.world.shapes[shape].priority < priority else nominated)
        for shape, nominated in waiting
    )


def _following(model: SchedulerModel, scene: Scene, stateful: Collection[int]) -> Iterator[Scene]:
    position, waiting, terminating = scene
    for kind in dict.fromkeys(terminating):
        more = ((kind[0], NOWHERE),) if kind[0] in stateful else ()
        yield Scene(position, tuple(sorted((*waiting, *more))), _less(terminating, kind))
    for who in dict.fromkeys(waiting):
        rest = _less(waiting, who)
        hosts = feasible(model, scene, who)
        for host in hosts:
            yield Scene(position.place((who[0], host)), rest, terminating)
        if not hosts:
            for host, gone in preemptable(model, scene, who):
                yield _preempting(model, scene, who, host, gone, stateful)


def _preempting(
    model: SchedulerModel, scene: Scene, who: tuple[int, int], host: int, gone: Iterable[int], stateful: Collection[int]
) -> Scene:
    position, waiting, terminating = scene
    priority = model.world.shapes[who[0]].priority
    still = [*without_claims(model, _less(waiting, who), priority, host), (who[0], host)]
    going = list(terminating)
    for shape in gone:
        position = _without(position, shape, host)
        going.append((shape, host))
        if shape not in stateful:
            still.append((shape, NOWHERE))
    return Scene(position, tuple(sorted(still)), tuple(sorted(going)))


def _with_nominated(model: SchedulerModel, scene: Scene, who: tuple[int, int]) -> Position:
    shapes, position = model.world.shapes, scene.position
    for shape, host in _less(scene.waiting, who):
        if host != NOWHERE and shapes[shape].priority >= shapes[who[0]].priority:
            position = position.place((shape, host))
    return position


def _preempted(
    model: SchedulerModel, position: Position, terminating: tuple[Kind, ...], shape: int, host: int
) -> tuple[int, ...] | None:
    """Return the shapes of the pods preempted on a host for one of a shape; None if that does not help.

    All pods of lower priority are removed, and then put back as far as there is room: first those with the highest
    priority, and of equal ones, terminating pods last.
    """
    shapes = model.world.shapes
    priority = shapes[shape].priority
    staying = [
        (other, False)
        for other in range(len(shapes))
        for _ in range(position.staying[other][host])
        if shapes[other].priority < priority
    ]
    going = [(other, True) for other, at in terminating if at == host and shapes[other].priority < priority]
    lower = sorted((*staying, *going), key=lambda each: (-shapes[each[0]].priority, each[1], each[0]))
    left = list(terminating)
    for other, is_going in lower:
        if is_going:
            left.remove((other, host))
        else:
            position = _without(position, other, host)
    if not lower or host not in model.feasible(shape, position, left):
        return None
    gone: list[int] = []
    for other, is_going in lower:
        back = position if is_going else position.place((other, host))
        still = [*left, (other, host)] if is_going else left
        if host in model.feasible(shape, back, still):
            position, left = back, still
        elif not is_going:
            gone.append(other)
    return tuple(gone)


def _without(position: Position, shape: int, host: int) -> Position:
    rows = [list(row) for row in position.staying]
    rows[shape][host] -= 1
    return Position(position.movable, tuple(map(tuple, rows)))


def _less(items: tuple, item: object) -> tuple:  # type: ignore[type-arg]  # of whatever the items are
    at = items.index(item)
    return items[:at] + items[at + 1 :]
