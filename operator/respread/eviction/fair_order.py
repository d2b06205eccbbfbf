"""The order in which steps of different namespaces get the available places in flight: max-min fairness.

The next place goes to the namespace with the fewest moves in flight, then to the one that was served longest ago.
Within a namespace, the most important step is first.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush

from respread.planning.plan import Step


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
