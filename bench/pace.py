"""bench/pace: how fast a spread is restored where pods take time to stop and to become Ready, within limits.

    python -m bench.pace [--worlds slow-stop one-large] [--only respread peer plain] [--small] [--judge]

Each program runs on a real control plane of its own and has nothing to do, until workloads are scaled down or zones
come back. All times and the CPU are counted from that change. The cluster is balanced when every constraint holds and
each workload has all its pods, all Ready; evicted pods may still be terminating.

The ideal time is computed from limits, budgets and the time until a replacement is Ready (bench/limits.py):

    time of the change + quietPeriod + rounds * time until Ready

where a round is as many evictions as may be in flight at once; in its first one, at most five of a workload. The time
until Ready is the median of those observed, but at most what the pods themselves take and 2 s. "limits used" is the
share of the possible evictions in flight that were, from the end of the quiet period until the last eviction, where
more than one round is needed.

The programs are Respread, its peer as in bench/busy, and evictions alone: a process gets the names of the fewest
sufficient victims and evicts them as fast as the same limits allow, without a quiet period.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator, Mapping
from typing import Final

from bench.balancing import Patience
from bench.busy import BUSY_SIDES
from bench.busy_world import World
from bench.live import Live, measure
from bench.peer import find_or_build
from bench.rows import Row, parser_for, print_rows
from bench.sides import FAST_LIMITS, SIDES, Side

PACE_SIDES: Final[dict[str, Side]] = {**SIDES, "plain": BUSY_SIDES["evictions"]}
SLOW_START: Final = World(nodes=30, zones_back=2, deployments=3, replicas=30, stop_seconds=20)
ZONE_AND_HOSTNAME: Final = World(
    nodes=30, zones_back=2, deployments=2, replicas=60, ready_seconds=5, stop_seconds=10, hostname=True
)
STATEFUL: Final = World(nodes=18, zones_back=1, deployments=6, replicas=9, ready_seconds=5, stop_seconds=5)
WORLDS: Final = {
    "slow-stop": World(nodes=30, deployments=30, replicas=12, stop_seconds=60),
    "slow-start-10": SLOW_START._replace(ready_seconds=10),
    "slow-start-30": SLOW_START._replace(ready_seconds=30),
    "one-large": World(nodes=40, zones=4, zones_back=3, deployments=1, replicas=120, ready_seconds=3),
    "zone-and-hostname": ZONE_AND_HOSTNAME,
    "soft": ZONE_AND_HOSTNAME._replace(soft=True),
    "zone-outage": World(
        nodes=60,
        zones_back=1,
        outage=True,
        deployments=40,
        replicas=50,
        ready_seconds=5,
        stop_seconds=10,
        max_unavailable="10%",
    ),
    "namespaces": World(
        nodes=30,
        namespaces=6,
        zones_back=1,
        outage=True,
        deployments=12,
        replicas=24,
        hostname=True,
        ready_seconds=5,
        stop_seconds=10,
        max_unavailable="25%",
    ),
    "stateful-parallel": STATEFUL._replace(kind="Parallel"),
    "stateful-ordered": STATEFUL._replace(kind="OrderedReady"),
    "default-limits": World(
        nodes=18, namespaces=2, zones_back=1, deployments=12, replicas=12, ready_seconds=5, stop_seconds=10
    ),
}
DEFAULT_LIMITS: Final = "default-limits"
"""The world in which Respread's policy says nothing of limits and quietPeriod."""
LONGEST_SECONDS: Final = 240.0
OVER_IDEAL: Final = 1.15
USED: Final = 0.9
HEADER: Final = (
    "| world | program | evictions (fewest) | balanced after | ideal | first and last eviction after | limits used "
    "| CPU | memory | Pending | refused |\n|---|---|---|---|---|---|---|---|---|---|---|"
)


def main() -> int:
    """Measure the programs in each world, and print tables."""
    parser = parser_for(__doc__)
    parser.add_argument("--worlds", nargs="+", choices=tuple(WORLDS), default=tuple(WORLDS))
    parser.add_argument("--only", nargs="+", choices=tuple(PACE_SIDES), default=tuple(PACE_SIDES))
    parser.add_argument("--small", action="store_true", help="few pods, which stop and become Ready soon")
    parser.add_argument("--longest", type=float, default=LONGEST_SECONDS, help="seconds until a program is given up on")
    parser.add_argument("--keep-logs", action="store_true")
    parser.add_argument("--judge", action="store_true", help="exit with 1 if a target is missed")
    arguments = parser.parse_args()
    sides = [PACE_SIDES[name] for name in arguments.only]
    if "descheduler" in sides:
        find_or_build()
    print(HEADER, flush=True)
    rows: list[Row] = []
    for name in arguments.worlds:
        world = smaller(WORLDS[name]) if arguments.small else WORLDS[name]
        limits = None if name == DEFAULT_LIMITS else FAST_LIMITS
        found: dict[Side, Live] = {}
        for side in sides:
            patience = Patience(arguments.longest)
            found[side] = measure(side, world, patience, limits=limits, keep_logs=arguments.keep_logs)
            print(table_row(name, found[side]), flush=True)
        rows += targets(name, found)
    if rows:
        print_rows("\ntargets for Respread:", rows)
    return int(arguments.judge and not all(row.is_met for row in rows))


def smaller(world: World) -> World:
    """Return a world like this one with few pods, which stop and become Ready soon."""
    return world._replace(
        nodes=2 * world.zones,
        deployments=min(world.deployments, 6),
        replicas=min(world.replicas, 12),
        ready_seconds=min(world.ready_seconds, 1),
        stop_seconds=min(world.stop_seconds, 10),
    )


def table_row(name: str, live: Live) -> str:
    """Return the result of one program as a row of the Markdown table."""
    outcome = live.outcome
    done = "not" if outcome.done_seconds is None else f"{outcome.done_seconds:.1f} s"
    cells = (
        name,
        outcome.side,
        f"{outcome.evictions:,} ({outcome.fewest:,})",
        done,
        "-" if outcome.side == "descheduler" else f"{live.ideal_seconds:.1f} s",
        f"{outcome.first_seconds:.1f} s, {outcome.last_seconds:.1f} s",
        "-" if live.used is None or outcome.side == "descheduler" else f"{live.used:.0%}",
        f"{outcome.cost.cpu_seconds:.2f} s",
        f"{outcome.cost.peak_mib:.0f} MiB",
        str(outcome.pending),
        str(outcome.refused),
    )
    return f"| {' | '.join(cells)} |"


def targets(name: str, found: Mapping[Side, Live]) -> Iterator[Row]:
    """Yield Respread's figures in one world with their targets.

    The peer's time is a target only where Respread's limits allow that time, and both programs restored the spread.
    """
    if "respread" not in found:
        return
    ours = found["respread"]
    outcome, ideal = ours.outcome, ours.ideal_seconds
    done = outcome.done_seconds or math.inf
    yield Row(f"{name}: time over the ideal", done / ideal, "", OVER_IDEAL)
    if ours.used is not None:
        yield Row(f"{name}: limits used", ours.used, "", USED, at_most=False)
    yield Row(f"{name}: evictions over the fewest", outcome.evictions - outcome.fewest, "", 0)
    yield Row(f"{name}: still violated, Pending, refused", _wrong(ours), "", 0)
    peers = found["descheduler"].outcome.done_seconds if "descheduler" in found else None
    if peers is not None and peers >= ideal:
        yield Row(f"{name}: time over the peer's", done / peers, "", 1)


def _wrong(live: Live) -> int:
    return live.outcome.still_violated + live.outcome.pending + live.outcome.refused


if __name__ == "__main__":
    sys.exit(main())
