"""The order in which steps of different namespaces get the available places in flight: max-min fairness.

The next place goes to the namespace with the fewest moves in flight, then to the one that was served longest ago.
Within a namespace, the plan's order is used.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from heapq import heapify, heappop, heappush

from respread.eviction.steps import Step


def fair_order(
    steps: Iterable[Step], in_flight: Mapping[str, int], served: Mapping[str, int]
) -> Iterator[tuple[int, Step]]:
    """Yield each step with its position in the plan's order.

    Args:
        steps: in the plan's order. All pods of a step are in one namespace.
        in_flight: by namespace, the number of moves in flight. It is read for each step anew, and so may change.
        served: by namespace, the number of the last eviction there.
    """
    waiting: dict[str, deque[tuple[int, Step]]] = {}
    for position, step in enumerate(steps):
        waiting.setdefault(step[0].pod.namespace, deque()).append((position, step))

    def priority(namespace: str) -> tuple[int, int, int, str]:
        position, _ = waiting[namespace][0]
        return in_flight.get(namespace, 0), served.get(namespace, 0), position, namespace

    due = [priority(namespace) for namespace in waiting]
    heapify(due)
    while due:
        *_, namespace = heappop(due)
        yield waiting[namespace].popleft()
        if waiting[namespace]:
            heappush(due, priority(namespace))
