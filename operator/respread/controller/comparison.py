"""What a replacement's place did to the spread."""

from __future__ import annotations

from collections import Counter

import msgspec

from respread.cluster.pod import Pod
from respread.eviction.outcomes import Outcome
from respread.planning.plan import Move
from respread.spread.group import SpreadGroup
from respread.spread.index import Spread


class Comparison:
    """Compares by the spread groups as they are now."""

    __slots__ = ("_spread",)

    def __init__(self, spread: Spread) -> None:
        self._spread = spread

    def __call__(self, move: Move, replacement: Pod) -> Outcome:
        """Return `Improved` if it is better for some group that the replacement is there, and worse for none.

        That is what a step of a plan has to do (`planning.search.safety`): one domain too full instead of another
        leaves a group as it was. A group that is there no more, as after a rollout, has nothing to be improved:
        `Unknown` if all are gone.
        """
        groups = [
            (group, before)
            for key, before in zip(move.groups, move.from_domains, strict=True)
            if (group := self._spread.groups.get(key)) is not None
        ]
        if any(_grown(group, before, replacement) for group, before in groups):
            return Outcome.WORSE
        outcomes = [self._in_group(group, before, replacement) for group, before in groups]
        for outcome in (Outcome.IMPROVED, Outcome.WORSE, Outcome.UNCHANGED):
            if outcome in outcomes:
                return outcome
        return Outcome.UNKNOWN

    @staticmethod
    def _in_group(group: SpreadGroup, before: str, replacement: Pod) -> Outcome:
        domain = group.domains.of_node.get(replacement.node_name)
        if domain == before:
            return Outcome.UNCHANGED
        if domain is not None and group.count(domain) > group.minimum + group.key.max_skew:
            return Outcome.WORSE
        return Outcome.IMPROVED


def _grown(group: SpreadGroup, before: str, replacement: Pod) -> bool:
    """Whether a group has more excess than it would have if the pod were still where it was."""
    domain = group.domains.of_node.get(replacement.node_name)
    if domain is None or domain == before:
        return False
    counts = Counter(group.counts)
    counts.subtract([domain])
    if before in group.domains.nodes:
        counts.update([before])
    as_it_was = msgspec.structs.replace(group, counts={each: count for each, count in counts.items() if count > 0})
    return group.excess > as_it_was.excess
