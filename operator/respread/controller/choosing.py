"""Chooses which planned moves are made now, by limits, pauses and windows, and says how long the others take."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from math import isfinite
from typing import Final, TypeAlias

from respread.api.policy import Policy
from respread.api.reasons import Held, Reason
from respread.cluster.meta import Labels
from respread.cluster.pod import WorkloadName
from respread.cluster.state import ClusterSnapshot
from respread.controller.observation import Observation
from respread.eviction.limiter import GroupPace
from respread.eviction.pacing import Pace, Paced
from respread.eviction.remaining import PresentLimits, Remaining, lots_of
from respread.eviction.tallies import Needed
from respread.moves.entry import MoveEntry, still_there
from respread.moves.ledger import Ledger
from respread.planning.plan import BlockedGroup, Move, Plan
from respread.planning.victims.budgets import BudgetIndex
from respread.spread.counts import fewest_evictions
from respread.spread.group import GroupKey, SpreadGroup

_Entries: TypeAlias = dict[GroupKey, list[tuple[str, MoveEntry]]]
_FOR_THE_MOMENT: Final = frozenset({Reason.IN_MOTION, Reason.QUIET_PERIOD})
_LATER: Final = _FOR_THE_MOMENT | {Reason.BACKING_OFF}
_WHILE_IN_FLIGHT: Final = frozenset({Reason.HELD_BY_BUDGET, Reason.PODS_NOT_READY})
"""Reasons that end with the moves in flight of a group, if it has any."""
_WAITS_FOR_LIMITS: Final = frozenset({Reason.LIMIT_REACHED, Reason.PODS_NOT_READY})


def choose(
    planned: Plan,
    observation: Observation,
    *,
    closed_by: Callable[[Policy | None, str], Held | None],
    held_lately: Callable[[Move], Held | None],
    room: Callable[[str], int],
) -> Paced:
    """Return the moves to make now, and why the others are held.

    `closed_by` returns why a policy may evict nothing, given the policy and its name, `held_lately` what held a move,
    or others of its groups, just now, and `room` how many moves of a namespace can be sent before their plan is too
    old.
    """
    history, policies, moves = observation.history, observation.policies, planned.moves
    in_flight, names = observation.ledger.moves, {move.policy for move in moves}
    closed = {name: held for name in names if (held := closed_by(policies.get(name), name)) is not None}
    single = {name: tried for name in names - closed.keys() if (tried := history.single(policies[name])) is not None}
    undecided = [each.move for each in observation.ledger.steadying]
    trying: defaultdict[str, set[str]] = defaultdict(set)
    for move in (*in_flight, *undecided):
        trying[move.policy].add(move.pod.namespace)

    def failed_before(move: Move) -> Held | None:
        if move.policy not in single:
            return held_lately(move)
        policy, namespace = policies[move.policy], move.pod.namespace
        held = history.why_not_tried(policy, namespace, trying[move.policy], observation.snapshot)
        return held or held_lately(move)

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
        trust=history.trust.beside(_waits(observation), observation.moment.time),
        groups=group_pace,
        single=single,
        failed_before=failed_before,
        closed=closed,
        ranks=observation.setting.ranks,
        unrestored=frozenset(each.group for each in planned.blocked),
        begun=lambda: begun_groups(planned.blocked, observation),
        room=room,
        now=observation.moment.time,
    ).of(moves)


def left_to_do(
    planned: Plan, chosen: Paced, ledger: Ledger, observation: Observation, budgets: BudgetIndex
) -> Mapping[str, Remaining]:
    """Return what is left for each policy with moves, by name.

    The ledger has the chosen moves. The budgets are advanced to the snapshot.
    """
    history, now, waits = observation.history, observation.moment.time, _waits(observation)
    lots = lots_of(
        observation.snapshot,
        budgets,
        [
            *(move for move in chosen.now if move.pod.uid not in ledger.uids),  # by the leader, if this replica is not
            *(each.move for each in chosen.held if each.held.reason in _WAITS_FOR_LIMITS),
        ],
        ledger.moves,
        waiting=[each.move for each in chosen.held if each.held.reason not in _WAITS_FOR_LIMITS],
        later=later_moves(planned.blocked, observation),
        measured=lambda workload: history.trust.seconds(workload, now),
    )
    return PresentLimits(
        snapshot=observation.snapshot,
        limiters=observation.limiters,
        now=now,
        history=history.history,
        trust=history.trust.beside(waits, now),
        waited=dict(reversed(waits)),
    ).remaining(lots)


def _waits(observation: Observation) -> list[tuple[WorkloadName, float]]:
    """Return the workload of each move in flight, and how long ago the eviction was sent, the first one first."""
    now = observation.moment.now
    return [(each.move.workload, now - each.sent_at) for each in observation.ledger.in_flight]


def begun_groups(blocked: Iterable[BlockedGroup], observation: Observation) -> list[Needed]:
    """Return groups with evictions, and one of those with common pods, because an eviction may improve all."""
    paused = (
        each
        for each in blocked
        if each.reason in _FOR_THE_MOMENT
        and (group := observation.spread.groups.get(each.group)) is not None
        and observation.history.pace_of(group).in_last_hour
    )
    return _needed(paused, observation, _entries(observation))


def later_moves(blocked: Iterable[BlockedGroup], observation: Observation) -> list[Needed]:
    """Return the evictions of groups that are left alone only for the moment, whether or not any was made for them."""
    entries = _entries(observation)
    waiting = (
        each for each in blocked if each.reason in _LATER or (each.reason in _WHILE_IN_FLIGHT and each.group in entries)
    )
    return _needed(waiting, observation, entries)


def _entries(observation: Observation) -> _Entries:
    """Return the moves in flight by the groups that they improve, each with the domain that its pod leaves."""
    entries: _Entries = {}
    for entry in observation.ledger.under_way:
        for key, domain in zip(entry.move.groups, entry.move.from_domains, strict=True):
            entries.setdefault(key, []).append((domain, entry))
    return entries


def _needed(blocked: Iterable[BlockedGroup], observation: Observation, entries: _Entries) -> list[Needed]:
    """Return what groups need. Where one counts the pods of others, that one or those, whichever needs more."""
    found = [
        Needed(
            each.policy,
            group.key.namespace,
            group.matched,
            _still_needed(group, entries.get(each.group, ()), observation.snapshot),
        )
        for each in blocked
        if (group := observation.spread.groups.get(each.group)) is not None and group.matched
    ]
    found.sort(key=lambda needed: len(needed.matched))
    outermost: set[int] = set()
    of_labels: defaultdict[tuple[str, str, Labels], set[int]] = defaultdict(set)
    for number, needed in enumerate(found):
        pods, matched = [(needed.policy, needed.namespace, labels) for labels in needed.matched], set(needed.matched)
        there = outermost & set[int]().union(*(of_labels[labels] for labels in pods))
        inside = {other for other in there if matched.issuperset(found[other].matched)}
        if not inside or sum(found[other].evictions for other in inside) < needed.evictions:
            outermost -= inside
            outermost.add(number)
            for labels in pods:
                of_labels[labels].add(number)
    return [found[number] for number in sorted(outermost)]


def _still_needed(group: SpreadGroup, entries: Iterable[tuple[str, MoveEntry]], snapshot: ClusterSnapshot) -> int:
    """Return the fewest evictions after which a group holds, once those in flight have come to where fewest are.

    Each of `entries`, its moves in flight, has the domain that its pod leaves.
    """
    counts = group.all_counts()
    for domain, entry in entries:
        if still_there(snapshot, entry.move.pod) is not None and counts.get(domain):
            counts[domain] -= 1
    for _, entry in entries:
        if counts and (entry.replacement is None or not entry.replacement.node_name):
            counts[min(counts, key=counts.__getitem__)] += 1
    fewest = fewest_evictions(group.key.counts(counts, len(counts)))
    return int(fewest) if isfinite(fewest) else 0
