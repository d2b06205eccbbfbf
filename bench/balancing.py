"""Measures a program that restores the spread of a cluster: its evictions, time and cost."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from bench.judge import Judge
from bench.sides import Cost, Side, cost_of

POLL_SECONDS: Final = 0.1
TELL_SECONDS: Final = 10.0


class Patience(NamedTuple):
    """How long a program is watched."""

    longest_seconds: float
    """The time after which the bench gives up."""
    stays_seconds: float = 6.0
    """How long the cluster must stay restored. It is longer than the descheduler's interval, to see an unnecessary
    cycle."""
    least_seconds: float = 0.0
    """The minimum time for a program, for clusters that may be restored from the start."""


class Outcome(NamedTuple):
    """The result of one side."""

    side: Side
    fewest: int
    """The number of sufficient evictions."""
    violated: int
    """The number of constraints violated at the start."""
    least_violated: int
    """The number of constraints that can't be restored."""
    evictions: int
    refused: int
    done_seconds: float | None
    """The time until only unavoidable violations were left and every pod stayed Ready; None if never."""
    cost: Cost
    """The time until then, but at least the minimum time; or the time until the bench gave up."""
    pending: int
    still_violated: int
    first_seconds: float
    """The time until the first eviction; 0 if there was none."""


def watch(
    side: Side,
    process: subprocess.Popen[Any],
    judge: Judge,
    patience: Patience,
    say: Callable[[str], None],
    *,
    fewest: int,
    least_violated: int = 0,
) -> Outcome:
    """Watch a program that was just started until it is done or the patience ends.

    Args:
        side: the side.
        process: the program.
        judge: the judge of the cluster.
        patience: how long the program is watched.
        say: called with the current state every 10 s.
        fewest: the number of sufficient evictions.
        least_violated: the number of constraints that can't be restored.
    """
    start = time.monotonic()
    violated = len(judge.violated())
    first: float | None = None
    done: tuple[float, Cost] | None = None
    cost, told = Cost(0, 0), 0.0
    while (now := time.monotonic() - start) < patience.longest_seconds:
        if process.poll() is not None:
            raise SystemExit(f"it ended with exit code {process.returncode}; see its log")
        cost = cost_of(process.pid)
        if first is None and judge.evictions:
            first = now
        if not judge.all_ready() or len(judge.violated()) > least_violated:
            done = None
        elif done is None:
            done = (now, cost)
        elif now <= patience.least_seconds:
            done = (done[0], cost)
        elif now - done[0] > patience.stays_seconds:
            break
        if now - told > TELL_SECONDS:
            told = now
            so_far = f"{judge.evictions:,} evictions, {len(judge.violated()):,} violated"
            say(f"{now:.0f} s: {so_far}, {cost.cpu_seconds:.1f} s CPU")
        time.sleep(POLL_SECONDS)
    return Outcome(
        side=side,
        fewest=fewest,
        violated=violated,
        least_violated=least_violated,
        evictions=judge.evictions,
        refused=judge.refused(),
        done_seconds=done[0] if done else None,
        cost=done[1] if done else cost,
        pending=judge.pending(),
        still_violated=len(judge.violated()),
        first_seconds=first or 0.0,
    )
