"""Where a replacement may land: the feasible nodes, grouped by equivalence.

A cluster with thousands of nodes has only a few dozen different landings, because a node without a pod of the board is
equivalent to all other such nodes of the same domains.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import floor, inf, log
from typing import Final, NamedTuple

from respread.planning.search.board import Board, Piece
from respread.planning.search.tally import Tally
from respread.scheduling.view.node_sets import NodeSet, slots_of

_HALF: Final = 0.5
_MOST_LOOKED_AT: Final = 64
"""An exact search examines up to this many feasible nodes one by one."""


class Landing(NamedTuple):
    """A node on which a replacement may land, which represents all equivalent nodes."""

    slot: int
    nodes: NodeSet
    """All nodes that it represents, including itself."""
    likely: bool
    """Whether the scheduler's score for soft constraints puts it among the best."""


def feasible_nodes(board: Board, piece: int) -> NodeSet:
    """Return the nodes that the scheduler finds feasible now for a piece's replacement; none if that is unknown."""
    replacement = board.pieces[piece].replacement
    return 0 if replacement.unknown is not None else replacement.admitted()


def landings_of(board: Board, piece: int, feasible: NodeSet) -> tuple[Landing, ...]:
    """Return where a piece's replacement may land now.

    A node with an object that can't be decoded may or may not accept it, and the likely landings are computed for both
    cases.

    Args:
        board: the position when the scheduler decides.
        piece: the piece.
        feasible: all its feasible nodes. Without any, it can land nowhere.
    """
    if not feasible:
        return ()
    landings = landings_on(board, piece, feasible)
    if board.placement.view.uncertain:
        possible = board.pieces[piece].replacement.admitted(certainly=False)
        if possible != feasible:
            return united(landings, landings_on(board, piece, possible))
    return landings


def landings_on(board: Board, piece: int, nodes: NodeSet) -> tuple[Landing, ...]:
    """Group the feasible nodes of a piece's replacement by equivalence.

    Args:
        board: the position when the scheduler decides.
        piece: the piece.
        nodes: all its feasible nodes.
    """
    if not board.fine:
        parts = _split(nodes, board.tallies)
    else:
        alike: dict[tuple[object, ...], NodeSet] = {}
        looked_at = nodes if nodes.bit_count() <= _MOST_LOOKED_AT else nodes & board.occupied
        for part in (*_split(nodes & ~looked_at, board.tallies), *(1 << slot for slot in slots_of(looked_at))):
            kind = board.kind(board.pick(part))
            alike[kind] = alike.get(kind, 0) | part
        parts = list(alike.values())
    return tuple(
        Landing(board.pick(board.pieces[piece].shunned.preferred(part)), part, likely)
        for part, likely in zip(parts, _likely(board, board.pieces[piece], nodes, parts), strict=True)
    )


def united(one: Sequence[Landing], other: Sequence[Landing]) -> tuple[Landing, ...]:
    """Return the landings of both, with landings of the same nodes only once."""
    likely: dict[tuple[int, NodeSet], bool] = {}
    for landing in (*one, *other):
        key = landing.slot, landing.nodes
        likely[key] = likely.get(key, False) or landing.likely
    return tuple(Landing(slot, nodes, each) for (slot, nodes), each in likely.items())


def _split(nodes: NodeSet, tallies: Sequence[Tally]) -> list[NodeSet]:
    """Split nodes by their domains, or by their domain's count if every node is a domain of its own."""
    parts = [nodes] if nodes else []
    for tally in tallies:
        eligible = tally.domains.eligible
        parts = [
            part for each in parts for part in (each & ~eligible, *_split_counting(each & eligible, tally)) if part
        ]
    return parts


def _split_counting(nodes: NodeSet, tally: Tally) -> list[NodeSet]:
    parts: list[NodeSet] = []
    if tally.single:
        by_count = tally.nodes_by_count()
        return [nodes & by_count[count] for count in sorted(by_count)]
    while nodes:
        together = nodes & tally.domains.nodes[tally.domain_of[_lowest(nodes)] or ""]
        parts.append(together)
        nodes &= ~together
    return parts


def _likely(board: Board, piece: Piece, nodes: NodeSet, parts: Sequence[NodeSet]) -> list[bool]:
    """Return, for each part of the feasible nodes, whether PodTopologySpread gives it the highest score."""
    if not _scored_by_groups(board, piece, nodes):
        best = board.placement.likely_nodes(piece.replacement, nodes)
        return [bool(part & best) for part in parts]
    if not piece.soft:
        return [True] * len(parts)
    scores = _soft_scores(board, piece, parts)
    best_score = min(scores)
    return [score <= best_score for score in scores]


def _scored_by_groups(board: Board, piece: Piece, nodes: NodeSet) -> bool:
    """Whether the scheduler scores nodes only by the counts of spread groups.

    Default constraints are not always spread groups. Of the built-in ones, those whose key a node has count.
    """
    constraints = piece.replacement.constraints
    if len(piece.soft) != len(constraints.soft):
        return False
    return constraints.soft_need_all_keys or not any(
        nodes & ~board.tallies[index].domains.eligible for index in piece.soft
    )


def _soft_scores(board: Board, piece: Piece, parts: Sequence[NodeSet]) -> list[float]:
    """Return PodTopologySpread's raw score for the nodes of each part; lower is better (`topology_spread_score`)."""
    tallies = [board.tallies[index] for index in piece.soft]
    slots = [_lowest(part) for part in parts]
    ignored = [any(tally.domain_of[slot] is None for tally in tallies) for slot in slots]
    scored = [at for at, without in enumerate(ignored) if not without]
    scores = [0.0] * len(parts)
    for tally in tallies:
        domains = [tally.domain_of[slot] for slot in slots]
        size = sum(parts[at].bit_count() for at in scored) if tally.single else len({domains[at] for at in scored})
        weight = log(size + 2)
        for at in scored:
            scores[at] += tally.count(domains[at] or "") * weight + tally.max_skew - 1
    return [inf if without else floor(score + _HALF) for without, score in zip(ignored, scores, strict=True)]


def _lowest(nodes: NodeSet) -> int:
    """Return the first slot of a set of nodes that is not empty."""
    return (nodes & -nodes).bit_length() - 1
