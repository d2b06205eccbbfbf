"""Which spread groups get the evictions that the limits of an hour still allow, if these are too few for all.

A group that needs two evictions and gets one stays violated. So groups are finished rather than begun: within a
namespace those first that take the fewest evictions, and evictions are kept for groups that are begun. What is left and
can finish no group begins one.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from itertools import chain
from math import inf
from typing import NamedTuple

from respread.cluster.meta import Labels
from respread.eviction.limits.tallies import LimitTallies, LimitTally
from respread.planning.held import Held
from respread.planning.plan import Step
from respread.spread.group import GroupKey


class Begun(NamedTuple):
    """Spread groups of the same pods for which evictions were made, and which need more."""

    policy: str
    """The name of the policy that restores them."""
    namespace: str
    labels: Labels
    """Of some of the pods."""
    evictions: int
    """The fewest that they still need."""


class _Stretch(NamedTuple):
    """The next steps of a component that restore groups together, or all of its steps if they restore none."""

    moves: Step
    restored: int
    """The number of groups that they restore."""

    @property
    def price(self) -> float:
        """The evictions for each restored group."""
        return len(self.moves) / self.restored if self.restored else inf


class HourShares:
    """Shares out what the limits have left."""

    __slots__ = ("_begun", "_left", "_made", "_stretches", "_tallies")

    def __init__(
        self,
        tallies: LimitTallies,
        steps: Sequence[Step],
        unrestored: Collection[GroupKey],
        busy: Collection[GroupKey],
        begun: Callable[[], Iterable[Begun]],
        made: Callable[[GroupKey], int] = lambda _: 0,
    ) -> None:
        """Find the limits that don't have enough left for a whole plan.

        Args:
            tallies: the limits.
            steps: all steps of the plan, in its order.
            unrestored: the groups that stay violated after it.
            busy: the groups with moves in flight. Evictions are kept for their next moves.
            begun: returns others for which evictions are kept.
            made: returns how many evictions were made for a group within the last hour.
        """
        self._tallies = tallies
        self._made = made
        wanted: Counter[LimitTally] = Counter()
        for step in steps:
            for tally in tallies.of(step):
                if tally.left_in_hour is not None:
                    wanted[tally] += tally.number(step)
        kept = tuple(begun()) if wanted else ()
        left = {
            tally: (tally.left_in_hour or 0)
            - sum(each.evictions for each in kept if tally.applies(each.policy, each.namespace, each.labels))
            for tally in wanted
        }
        self._left = {tally: number for tally, number in left.items() if number < wanted[tally]}
        self._stretches: dict[int, _Stretch] = {}
        """By component."""
        self._begun: set[int] = set()
        """The components that are begun: the evictions of their next stretch are kept for them."""
        if not self._left:
            return
        components: dict[int, list[Step]] = {}
        for step in steps:
            components.setdefault(step[0].component, []).append(step)
        self._stretches = {number: _next_stretch(each, unrestored) for number, each in components.items()}
        for first, *_ in components.values():
            if any(group in busy for move in first for group in move.groups):
                self.take(first)

    def precedence(self, step: Step, ranks: Mapping[str, int]) -> tuple[bool, int, float, bool]:
        """Return what is less for a step of a namespace that goes before another one of it.

        Args:
            step: the step.
            ranks: of the policies, by name; the most important has the lowest.
        """
        if not self._left:
            return False, 0, 0.0, False
        rank = min(ranks.get(move.policy, 0) for move in step)
        stretch = self._stretches[step[0].component]
        is_new = not any(self._made(key) for move in stretch.moves for key in move.groups)
        return step[0].wave > 0, rank, stretch.price, is_new

    def why_unfinished(self, step: Step) -> Held | None:
        """Return that too little is left to restore a group with a first step and those after it, or None."""
        if not self._left or step[0].component in self._begun:
            return None
        stretch = self._stretches[step[0].component]
        return self._too_little(stretch.moves, 0 if stretch.restored else inf)

    def why_not(self, step: Step) -> Held | None:
        """Return that nothing is left to begin a component with a step, or None."""
        return self._too_little(step, 0) if self._left and step[0].component not in self._begun else None

    def take(self, step: Step) -> None:
        """Record that a component is begun or continued with a step. Evictions are kept for those that follow."""
        if not self._left or step[0].component in self._begun:
            return
        self._begun.add(step[0].component)
        moves = self._stretches[step[0].component].moves
        for tally in self._tallies.of(moves):
            if tally in self._left:
                self._left[tally] = max(0, self._left[tally] - tally.number(moves))

    def _too_little(self, moves: Step, besides: float) -> Held | None:
        """Return that a limit does not have as much left as moves need, and so much besides; None if all have."""
        for tally in self._tallies.of(moves):
            if tally in self._left and (number := tally.number(moves)) and number + besides > self._left[tally]:
                return tally.kept_for_others()
        return None


def _next_stretch(steps: Sequence[Step], unrestored: Collection[GroupKey]) -> _Stretch:
    """Return the steps of a component, from the first one on, that restore groups at the lowest price."""
    last = {key: end for end, step in enumerate(steps, 1) for move in step for key in move.groups}
    finished = Counter(end for key, end in last.items() if key not in unrestored)
    best, most_restored, lowest = len(steps), 0, inf
    made = restored = 0
    for end, step in enumerate(steps, 1):
        made += len(step)
        restored += finished[end]
        if finished[end] and made / restored < lowest:
            best, most_restored, lowest = end, restored, made / restored
    return _Stretch(tuple(chain.from_iterable(steps[:best])), most_restored)
