"""bench/compare measures real programs on small clusters of a real control plane, and reports their outcome."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.balancing import Outcome, Patience
from bench.compare.__main__ import SMALL, run
from bench.compare.stage import Stage
from bench.peer import is_built
from bench.sides import Side
from respread_sandbox import Binaries

PATIENCE = Patience(longest_seconds=120, least_seconds=8)


@pytest.fixture(scope="module")
def stage(binaries: Binaries) -> Iterator[Stage]:
    with Stage.started(binaries) as started:
        yield started


def assert_all_is_restored(outcome: Outcome) -> None:
    assert outcome.done_seconds is not None
    assert (outcome.still_violated, outcome.pending, outcome.refused) == (outcome.least_violated, 0, 0)
    assert 0 < outcome.first_seconds <= outcome.done_seconds
    assert outcome.cost.cpu_seconds > 0
    assert outcome.cost.peak_mib > 0


@pytest.mark.parametrize(
    "world", ["scale-down", *(pytest.param(each, marks=pytest.mark.long) for each in ("cordoned-zone", "outage"))]
)
def test_respread_restores_the_spread_with_the_fewest_evictions(stage: Stage, tmp_path: Path, world: str) -> None:
    outcome = run(stage, SMALL[world], "respread", PATIENCE, tmp_path)
    assert_all_is_restored(outcome)
    assert outcome.evictions == outcome.fewest > 0


def test_the_descheduler_is_measured_in_the_same_way(stage: Stage, tmp_path: Path) -> None:
    side: Side = "descheduler"
    if not is_built():
        pytest.skip(f"{side} is not built: `make peer` builds it")
    outcome = run(stage, SMALL["scale-down"], side, PATIENCE, tmp_path)
    assert_all_is_restored(outcome)
    assert outcome.evictions >= outcome.fewest > 0
