"""One spread group's counts while a plan is being made: changed and taken back in constant time."""

from __future__ import annotations

from collections import Counter
from math import inf

from respread.cluster.meta import Labels
from respread.planning.closed_form import fewest_moves
from respread.spread.group import SpreadGroup


class Tally:
    """A group's counts per domain, with a histogram of them.

    What matters of the counts (minimum, excess, fewest moves) depends only on how many domains hold how many pods, and
    there are few distinct numbers even where there are thousands of domains.
    """

    __slots__ = ("_counts", "_histogram", "cure", "domain_of", "group", "least", "matched", "most", "single")

    def __init__(self, group: SpreadGroup, *, cure: bool, least: int = 0, most: int | None = None) -> None:
        """Start from the counts as they are.

        Args:
            group: the group.
            cure: whether the plan is to bring it within maxSkew; if not, it must only not get worse.
            least: the most immovable pods that one domain holds.
            most: the fewest pods of a domain that takes no replacement; None if every domain does.
        """
        self.group = group
        self.cure = cure
        self.domain_of = group.domains.of_node
        self.matched: frozenset[Labels] = frozenset(group.matched)
        self.single = len(group.domains.of_node) == len(group.domains.nodes)
        """Whether every domain is a single node."""
        self.least = least
        self.most = 0 if len(group.domains.nodes) < group.key.min_domains else most
        self._counts = dict(group.counts)
        self._histogram = Counter(group.counts.values())
        self._histogram[0] += len(group.domains.nodes) - len(group.counts)

    @property
    def max_skew(self) -> int:
        """The constraint's maxSkew."""
        return self.group.key.max_skew

    @property
    def soft(self) -> bool:
        """Whether the scheduler only prefers to keep the constraint."""
        return self.group.key.when_unsatisfiable == "ScheduleAnyway"

    @property
    def counts(self) -> dict[str, int]:
        """The matching pods of each domain, those without any left out."""
        return {domain: count for domain, count in self._counts.items() if count}

    def count(self, domain: str) -> int:
        """Return the matching pods of a domain."""
        return self._counts.get(domain, 0)

    def minimum(self) -> int:
        """Return the global minimum as the scheduler uses it."""
        if len(self.group.domains.nodes) < self.group.key.min_domains:
            return 0
        return min((count for count, domains in self._histogram.items() if domains), default=0)

    def excess(self) -> int:
        """Return how many pods are above the minimum plus maxSkew, summed over the domains."""
        limit = self.minimum() + self.max_skew
        return sum((count - limit) * domains for count, domains in self._histogram.items() if count > limit)

    def fewest_moves(self) -> float:
        """Return the fewest moves that cure this group alone, or infinity."""
        return fewest_moves(self._histogram.items(), self.max_skew, least=self.least, most=self.most)

    def overfull(self, domain: str | None) -> bool:
        """Whether the domain holds more than the minimum plus maxSkew; None is no domain."""
        return domain is not None and self.count(domain) > self.minimum() + self.max_skew

    def admits(self, domain: str, *, self_match: bool) -> bool:
        """Whether PodTopologySpread lets a pod into the domain: `count + selfMatch - minimum <= maxSkew`."""
        return self.count(domain) + self_match - self.minimum() <= self.max_skew

    def change(self, domain: str, by: int) -> None:
        """Add to a domain's count."""
        before = self._counts.get(domain, 0)
        self._counts[domain] = before + by
        self._histogram[before] -= 1
        self._histogram[before + by] += 1

    def curable(self) -> bool:
        """Whether some number of moves cures the group, as far as its own counts tell."""
        return self.fewest_moves() < inf
