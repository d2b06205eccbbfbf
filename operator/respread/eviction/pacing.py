"""Which of a plan's moves are made now, within the limits of all policies for which they count.

Namespaces share the limits of a ClusterRebalancePolicy by max-min fairness: the next place goes to the namespace with
the fewest moves in flight, then to the one that was served longest ago. Namespaces whose replacements are not known to
become Ready don't get all of them (`standing`). Within a namespace, the most important step is first.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from heapq import heapify, heappop, heappush
from sys import maxsize
from typing import Final, NamedTuple

from respread.api.reasons import Reason
from respread.eviction.limits.hour import Begun, HourShares
from respread.eviction.limits.tallies import ControllerPods, Counted, LimitTallies
from respread.planning.held import Held
from respread.planning.plan import Move, Step, steps_of
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
    begun: Callable[[], Iterable[Begun]] = lambda: ()
    """Returns the groups for which evictions were made and which have no moves only for the moment."""
    room: Callable[[str], int] = lambda _: maxsize
    """How many moves of a namespace can be sent before their plan is too old."""

    def of(self, moves: Sequence[Move]) -> Paced:
        """Choose the moves to make now, keeping those of a step together.

        Within a namespace, those are taken first of whose component most steps are left, because limits of a workload
        bound what is made of one at a time, and then in the plan's order. Between namespaces the order is fair. If an
        hour allows too few for all, those go first that restore groups with the fewest evictions. A held step does not
        hold others.
        """
        steps = list(steps_of(moves))
        controllers = ControllerPods(self.snapshot, {move.pod.uid for move in self.in_flight} | self.replacements)
        tallies = LimitTallies(self, [step for step in steps if step[0].policy not in self.closed], controllers)
        busy = {group for move in self.in_flight for group in move.groups}
        hour = HourShares(tallies, steps, self.unrestored, busy, self.begun, self._made)
        closed = dict(self.closed)
        now: list[tuple[int, Step]] = []
        held: list[tuple[int, Step, Held]] = []
        begun: Counter[str] = Counter()
        left = Counter(step[0].component for step in steps)
        by_precedence = sorted(
            enumerate(steps), key=lambda each: (*hour.precedence(each[1], self.ranks), -left[each[1][0].component])
        )
        served = {} if self.standings is None else self.standings.served
        in_flight = Counter(move.pod.namespace for move in self.in_flight)

        def why_not(step: Step) -> Held | None:
            namespace = step[0].pod.namespace
            return self._why_not(step, closed, tallies) or (
                _NO_ROOM if begun[namespace] >= self.room(namespace) else None
            )

        def make(position: int, step: Step) -> None:
            now.append((position, step))
            begun[step[0].pod.namespace] += len(step)
            in_flight[step[0].pod.namespace] += len(step)
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

    def _made(self, key: GroupKey) -> int:
        group = self.groups(key)
        return 0 if group is None else group.in_last_hour

    def _why_not(self, step: Step, closed: Mapping[str, Held], tallies: LimitTallies) -> Held | None:
        """Return why a step is not made now, or None if it is."""
        for move in step:
            held = closed.get(move.policy) or _wait(move) or self.failed_before(move)
            if held is not None:
                return held
        return next((held for tally in tallies.of(step) if (held := tally.full(step)) is not None), None)


def fair_order(
    steps: Iterable[tuple[int, Step]], in_flight: Mapping[str, int], served: Mapping[str, int]
) -> Iterator[tuple[int, Step]]:
    """Yield each step with its position in the plan.

    Args:
        steps: with their positions, the most important first. All pods of a step are in one namespace.
        in_flight: by namespace, the number of moves in flight. It is read for each step anew, and so may change.
        served: by namespace, the number of the last eviction there.
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


def _wait(move: Move) -> Held | None:
    if move.wave > 0:
        return move.waits or Held(
            Reason.IN_MOTION, "it waits for the replacements of the plan's earlier moves, and is then planned again"
        )
    return None
