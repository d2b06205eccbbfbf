"""The counts of one spread group during planning, and how far they may change while replacements come."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from itertools import takewhile
from typing import Final

from respread.scheduling.view.node_table import NodeSet, union
from respread.spread.counts import Bounds, Histogram, LiveCounts, Reach, fewest_moves, reach
from respread.spread.group import DomainMap, SpreadGroup

_NO_BOUNDS = Bounds()
_MOST_ON_A_NODE: Final = 16
"""More replacements than these are not counted on, on a node that a constraint closes at some time."""
_EITHER: Final = 2
"""So many domains, of which one has what the other one has not."""


class Tally(LiveCounts[str]):
    """A group's counts per domain, changed and restored in constant time.

    Minimum, excess and fewest moves only depend on how many have how many pods.
    """

    __slots__ = (
        "_bounds",
        "_full",
        "_never",
        "_nodes_by_count",
        "counted",
        "cure",
        "domain_of",
        "domains",
        "group",
        "rank",
        "single",
        "soft",
    )

    def __init__(
        self,
        group: SpreadGroup,
        domains: DomainMap,
        *,
        cure: bool,
        counted: Collection[int] = (),
        bounds: Bounds = _NO_BOUNDS,
        closed: Histogram = (),
        full: Histogram = (),
        never: Histogram = (),
        rank: int = 0,
    ) -> None:
        """Start from the current counts.

        With `cure`, the plan is to bring the group within maxSkew, for a policy of that rank, the most important first;
        else it must only not get worse. `counted` are the pieces that it counts. `bounds`, but for `most`, are what its
        counts can't become. `closed` has the counts of the domains that take no replacement, however its own pods move,
        `full` the most pods that these can have, and others whose room is short, and `never` the counts of those that
        would take none even if empty.
        """
        super().__init__(dict(group.counts), group.levels)
        self.group = group
        self.domains = domains
        self.cure = cure
        self.counted = frozenset(counted)
        self.rank = rank
        self.domain_of = domains.of_slot
        """By slot."""
        self.single = domains.single
        """Whether every domain is a single node."""
        self.soft = group.key.when_unsatisfiable == "ScheduleAnyway"
        """Whether the constraint is only a preference of the scheduler."""
        self._full = full
        self._bounds = self._with_most(bounds, closed)
        self._never = never
        self._nodes_by_count: dict[int, NodeSet] | None = None

    def fewest_moves(self) -> float:
        """Return the fewest moves that restore this group alone, or infinity."""
        return fewest_moves(self.levels, self.max_skew, self._bounds)

    def reach(self, *, however_much_room: bool) -> Reach:
        """Return how close to restored this group can be brought, from the start, if others leave their room or not."""
        closed = self._never if however_much_room else self._full
        return reach(self.levels, closed, self.max_skew, self._with_most(self._bounds, closed))

    def _with_most(self, bounds: Bounds, closed: Histogram) -> Bounds:
        return bounds._replace(most=0 if self.too_few else min((count for count, _ in closed), default=None))

    def overfull(self, domain: str | None) -> bool:
        """Whether the domain has more pods than the limit. None is no domain."""
        return domain is not None and self.count(domain) > self.limit

    def nodes_by_count(self) -> Mapping[int, NodeSet]:
        """Return the nodes by the count of their domain, for groups in which every domain is a single node."""
        if self._nodes_by_count is None:
            by_count: dict[int, NodeSet] = {}
            for domain, count in self.counts.items():
                by_count[count] = by_count.get(count, 0) | self.domains.nodes[domain]
            others = self.domains.eligible
            for nodes in by_count.values():
                others &= ~nodes
            by_count[0] = by_count.get(0, 0) | others
            self._nodes_by_count = by_count
        return self._nodes_by_count

    def implies(self, other: Tally) -> bool:
        """Whether it is a DoNotSchedule constraint as tight as another one for the same pods and domains."""
        return (
            not self.soft
            and self.max_skew <= other.max_skew
            and self.too_few >= other.too_few
            and self.counts_as(other)
            and ((self.single and other.single) or self.domains.nodes == other.domains.nodes)
        )

    def counts_as(self, other: Tally) -> bool:
        """Whether it counts the same pods on the same nodes as another one, also those that wait for a node."""
        are_same_pods = self.counted == other.counted and set(self.group.matched) == set(other.group.matched)
        return are_same_pods and self.domains.eligible == other.domains.eligible

    def change(self, domain: str, by: int) -> None:
        """Add (1) or remove (-1) a pod in a domain."""
        super().change(domain, by)
        if self._nodes_by_count is not None:
            nodes, after = self.domains.nodes[domain], self.counts[domain]
            self._nodes_by_count[after - by] &= ~nodes
            self._nodes_by_count[after] = self._nodes_by_count.get(after, 0) | nodes


class Filling:
    """The counts of one group, and a bound for its minimum, while replacements come."""

    __slots__ = ("_counts", "_pods", "_taken", "coming", "lowest", "minimum", "tally")

    def __init__(self, tally: Tally) -> None:
        self.tally = tally
        self.minimum = tally.minimum
        self._counts = tally.levels
        self._pods = sum(count * domains for count, domains in self._counts)
        self._taken: Counter[str] = Counter()
        """The pods that are evicted, by domain."""
        self.coming = 0
        """The number of replacements without a node that it will count."""
        self.lowest: int | None = None
        """The lowest count that an eviction leaves."""

    def is_too_full(self, slot: int) -> bool:
        """Whether the domain of a node has more than the minimum and maxSkew, without the pods that are evicted."""
        domain = self.tally.domain_of[slot]
        return domain is not None and self.left(domain) > self.minimum + self.tally.max_skew

    def left(self, domain: str) -> int:
        """Return what the evictions leave in a domain."""
        return self.tally.count(domain) - self._taken[domain]

    def evict(self, slot: int) -> None:
        """Count an eviction from a node, if it is in a domain."""
        if (domain := self.tally.domain_of[slot]) is None:
            return
        self._taken[domain] += 1
        left = self.left(domain)
        self.lowest = left if self.lowest is None else min(left, self.lowest)
        self._pods -= 1

    def most(self, coming: int) -> int:
        """Return a bound for the minimum when this many replacements have come."""
        if self.tally.too_few:
            return 0
        share = (self._pods + coming) // max(sum(number for _, number in self._counts), 1)
        return min(share, _filled(self._counts, coming))

    @property
    def is_kept(self) -> bool:
        """Whether no eviction so far can lower the minimum, or it leads to no more excess in the end."""
        tally = self.tally
        return (
            self.lowest is None
            or tally.soft
            or tally.max_skew == 1
            or self.lowest >= self.most(self.coming)
            or (sum(number for _, number in self._counts) <= _EITHER and not tally.excess)
        )

    @property
    def falls(self) -> bool:
        """Whether an eviction so far leaves less than the minimum."""
        return self.floor < self.minimum

    @property
    def floor(self) -> int:
        """The minimum is never less."""
        return self.minimum if self.lowest is None else min(self.minimum, self.lowest)

    def needed(self, *, counts: bool) -> list[str]:
        """Return the domains that may be the only ones that the constraint allows, or prefers."""
        tally = self.tally
        if tally.too_few:
            places = {domain: tally.max_skew - self.left(domain) for domain in tally.domains.nodes}
            allowed = [domain for domain, places in places.items() if places > 0]
            return allowed if sum(places[domain] for domain in allowed) >= self.coming else []
        most = self.most(self.coming - counts)
        return [domain for domain in tally.domains.nodes if self.left(domain) <= most]

    def never_closing(self) -> NodeSet:
        """Return the nodes of the domains that the constraint allows wherever all replacements go."""
        tally = self.tally
        most = self.floor + tally.max_skew - self.coming
        return union(there for domain, there in tally.domains.nodes.items() if tally.count(domain) <= most)

    def accepting_nodes(self, *, is_limited: bool) -> list[NodeSet]:
        """Return the nodes that a constraint with nodes as its domains allows, or prefers, for one, two or more pods.

        If it `is_limited`, these are as many as maxSkew permits.
        """
        if not is_limited:
            return [self._nodes_up_to(self.floor)]
        return self._taking(self.floor) or [0]

    def nodes_taking(self, numbers: Mapping[str, int]) -> tuple[NodeSet, ...]:
        """Return the nodes of domains that take one or more pods, two or more, and so on, given how many each takes."""
        nodes, most = self.tally.domains.nodes, max(numbers.values(), default=0)
        return tuple(union(nodes[one] for one, number in numbers.items() if number > at) for at in range(most))

    def _taking(self, minimum: int) -> list[NodeSet]:
        """Return the nodes that take one, two or more pods while the minimum is this."""
        most = minimum + self.tally.max_skew - 1
        return list(takewhile(bool, (self._nodes_up_to(most - at) for at in range(_MOST_ON_A_NODE))))

    def _nodes_up_to(self, most: int) -> NodeSet:
        return union(there for count, there in self.tally.nodes_by_count().items() if count <= most)

    def inside(self, lead: Filling) -> Mapping[str, Mapping[str, int]]:
        """Return, for domains of the leading constraint, the domains in each of which one is allowed if it is.

        With each, how many have to come there until it must be another one. Domains for which this can't be shown are
        missing: all, if those of this constraint are not parts of them.
        """
        outer, inner = lead.tally, self.tally
        if outer.soft or inner.soft or outer.too_few or inner.too_few or not inner.counts_as(outer):
            return {}
        inside: dict[str, dict[str, int]] = {domain: {} for domain in outer.domains.nodes}
        for domain, nodes in inner.domains.nodes.items():
            around = outer.domain_of[nodes.bit_length() - 1]
            if around is None or nodes & ~outer.domains.nodes[around]:
                return {}
            inside[around][domain] = self.left(domain)
        fewest = {domain: min(within.values(), default=0) for domain, within in inside.items()}
        too_full = {domain for domain, within in inside.items() if any(map(inner.overfull, within))}
        level, found = lead.most(lead.coming - 1), dict[str, Mapping[str, int]]()
        for domain, within in inside.items():
            above = level // max(len(within), 1) + 1
            larger = {other for other, there in inside.items() if len(there) > len(within)}
            least = min((fewest[other] for other in (larger | too_full) - {domain}), default=above)
            if min(least, above if self.lowest is None else self.lowest) >= above - inner.max_skew:
                found[domain] = {each: above - left for each, left in within.items() if left < above}
        return found


def _filled(counts: Sequence[tuple[int, int]], coming: int) -> int:
    """Return how high a number of pods can bring the minimum if all go where there are fewest."""
    level, domains, left = counts[0][0], 0, coming
    for at, (_, number) in enumerate(counts):
        domains += number
        upper = counts[at + 1][0] if at + 1 < len(counts) else None
        if upper is None or (upper - level) * domains > left:
            return level + left // domains
        left -= (upper - level) * domains
        level = upper
    return level
