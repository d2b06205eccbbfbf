"""What quotas don't show yet: the replacements of moves about to be made, and of those in flight without one."""

from __future__ import annotations

import pytest

from respread.eviction.answers import Answer, EvictionResult
from respread.eviction.owners.coming_replacements import ComingReplacements
from respread.moves.entry import Outcome
from respread.moves.ledger import Ledger
from respread.planning.held import Held
from tests.eviction_moves import SPEC, move
from tests.worlds import cluster, pod

A, B, C = (pod(name, "node-1", SPEC) for name in "abc")
ELSEWHERE = pod("d", "node-1", SPEC, namespace="elsewhere")
BEFORE = cluster([], [A, B, C, ELSEWHERE])
USAGE = {"pods": 1}


def sent(*moves: str) -> Ledger:
    ledger = Ledger()
    for each in (A, B, C, ELSEWHERE):
        if each.name in moves:
            answer = Answer(result=EvictionResult.EVICTED)
            ledger = ledger.sent(move(each), BEFORE, 0.0).answered(move(each), answer.made, 0.0)
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
        if each.name not in planned:
            replacements.not_planned(each)
    assert replacements.usages_beside(C, sent(*ledger)) == [USAGE] * coming


def test_a_move_that_is_not_made_counts_no_longer() -> None:
    replacements = ComingReplacements()
    replacements.add(A, USAGE)
    replacements.not_planned(A)
    assert replacements.usages_beside(C, sent()) == []
    replacements.add(A, USAGE)
    assert replacements.usages_beside(C, sent()) == [USAGE]


def test_a_replacement_that_exists_is_in_the_quotas() -> None:
    replacements = ComingReplacements()
    replacements.add(A, USAGE)
    there = cluster([], [pod("new", "", SPEC), B, C])
    ledger, _ = sent("a").updated(there, 1.0, lambda _move, _pod: Outcome.IMPROVED)
    assert replacements.usages_beside(C, ledger) == []


def test_without_the_usage_of_a_replacement_the_room_is_unknown() -> None:
    """A former leader has sent the eviction."""
    held = ComingReplacements().usages_beside(C, sent("a"))
    assert isinstance(held, Held)
    assert held.message == "the ResourceQuotas of namespace default do not show the replacement of a yet"
