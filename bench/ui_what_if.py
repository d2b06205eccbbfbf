"""The part of bench/ui for simulations: how soon an outcome is shown, and whether the page stays smooth meanwhile."""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple

from bench.rows import Row
from bench.sides import cost_of
from tests.chromium import Tab

REPETITIONS: Final = 5
LETTERS: Final = 8
LETTER_SECONDS: Final = 0.2
REPLICAS: Final = 12
OUTCOME_SECONDS: Final = 2.0
INTERACTION_MILLISECONDS: Final = 100.0
FRAMES_PER_SECOND: Final = 30.0

SHOWN: Final = (
    "document.querySelector('.outcome').getAttribute('aria-busy') === 'false'"
    " && Boolean(document.getElementById('command')?.textContent.includes({words!r}))"
)
"""Whether the page shows the outcome of a command line with some words."""
NOTHING: Final = "document.querySelector('.outcome').textContent.startsWith('Nothing is changed yet')"
DRAINS: Final = "[...document.querySelectorAll('.nodes button')].filter((each) => each.id.startsWith('drain-'))"
ZONE_AWAY: Final = "document.querySelector('[id^=\"removeDomain-\"]').click()"


class Asked(NamedTuple):
    """The measured values."""

    first_seconds: float
    scale_seconds: list[float]
    scale_cpu_seconds: float
    """The mean CPU time of `respread ui`."""
    drain_seconds: list[float]
    drain_cpu_seconds: float
    letters_milliseconds: list[float]
    """The time from a typed letter until the frame with its effect, while a lost zone is simulated."""
    watched: dict[str, Any]
    """The frames meanwhile."""
    undo_seconds: float
    """The time from Undo, while the lost zone is still simulated, until the earlier outcome is shown again."""


async def ask_what_if(tab: Tab, pid: int) -> Asked:
    """Run simulations on a page that has made none before.

    Args:
        tab: the page, which shows the cluster.
        pid: the process of `respread ui`.
    """
    first = await _scale(tab, 1)
    before = cost_of(pid).cpu_seconds
    scaled = [await _scale(tab, number) for number in range(2, 2 + REPETITIONS)]
    between = cost_of(pid).cpu_seconds
    await _nothing(tab)
    drained = [await _drain(tab, number) for number in range(REPETITIONS)]
    after = cost_of(pid).cpu_seconds
    await tab.run("bench.watch()")
    await tab.run(ZONE_AWAY)
    letters = []
    for number in range(LETTERS):
        await asyncio.sleep(LETTER_SECONDS)
        letters.append(await tab.run(f"bench.timed(() => bench.set('node-search', 'node-{number}'))"))
    watched = await tab.run("bench.watchedUntilNow()")
    undo = f"document.getElementById('undo').click(), () => {_shown('--drain')} && !({_shown('--remove-domain')})"
    undone = await _seconds(tab, undo)
    return Asked(
        first,
        scaled,
        (between - before) / REPETITIONS,
        drained,
        (after - between) / REPETITIONS,
        letters,
        watched,
        undone,
    )


async def _scale(tab: Tab, app: int) -> float:
    """Open the view for a workload, scale it down, and return the seconds until the outcome is shown."""
    await _nothing(tab)
    workload = f"busy-{app}/deploy/app-{app}"
    await tab.run(f"location.hash = '#/what-if?workload={workload}'")
    await tab.wait_for(f"document.getElementById('replicas-{workload}')")
    shown = _shown(f"app-{app}={REPLICAS}")
    return await _seconds(tab, f"bench.set('replicas-{workload}', {REPLICAS}), () => {shown}")


async def _drain(tab: Tab, number: int) -> float:
    """Drain one more node, and return the seconds until the outcome is shown."""
    await tab.wait_for(f"{DRAINS}.length > {number}")
    name = (await tab.run(f"{DRAINS}[{number}].id")).removeprefix("drain-")
    taken = await _seconds(tab, f"document.getElementById('drain-{name}').click(), () => {_shown(f'--drain {name}')}")
    if number < REPETITIONS - 1:
        await _nothing(tab)
    return taken


async def _nothing(tab: Tab) -> None:
    """Undo all changes."""
    if not await tab.run("document.getElementById('reset') !== null"):
        return
    await tab.run("document.getElementById('reset').click()")
    await tab.wait_for(NOTHING)


async def _seconds(tab: Tab, act_and_condition: str) -> float:
    return float(await tab.run(f"bench.timed(() => {act_and_condition})")) / 1000


def _shown(words: str) -> str:
    return SHOWN.format(words=words)


def rows_of(asked: Asked, worst_second: float, longest_milliseconds: float) -> list[Row]:
    """Return the lines of the result.

    Args:
        asked: the measured values.
        worst_second: the fewest frames in any second of `watched`.
        longest_milliseconds: the longest time between two of these frames.
    """
    return [
        Row("what if: the first outcome", asked.first_seconds, "s"),
        Row(f"what if: a workload scaled, slowest of {REPETITIONS}", max(asked.scale_seconds), "s", OUTCOME_SECONDS),
        Row("  CPU of respread ui, mean", asked.scale_cpu_seconds, "s"),
        Row(f"what if: a node drained, slowest of {REPETITIONS}", max(asked.drain_seconds), "s", OUTCOME_SECONDS),
        Row("  CPU of respread ui, mean", asked.drain_cpu_seconds, "s"),
        Row(
            f"  a zone is taken away: a letter, slowest of {LETTERS}",
            max(asked.letters_milliseconds),
            "ms",
            INTERACTION_MILLISECONDS,
        ),
        Row("  meanwhile: frames in the worst second", worst_second, "/s", FRAMES_PER_SECOND, at_most=False),
        Row("  meanwhile: longest frame", longest_milliseconds, "ms"),
        Row("  undone before it is worked out", asked.undo_seconds, "s", OUTCOME_SECONDS),
    ]
