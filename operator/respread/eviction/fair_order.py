"""The order in which steps of different namespaces get the available places in flight: max-min fairness.

The next place goes to the namespace with the fewest moves in flight, then to the one that was served longest ago.
Within a namespace, the plan's order is used.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush

from respread.eviction.steps import Step
from respread.planning.plan import Move


class FairOrder:
    """Yields steps one by one. The caller reports each step that is made before it takes the next."""

    __slots__ = ("_in_flight", "_served", "_waiting")

    def __init__(self, steps: Iterable[Step], in_flight: Iterable[Move], served: Mapping[str, int]) -> None:
        """Create it.

        Args:
            steps: in the plan's order. All pods of a step are in one namespace.
            in_flight: the moves that are already in flight.
            served: by namespace, the number of the last eviction there.
        """
        self._in_flight = Counter(move.pod.namespace for move in in_flight)
        self._served = served
        self._waiting: dict[str, deque[tuple[int, Step]]] = {}
        for position, step in enumerate(steps):
            self._waiting.setdefault(step[0].pod.namespace, deque()).append((position, step))

    def __iter__(self) -> Iterator[tuple[int, Step]]:
        """Yield each step with its position in the plan's order."""
        due = [self._priority(namespace) for namespace in self._waiting]
        heapify(due)
        while due:
            *_, namespace = heappop(due)
            waiting = self._waiting[namespace]
            yield waiting.popleft()
            if waiting:
                heappush(due, self._priority(namespace))

    def made(self, step: Step) -> None:
        """Record that the last step is made."""
        self._in_flight[step[0].pod.namespace] += len(step)

    def _priority(self, namespace: str) -> tuple[int, int, int, str]:
        position, _ = self._waiting[namespace][0]
        return self._in_flight[namespace], self._served.get(namespace, 0), position, namespace
