"""The counts of one spread group during planning, changed and restored in constant time."""

from __future__ import annotations

from collections.abc import Mapping

from respread.scheduling.view.node_table import NodeSet
from respread.spread.counts import Bounds, Histogram, LiveCounts, Reach, fewest_moves, reach
from respread.spread.group import DomainMap, SpreadGroup

_NO_BOUNDS = Bounds()


class Tally(LiveCounts[str]):
    """A group's counts per domain. Minimum, excess and fewest moves only depend on how many have how many pods."""

    __slots__ = (
        "_bounds",
        "_fewest",
        "_full",
        "_never",
        "_nodes_by_count",
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
        bounds: Bounds = _NO_BOUNDS,
        closed: Histogram = (),
        full: Histogram = (),
        never: Histogram = (),
        rank: int = 0,
    ) -> None:
        """Start from the current counts.

        With `cure`, the plan is to bring the group within maxSkew, for a policy of that rank, the most important first;
        else it must only not get worse. `bounds`, but for `most`, are what its counts can't become. `closed` has the
        counts of the domains that take no replacement, however its own pods move, `full` the most pods that these can
        have, and others whose room is short, and `never` the counts of those that would take none even if empty.
        """
        super().__init__(dict(group.counts), group.levels)
        self.group = group
        self.domains = domains
        self.cure = cure
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
        self._fewest: float | None = None
        self._nodes_by_count: dict[int, NodeSet] | None = None

    def fewest_moves(self) -> float:
        """Return the fewest moves that restore this group alone, or infinity."""
        if self._fewest is None:
            self._fewest = fewest_moves(self.levels, self.max_skew, self._bounds)
        return self._fewest

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

    def change(self, domain: str, by: int) -> None:
        """Add (1) or remove (-1) a pod in a domain."""
        super().change(domain, by)
        self._fewest = None
        if self._nodes_by_count is not None:
            nodes, after = self.domains.nodes[domain], self.counts[domain]
            self._nodes_by_count[after - by] &= ~nodes
            self._nodes_by_count[after] = self._nodes_by_count.get(after, 0) | nodes
