"""Every course that moves in flight may take in a tiny cluster: any of them sent, in any order, with any landings.

The judge of what may be in flight at the same time. It uses the rules of `scheduler_model` and no code of the product.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple, TypeAlias, TypeVar

from tests.properties.planning.scheduler_model import Kind, Position, SchedulerModel

_T = TypeVar("_T")

Steps: TypeAlias = tuple[tuple[Kind, ...], ...]
"""Steps to be made: the pods of each are evicted all or none."""


class Flight(NamedTuple):
    """A cluster with moves in flight."""

    position: Position
    waiting: tuple[int, ...] = ()
    """The shapes of the replacements without a node, sorted."""
    terminating: tuple[Kind, ...] = ()
    """The evicted pods that hold their room, sorted."""


class TooManyCoursesError(Exception):
    """There are too many courses to follow all."""


class StuckError(AssertionError):
    """A replacement has no node, whatever else happens."""


class WorseError(AssertionError):
    """A constraint has more excess than before."""


class StrayError(AssertionError):
    """A replacement lands where none was said to land."""


class UselessError(AssertionError):
    """Moves improve nothing."""


class _State(NamedTuple):
    flight: Flight
    to_make: Steps
    to_evict: tuple[Kind, ...]
    """The rest of a step that is begun."""
    likely: bool


def judge(
    model: SchedulerModel,
    start: Flight,
    steps: Steps,
    before: Sequence[int],
    pending: int = 0,
    hosts: Collection[int] | None = None,
    most_states: int = 20_000,
) -> None:
    """Follow every course from a cluster with moves in flight and others to be made, of which any may stay unmade.

    Args:
        model: the rules.
        start: the cluster.
        steps: the moves to be made.
        before: the excess of each constraint before these moves, or those in flight, were made.
        pending: how many pods may be left without a node, because others' are anyway. Then, no excess is judged.
        hosts: all on which replacements may land; None if that is not to be judged.
        most_states: how many states are looked at.

    Raises:
        StuckError: more pods may be left without a node.
        WorseError: a DoNotSchedule constraint may have more excess in the end, or any may if all replacements go where
            the score puts them.
        UselessError: nothing is better in the end although all moves were made, and went where the score puts them.
        StrayError: a replacement may land on another host.
        TooManyCoursesError: there are more than `most_states` states.
    """
    todo = [_State(start, steps, (), likely=True)]
    seen = set(todo)
    while todo:
        state = todo.pop()
        for following in _following(model, state):
            if hosts is not None and not _placed(state, following) <= set(hosts):
                raise StrayError(f"{following}: {hosts}")
            if following not in seen:
                seen.add(following)
                todo.append(following)
        if len(seen) > most_states:
            raise TooManyCoursesError
        if not state.to_evict:
            _judge_state(model, state, before, pending, is_useful=not steps or bool(state.to_make))


def _placed(state: _State, following: _State) -> set[int]:
    """Return the hosts on which there are more pods that stay than before."""
    return {
        host
        for before, after in zip(state.flight.position.staying, following.flight.position.staying, strict=True)
        for host, (fewer, more) in enumerate(zip(before, after, strict=True))
        if more > fewer
    }


def _judge_state(model: SchedulerModel, state: _State, before: Sequence[int], pending: int, *, is_useful: bool) -> None:
    flight = state.flight
    if flight.waiting or pending:
        hosts = (model.feasible(shape, flight.position, list(flight.terminating)) for shape in flight.waiting)
        if len(flight.waiting) > pending and not any(hosts):
            raise StuckError(f"{state}")
        return
    after = model.excesses(flight.position)
    for at, group in enumerate(model.groups):
        if after[at] > before[at] and (group.hard or state.likely):
            raise WorseError(f"{state}: {group}")
    if not is_useful and state.likely:
        better = any(after[at] < before[at] for at, group in enumerate(model.groups) if group.restored)
        if not better:
            raise UselessError(f"{state}")


def _following(model: SchedulerModel, state: _State) -> list[_State]:
    flight = state.flight
    found = []
    for step in set(state.to_make) if not state.to_evict else ():
        found.append(state._replace(to_make=_without(state.to_make, step), to_evict=step))
    for kind in set(state.to_evict):
        evicted = Flight(
            flight.position.evict(kind),
            tuple(sorted((*flight.waiting, kind[0]))),
            tuple(sorted((*flight.terminating, kind))),
        )
        found.append(state._replace(flight=evicted, to_evict=_without(state.to_evict, kind)))
    for shape in set(flight.waiting):
        for hosts in (
            model.feasible(shape, flight.position, list(flight.terminating)),
            model.feasible(shape, flight.position, []),
        ):
            best = model.likeliest(shape, hosts, flight.position)
            for host in hosts:
                placed = flight._replace(
                    position=flight.position.place((shape, host)), waiting=_without(flight.waiting, shape)
                )
                found.append(state._replace(flight=placed, likely=state.likely and host in best))
    return found


def _without(items: tuple[_T, ...], item: _T) -> tuple[_T, ...]:
    at = items.index(item)
    return items[:at] + items[at + 1 :]
