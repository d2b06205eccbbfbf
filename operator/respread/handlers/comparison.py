"""What a replacement's place did to the spread."""

from __future__ import annotations

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
        """Return `Improved` if the replacement left the pod's domain for one that is not overfull in some group.

        A group that is there no more, as after a rollout, has nothing to be improved: `Unknown` if all are gone.
        """
        outcomes = [
            self._in_group(group, before, replacement)
            for key, before in zip(move.groups, move.from_domains, strict=True)
            if (group := self._spread.groups.get(key)) is not None
        ]
        for outcome in (Outcome.WORSE, Outcome.IMPROVED, Outcome.UNCHANGED):
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
