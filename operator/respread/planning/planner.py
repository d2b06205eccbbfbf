"""From a snapshot and policies to a plan: one component of spread groups after the other, on one view of the cluster.

The groups that share pods are solved together (`board`, `safety`, `search`); what the moves of one component take of
the nodes is there for the next to see.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from typing import TypeAlias

import msgspec
from immutables import Map

from respread.api.policy import Policy
from respread.api.reasons import Reason
from respread.cluster.meta import Labels
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.cluster.workload import workload_of
from respread.planning.blocked import why_blocked
from respread.planning.board import Board
from respread.planning.budgets import BudgetHoldsError, BudgetLedger
from respread.planning.components import components_of
from respread.planning.held import Held
from respread.planning.placement import Placement
from respread.planning.plan import BlockedGroup, Move, Plan
from respread.planning.policies import PolicyIndex
from respread.planning.protection import Protection, victim_order
from respread.planning.search import Choice, Rules, best_way
from respread.planning.setting_up import set_up
from respread.planning.tally import Tally
from respread.planning.wave import Member, Wave
from respread.scheduling.node_sets import NodeSet, slots_of
from respread.spread.group import GroupKey, SpreadGroup
from respread.spread.index import Spread

OnHold: TypeAlias = Callable[[GroupKey, str], Held | None]
"""Given a violated group and the name of the policy that selects it, why it is left alone for now, such as that it
changed less than a quiet period ago; None if it is not."""


def never_on_hold(_key: GroupKey, _policy: str) -> None:
    """Hold no group."""


class PlanInput(msgspec.Struct, frozen=True, kw_only=True):
    """All that a plan depends on."""

    snapshot: ClusterSnapshot
    spread: Spread
    policies: PolicyIndex
    protections: Mapping[str, Protection]
    """By policy name; one that is missing here may not evict, being wrong somewhere."""
    placement: Placement
    budgets: BudgetLedger
    now: datetime
    on_hold: OnHold = never_on_hold
    wave_sizes: dict[str, int] = {}
    """By policy name, for how many moves there is room in the first turn."""
    search_limit: int = 20_000
    """How many steps to assess for one component before the best way found so far is taken."""


def plan(given: PlanInput) -> Plan:
    """Return the moves that restore the selected groups, and why some are not restored."""
    selected = _selected(given)
    planner = _Planner(given, selected)
    moves: list[Move] = []
    blocked: list[BlockedGroup] = []
    counts_after: dict[GroupKey, Mapping[str, int]] = {}
    lower_bound = 0
    violated = {key for key in selected if given.spread.groups[key].violated}
    for number, component in enumerate(_components_with(violated, given.spread)):
        solved = planner.solve(number, component)
        moves.extend(solved.moves)
        blocked.extend(solved.blocked)
        counts_after.update(solved.counts_after)
        lower_bound += solved.lower_bound
    return Plan(
        moves=tuple(sorted(moves, key=lambda move: (move.turn, move.component))),
        blocked=tuple(blocked),
        policies=selected,
        counts_after=counts_after,
        lower_bound=lower_bound,
    )


def _selected(given: PlanInput) -> dict[GroupKey, str]:
    """Return the groups that some policy restores: one that governs pods with the constraint, and wants such ones."""
    selected: dict[GroupKey, str] = {}
    for key, group in given.spread.groups.items():
        for labels in {template.labels for template in group.carriers}:
            policy = _policy_of(given, key.namespace, labels)
            if policy is not None and _wants(policy, key):
                selected[key] = policy.name
                break
    return selected


def _policy_of(given: PlanInput, namespace: str, labels: Labels) -> Policy | None:
    known = given.snapshot.namespaces.get(namespace)
    return given.policies.in_namespace(namespace, None if known is None else known.labels).governance(labels).policy


def _wants(policy: Policy, key: GroupKey) -> bool:
    rules = policy.spec.constraints
    return key.when_unsatisfiable in rules.when_unsatisfiable and (
        not rules.topology_keys or key.topology_key in rules.topology_keys
    )


def _components_with(keys: Iterable[GroupKey], spread: Spread) -> list[tuple[SpreadGroup, ...]]:
    """Return the components with any of the keys, the ones furthest from balanced first, in the same order always."""
    wanted = frozenset(keys)
    namespaces = sorted({key.namespace for key in wanted})
    components = [
        tuple(sorted(component, key=lambda group: str(group.key)))
        for namespace in namespaces
        for component in components_of(spread.by_namespace[namespace].values())
        if any(group.key in wanted for group in component)
    ]

    def urgency(component: Sequence[SpreadGroup]) -> tuple[int, str]:
        violated = [group for group in component if group.key in wanted]
        return -max(group.excess for group in violated), min(str(group.key) for group in violated)

    return sorted(components, key=urgency)


class _Solved(msgspec.Struct, frozen=True):
    moves: tuple[Move, ...] = ()
    blocked: tuple[BlockedGroup, ...] = ()
    counts_after: Mapping[GroupKey, Mapping[str, int]] = {}
    lower_bound: int = 0


class _Planner:
    __slots__ = ("_given", "_selected", "_wave")

    def __init__(self, given: PlanInput, selected: Mapping[GroupKey, str]) -> None:
        self._given = given
        self._selected = selected
        self._wave = Wave(given.placement, given.wave_sizes)

    def solve(self, number: int, component: Sequence[SpreadGroup]) -> _Solved:
        cure = {group.key for group in component if group.violated and group.key in self._selected}
        pods = self._pods_of(component)
        held = self._on_hold(cure) or _in_motion(pods)
        if held is not None:
            return _Solved(blocked=tuple(self._blocked(key, held) for key in sorted(cure, key=str)))
        return self._solve(number, component, frozenset(cure), pods)

    def _solve(
        self, number: int, component: Sequence[SpreadGroup], cure: frozenset[GroupKey], pods: Sequence[Pod]
    ) -> _Solved:
        victims, protected = self._victims(pods)
        board = set_up([component], pods, victims, cure, self._given.placement)
        lower_bound = board.lower_bound()
        way = best_way(board, Rules(victim_order, self._may_go_together, self._given.search_limit))
        first_turn = 0
        moves: list[Move] = []
        start = board.mark()
        for index, choice in enumerate(way.choices):
            if not moves and not self._join_wave(board, choice):
                first_turn = 1
            moves.extend(self._moves(number, first_turn + index, board, choice))
            for spot in choice.step:
                board.evict(spot)
            for spot in choice.outcome.placed:
                board.place(spot)
            board.settle()
        stuck = [tally for tally in board.tallies if tally.cure and tally.excess()]
        blocked = tuple(
            self._blocked(tally.group.key, why_blocked(tally, board, protected, proven=way.proven)) for tally in stuck
        )
        counts_after = {tally.group.key: tally.counts for tally in board.tallies} if moves else {}
        board.revert(start)
        names = self._given.placement.table.names
        for choice in way.choices:
            for spot in choice.outcome.placed:
                self._given.placement.view.place(board.pieces[spot.piece].sample, names[spot.slot])
        known = len(moves) if way.proven else 0 if stuck else int(lower_bound)
        return _Solved(moves=tuple(moves), blocked=blocked, counts_after=counts_after, lower_bound=known)

    def _join_wave(self, board: Board, choice: Choice) -> bool:
        pods = choice.victims
        pieces = [spot.piece for spot in choice.step]
        policy = _policy_of(self._given, pods[0].namespace, pods[0].labels)
        members = [
            Member(pod, board.pieces[piece].replacement, choice.assessment.nodes(piece))
            for pod, piece in zip(pods, pieces, strict=True)
        ]
        return policy is not None and self._wave.join(policy.name, members)

    def _moves(self, component: int, turn: int, board: Board, choice: Choice) -> Iterable[Move]:
        """Describe a choice as moves; the board is as it is just before."""
        helped = [
            index
            for index, tally in enumerate(board.tallies)
            if tally.cure
            and tally.excess()
            and any(index in board.pieces[spot.piece].counted_by for spot in choice.step)
        ]
        for spot, pod in zip(choice.step, choice.victims, strict=True):
            landing_nodes = choice.assessment.nodes(spot.piece)
            policy = _policy_of(self._given, pod.namespace, pod.labels)
            tallies = [
                tally
                for tally in (board.tallies[index] for index in helped if index in board.pieces[spot.piece].counted_by)
                if tally.domain_of[spot.slot] is not None
            ]
            overfull = [tally for tally in tallies if tally.overfull(tally.domain_of[spot.slot])]
            tallies = overfull or tallies
            yield Move(
                pod=pod,
                policy=policy.name if policy is not None else "",
                workload=workload_of(pod),
                turn=turn,
                component=component,
                groups=tuple(tally.group.key for tally in tallies),
                from_domains=tuple(tally.domain_of[spot.slot] or "" for tally in tallies),
                to_domains=tuple(_domains(tally, landing_nodes) for tally in tallies),
                nodes=landing_nodes.bit_count(),
                certain=choice.assessment.certain,
            )

    def _pods_of(self, component: Sequence[SpreadGroup]) -> list[Pod]:
        """Return the unfinished pods that a group of the component counts, or that carry one of its constraints."""
        by_labels = self._given.snapshot.pods_by_labels[component[0].key.namespace]
        belonging = {labels for group in component for labels in group.matched}
        belonging.update(template.labels for group in component for template in group.carriers)
        pods = (pod for labels in belonging for pod in by_labels.get(labels, Map()).values() if not pod.finished)
        return sorted(pods, key=lambda pod: pod.name)

    def _on_hold(self, cure: Iterable[GroupKey]) -> Held | None:
        reasons = (self._given.on_hold(key, self._selected[key]) for key in sorted(cure, key=str))
        return next((held for held in reasons if held is not None), None)

    def _victims(self, pods: Sequence[Pod]) -> tuple[list[Pod], list[tuple[Pod, Held]]]:
        """Sort pods into those that may be evicted and why the others may not."""
        victims: list[Pod] = []
        protected: list[tuple[Pod, Held]] = []
        for pod in pods:
            if not pod.node_name:
                continue
            held = self._held(pod)
            if held is None:
                victims.append(pod)
            else:
                protected.append((pod, held))
        return victims, protected

    def _held(self, pod: Pod) -> Held | None:
        policy = _policy_of(self._given, pod.namespace, pod.labels)
        if policy is None:
            return Held(Reason.NOT_SELECTED, "no policy selects it")
        if (protection := self._given.protections.get(policy.name)) is None:
            return Held(
                Reason.INVALID_POLICY, f"policy {policy.name} is wrong somewhere, and evicts nothing until right"
            )
        if (held := protection.of_pod(pod, self._given.now)) is not None:
            return held
        verdict = self._given.budgets.verdict(pod)
        return verdict if isinstance(verdict, Held) else None

    def _may_go_together(self, pods: Sequence[Pod]) -> bool:
        """Whether the budgets allow the eviction of all these pods at once."""
        budgets = self._given.budgets.fork()
        try:
            for pod in pods:
                budgets.take(pod)
        except BudgetHoldsError:
            return False
        return True

    def _blocked(self, key: GroupKey, held: Held) -> BlockedGroup:
        return BlockedGroup(group=key, policy=self._selected[key], reason=held.reason, message=held.message)


def _in_motion(pods: Sequence[Pod]) -> Held | None:
    """Return what is still moving among pods, if anything: the spread it ends in is not known yet."""
    terminating = sum(pod.terminating for pod in pods)
    waiting = [pod for pod in pods if not pod.node_name and not pod.terminating]
    if not terminating and not waiting:
        return None
    parts = [f"{terminating} terminating"] * bool(terminating) + [f"{len(waiting)} without a node"] * bool(waiting)
    example = waiting[0] if waiting else next(pod for pod in pods if pod.terminating)
    return Held(
        Reason.IN_MOTION,
        f"of its {len(pods)} pods there are {' and '.join(parts)} (such as {example.name}): it is left alone until "
        "they are gone or placed",
    )


def _domains(tally: Tally, nodes: NodeSet) -> tuple[str, ...]:
    of_slot = tally.domain_of
    if not tally.single:
        return tuple(sorted(domain for domain, members in tally.domains.nodes.items() if members & nodes))
    return tuple(sorted(domain for slot in slots_of(nodes) if (domain := of_slot[slot]) is not None))
