"""Which of a plan's moves are made now, within the limits of all policies for which they count.

Namespaces share the limits of a ClusterRebalancePolicy by max-min fairness: the next place goes to the namespace with
the fewest moves in flight, then to the one that was served longest ago. Namespaces whose replacements are not known to
become Ready don't get all of them (`standing`). Within a namespace, the most important step is first.

The limits of an hour may have too little left for all spread groups. A group that needs two evictions and gets one
stays violated. So groups are finished rather than begun: within a namespace those first that take the fewest evictions,
and evictions are kept for groups that are begun. What is left and can finish no group begins one.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from itertools import chain
from math import inf
from sys import maxsize
from typing import Final, NamedTuple

from respread.api.reasons import Held, Reason
from respread.cluster.pod import WorkloadName
from respread.eviction.tallies import ControllerPods, Counted, LimitTallies, LimitTally, Needed
from respread.planning.plan import Move, Step, steps_of
from respread.planning.victims.protection import is_ordered
from respread.spread.group import GroupKey

_NO_ROOM: Final = Held(Reason.IN_MOTION, "it waits until evictions that were chosen before it are sent")


class HeldMove(NamedTuple):
    """A move that is not made now."""

    move: Move
    held: Held


class Paced(NamedTuple):
    """The moves of a plan, made now or held."""

    now: tuple[Move, ...]
    """Moves to make now, at the same time."""
    held: tuple[HeldMove, ...]
    """The others, in the plan's order."""


class Pace(Counted, frozen=True, kw_only=True):
    """Everything except the moves that decides which moves are made now."""

    replacements: frozenset[str] = frozenset()
    """UIDs of the replacements of pods in flight."""
    single: Mapping[str, Held] = {}
    """Policies for which a single step is tried, by name, with what holds all others."""
    failed_before: Callable[[Move], Held | None] = lambda _: None
    """Returns why a move is not made after others of its policy failed in a row; None if it is made."""
    closed: Mapping[str, Held] = {}
    """Policies that evict nothing now, by name, with the reason: DryRun, or all windows closed."""
    ranks: Mapping[str, int] = {}
    """By policy name; the most important has the lowest. Others are as important as that."""
    unrestored: Collection[GroupKey] = ()
    """The groups that stay violated after the moves."""
    begun: Callable[[], Iterable[Needed]] = lambda: ()
    """Returns the groups for which evictions were made and which have no moves only for the moment."""
    room: Callable[[str], int] = lambda _: maxsize
    """How many moves of a namespace can be sent before their plan is too old."""

    def of(self, moves: Sequence[Move]) -> Paced:
        """Choose the moves to make now, keeping those of a step together.

        Within a namespace, the next step is of the component of which most are left, because limits of a workload bound
        what is made of one at a time, and so the steps of each follow one another as late as can be: those of one
        controller are sent in turn. Between namespaces the order is fair. If an hour allows too few for all, those go
        first that restore groups with the fewest evictions. A held step does not hold others.
        """
        steps = list(steps_of(moves))
        controllers = ControllerPods(self.snapshot, {move.pod.uid for move in self.in_flight} | self.replacements)
        tallies = LimitTallies(self, [step for step in steps if step[0].policy not in self.closed], controllers)
        hour = _HourShares(self, tallies, steps)
        closed = dict(self.closed)
        now: list[tuple[int, Step]] = []
        held: list[tuple[int, Step, Held]] = []
        begun: Counter[str] = Counter()
        left = _left_from(steps)
        by_precedence = sorted(
            enumerate(steps), key=lambda each: (*hour.precedence(each[1], self.ranks), -left[each[0]])
        )
        served = {} if self.standings is None else self.standings.served
        in_flight = Counter(move.pod.namespace for move in self.in_flight)
        busy = {move.workload for move in self.in_flight}

        def why_not(step: Step) -> Held | None:
            namespace = step[0].pod.namespace
            return self._why_not(step, closed, busy, tallies) or (
                _NO_ROOM if begun[namespace] >= self.room(namespace) else None
            )

        def make(position: int, step: Step) -> None:
            now.append((position, step))
            begun[step[0].pod.namespace] += len(step)
            in_flight[step[0].pod.namespace] += len(step)
            busy.update(move.workload for move in step)
            closed.update((move.policy, self.single[move.policy]) for move in step if move.policy in self.single)
            controllers.go(step)
            hour.take(step)
            for tally in tallies.of(step):
                tally.add(step)

        unfinished: list[tuple[int, Step]] = []
        for position, step in fair_order(by_precedence, in_flight, served):
            if (why := why_not(step)) is not None:
                held.append((position, step, why))
            elif (why := hour.why_unfinished(step)) is not None:
                unfinished.append((position, step))
            else:
                make(position, step)
        for position, step in unfinished:
            if (why := why_not(step) or hour.why_not(step)) is not None:
                held.append((position, step, why))
            else:
                make(position, step)
        return Paced(
            tuple(move for _, step in sorted(now, key=_position) for move in step),
            tuple(HeldMove(move, why) for _, step, why in sorted(held, key=_position) for move in step),
        )

    def _why_not(
        self, step: Step, closed: Mapping[str, Held], busy: Collection[WorkloadName], tallies: LimitTallies
    ) -> Held | None:
        """Return why a step is not made now, or None if it is."""
        for move in step:
            held = closed.get(move.policy) or _wait(move) or self.failed_before(move)
            if held is None and move.workload in busy and is_ordered(self.snapshot, move.pod):
                held = Held(
                    Reason.IN_MOTION,
                    f"another pod of {move.workload} is being moved, and with podManagementPolicy OrderedReady a "
                    "replacement that is lost would wait for those of lower ordinals: one is moved at a time",
                )
            if held is not None:
                return held
        return next((held for tally in tallies.of(step) if (held := tally.full(step)) is not None), None)


def fair_order(
    steps: Iterable[tuple[int, Step]], in_flight: Mapping[str, int], served: Mapping[str, int]
) -> Iterator[tuple[int, Step]]:
    """Yield each step with its position in the plan.

    The steps have their positions, the most important first. All pods of a step are in one namespace. The moves in
    flight by namespace are read for each step anew, and so may change; `served` has the number of the last eviction in
    each.
    """
    waiting: dict[str, deque[tuple[int, tuple[int, Step]]]] = {}
    for rank, placed in enumerate(steps):
        _, step = placed
        waiting.setdefault(step[0].pod.namespace, deque()).append((rank, placed))

    def priority(namespace: str) -> tuple[int, int, int, str]:
        rank, _ = waiting[namespace][0]
        return in_flight.get(namespace, 0), served.get(namespace, 0), rank, namespace

    due = [priority(namespace) for namespace in waiting]
    heapify(due)
    while due:
        *_, namespace = heappop(due)
        _, placed = waiting[namespace].popleft()
        yield placed
        if waiting[namespace]:
            heappush(due, priority(namespace))


def _position(placed: tuple[int, *tuple[object, ...]]) -> int:
    return placed[0]


def _left_from(steps: Sequence[Step]) -> list[int]:
    """Return for each step how many of its component are left, itself among them."""
    left = Counter(step[0].component for step in steps)
    numbers: list[int] = []
    for step in steps:
        numbers.append(left[step[0].component])
        left[step[0].component] -= 1
    return numbers


def _wait(move: Move) -> Held | None:
    if move.wave > 0:
        return move.waits or Held(
            Reason.IN_MOTION, "it waits for the replacements of the plan's earlier moves, and is then planned again"
        )
    return None


class _Stretch(NamedTuple):
    """The next steps of a component that restore groups together, or all of its steps if they restore none."""

    moves: Step
    restored: int
    """The number of groups that they restore."""

    @property
    def price(self) -> float:
        """The evictions for each restored group."""
        return len(self.moves) / self.restored if self.restored else inf


class _HourShares:
    """Shares out what the limits have left."""

    def __init__(self, pace: Pace, tallies: LimitTallies, steps: Sequence[Step]) -> None:
        """Find the limits that don't have enough left for all steps of a plan."""
        self._tallies = tallies
        self._groups = pace.groups
        wanted: Counter[LimitTally] = Counter()
        for step in steps:
            for tally in tallies.of(step):
                if tally.left_in_hour is not None:
                    wanted[tally] += tally.number(step)
        kept = tuple(pace.begun()) if wanted else ()
        left = {
            tally: (tally.left_in_hour or 0)
            - sum(each.evictions for each in kept if tally.applies(each.policy, each.namespace, each.matched[0]))
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
        self._stretches = {number: _next_stretch(each, pace.unrestored) for number, each in components.items()}
        busy = {group for move in pace.in_flight for group in move.groups}
        for first, *_ in components.values():
            if any(group in busy for move in first for group in move.groups):
                self.take(first)

    def precedence(self, step: Step, ranks: Mapping[str, int]) -> tuple[int, float, bool]:
        """Return what is less for a step of a namespace that goes before another one of it.

        The most important policy has the lowest rank.
        """
        if not self._left:
            return 0, 0.0, False
        rank = min(ranks.get(move.policy, 0) for move in step)
        stretch = self._stretches[step[0].component]
        groups = (self._groups(key) for move in stretch.moves for key in move.groups)
        is_new = not any(group is not None and group.in_last_hour for group in groups)
        return rank, stretch.price, is_new

    def why_unfinished(self, step: Step) -> Held | None:
        """Return that too little is left to restore a group with a first step and those after it, or None."""
        if not self._left or step[0].component in self._begun:
            return None
        stretch = self._stretches[step[0].component]
        return self._too_little(stretch.moves, 0 if stretch.restored else inf)

    def why_not(self, step: Step) -> Held | None:
        """Return that nothing is left to begin a component with a step, or None."""
        return None if step[0].component in self._begun else self._too_little(step, 0)

    def take(self, step: Step) -> None:
        """Record that a component is begun or continued with a step. Evictions are kept for those that follow."""
        if not self._left or step[0].component in self._begun:
            return
        self._begun.add(step[0].component)
        moves = self._stretches[step[0].component].moves
        for tally in self._tallies.of(moves):
            if tally in self._left:
                self._left[tally] -= tally.number(moves)

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
