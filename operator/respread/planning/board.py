"""The game that planning plays: spread groups that share pods, the pods that may move, and the nodes they may land on.

A step evicts one pod; the scheduler then chooses a landing among the nodes that it finds feasible. What this module
answers is which steps there are, which landings each has, and whether a step is safe: that whichever landing the
scheduler chooses, some group that is to be cured gets better and none gets worse.

Nodes are told apart only as far as it matters. A node without any pod that a group of the board counts is like every
other such node of the same domains, so a cluster of thousands of nodes has a few dozen different landings.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from math import floor, inf, log
from sys import maxsize
from typing import NamedTuple, TypeVar

from respread.cluster.pod import Pod
from respread.planning.placement import Placement
from respread.planning.tally import Tally
from respread.spread.group import Template

_T = TypeVar("_T")


class Step(NamedTuple):
    """The eviction of one pod of a template from a node; which pod of several there, the gentlest."""

    template: int
    node: str


class Landing(NamedTuple):
    """A node on which the replacement may land, standing for all that differ in nothing that matters."""

    node: str
    nodes: tuple[str, ...]
    """All that it stands for, itself included."""
    likely: bool
    """Whether the scheduler's score for soft constraints puts it among the best."""


class Assessment(NamedTuple):
    """A safe step: where its replacement may land, and whether that it helps is certain or only likely."""

    landings: tuple[Landing, ...]
    certain: bool

    def nodes(self) -> frozenset[str]:
        """Return all the nodes that the replacement may land on."""
        return frozenset(node for landing in self.landings for node in landing.nodes)


class Piece(NamedTuple):
    """The pods of one template on the board."""

    template: Template
    sample: Pod
    """Any of its pods: scheduling rules are asked about this one."""
    counted_by: tuple[int, ...]
    """The tallies that count pods of this template."""
    hard: tuple[int, ...]
    """The tallies of its own DoNotSchedule constraints."""
    soft: tuple[int, ...]
    """The tallies of its own ScheduleAnyway constraints."""


class _Effect(NamedTuple):
    better: bool
    """Some group to be cured has less excess."""
    hard_better: bool
    """As `better`, of a DoNotSchedule constraint."""
    hard_worse: bool
    """Some group of a DoNotSchedule constraint, to be cured or not, has more excess."""
    soft_worse: bool
    """As `hard_worse`, of a ScheduleAnyway constraint."""


class Board:
    """The groups and pods of one component, under change."""

    __slots__ = (
        "_classes",
        "_evicted",
        "_history",
        "_landed",
        "_movable",
        "_occupied",
        "_open",
        "_placement",
        "pieces",
        "tallies",
    )

    def __init__(
        self,
        tallies: Sequence[Tally],
        pieces: Sequence[Piece],
        movable: Mapping[Step, Sequence[Pod]],
        occupied: Iterable[str],
        open_nodes: Sequence[frozenset[str]],
        placement: Placement,
    ) -> None:
        """Set the board up.

        Args:
            tallies: the component's groups.
            pieces: the templates of the pods that some tally counts.
            movable: the pods that may be evicted, by template and node, the gentlest victim first.
            occupied: the nodes that hold any pod which a tally counts.
            open_nodes: per piece, the nodes that all other scheduling rules let its pods onto as things stand.
            placement: the rest of the cluster.
        """
        self.tallies = tuple(tallies)
        self.pieces = tuple(pieces)
        self._movable = {step: tuple(pods) for step, pods in movable.items() if pods}
        self._evicted: Counter[Step] = Counter()
        self._landed: Counter[Step] = Counter()
        self._occupied = Counter(dict.fromkeys(occupied, 1))
        self._placement = placement
        self._open = tuple(open_nodes)
        self._classes = tuple(self._classes_of(nodes) for nodes in self._open)
        self._history: list[tuple[Step, str]] = []

    # The position

    def signature(self) -> Hashable:
        """Return a value that is equal for equal positions and for no others."""
        return frozenset(self._evicted.items()), frozenset(self._landed.items())

    def excess(self) -> int:
        """Return the total excess of the groups to be cured."""
        return sum(tally.excess() for tally in self.tallies if tally.cure)

    def lower_bound(self) -> float:
        """Return the moves that every plan which cures these groups needs at least; infinity where none can."""
        return max((tally.fewest_moves() for tally in self.tallies if tally.cure), default=0)

    def potential(self) -> tuple[float, float, int]:
        """Return how far from cured: the largest closed form of a group, the sum of them, the total excess."""
        forms = [tally.fewest_moves() for tally in self.tallies if tally.cure]
        return max(forms, default=0), sum(forms), self.excess()

    # What can be done

    def steps(self) -> Iterator[Step]:
        """Yield the evictions that take a pod from an overfull domain, one of each kind that matters."""
        overfull = [tally if tally.cure and tally.excess() else None for tally in self.tallies]
        seen: set[tuple[object, ...]] = set()
        for step, pods in self._movable.items():
            if self._evicted[step] == len(pods):
                continue
            counting = (overfull[index] for index in self.pieces[step.template].counted_by)
            if not any(tally is not None and tally.overfull(tally.domain_of.get(step.node)) for tally in counting):
                continue
            kind = (step.template, self._likeness(step.node), self._residents(step.node))
            if kind not in seen:
                seen.add(kind)
                yield step

    def victim(self, step: Step) -> Pod:
        """Return the pod that a step would evict: the gentlest of those it could."""
        return self._movable[step][self._evicted[step]]

    def assess(self, step: Step) -> Assessment | None:
        """Return where a step's replacement may land if the step is safe, and None if it is not.

        Safe means: there is a landing; none makes the excess of a hard constraint larger, whosever it is; and every
        likely one makes some group to be cured better and no group worse. Without ScheduleAnyway constraints every
        landing is likely.
        """
        piece = self.pieces[step.template]
        before = {index: self.tallies[index].excess() for index in piece.counted_by}
        self._count(piece, step.node, -1)
        try:
            landings = self._landings(step.template)
            certain = bool(landings)
            for landing in landings:
                effect = self._effect(piece, landing.node, before)
                if effect.hard_worse or (landing.likely and (effect.soft_worse or not effect.better)):
                    return None
                certain = certain and effect.hard_better
        finally:
            self._count(piece, step.node, 1)
        return Assessment(landings, certain) if landings else None

    def pieces_in(self, tally: Tally, domains: Collection[str]) -> set[int]:
        """Return the pieces with a pod that a tally counts in one of the domains and that may still be evicted."""
        index = self.tallies.index(tally)
        return {
            step.template
            for step, pods in self._movable.items()
            if self._evicted[step] < len(pods)
            and index in self.pieces[step.template].counted_by
            and tally.domain_of.get(step.node) in domains
        }

    def aims(self, piece: int, tally: Tally) -> bool:
        """Whether the scheduler minds a tally's constraint when it places a replacement of the piece."""
        index = self.tallies.index(tally)
        return index in self.pieces[piece].hard or index in self.pieces[piece].soft

    def opens(self, piece: int, nodes: Iterable[str]) -> bool:
        """Whether one of the nodes takes a replacement of the piece, as far as all other scheduling rules go."""
        sample = self.pieces[piece].sample
        return any(self._placement.is_open(sample, node) for node in nodes)

    def move(self, step: Step, node: str) -> Pod:
        """Carry out a step with the given landing, and return the pod evicted."""
        pod = self.victim(step)
        self._placement.move(pod, node)
        self._history.append((step, node))
        self._shift(step, node, 1)
        return pod

    def undo(self) -> None:
        """Take the last move back."""
        self._shift(*self._history.pop(), -1)
        self._placement.undo()

    # How

    def _shift(self, step: Step, node: str, by: int) -> None:
        piece = self.pieces[step.template]
        self._count(piece, step.node, -by)
        self._count(piece, node, by)
        _add(self._occupied, node, by)
        _add(self._evicted, step, by)
        _add(self._landed, Step(step.template, node), by)

    def _count(self, piece: Piece, node: str, by: int) -> None:
        for index in piece.counted_by:
            tally = self.tallies[index]
            if (domain := tally.domain_of.get(node)) is not None:
                tally.change(domain, by)

    def _effect(self, piece: Piece, node: str, before: Mapping[int, int]) -> _Effect:
        """Compare the excess of each group that counts the pod with what it was, with the replacement on a node."""
        better = hard_better = hard_worse = soft_worse = False
        self._count(piece, node, 1)
        for index, excess_before in before.items():
            tally = self.tallies[index]
            change = tally.excess() - excess_before
            if change > 0:
                hard_worse, soft_worse = hard_worse or not tally.soft, soft_worse or tally.soft
            elif change < 0 and tally.cure:
                better, hard_better = True, hard_better or not tally.soft
        self._count(piece, node, -1)
        return _Effect(better, hard_better, hard_worse, soft_worse)

    def _landings(self, template: int) -> tuple[Landing, ...]:
        """Return the nodes that the scheduler may choose for a replacement, its evicted pod no longer counted."""
        piece = self.pieces[template]
        feasible = [(node, nodes) for node, nodes in self._open_nodes(template) if self._admitted(piece, node)]
        if not feasible:
            return ()
        scores = self._soft_scores(piece, feasible)
        best = min(scores)
        merged: dict[tuple[object, ...], Landing] = {}
        for (node, nodes), score in zip(feasible, scores, strict=True):
            likely = score <= best
            kind = (likely, self._likeness(node), self._residents(node))
            same = merged.get(kind)
            merged[kind] = Landing(node, nodes, likely) if same is None else same._replace(nodes=same.nodes + nodes)
        return tuple(merged.values())

    def _admitted(self, piece: Piece, node: str) -> bool:
        """Whether PodTopologySpread lets a pod of this piece onto the node.

        A node that does not count for one of the pod's hard constraints takes no such pod: it lacks a topology key, or
        a policy honours an affinity or taint that another filter rejects it for.
        """
        for index in piece.hard:
            tally = self.tallies[index]
            domain = tally.domain_of.get(node)
            if domain is None or not tally.admits(domain, self_match=index in piece.counted_by):
                return False
        return True

    def _soft_scores(self, piece: Piece, feasible: Sequence[tuple[str, tuple[str, ...]]]) -> list[int]:
        """Return PodTopologySpread's raw score of each node, lower being better; all 0 without soft constraints."""
        scores = [0.0] * len(feasible)
        for index in piece.soft:
            tally = self.tallies[index]
            domains = [tally.domain_of.get(node) for node, _ in feasible]
            if tally.single:
                size = sum(
                    len(nodes) for (_, nodes), domain in zip(feasible, domains, strict=True) if domain is not None
                )
            else:
                size = len({domain for domain in domains if domain is not None})
            weight = log(size + 2)
            for at, domain in enumerate(domains):
                scores[at] += inf if domain is None else tally.count(domain) * weight + tally.max_skew - 1
        return [maxsize if score == inf else floor(score + 0.5) for score in scores]

    def _open_nodes(self, template: int) -> Iterator[tuple[str, tuple[str, ...]]]:
        """Yield nodes that every other rule lets the template's pods onto, each with those that it stands for."""
        sample = self.pieces[template].sample
        if self._history and self._placement.depends_on_pods(sample):
            opened = frozenset(self._placement.open_nodes(sample))
            classes = self._classes_of(opened)
            touched: set[str] = set()
        else:
            opened, classes = self._open[template], self._classes[template]
            touched = {node for step, landed in self._history for node in (step.node, landed)}
        for nodes in classes:
            free = tuple(node for node in nodes if not self._occupied[node])
            if free:
                yield free[0], free
        for node in sorted(self._occupied):
            if self._placement.is_open(sample, node) if node in touched else node in opened:
                yield node, (node,)

    def _classes_of(self, nodes: Iterable[str]) -> tuple[tuple[str, ...], ...]:
        """Sort nodes into those that are alike as long as they are unoccupied."""
        classes: dict[tuple[object, ...], list[str]] = {}
        for node in sorted(nodes):
            classes.setdefault((node,) if self._occupied[node] else self._likeness(node), []).append(node)
        return tuple(map(tuple, classes.values()))

    def _likeness(self, node: str) -> tuple[object, ...]:
        """Return what tells nodes apart for the groups: the domain, or its count where the domain is the node alone."""
        likeness: list[object] = []
        for tally in self.tallies:
            domain = tally.domain_of.get(node)
            if domain is not None and len(tally.group.domains.nodes[domain]) == 1:
                likeness.append(tally.count(domain))
            else:
                likeness.append(domain)
        return tuple(likeness)

    def _residents(self, node: str) -> tuple[object, ...]:
        """Return what tells nodes apart by the board's pods on them."""
        if not self._occupied[node]:
            return ()
        return tuple(
            (template, len(pods) - self._evicted[at], self._landed[at])
            for template in range(len(self.pieces))
            if (pods := self._movable.get(at := Step(template, node), ())) or self._landed[at]
        )


def _add(counter: Counter[_T], key: _T, by: int) -> None:
    counter[key] += by
    if not counter[key]:
        del counter[key]
