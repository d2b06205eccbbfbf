"""A tally that is updated pod by pod equals one that is counted from scratch."""

from __future__ import annotations

from collections import Counter
from random import Random

from respread.planning.search.tally import Tally
from respread.scheduling.view.cluster_view import ClusterView
from respread.spread.counts import Bounds, fewest_moves
from respread.spread.group import domain_map
from tests.properties.instances import try_on
from tests.properties.planning.small_worlds import SMALL, World, snapshot_of, worlds
from tests.spreads import spread_of

CHANGES = 60


def test_minimum_excess_and_levels_are_current_after_every_change() -> None:
    def follow(world: World) -> None:
        snapshot = snapshot_of(world)
        table = ClusterView(snapshot).table
        random = Random(len(world.pods))
        for group in spread_of(snapshot).groups.values():
            domains = domain_map(table, group)
            if not domains.nodes:
                continue
            tally = Tally(group, domains, cure=True)
            assert not tally.overfull(None)
            counts = {domain: group.counts.get(domain, 0) for domain in domains.nodes}
            for _ in range(CHANGES):
                domain = random.choice(sorted(counts))
                by = random.choice((1, -1)) if counts[domain] else 1
                counts[domain] += by
                tally.change(domain, by)
                minimum = 0 if len(counts) < group.key.min_domains else min(counts.values())
                limit = minimum + group.key.max_skew
                assert tally.minimum == minimum
                assert tally.excess == sum(max(0, count - limit) for count in counts.values())
                assert {each: tally.count(each) for each in counts} == counts
                assert tally.levels == tuple(sorted(Counter(counts.values()).items()))
                assert all(tally.overfull(domain) == (count > limit) for domain, count in counts.items())
                most = 0 if len(counts) < group.key.min_domains else None
                assert tally.fewest_moves() == fewest_moves(tally.levels, tally.max_skew, Bounds(most=most))
                if tally.single:
                    for other, count in counts.items():
                        assert domains.nodes[other] & tally.nodes_by_count()[count]
                    assert sum(nodes.bit_count() for nodes in tally.nodes_by_count().values()) == len(counts)

    try_on(worlds(SMALL), 100, 0, follow)
