"""What answers to an eviction, and to one that is sent again, mean for the move."""

from __future__ import annotations

import pytest

from respread.controller.records.journal import Journal
from respread.eviction.answers import Answer, EvictionResult
from respread.moves.entry import MovePhase
from tests.eviction_moves import SPEC, move, send
from tests.worlds import cluster, pod

A, B = (pod(name, "node-1", SPEC) for name in "ab")
SNAPSHOT = cluster([], [A, B])
EVICTED, UNKNOWN, GONE, REFUSED = (
    Answer(result=result)
    for result in (EvictionResult.EVICTED, EvictionResult.UNKNOWN, EvictionResult.GONE, EvictionResult.HELD_BY_BUDGET)
)


@pytest.mark.parametrize(
    ("first", "again", "phase"),
    [
        (UNKNOWN, GONE, MovePhase.SENT),  # by the first request: its replacement is to come
        (UNKNOWN, REFUSED, MovePhase.SENT),  # the first request may still be on its way
        (UNKNOWN, EVICTED, MovePhase.EVICTED),
        (None, GONE, None),  # it was refused, and has gone by itself
        (None, REFUSED, MovePhase.OWED),
        (None, UNKNOWN, MovePhase.SENT),
    ],
)
def test_a_move_that_is_asked_for_again_is_in_flight_unless_it_was_never_made(
    first: Answer | None, again: Answer, phase: MovePhase | None
) -> None:
    """Without a first answer it is owed: it was refused, and the other move of its step was made."""
    journal, (one, two) = Journal(lambda: 0.0), (move(each, component=1) for each in (A, B))
    send(journal, one, SNAPSHOT)
    journal.answered(one, EVICTED, again=False)
    if first is None:
        journal.owed(two, SNAPSHOT)
    else:
        send(journal, two, SNAPSHOT)
        journal.answered(two, first, again=False)
    journal.answered(two, again, again=True)
    entry = journal.ledger.of(two)
    assert (entry and entry.phase) == phase
    assert one in journal.ledger
    journal.answered(move("another"), GONE, again=True)  # whose life has ended meanwhile


def test_moves_keep_the_order_in_which_they_were_chosen() -> None:
    moves = [move(pod(name, "node-1", SPEC)) for name in "fcadbe"]
    journal, snapshot = Journal(lambda: 0.0), cluster([], [each.pod for each in moves])
    journal.chosen(moves[:4], snapshot)
    journal.chosen(moves[4:], snapshot)
    assert [each.move for each in journal.ledger.chosen] == moves


@pytest.mark.parametrize("answer", [REFUSED, GONE])
def test_a_move_that_is_refused_at_once_is_not_in_flight(answer: Answer) -> None:
    journal, one = Journal(lambda: 0.0), move(A)
    send(journal, one, SNAPSHOT)
    journal.answered(one, answer, again=False)
    assert one not in journal.ledger


def test_a_move_that_is_in_no_record_is_not_sent() -> None:
    """A new leader would not know of it."""
    journal, each = Journal(lambda: 0.0), move(A)
    with pytest.raises(RuntimeError, match="no record"):
        journal.sent(each, SNAPSHOT)
    journal.chosen((each,), SNAPSHOT)
    with pytest.raises(RuntimeError, match="no record"):
        journal.sent(each, SNAPSHOT)
    assert len(journal.ledger) == 0
    journal.recorded(each)
    journal.sent(each, SNAPSHOT)
    assert each in journal.ledger
