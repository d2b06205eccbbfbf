"""The names and numbers in docs/eviction.md match the code."""

from __future__ import annotations

import re
from datetime import timedelta
from pathlib import Path

import pytest

from respread.controller.control_loop import LAST_SECONDS
from respread.controller.follow_up import LATE_SECONDS, UNANSWERED_SECONDS
from respread.controller.lanes import BACKLOG_SECONDS
from respread.controller.permission import CONFIRMED_SECONDS, OLD_SECONDS
from respread.controller.records.status_writer import LEAST_INTERVAL_SECONDS, MOST_AT_ONCE
from respread.controller.waking import FAILURE_PAUSE, LOOP_LIMIT_SECONDS
from respread.eviction.answers import Answer, EvictionResult
from respread.eviction.eviction_api import TIMEOUT_SECONDS
from respread.eviction.owners.last_look import MOST_CONTROLLERS, READING_SECONDS
from respread.eviction.standing import FAILED_SECONDS, FEW, UNPROVEN_SHARE, VALID_SECONDS
from respread.holds import refusals
from respread.holds.backoff import FLOOR, JITTER, PAUSE
from respread.holds.holds import STALE_SECONDS
from respread.holds.other_evictions import FORGOTTEN, LONGEST_ROUND, REPEATED, ROUND, WAIT
from respread.kube.leadership import LeaseTimes
from respread.moves.entry import (
    CERTAIN_SECONDS,
    STEP_SECONDS,
    TERMINATION_SECONDS,
    UNCONFIRMED_SECONDS,
    MovePhase,
    Outcome,
)
from respread.moves.following import STEADY_SECONDS

PAGE = (Path(__file__).parents[3] / "docs" / "eviction.md").read_text(encoding="utf-8")
OPERATIONS = (Path(__file__).parents[3] / "docs" / "operations.md").read_text(encoding="utf-8")
REAL = (Path(__file__).parents[3] / "docs" / "real-clusters.md").read_text(encoding="utf-8")
ANSWERS = [
    [cell.strip() for cell in line.strip("|").split("|")]
    for line in PAGE.partition("## Answers")[2].partition("\n##")[0].splitlines()
    if line.startswith("| ") and "`" in line and "respread_evictions_total" not in line
]


def test_the_life_of_a_move_is_told_in_all_of_its_phases() -> None:
    page = (Path(__file__).parents[3] / "docs" / "architecture.md").read_text(encoding="utf-8")
    life = page.partition("## The life of an eviction")[2].partition("\n##")[0]
    assert set(re.findall("`([A-Z]+)`:", life)) == {phase.name for phase in MovePhase}


def test_the_documented_results_are_those_of_the_code() -> None:
    assert sorted(cells[1] for cells in ANSWERS) == sorted(f"`{result}`" for result in EvictionResult)


@pytest.mark.parametrize("cells", ANSWERS, ids=lambda cells: cells[1])
def test_the_documented_reasons_and_consequences_are_those_of_the_code(cells: list[str]) -> None:
    answer = Answer(result=EvictionResult(cells[1].strip("`")))
    assert cells[2] == (f"`{answer.held.reason}`" if answer.held else "")
    assert ("in flight" in cells[3]) == answer.may_have_evicted


def test_the_documented_outcomes_are_those_of_the_code() -> None:
    assert all(f"`{outcome}`" in PAGE for outcome in Outcome)


def test_the_documented_numbers_are_those_of_the_code() -> None:
    times = LeaseTimes()
    assert f"| {UNCONFIRMED_SECONDS:.0f} s, longer" in PAGE
    assert f"| {STEP_SECONDS:.0f} s each |" in PAGE
    assert timedelta(hours=1).total_seconds() == TERMINATION_SECONDS
    assert f"stops after {times.renew_deadline_seconds:.0f} s" in PAGE
    assert f"wait for {times.lease_seconds} s" in PAGE
    assert f"within {times.retry_seconds * 1.2:g} s" in PAGE
    assert "a minute, doubling up to four hours, with up to a fifth" in PAGE
    assert (PAUSE.first_seconds * FLOOR, PAUSE.seconds(7) * FLOOR) == (7.5, 8 * 60)
    assert f"{CERTAIN_SECONDS:.0f} s after the last\nrequest, and {CERTAIN_SECONDS:.0f} s after the Lease" in PAGE
    assert f"After {STALE_SECONDS:.0f} s of silence it evicts nothing" in OPERATIONS
    assert f"for an eviction after {TIMEOUT_SECONDS:.0f} s" in REAL
    assert f"plan is more than {OLD_SECONDS:.0f} s old" in PAGE
    assert f"could not be read for {CONFIRMED_SECONDS:.0f} s" in PAGE
    assert f"more than {MOST_CONTROLLERS:,} controllers, or they can't be read within {READING_SECONDS:.0f} s" in PAGE
    assert f"none has appeared after {LATE_SECONDS:.0f} s, Respread asks" in PAGE
    assert f"sends the same eviction again every {UNANSWERED_SECONDS:.0f} s" in PAGE
    assert f"watched for another {STEADY_SECONDS:.0f} s" in PAGE
    assert (*PAUSE, JITTER) == (60, 4 * 3600, 0.2)
    for words in (
        "not chosen again for a second",
        "more moves are chosen than can be sent within about four seconds",
        "begins with five moves in flight",
        "An outcome counts for an hour, a failure for a day",
        "share a fifth of",
        "for a minute, twice as long after each further round, up to an hour",
        "older than an hour are forgotten",
    ):
        assert words in PAGE
    assert f"the pause doubles each time, up to {refusals.PAUSE.longest_seconds:.0f} s" in PAGE
    assert (refusals.PAUSE.first_seconds, BACKLOG_SECONDS, FEW, 5 * UNPROVEN_SHARE) == (1, 4, 5, 1)
    assert (VALID_SECONDS, FAILED_SECONDS) == (3600, 24 * 3600)
    assert f"less than {ROUND.total_seconds():.0f} s apart are one round, for at most a minute. From the second" in PAGE
    assert (LONGEST_ROUND.total_seconds(), REPEATED, *WAIT, FORGOTTEN.total_seconds()) == (60, 2, 60, 3600, 3600)
    assert f"not due yet for at most {LAST_SECONDS:.0f} s" in OPERATIONS
    assert "again after 2 s, 4 s, … 60 s" in OPERATIONS
    assert tuple(FAILURE_PAUSE) == (2, 60)
    assert f"Liveness fails after {LOOP_LIMIT_SECONDS:.0f} s" in OPERATIONS
    assert f"writes {MOST_AT_ONCE} statuses" in OPERATIONS
    assert f"tries again after {LEAST_INTERVAL_SECONDS:.0f} s" in OPERATIONS
