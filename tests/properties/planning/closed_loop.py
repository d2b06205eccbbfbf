"""A loop on small clusters with different schedulers: plan, evict and place until no move is planned."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import Literal, NamedTuple, TypeAlias

from respread.api.reasons import Held
from respread.holds.backoff import BackOffs
from respread.moves.entry import Outcome
from respread.moves.following import compared
from respread.planning.plan import Move
from respread.spread.group import GroupKey, SpreadGroup
from tests.plans import plan_cluster
from tests.properties.planning.scheduler_model import Kind, Position, SchedulerModel
from tests.properties.planning.small_worlds import NOW, Place, World, policy_of, snapshot_of
from tests.spreads import spread_of

SchedulerChoice: TypeAlias = Literal["random", "score", "adversarial"]
"""How the scheduler chooses a feasible node: any, one with the best PodTopologySpread score, or the worst one for the
plan."""
MOST_ROUNDS = 100


class Ended(NamedTuple):
    """The end of a loop."""

    evictions: int
    rounds: int
    excess: int
    """The remaining excess of the groups that were selected at the start."""


class EndlessError(AssertionError):
    """The loop did not end within `MOST_ROUNDS` rounds."""


class PendingError(AssertionError):
    """A replacement found no node."""


class WorseError(AssertionError):
    """A group has more excess than before."""


def run(world: World, choice: SchedulerChoice, seed: int) -> Ended:
    """Run a cluster until no move is planned any more."""
    random = Random(seed)
    model = SchedulerModel(world)
    start = model.start()
    to_restore = model.to_restore(start)
    back_offs = BackOffs()
    evictions = 0
    for round_number in range(MOST_ROUNDS):
        snapshot = snapshot_of(world)
        spread = spread_of(snapshot)

        def on_hold(
            key: GroupKey, _policy: str, groups: object = spread.groups, held: BackOffs = back_offs
        ) -> Held | None:
            return held.held(str(key), _situation(groups[key]), 0.0)  # type: ignore[index]  # bound early, so an object

        plan = plan_cluster(snapshot, [policy_of(world)], now=NOW, spread=spread, on_hold=on_hold)
        wave = [move for move in plan.moves if move.wave == 0]
        if not wave:
            position = SchedulerModel(world).start()
            return Ended(evictions, round_number, sum(model.excess(model.groups[at], position) for at in to_restore))
        evictions += len(wave)
        before = model.excesses(_position(model, world))
        world, placed, likely = _carry_out(model, world, wave, choice, random)
        after = model.excesses(_position(model, world))
        for group, excess_before, excess_after in zip(model.groups, before, after, strict=True):
            if excess_after > excess_before and (group.hard or likely):
                raise WorseError(f"{group} had {excess_before} and has {excess_after}")
        back_offs = _learn(back_offs, world, wave, placed)
    raise EndlessError


def _position(model: SchedulerModel, world: World) -> Position:
    return SchedulerModel(world._replace(hosts=model.world.hosts)).start()


def _carry_out(
    model: SchedulerModel, world: World, wave: Sequence[Move], choice: SchedulerChoice, random: Random
) -> tuple[World, list[int], bool]:
    """Evict a wave in any order, with the scheduler acting in between, and terminations of any length.

    Returns:
        The world after the wave, the host of each move's replacement, and whether all of these hosts were likely.
    """
    pods = list(world.pods)
    victims = [int(move.pod.name) for move in wave]
    to_evict = random.sample(victims, len(victims))
    waiting: list[int] = []
    terminating: dict[int, Kind] = {}
    position = _position(model, world)
    likely = True
    while to_evict or waiting:
        placeable = [
            victim for victim in waiting if model.feasible(pods[victim].shape, position, list(terminating.values()))
        ]
        choices: list[tuple[str, int]] = [("evict", victim) for victim in to_evict[:1]]
        choices += [("place", victim) for victim in placeable]
        choices += [("gone", victim) for victim in terminating]
        if not placeable and not to_evict and not terminating:
            raise PendingError(f"{world} {wave}")
        what, victim = random.choice(choices)
        kind = pods[victim].shape, pods[victim].host
        if what == "evict":
            to_evict.remove(victim)
            waiting.append(victim)
            terminating[victim] = kind
            position = position.evict(kind)
        elif what == "gone":
            del terminating[victim]
        else:
            feasible = model.feasible(kind[0], position, list(terminating.values()))
            best = model.likeliest(kind[0], feasible, position)
            host = _choose(model, position, kind[0], feasible, best, choice, random)
            likely = likely and host in best
            waiting.remove(victim)
            position = position.place((kind[0], host))
            pods[victim] = Place(kind[0], host)
    placed = [pods[victim].host for victim in victims]
    return world._replace(pods=tuple(pods)), placed, likely


def _choose(
    model: SchedulerModel,
    position: Position,
    shape: int,
    feasible: list[int],
    best: list[int],
    choice: SchedulerChoice,
    random: Random,
) -> int:
    if choice == "random":
        return random.choice(feasible)
    if choice == "score":
        return random.choice(best)
    worst: Callable[[int], tuple[int, float]] = lambda host: (  # noqa: E731 - it is used as a key once
        sum(model.excesses(position.place((shape, host)))),
        random.random(),
    )
    return max(best, key=worst)


def _learn(back_offs: BackOffs, world: World, wave: Sequence[Move], hosts: Sequence[int]) -> BackOffs:
    snapshot = snapshot_of(world)
    spread = spread_of(snapshot)
    compare = partial(compared, spread)
    replacements = {pod.name: pod for pod in snapshot.pods.values()}
    for move, _ in zip(wave, hosts, strict=True):
        outcome = compare(move, replacements[move.pod.name])
        for key in move.groups:
            if (group := spread.groups.get(key)) is None:
                continue
            if outcome is Outcome.IMPROVED:
                back_offs = back_offs.improved(str(key))
            else:
                back_offs = back_offs.failed(str(key), _situation(group), 0.0)
    return back_offs


def _situation(group: SpreadGroup) -> str:
    return str(sorted(group.counts.items()))
