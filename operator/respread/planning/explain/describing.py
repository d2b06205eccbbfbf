"""Describes the moves of a plan: what each improves, why this pod is evicted, and where its replacement may land."""

from __future__ import annotations

from collections.abc import Iterator

from respread.cluster.pod import Pod, workload_of
from respread.planning.plan import Move
from respread.planning.search.board import Board, Spot
from respread.planning.search.safety import BoardStep
from respread.planning.search.search import Choice
from respread.planning.search.tally import Tally
from respread.planning.victims.selection import Selection
from respread.scheduling.filters.taint_toleration import DELETION_CANDIDATE, shunned_taints
from respread.scheduling.view.node_sets import NodeSet, slots_of


def moves_of(board: Board, choice: Choice, number: int, selection: Selection) -> Iterator[Move]:
    """Yield the moves of a step, one for each pod. When they are made is determined when solutions are combined.

    Args:
        board: the position just before the step.
        choice: the step.
        number: how many steps are before it.
        selection: which policy governs which pods.
    """
    assessment = choice.assessment
    for spot, pod in zip(choice.step, choice.victims, strict=True):
        nodes = assessment.nodes(spot.piece)
        policy = selection.policy_of(pod.namespace, pod.labels)
        helped = _helped(board, spot)
        yield Move(
            pod=pod,
            policy=policy.name if policy is not None else "",
            workload=workload_of(pod),
            wave=number,
            step=number,
            groups=tuple(tally.group.key for tally in helped),
            from_domains=tuple(tally.domain_of[spot.slot] or "" for tally in helped),
            to_domains=tuple(_domains(tally, nodes) for tally in helped),
            nodes=nodes.bit_count(),
            certain=assessment.certain,
            why=_why(board, choice.step, spot, pod) + _must_be_shunned(board, spot, nodes),
        )


def _helped(board: Board, spot: Spot) -> list[Tally]:
    """Return the groups that an eviction helps: those too full in the pod's domain, else all that count the pod."""
    counting = [
        tally
        for tally in (board.tallies[index] for index in board.pieces[spot.piece].counted_by)
        if tally.cure and tally.excess and tally.domain_of[spot.slot] is not None
    ]
    return [tally for tally in counting if tally.overfull(tally.domain_of[spot.slot])] or counting


def _why(board: Board, step: BoardStep, spot: Spot, pod: Pod) -> str:
    """Return why this pod is evicted: how its domain is too full, and what distinguishes it from the others there."""
    others = board.left(spot) - step.count(spot)
    if len(step) > 1:
        return f"one of {len(step)} pods whose replacements fit only if all of them go"
    if not pod.ready:
        return "it is not Ready"
    if others <= 0:
        return "the only one of its template on its node that may go"
    return f"lowest disruption cost of the {others + 1} on its node"


def _must_be_shunned(board: Board, spot: Spot, nodes: NodeSet) -> str:
    """Say so if the replacement has to go to a node that the scheduler gives it only because there is no better one."""
    piece, table = board.pieces[spot.piece], board.placement.table
    if not nodes or not piece.shunned.taints_on(nodes):
        return ""
    preferred = piece.shunned.preferred(nodes)
    slot = slots_of(preferred & ~piece.shunned.doomed or preferred)[0]
    node = table.nodes[slot]
    shunned = shunned_taints(piece.template.spec.tolerations, () if node is None else node.taints)
    name = DELETION_CANDIDATE if DELETION_CANDIDATE in shunned else shunned[0]
    return (
        f"; its replacement can only go to nodes with a PreferNoSchedule taint, such as {table.names[slot]} with {name}"
    )


def _domains(tally: Tally, nodes: NodeSet) -> tuple[str, ...]:
    of_slot = tally.domain_of
    if not tally.single:
        return tuple(sorted(domain for domain, members in tally.domains.nodes.items() if members & nodes))
    return tuple(sorted(domain for slot in slots_of(nodes) if (domain := of_slot[slot]) is not None))
