"""What quotas don't show yet: the replacements of moves about to be made, and of those in flight without one."""

from __future__ import annotations

import pytest

from respread.api.reasons import Held
from respread.eviction.owners.replacements import ComingReplacements
from respread.moves.entry import Outcome
from respread.moves.ledger import Ledger
from tests.eviction_moves import SPEC, move
from tests.worlds import cluster, pod

A, B, C = (pod(name, "node-1", SPEC) for name in "abc")
ELSEWHERE = pod("d", "node-1", SPEC, namespace="elsewhere")
BEFORE = cluster([], [A, B, C, ELSEWHERE])
USAGE = {"pods": 1}


def sent(*moves: str, chosen: str = "") -> Ledger:
    """Return the moves of pods that are evicted, and of others that were chosen."""
    ledger = Ledger()
    for each in (A, B, C, ELSEWHERE):
        if each.name in chosen:
            ledger = ledger.with_chosen([move(each)], BEFORE, 0.0)
        if each.name in moves:
            ledger = ledger.sent(move(each), BEFORE, 0.0).answered(move(each), True, 0.0)
    return ledger


@pytest.mark.parametrize(
    ("planned", "ledger", "coming"),
    [
        ("", "", 0),
        ("a", "", 1),
        ("ab", "", 2),
        ("", "a", 1),
        ("b", "a", 2),
        ("c", "", 0),  # the pod itself
        ("d", "d", 0),  # in another namespace
    ],
)
def test_replacements_in_the_namespace_count_that_are_still_to_come(planned: str, ledger: str, coming: int) -> None:
    replacements = ComingReplacements()
    for each in (A, B, C, ELSEWHERE):
        if each.name in planned + ledger:
            replacements.add(each, USAGE)
    assert replacements.usages_beside(C, sent(*ledger, chosen=planned)) == [USAGE] * coming


def test_a_move_that_is_not_made_counts_no_longer() -> None:
    replacements = ComingReplacements()
    replacements.add(A, USAGE)
    assert replacements.usages_beside(C, sent(chosen="a")) == [USAGE]
    assert replacements.usages_beside(C, sent()) == []
    assert replacements.usages_beside(C, sent(chosen="a")) == [], "it was chosen again, and not looked at yet"


def test_a_replacement_that_exists_is_in_the_quotas() -> None:
    replacements = ComingReplacements()
    replacements.add(A, USAGE)
    there = cluster([], [pod("new", "", SPEC), B, C])
    ledger, _ = sent("a").updated(there, 1.0, lambda _move, _pod: Outcome.IMPROVED)
    assert replacements.usages_beside(C, ledger) == []


def test_without_the_usage_of_a_replacement_the_room_is_unknown() -> None:
    """A former leader has sent the eviction."""
    held = ComingReplacements().usages_beside(C, sent("a", "b"))
    assert isinstance(held, Held)
    assert held.message == "the ResourceQuotas of namespace default do not show the replacement of a yet"
