"""The page docs/compare.md: the outcome of each world, and the results in which the descheduler was better."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from bench.balancing import Outcome
from bench.peer import VERSION
from respread import __version__
from respread_sandbox.binaries import NEWEST
from tests.generated_parts import GeneratedParts

PAGE: Final = Path(__file__).parents[2] / "docs" / "compare.md"
PARTS: Final = GeneratedParts("make compare")
RESULTS: Final = "results"
BETTER: Final = "better"
WORLDS: Final = "worlds"
_COLUMNS: Final = (
    "world",
    "program",
    "evictions (fewest)",
    "violated: first → end (least)",
    "Pending at the end",
    "refused",
    "restored after",
    "CPU",
    "memory",
)
_NAME: Final = re.compile(r"^(?:\| |- \*\*)([a-z0-9-]+)(?: \||\*\*:)", re.MULTILINE)

Lines = dict[str, list[str]]
"""The lines of a part about each world, by the world's name."""


class Report(NamedTuple):
    """The report of a run on a page."""

    made_by: str
    """The date, the machine and the versions."""
    results: Lines
    better: Lines


def made_by() -> str:
    """Return the text of the page about the date and the versions."""
    today = datetime.now(UTC).date().isoformat()
    processors = len(os.sched_getaffinity(0))
    return (
        f"Run on {today} (UTC) on {processors} processors: Respread {__version__}, descheduler {VERSION}, Kubernetes"
        f" {NEWEST.kubernetes_version}.\n"
    )


def report_of(outcomes: Mapping[str, Sequence[Outcome]]) -> Report:
    """Return the report of the worlds that were just run. If both sides ran, Respread's outcome is first."""
    results = {world: [row(world, each) for each in of] for world, of in outcomes.items()}
    told = {world: "; ".join(_better(*of)) for world, of in outcomes.items()}
    better = {world: [f"- **{world}**: {words}.\n"] for world, words in told.items() if words}
    return Report(made_by(), results, better)


def read(page: str) -> Report:
    """Return the report on a page."""
    results, better = (PARTS.read(name, page) for name in (RESULTS, BETTER))
    first, *_ = results.splitlines(keepends=True)
    return Report(first, _by_world(results), _by_world(better))


def merged(before: Report, now: Report) -> Report:
    """Return a report with the new worlds and the earlier ones that were run in the same way."""
    if before.made_by != now.made_by:
        return now
    return Report(
        now.made_by,
        before.results | now.results,
        {world: lines for world, lines in before.better.items() if world not in now.results} | now.better,
    )


def written(page: str, report: Report, about: Mapping[str, str]) -> str:
    """Return a page with a report.

    Args:
        page: the page's text.
        report: the report.
        about: the description of every world, in order.
    """
    worlds = [f"| {name} | {text} |\n" for name, text in about.items()]
    page = PARTS.write(page, WORLDS, "".join(["| world | what is hard |\n", "|---|---|\n", *worlds]))
    page = PARTS.write(page, RESULTS, table(report, about))
    return PARTS.write(page, BETTER, "".join(line for name in about for line in report.better.get(name, ())))


def table(report: Report, worlds: Iterable[str]) -> str:
    """Return the table, with the worlds in their order."""
    lines = [line for name in worlds for line in report.results.get(name, [_cells(name, "not run")])]
    return "".join([report.made_by, "\n", _cells(*_COLUMNS), "|---" * len(_COLUMNS), "|\n", *lines])


def row(world: str, outcome: Outcome) -> str:
    """Return the line of the table for the outcome of one side in a world."""
    return _cells(
        world,
        "Respread" if outcome.side == "respread" else outcome.side,
        _of_fewest(outcome),
        f"{outcome.violated:,} → {outcome.still_violated:,} ({outcome.least_violated:,})",
        f"{outcome.pending:,}",
        f"{outcome.refused:,}",
        _seconds(outcome.done_seconds),
        f"{outcome.cost.cpu_seconds:.2f} s",
        f"{outcome.cost.peak_mib:.0f} MiB",
    )


def _better(ours: Outcome, peers: Outcome | None = None) -> Iterator[str]:
    """Yield the columns of the table in which the descheduler was better.

    Fewer violations and evictions are not better if they leave pods Pending.
    """
    if peers is None:
        return
    as_much = peers.still_violated <= ours.still_violated and peers.pending <= ours.pending
    if peers.still_violated < ours.still_violated and as_much:
        yield f"{peers.still_violated:,} violated in the end instead of {ours.still_violated:,}"
    if peers.pending < ours.pending:
        yield f"{peers.pending:,} Pending in the end instead of {ours.pending:,}"
    if peers.evictions - peers.fewest < ours.evictions - ours.fewest and as_much:
        yield f"{_of_fewest(peers)} evictions instead of {_of_fewest(ours)}"
    if peers.refused < ours.refused:
        yield f"{peers.refused:,} refused evictions instead of {ours.refused:,}"
    if peers.done_seconds is not None and (ours.done_seconds is None or peers.done_seconds < ours.done_seconds):
        yield f"restored after {_seconds(peers.done_seconds)} instead of {_seconds(ours.done_seconds)}"
    if peers.cost.cpu_seconds < ours.cost.cpu_seconds:
        yield f"{peers.cost.cpu_seconds:.2f} s of CPU instead of {ours.cost.cpu_seconds:.2f} s"
    if round(peers.cost.peak_mib) < round(ours.cost.peak_mib):
        yield f"{peers.cost.peak_mib:.0f} MiB instead of {ours.cost.peak_mib:.0f} MiB"


def _of_fewest(outcome: Outcome) -> str:
    return f"{outcome.evictions:,} ({outcome.fewest:,})"


def _seconds(seconds: float | None) -> str:
    return "not" if seconds is None else f"{seconds:.1f} s"


def _cells(*cells: str) -> str:
    return f"| {' | '.join((*cells, *[''] * (len(_COLUMNS) - len(cells))))} |\n"


def _by_world(part: str) -> Lines:
    """Return the lines of a part about a world with its outcome."""
    found: Lines = {}
    for line in part.splitlines(keepends=True):
        name = _NAME.match(line)
        if name is not None and name[1] != _COLUMNS[0] and "| not run |" not in line:
            found.setdefault(name[1], []).append(line)
    return found
