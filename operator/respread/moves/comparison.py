"""The effect of a replacement's place on the spread."""

from __future__ import annotations

from collections import Counter

from respread.cluster.pod import Pod
from respread.moves.entry import Outcome
from respread.planning.plan import Move
from respread.spread.group import SpreadGroup
from respread.spread.index import Spread


class Comparison:
    """Compares by the current spread groups."""

    __slots__ = ("_spread",)

    def __init__(self, spread: Spread) -> None:
        self._spread = spread

    def __call__(self, move: Move, replacement: Pod) -> Outcome:
        """Return `Improved` if the replacement's place improves a group and makes none worse.

        A step of a plan must do the same (`planning.search.safety`): a group with one domain too full instead of
        another is unchanged. A group that is gone, for example after a rollout, can't improve: `Unknown` if all are
        gone.
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
        return Outcome.IMPROVED if group.too_full(replacement.node_name) is None else Outcome.WORSE


def _grown(group: SpreadGroup, before: str, replacement: Pod) -> bool:
    """Whether a group has more excess than it would have with the pod in its old place."""
    domain = group.domains.of_node.get(replacement.node_name)
    if domain is None or domain == before:
        return False
    counts = Counter(group.counts)
    counts.subtract([domain])
    if before in group.domains.nodes:
        counts.update([before])
    return group.excess > group.key.counts(counts, len(group.domains.nodes)).excess
