"""What a plan says in words: what each move improves, why this pod, and why a group stays violated.

Domains that a policy expects and that have no node are unknown to the scheduler, so no pod can move there. They are
reported for a group only if it would be violated with them present and empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, TypeAlias

import msgspec
from immutables import Map

from respread.api.policy import Policy
from respread.api.reasons import Held, Reason, listed
from respread.cluster.meta import ObjectKey
from respread.cluster.pod import NodeSelector, NodeSelectorTerm, Pod, workload_of
from respread.planning.plan import Move
from respread.planning.search.board import Board, Piece, Spot
from respread.planning.search.safety import BoardStep
from respread.planning.search.search import Choice, Path
from respread.planning.search.tally import Tally
from respread.planning.victims.selection import Selection
from respread.scheduling.filters.node_affinity import matches_node_selector
from respread.scheduling.filters.taint_toleration import DELETION_CANDIDATE, shunned_taints
from respread.scheduling.prepared_pod import PreparedPod
from respread.scheduling.verdict import Plugin, Rejection
from respread.scheduling.view.node_table import NodeSet, NodeTable, slots_of, union
from respread.spread.group import GroupKey, SpreadGroup

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

    Tally and board are those after the moves. `holders` take room of nodes before these moves, by the slots of the
    nodes.
    """
    overfull = sorted(domain for domain in tally.group.domains.nodes if tally.overfull(domain))
    candidates = _candidates(board, tally)
    if not candidates:
        return _all_protected(tally, overfull, protected)
    if path.cut:
        return Held(
            Reason.SEARCH_LIMIT,
            f"it takes more than the {path.cost.evictions} evictions that are planned: the rest is planned when these "
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
    reason, ((_, first), *_) = by_weight[0]
    why = "; ".join(_for_all(pods) for _, pods in by_weight[:_REASONS_SHOWN])
    return Held(reason, f"no pod in {listed(overfull)} may be evicted: {why}", named=first.named)


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
        spot.slot: f"the moves that restore {board.tallies[first].group.key}"
        for choice in path.choices
        for spot in choice.outcome.placed
        for first in board.pieces[spot.piece].counted_by[:1]
        if first not in own
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
    pods = [pod for node in nodes for pod in pods_by_node.get(node, _NO_PODS).values()]
    if not pods:
        return ""
    whose = Counter((pod.namespace, str(workload_of(pod))) for pod in pods)
    most_first = sorted(whose.items(), key=lambda each: (-each[1], each[0]))
    shown = [f"{number} of {workload} in {namespace}" for (namespace, workload), number in most_first]
    return f"; the pods on {listed(nodes)} are {listed(shown)}"


def why_none_there(replacement: PreparedPod, nodes: Iterable[str]) -> str:
    """Return what keeps a pod off some nodes, except topology spread constraints, and what would change that."""
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


def moves_of(board: Board, choice: Choice, number: int, selection: Selection) -> Iterator[Move]:
    """Yield the moves of a step, one for each pod. When they are made is determined when solutions are combined.

    The board is just before the step, and `number` steps are before it.
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


Stuck: TypeAlias = tuple[GroupKey, Held]
"""A group that is not, or not fully, restored, with the reason."""


class MissingDomains:
    """Domains that policies expect: which have no node, and in which room is asked for."""

    def __init__(self, policies: Iterable[Policy], table: NodeTable) -> None:
        """Compare what policies expect with the nodes."""
        self._missing: dict[tuple[str, str], list[str]] = {}
        """By policy and topology key; never empty."""
        self._requested: dict[tuple[str, str], frozenset[str]] = {}
        """The domains in which room is asked for, by policy and topology key."""
        for policy in policies:
            for expected in policy.spec.constraints.expected_domains:
                there = table.column(expected.topology_key).nodes_with
                if missing := sorted(set(expected.values) - there.keys()):
                    self._missing[policy.name, expected.topology_key] = missing
                if expected.provision == "Request":
                    self._requested[policy.name, expected.topology_key] = frozenset(expected.values)

    def complete(
        self, stuck: Iterable[Stuck], selected: Mapping[GroupKey, str], groups: Mapping[GroupKey, SpreadGroup]
    ) -> list[Stuck]:
        """Return why groups are not restored, including the domains that are missing for them.

        A missing domain replaces the reason that there are fewer domains than minDomains. Every other reason has
        priority. `selected` has the groups that policies restore, with the names of these policies.
        """
        known = [(key, self._with_remedy(key, held, selected[key])) for key, held in stuck]
        if not self._missing:
            return known
        found = {key: held for key, name in selected.items() if (held := self._held(groups[key], name)) is not None}
        kept = [(key, held) for key, held in known if key not in found or held.reason is not Reason.TOO_FEW_DOMAINS]
        others = found.keys() - {key for key, _ in kept}
        return kept + [(key, found[key]) for key in sorted(others, key=str)]

    def _with_remedy(self, key: GroupKey, held: Held, policy: str) -> Held:
        """Return why a group is not restored, with what its policy does about domains without room."""
        domains = self._requested.get((policy, key.topology_key), frozenset())
        if domains.isdisjoint(held.full_domains):
            return held
        return msgspec.structs.replace(held, message=f"{held.message}; {_asks_for_nodes(policy)}")

    def _held(self, group: SpreadGroup, policy: str) -> Held | None:
        key = group.key
        most = max(group.counts.values(), default=0)
        if most <= key.max_skew:  # another domain has none
            return None
        missing = [each for each in self._missing.get((policy, key.topology_key), ()) if may_count(key, each)]
        if not missing:
            return None
        one = len(missing) == 1
        fullest = min(domain for domain, count in group.counts.items() if count == most)
        if (policy, key.topology_key) in self._requested:
            remedy = _asks_for_nodes(policy)
        else:
            remedy = (
                f"add nodes labelled {key.topology_key}={missing[0]}, or take {'it' if one else 'them'} out of "
                f"spec.constraints.expectedDomains of policy {policy}"
            )
        return Held(
            Reason.DOMAIN_HAS_NO_NODE,
            f"{_listed(missing)} {'has' if one else 'have'} no node, so the scheduler does not know "
            f"{'it' if one else 'them'}, and {fullest} holds {most} pods, where maxSkew {key.max_skew} would not allow "
            f"it with {'it' if one else 'them'} there: {remedy}",
            named=_listed(missing),
        )


def _asks_for_nodes(policy: str) -> str:
    return f"policy {policy} asks for nodes there, and its condition RoomMissing says how that goes"


def may_count(key: GroupKey, domain: str) -> bool:
    """Return whether nodes of a domain can count for a group. The affinity of its pods may exclude them."""
    eligibility, topology_key = key.eligibility, key.topology_key
    if eligibility.node_selector.get(topology_key, domain) != domain:
        return False
    if eligibility.node_affinity is None:
        return True
    terms = [
        tuple(each for each in term.match_expressions if each.key == topology_key)
        for term in eligibility.node_affinity.node_selector_terms
    ]
    about_domain = NodeSelector(tuple(NodeSelectorTerm(match_expressions=term) for term in terms))
    return not all(terms) or matches_node_selector(about_domain, "", {topology_key: domain})


def _listed(domains: Sequence[str]) -> str:
    return domains[0] if len(domains) == 1 else f"{', '.join(domains[:-1])} and {domains[-1]}"
