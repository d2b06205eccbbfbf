"""Where a replacement may land: the nodes that the scheduler finds feasible, those together that are alike.

A cluster of thousands of nodes has a few dozen different landings: a node without any pod of the board is like every
other such node of the same domains.
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
"""As many feasible nodes are looked at one by one where a search has to be exact."""


class Landing(NamedTuple):
    """A node on which a replacement may land, standing for all that differ in nothing that matters."""

    slot: int
    nodes: NodeSet
    """All that it stands for, itself included."""
    likely: bool
    """Whether the scheduler's score for soft constraints puts it among the best."""


def feasible_nodes(board: Board, piece: int) -> NodeSet:
    """Return the nodes that the scheduler finds feasible now for a piece's replacement: none if that is not known."""
    replacement = board.pieces[piece].replacement
    return 0 if replacement.unknown is not None else replacement.admitted()


def landings_of(board: Board, piece: int, feasible: NodeSet) -> tuple[Landing, ...]:
    """Return where a piece's replacement may land now.

    On a node that holds what can't be read it may land, too, or not: what is likely is likely in either case.

    Args:
        board: as it is when the scheduler decides.
        piece: the piece.
        feasible: all its feasible nodes; without any it may land nowhere.
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
    """Sort the feasible nodes of a piece's replacement into those that are alike.

    Args:
        board: as it is when the scheduler decides.
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
        Landing(board.pick(part), part, likely)
        for part, likely in zip(parts, _likely(board, board.pieces[piece], nodes, parts), strict=True)
    )


def united(one: Sequence[Landing], other: Sequence[Landing]) -> tuple[Landing, ...]:
    """Return the landings of both, those with the same nodes once."""
    likely: dict[tuple[int, NodeSet], bool] = {}
    for landing in (*one, *other):
        key = landing.slot, landing.nodes
        likely[key] = likely.get(key, False) or landing.likely
    return tuple(Landing(slot, nodes, each) for (slot, nodes), each in likely.items())


def _split(nodes: NodeSet, tallies: Sequence[Tally]) -> list[NodeSet]:
    """Split nodes by the domains they are in, or by their domain's count where every node is a domain of its own."""
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
        return [nodes & by_count[count] for count in sorted(by_count)] if nodes else parts
    while nodes:
        together = nodes & tally.domains.nodes[tally.domain_of[_lowest(nodes)] or ""]
        parts.append(together)
        nodes &= ~together
    return parts


def _likely(board: Board, piece: Piece, nodes: NodeSet, parts: Sequence[NodeSet]) -> list[bool]:
    """Return for each part of the feasible nodes whether PodTopologySpread gives it the most points."""
    if not _scored_by_groups(board, piece, nodes):
        best = piece.replacement.best_nodes(nodes)
        return [bool(part & best) for part in parts]
    if not piece.soft:
        return [True] * len(parts)
    scores = _soft_scores(board, piece, parts)
    best_score = min(scores)
    return [score <= best_score for score in scores]


def _scored_by_groups(board: Board, piece: Piece, nodes: NodeSet) -> bool:
    """Whether the counts of spread groups are all that the scheduler scores nodes by.

    Default constraints are not always spread groups; and of the built-in ones, those count whose key a node has.
    """
    constraints = piece.replacement.constraints
    if len(piece.soft) != len(constraints.soft):
        return False
    return constraints.soft_need_all_keys or not any(
        nodes & ~board.tallies[index].domains.eligible for index in piece.soft
    )


def _soft_scores(board: Board, piece: Piece, parts: Sequence[NodeSet]) -> list[float]:
    """Return PodTopologySpread's raw score of each part's nodes, lower being better (`topology_spread_score`)."""
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
    """Return the first slot of nodes of which there are some."""
    return (nodes & -nodes).bit_length() - 1
