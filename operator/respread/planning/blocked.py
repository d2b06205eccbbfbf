"""Why a group stays violated."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from respread.api.reasons import Reason
from respread.cluster.pod import Pod
from respread.planning.board import Board
from respread.planning.held import Held
from respread.planning.tally import Tally
from respread.scheduling.node_sets import node_set

_DOMAINS_SHOWN = 3


def why_blocked(tally: Tally, board: Board, protected: Sequence[tuple[Pod, Held]], *, proven: bool) -> Held:
    """Return why a group is still violated after a plan's moves.

    Args:
        tally: the group, as it is after them.
        board: the position after them.
        protected: the pods of the component that may not be evicted, and why.
        proven: whether the search has shown that no more can be done.
    """
    group = tally.group
    overfull = sorted(domain for domain in group.domains.nodes if tally.overfull(domain))
    candidates = _candidates(board, tally)
    if not candidates:
        return _all_protected(tally, overfull, protected)
    if not proven:
        return Held(Reason.SEARCH_LIMIT, "the search for moves stopped at its limit; what it found so far is planned")
    if len(group.domains.nodes) < group.key.min_domains:
        return Held(
            Reason.TOO_FEW_DOMAINS,
            f"minDomains is {group.key.min_domains} and there are {len(group.domains.nodes)} domains, so the minimum "
            f"counts as 0 and no domain may hold more than maxSkew, {tally.max_skew}: add nodes in more domains",
        )
    if not any(_aims(board, piece, tally) for piece in candidates):
        return Held(
            Reason.UNKNOWN_REPLACEMENT,
            "the pods that it counts don't carry it, so their replacements may land anywhere: give them the same "
            "constraint",
        )
    minimum = tally.minimum()
    closed = sorted(
        domain
        for domain in group.domains.nodes
        if tally.count(domain) == minimum and not any(_opens(board, piece, tally, domain) for piece in candidates)
    )
    if closed:
        return Held(
            Reason.NO_FEASIBLE_NODE,
            f"{_listed(closed)} {'holds' if len(closed) == 1 else 'hold'} the fewest pods, {minimum}, and no "
            "node there takes a replacement: see whether they are cordoned, tainted or full, or don't match the pod's "
            "affinity",
        )
    return Held(
        Reason.CONFLICTING_CONSTRAINTS,
        f"a replacement for a pod of {_listed(overfull)} could only land where it leaves this constraint as it is or "
        "breaks another",
    )


def _candidates(board: Board, tally: Tally) -> set[int]:
    """Return the pieces with a pod in a domain that is too full, which may still be evicted."""
    index = board.tallies.index(tally)
    return {
        spot.piece
        for spot in board.movable_spots()
        if index in board.pieces[spot.piece].counted_by and tally.overfull(tally.domain_of[spot.slot])
    }


def _aims(board: Board, piece: int, tally: Tally) -> bool:
    """Whether the scheduler minds a tally's constraint when it places a replacement of the piece."""
    index = board.tallies.index(tally)
    return index in board.pieces[piece].hard or index in board.pieces[piece].soft


def _opens(board: Board, piece: int, tally: Tally, domain: str) -> bool:
    """Whether some node of a domain takes a replacement of the piece, as far as all other scheduling rules go."""
    slots = board.placement.table.slot_of
    nodes = node_set([slots[name] for name in tally.group.domains.nodes[domain]])
    return bool(board.pieces[piece].replacement.admitted(spread=False) & nodes)


def _all_protected(tally: Tally, overfull: Sequence[str], protected: Sequence[tuple[Pod, Held]]) -> Held:
    matched = frozenset(tally.group.matched)
    there = [
        held
        for pod, held in protected
        if pod.labels in matched and tally.group.domains.of_node.get(pod.node_name) in overfull
    ]
    if not there:
        return Held(Reason.IN_MOTION, f"the pods in {_listed(overfull)} that may be evicted are being replaced already")
    reason, number = Counter(held.reason for held in there).most_common(1)[0]
    example = next(held.message for held in there if held.reason == reason)
    return Held(
        reason,
        f"no pod in {_listed(overfull)} may be evicted; for {number} of {len(there)} the reason is: {example}",
    )


def _listed(domains: Sequence[str]) -> str:
    shown = ", ".join(domains[:_DOMAINS_SHOWN])
    more = len(domains) - _DOMAINS_SHOWN
    return f"{shown} and {more} more" if more > 0 else shown
