"""Measures a program that restores the spread of a cluster: its evictions, time and cost."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from bench.judge import Judge, Key
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
    """The time until only unavoidable violations were left and every pod stayed Ready; None if never. After a change,
    evicted pods may still be terminating."""
    cost: Cost
    """The cost until then, but at least of the minimum time; or the cost until the bench gave up. The CPU is counted
    from the change if there was one."""
    pending: int
    still_violated: int
    first_seconds: float
    """The time until the first eviction; 0 if there was none."""
    last_seconds: float = 0.0
    """The time until the last eviction."""


class Change(NamedTuple):
    """A change of the cluster while a program runs."""

    at: float
    """When it began, by `time.monotonic`."""
    cost: Cost
    """The cost of the program until then."""
    wanted: Mapping[Key, int]
    """The number of pods of each workload afterwards."""


def watch(
    side: Side,
    process: subprocess.Popen[Any],
    judge: Judge,
    patience: Patience,
    say: Callable[[str], None],
    *,
    fewest: int,
    least_violated: int = 0,
    change: Change | None = None,
) -> Outcome:
    """Watch a program until it is done or the patience ends.

    Args:
        side: the side.
        process: the program.
        judge: the judge of the cluster.
        patience: how long the program is watched.
        say: called with the current state every 10 s.
        fewest: the number of sufficient evictions.
        least_violated: the number of constraints that can't be restored.
        change: what changed while the program was running; None if it was just started.
    """
    start = change.at if change else time.monotonic()
    cpu_before = change.cost.cpu_seconds if change else 0.0
    violated = len(judge.violated())
    done: tuple[float, Cost] | None = None
    cost, told = Cost(0, 0), 0.0
    while (now := time.monotonic() - start) < patience.longest_seconds:
        if process.poll() is not None:
            raise SystemExit(f"it ended with exit code {process.returncode}; see its log")
        cost = cost_of(process.pid)
        cost = cost._replace(cpu_seconds=cost.cpu_seconds - cpu_before)
        settled = judge.has_ready(change.wanted) if change else judge.all_ready()
        if not settled or len(judge.violated()) > least_violated:
            done = None
        elif done is None:
            done = (now, cost)
        elif now <= patience.least_seconds:
            done = (done[0], cost)
        elif now - done[0] > patience.stays_seconds:
            break
        if now - told > TELL_SECONDS:
            told = now
            so_far = f"{len(judge.evicted_at()):,} evictions, {len(judge.violated()):,} violated"
            say(f"{now:.0f} s: {so_far}, {cost.cpu_seconds:.1f} s CPU")
        time.sleep(POLL_SECONDS)
    evicted_at = [at - start for at in judge.evicted_at() if at >= start]
    return Outcome(
        side=side,
        fewest=fewest,
        violated=violated,
        least_violated=least_violated,
        evictions=len(judge.evicted_at()),
        refused=judge.refused(),
        done_seconds=done[0] if done else None,
        cost=done[1] if done else cost,
        pending=judge.pending(),
        still_violated=len(judge.violated()),
        first_seconds=min(evicted_at, default=0.0),
        last_seconds=max(evicted_at, default=0.0),
    )
