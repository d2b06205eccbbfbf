"""Pauses are twice as long each time, up to a longest one, however often something happens."""

from __future__ import annotations

from respread.timing import GrowingPause

PAUSE = GrowingPause(first_seconds=3, longest_seconds=20)


def test_a_pause_is_twice_as_long_as_the_one_before_up_to_the_longest() -> None:
    assert [PAUSE.seconds(times) for times in (1, 2, 3, 4, 5)] == [3, 6, 12, 20, 20]


def test_a_number_from_a_record_is_neither_too_small_nor_too_large() -> None:
    assert PAUSE.seconds(0) == PAUSE.seconds(-5) == 3
    assert PAUSE.seconds(10**9) == 20
