"""Why a group stays violated, in words for the user."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from immutables import Map

from respread.api.reasons import Reason
from respread.api.words import listed
from respread.cluster.meta import ObjectKey
from respread.cluster.pod import Pod, workload_of
from respread.planning.held import Held
from respread.planning.search.board import Board, Piece, Spot
from respread.planning.search.search import Path
from respread.planning.search.tally import Tally
from respread.scheduling.prepared_pod import PreparedPod
from respread.scheduling.verdict import Plugin, Rejection
from respread.scheduling.view.node_sets import union

_REASONS_SHOWN: Final = 3
_NODES_LOOKED_AT: Final = 3
_NO_PODS: Final[Map[ObjectKey, Pod]] = Map()
_ROOM: Final[frozenset[Plugin]] = frozenset({"NodeResourcesFit"})
_SPREAD: Final[frozenset[Plugin]] = frozenset({"PodTopologySpread"})
_OUT_OF_USE: Final = (
    "make it take pods again, or set nodeTaintsPolicy: Honor in the constraint, so that it does not count such nodes"
)
_REMEDIES: Final[Mapping[Plugin, str]] = {
    "NodeUnschedulable": _OUT_OF_USE,
    "TaintToleration": _OUT_OF_USE,
    "NodeAffinity": "let the pods' affinity match nodes there",
    "NodeResourcesFit": "make room there, or add nodes",
    "NodePorts": "add nodes there whose ports are free",
    "InterPodAffinity": "add nodes there, or relax the pods' affinity",
}


def why_blocked(
    tally: Tally, board: Board, protected: Sequence[tuple[Pod, Held]], path: Path, holders: Mapping[int, str]
) -> Held:
    """Return why a group is still violated after a plan's moves.

    Args:
        tally: the group after the moves.
        board: the position after the moves.
        protected: the pods of the component that may not be evicted, with the reason.
        path: the moves.
        holders: who takes room of nodes before these moves, by the slots of the nodes.
    """
    overfull = sorted(domain for domain in tally.group.domains.nodes if tally.overfull(domain))
    candidates = _candidates(board, tally)
    if not candidates:
        return _all_protected(tally, overfull, protected)
    if path.cut:
        return Held(
            Reason.SEARCH_LIMIT,
            f"it takes more than the {path.evictions} evictions that are planned: the rest is planned when these "
            "are made",
        )
    held = (
        _too_few_domains(tally)
        or _unknown_replacement(board, tally, candidates, overfull)
        or _no_room(board, tally, candidates, _with_rivals(board, tally, path, holders))
        or _conflict(board, tally, candidates)
    )
    if path.proven or held.reason is not Reason.CONFLICTING_CONSTRAINTS:
        return held
    return Held(
        Reason.SEARCH_LIMIT,
        "no way was found before the search for moves stopped at its limit; what helps is planned. It seems that "
        + held.message,
    )


def _candidates(board: Board, tally: Tally) -> list[Spot]:
    """Return the spots with movable pods in a domain that is too full, one for each piece."""
    index = board.tallies.index(tally)
    found: dict[int, Spot] = {}
    for spot in sorted(board.movable_spots()):
        if index in board.pieces[spot.piece].counted_by and tally.overfull(tally.domain_of[spot.slot]):
            found.setdefault(spot.piece, spot)
    return list(found.values())


def _all_protected(tally: Tally, overfull: Sequence[str], protected: Sequence[tuple[Pod, Held]]) -> Held:
    """Return why no pod in the domains that are too full may be evicted: by reason, that of most pods first.

    A reason that concerns the group, and so all of its pods that might be evicted otherwise, is before those.
    """
    matched, too_full = frozenset(tally.group.matched), frozenset(overfull)
    by_reason: dict[Reason, list[tuple[Pod, Held]]] = {}
    for pod, held in protected:
        if pod.labels in matched and tally.group.domains.of_node.get(pod.node_name) in too_full:
            by_reason.setdefault(held.reason, []).append((pod, held))
    if not by_reason:
        return Held(Reason.IN_MOTION, f"the pods in {listed(overfull)} that may be evicted are being replaced already")
    by_weight = sorted(
        by_reason.items(), key=lambda each: (each[0] is Reason.GROUP_TOO_LARGE, len(each[1])), reverse=True
    )
    most_first = [pods for _, pods in by_weight]
    return Held(
        most_first[0][0][1].reason,
        f"no pod in {listed(overfull)} may be evicted: {'; '.join(map(_for_all, most_first[:_REASONS_SHOWN]))}",
        named=most_first[0][0][1].named,
    )


def _for_all(held: Sequence[tuple[Pod, Held]]) -> str:
    (pod, why), more = held[0], len(held) - 1
    return f"{pod.name}{f' and {more} more' if more else ''}, because {why.message}"


def _too_few_domains(tally: Tally) -> Held | None:
    if not tally.too_few:
        return None
    group = tally.group
    there = sorted(group.domains.nodes)
    return Held(
        Reason.TOO_FEW_DOMAINS,
        f"minDomains is {group.key.min_domains} and there {'is' if len(there) == 1 else 'are'} only {len(there)} of "
        f"{group.key.topology_key} ({listed(there)}), so the minimum counts as 0 and none may hold more than maxSkew, "
        f"{tally.max_skew}: add nodes in more domains, or lower minDomains",
    )


def _unknown_replacement(
    board: Board, tally: Tally, candidates: Sequence[Spot], overfull: Sequence[str]
) -> Held | None:
    index = board.tallies.index(tally)
    minding = [spot for spot in candidates if index in (*_piece(board, spot).hard, *_piece(board, spot).soft)]
    if not minding:
        return Held(
            Reason.UNKNOWN_REPLACEMENT,
            f"the pods that it counts in {listed(overfull)}, such as {board.victim(candidates[0]).name}, don't have "
            "the constraint themselves, so their replacements may land anywhere: give them the same constraint, or "
            "narrow its labelSelector",
            named="give them the same constraint, or narrow its labelSelector",
        )
    unknown = [_piece(board, spot).replacement.unknown for spot in minding]
    if unknown[0] is not None and None not in unknown:
        return Held(
            Reason.UNKNOWN_REPLACEMENT,
            f"where a replacement for {board.victim(minding[0]).name} would land is not known: {unknown[0].message}",
        )
    return None


def _with_rivals(board: Board, tally: Tally, path: Path, holders: Mapping[int, str]) -> Mapping[int, str]:
    """Return who takes room of nodes, the moves of other components among them that are solved with a group's own."""
    index = board.tallies.index(tally)
    own = next(component for component in board.components if index in component)
    rivals = {
        spot.slot: f"the moves that restore {board.tallies[board.pieces[spot.piece].counted_by[0]].group.key}"
        for choice in path.choices
        for spot in choice.outcome.placed
        if board.pieces[spot.piece].counted_by and board.pieces[spot.piece].counted_by[0] not in own
    }
    return {**rivals, **holders}


def _no_room(board: Board, tally: Tally, candidates: Sequence[Spot], holders: Mapping[int, str]) -> Held | None:
    """Say of the domains that hold the minimum, and take no replacement as other rules than spread go, why that is."""
    reachable = union(_piece(board, spot).replacement.admitted(spread=False) for spot in candidates)
    minimum = tally.minimum
    closed = sorted(
        domain
        for domain, nodes in tally.domains.nodes.items()
        if tally.count(domain) == minimum and not nodes & reachable
    )
    if not closed:
        return None
    spot, domain = candidates[0], closed[0]
    if wanted := _taken_by_others(board, tally, spot, closed, holders):
        return Held(
            Reason.WAITING_FOR_ROOM,
            f"{listed(closed)} {'holds' if len(closed) == 1 else 'hold'} the fewest pods, {minimum}, and it waits for "
            f"room on {listed(list(wanted))}, which is taken first by "
            f"{listed(list(dict.fromkeys(wanted.values())))}: there is not enough room for all",
        )
    why = why_none_there(_piece(board, spot).replacement, tally.group.domains.nodes[domain])
    of_which = f"{domain}: " if len(closed) > 1 else ""
    return Held(
        Reason.NO_FEASIBLE_NODE,
        f"{listed(closed)} {'holds' if len(closed) == 1 else 'hold'} the fewest pods, {minimum}, and no node there "
        f"takes a replacement for {board.victim(spot).name} ({of_which}{why}){_held_by(board, tally, domain)}",
        full_domains=tuple(each for each in closed if _is_full(_piece(board, spot).replacement, tally, each)),
        named=listed(closed),
    )


def _is_full(replacement: PreparedPod, tally: Tally, domain: str) -> bool:
    """Return whether a node of a domain only lacks room, so that another node like it would take the replacement."""
    return any(
        {rejection.plugin for rejection in replacement.rejections(node)} - _SPREAD == _ROOM
        for node in tally.group.domains.nodes[domain]
    )


def _taken_by_others(
    board: Board, tally: Tally, spot: Spot, closed: Iterable[str], holders: Mapping[int, str]
) -> dict[str, str]:
    """Return who takes room in some domains on nodes that would let a replacement on, by the nodes' names."""
    names, feasible = board.placement.table.names, _piece(board, spot).replacement.statically_feasible
    nodes = union(tally.domains.nodes[domain] for domain in closed) & feasible
    return {names[slot]: holders[slot] for slot in sorted(holders) if nodes >> slot & 1}


def _held_by(board: Board, tally: Tally, domain: str) -> str:
    """Say whose pods are on the first nodes of a domain that has no room."""
    pods_by_node = board.placement.view.snapshot.pods_by_node
    nodes = tally.group.domains.nodes[domain][:_NODES_LOOKED_AT]
    pods = [pod for node in nodes for pod in pods_by_node.get(node, _NO_PODS).values() if not pod.finished]
    if not pods:
        return ""
    whose = Counter((pod.namespace, str(workload_of(pod))) for pod in pods)
    most_first = sorted(whose.items(), key=lambda each: (-each[1], each[0]))
    shown = [f"{number} of {workload} in {namespace}" for (namespace, workload), number in most_first]
    return f"; the pods on {listed(nodes)} are {listed(shown)}"


def why_none_there(replacement: PreparedPod, nodes: Iterable[str]) -> str:
    """Return what keeps a pod off some nodes, except topology spread constraints, and what would change that.

    Args:
        replacement: the prepared pod, which is not placed.
        nodes: the names of nodes that reject it.
    """
    by_plugin: dict[Plugin, list[tuple[str, Rejection]]] = {}
    for name in nodes:
        for rejection in replacement.rejections(name):
            if rejection.plugin != "PodTopologySpread":
                by_plugin.setdefault(rejection.plugin, []).append((name, rejection))
                break
    if not by_plugin:
        return "the scheduler keeps the room there for other pods"
    most_first = sorted(by_plugin.items(), key=lambda each: len(each[1]), reverse=True)[:_REASONS_SHOWN]
    parts = []
    for _, refused in most_first:
        (name, rejection), more = refused[0], len(refused) - 1
        parts.append(f"{name} {rejection.message}{f', and so it is on {more} more' if more else ''}")
    remedy = next((_REMEDIES[plugin] for plugin, _ in most_first if plugin in _REMEDIES), None)
    return "; ".join(parts) + (f": {remedy}" if remedy is not None else "")


def _conflict(board: Board, tally: Tally, candidates: Sequence[Spot]) -> Held:
    """Return which other constraint keeps a pod of a too full domain out of the domains with the fewest pods."""
    spot, fewest, node = _best_chance(board, tally, candidates)
    pod, domain = board.victim(spot), tally.domain_of[spot.slot]
    mark = board.mark()
    board.evict(spot)
    rejection = _piece(board, spot).replacement.first_rejection(node)
    board.revert(mark)
    if rejection is None:
        return Held(
            Reason.CONFLICTING_CONSTRAINTS,
            f"a replacement for {pod.name} of {domain} could go to {fewest}, which holds the fewest, but the scheduler "
            "may as well put it where it leaves this constraint as it is or breaks another",
        )
    return Held(
        Reason.CONFLICTING_CONSTRAINTS,
        f"a replacement for {pod.name} of {domain} would have to go to {fewest}, which holds the fewest, and "
        f"{rejection.message}: the nodes can't satisfy both: add nodes, or relax one of the constraints",
    )


def _best_chance(board: Board, tally: Tally, candidates: Sequence[Spot]) -> tuple[Spot, str, str]:
    """Return a movable pod, a domain with the fewest pods, and a node there that only the spread closes."""
    minimum = min(map(tally.count, tally.group.domains.nodes))
    fewest = [domain for domain in sorted(tally.group.domains.nodes) if tally.count(domain) == minimum]
    names = board.placement.table.names
    for spot in candidates:
        open_nodes = _piece(board, spot).replacement.admitted(spread=False)
        for domain in fewest:
            if nodes := tally.domains.nodes[domain] & open_nodes:
                return spot, domain, names[board.pick(nodes)]
    return candidates[0], fewest[0], tally.group.domains.nodes[fewest[0]][0]


def _piece(board: Board, spot: Spot) -> Piece:
    return board.pieces[spot.piece]
