"""Chooses which planned moves are made now, by limits, pauses and windows."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable

from respread.api.policy import Policy
from respread.controller.observation import Observation
from respread.controller.permits.begun_groups import begun_groups
from respread.eviction.limits.group_pace import GroupPace
from respread.eviction.pacing import Pace, Paced
from respread.planning.held import Held
from respread.planning.plan import Move, Plan
from respread.spread.group import GroupKey


def choose(
    planned: Plan,
    observation: Observation,
    *,
    closed_by: Callable[[Policy | None, str], Held | None],
    held_lately: Callable[[Move], Held | None],
    room: Callable[[str], int],
) -> Paced:
    """Return the moves to make now, and why the others are held.

    Args:
        planned: the plan with the moves.
        observation: what it was made for.
        closed_by: returns why a policy may evict nothing, given the policy and its name.
        held_lately: what held a move, or others of its groups, just now.
        room: how many moves of a namespace can be sent before their plan is too old.
    """
    history, policies, moves = observation.history, observation.policies, planned.moves
    in_flight, undecided = observation.ledger.moves, [each.move for each in observation.ledger.steadying]
    trying: defaultdict[str, set[str]] = defaultdict(set)
    for move in (*in_flight, *undecided):
        trying[move.policy].add(move.pod.namespace)
    closed: dict[str, Held] = {}
    single: dict[str, Held] = {}
    for name in {move.policy for move in moves}:
        policy = policies.get(name)
        if (held := closed_by(policy, name)) is not None:
            closed[name] = held
        elif policy is not None and (tried := history.single(policy)) is not None:
            single[name] = tried

    def failed_before(move: Move) -> Held | None:
        if move.policy in single:
            policy, namespace = policies[move.policy], move.pod.namespace
            held = history.why_not_tried(policy, namespace, trying[move.policy], observation.snapshot)
            if held is not None:
                return held
        return held_lately(move)

    def group_pace(key: GroupKey) -> GroupPace | None:
        group = observation.spread.groups.get(key)
        return None if group is None else history.pace_of(group)

    return Pace(
        snapshot=observation.snapshot,
        limiters=observation.limiters,
        in_flight=in_flight,
        replacements=observation.ledger.replacements,
        history=history.history,
        standings=history.standings,
        trust=history.trust,
        groups=group_pace,
        single=single,
        failed_before=failed_before,
        closed=closed,
        ranks=observation.setting.ranks(),
        unrestored=frozenset(each.group for each in planned.blocked),
        begun=lambda: begun_groups(planned.blocked, observation),
        room=room,
        now=observation.time.timestamp(),
    ).of(moves)
