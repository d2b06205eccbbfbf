"""What answers to an eviction, and to one that is sent again, mean for the move."""

from __future__ import annotations

import pytest

from respread.controller.records.register import Register
from respread.eviction.answers import Answer, EvictionResult
from tests.eviction_moves import SPEC, move
from tests.worlds import cluster, pod

A, B = (pod(name, "node-1", SPEC) for name in "ab")
SNAPSHOT = cluster([], [A, B])
EVICTED, UNKNOWN, GONE, REFUSED = (
    Answer(result=result)
    for result in (
        EvictionResult.EVICTED,
        EvictionResult.UNKNOWN,
        EvictionResult.GONE,
        EvictionResult.HELD_BY_BUDGET,
    )
)


@pytest.mark.parametrize(
    ("first", "again", "is_in_flight"),
    [
        (UNKNOWN, GONE, True),  # by the first request: its replacement is to come
        (UNKNOWN, REFUSED, True),  # the first request may still be on its way
        (UNKNOWN, EVICTED, True),
        (None, GONE, False),  # it was refused, and has gone by itself
        (None, REFUSED, True),
        (None, UNKNOWN, True),
    ],
)
def test_a_move_that_is_asked_for_again_is_in_flight_unless_it_was_never_made(
    first: Answer | None, again: Answer, *, is_in_flight: bool
) -> None:
    """Without a first answer it is owed: it was refused, and the other move of its step was made."""
    register, (one, two) = Register(lambda: 0.0), (move(each, component=1) for each in (A, B))
    register.sent(one, SNAPSHOT)
    register.answered(one, EVICTED, again=False)
    if first is None:
        register.owed(two, SNAPSHOT)
    else:
        register.sent(two, SNAPSHOT)
        register.answered(two, first, again=False)
    register.answered(two, again, again=True)
    assert (two in register.in_flight) is is_in_flight
    assert one in register.in_flight
