"""bench/busy: a busy cluster is scaled down at once, and Respread or the descheduler restores the spread.

    python -m bench.busy [--live] [--small] [--namespaces 40] [--deployments 12 --replicas 500] [--hostname]

Each side has its own real control plane. Deployments are scaled down from 15 to 5…9 replicas. The side is started when
no pod is terminating or Pending any more; with --live, it runs and has nothing to do before the scale-down. The result
is judged by the pods that the API server shows: the evictions, and the fewest sufficient ones, which the bench computes
itself; the time until every constraint held and every pod was Ready; the violated constraints and Pending pods at the
end. CPU (user and system) and peak memory are those of the whole process until then; with --live, times and CPU are
counted from the scale-down.

With --live there is also Respread with prevention: before the scale-down, it has told the ReplicaSets which pods to
delete first.

Another run shows the speed of the cluster itself: a process gets the names of the needed evictions and requests all of
them at once (with --live, as far as the limits allow).

The peer is kubernetes-sigs/descheduler with RemovePodsViolatingTopologySpreadConstraint every 5 s, without limits on
evictions, with the default of topologyBalanceNodeFit, and with 100 requests a second instead of the default 5
(--peer-default-qps).
"""

from __future__ import annotations

import argparse
import math
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench import rows
from bench.balancing import Outcome, Patience, watch
from bench.busy_world import World, at_rest
from bench.limits import AtOnce
from bench.live import measure as measure_live
from bench.peer import find_or_build
from bench.sides import FAST_LIMITS, OURS, SIDES, Side, order_evictions, running, stored_policy

BUSY_SIDES: Final[dict[str, Side]] = {**SIDES, "evictions": "evictions"}
LIVE_SIDES: Final[dict[str, Side]] = {"prevention": "prevention", **BUSY_SIDES}
PATIENCE: Final = Patience(longest_seconds=240.0)
READY_SECONDS_WITH_LIMITS: Final = 2.0
PACE_TARGET: Final = 0.9
CPU_OVER_PEERS: Final = 1.0
LIVE_TIME_OVER_PEERS: Final = 0.7
LIVE_MIB: Final = 100.0


class Row(NamedTuple):
    """The result of one side."""

    outcome: Outcome
    ideal_seconds: float
    """The least possible time within the policy's limits; 0 without limits."""
    replacement_seconds: float

    def render(self) -> str:
        """The line of the table."""
        side, cost, seconds = self.outcome.side, self.outcome.cost, self.outcome.done_seconds
        balanced = f"{seconds:.1f} s" if seconds is not None else "not"
        return (
            f"{side:<12} {self.outcome.violated:>8,} {self.outcome.fewest:>7,} {self.outcome.evictions:>9,} "
            f"{balanced:>9} {self.outcome.first_seconds:>8.1f} s {cost.cpu_seconds:>7.2f} s "
            f"{cost.peak_mib:>8.0f} MiB {self.outcome.pending:>7,} {self.outcome.still_violated:>8,}"
        )


HEADER: Final = (
    f"{'':<12} {'violated':>8} {'fewest':>7} {'evictions':>9} {'balanced':>9} {'first':>10} {'CPU':>9} "
    f"{'memory':>12} {'Pending':>7} {'violated':>8}\n"
    f"{'':<12} {'at first':>8} {'':>7} {'':>9} {'after':>9} {'after':>10} {'':>9} "
    f"{'peak':>12} {'at end':>7} {'at end':>8}"
)


def main() -> int:
    """Measure the sides, and print a table."""
    arguments = _arguments()
    sides = [LIVE_SIDES[only] for only in arguments.only or (LIVE_SIDES if arguments.live else BUSY_SIDES)]
    if arguments.hostname and "evictions" in sides:
        sides.remove("evictions")  # it supports only constraints over zones
    if "descheduler" in sides:
        find_or_build()
    world, limits = _world(arguments), {} if arguments.default_limits else FAST_LIMITS
    run = _measure_live if arguments.live else measure
    found = [
        run(
            side, world, limits=limits, peer_client_limits=not arguments.peer_default_qps, keep_logs=arguments.keep_logs
        )
        for side in sides
    ]
    started = "running before the scale-down" if arguments.live else "started after the scale-down"
    limited = "50 in flight" if limits else "the default limits"
    print(f"bench/busy: {world.describe()}, seed {world.seed}, {limited}, {started}\n{HEADER}")
    for row in found:
        print(row.render())
    for row in found[1:]:
        print(_ratios(found[0].outcome, row.outcome))
    for target in _targets([row.outcome for row in found], live=arguments.live):
        print(target.render())
    for row in found:
        if row.ideal_seconds and row.outcome.done_seconds is not None:
            share = row.ideal_seconds / (row.outcome.done_seconds - row.outcome.first_seconds)
            print(
                f"  the limits let it be done in {row.ideal_seconds:.1f} s from the first eviction (a replacement is "
                f"Ready after {row.replacement_seconds:.2f} s): {share:.0%} of that pace was reached"
                f" (≥ {PACE_TARGET:.0%} {'ok' if share >= PACE_TARGET else 'MISSED'})"
            )
    return 0


def measure(
    side: Side,
    world: World,
    *,
    limits: Mapping[str, Any] = FAST_LIMITS,
    peer_client_limits: bool = True,
    keep_logs: bool = False,
) -> Row:
    """Start a control plane, let one side restore the spread on it, and return the result.

    Args:
        side: the side.
        world: the cluster to set up and scale down.
        limits: the limits of Respread's policy; empty for its defaults.
        peer_client_limits: whether the peer's limit of 5 requests a second is raised.
        keep_logs: whether the side's log is kept and its path printed.
    """

    def say(line: str) -> None:
        print(f"{side}: {line}", file=sys.stderr, flush=True)

    directory = Path(tempfile.mkdtemp(prefix="bench-busy-"))
    with at_rest(world, say) as (sandbox, judge):
        fewest = judge.fewest()
        say(f"at rest: {len(judge.violated()):,} violated, {sum(fewest.values()):,} evictions needed; starting it …")
        with running(side, sandbox, directory, limits=limits, peer_client_limits=peer_client_limits) as process:
            say(f"it is process {process.pid}; its log is in {directory}")
            if side == "evictions":
                order_evictions(process, judge.victims(), None)
            outcome = watch(side, process, judge, PATIENCE, say, fewest=sum(fewest.values()))
        replacement = judge.replacement_seconds()
        smallest = min(world.in_the_end().values())
        rounds = AtOnce.of(stored_policy(sandbox, limits)["limits"], smallest).rounds(fewest)
        row = Row(outcome, 0.0 if limits or side != "respread" else rounds * replacement, replacement)
    if keep_logs:
        say(f"its log is kept in {directory}")
    else:
        shutil.rmtree(directory)
    return row


def _measure_live(
    side: Side, world: World, *, limits: Mapping[str, Any], peer_client_limits: bool, keep_logs: bool
) -> Row:
    """Return the result of one side that runs before the scale-down; the arguments are those of `measure`."""
    live = measure_live(
        side, world, PATIENCE, limits=limits, peer_client_limits=peer_client_limits, keep_logs=keep_logs
    )
    ideal = 0.0 if limits or side != "respread" else live.rounds * live.replacement_seconds
    return Row(live.outcome, ideal, live.replacement_seconds)


def _targets(outcomes: Sequence[Outcome], *, live: bool) -> Iterator[rows.Row]:
    by_side = {outcome.side: outcome for outcome in outcomes}
    peers = by_side.get("descheduler")
    for ours in (by_side[side] for side in OURS if side in by_side):
        if live:
            yield rows.Row(f"{ours.side}: memory", ours.cost.peak_mib, "MiB", LIVE_MIB)
        if peers:
            cpu_over_peers = ours.cost.cpu_seconds / peers.cost.cpu_seconds
            yield rows.Row(f"{ours.side}: CPU over the peer's", cpu_over_peers, "", CPU_OVER_PEERS)
        if live and peers and peers.done_seconds is not None:
            over_peers = (ours.done_seconds or math.inf) / peers.done_seconds
            yield rows.Row(f"{ours.side}: time over the peer's", over_peers, "", LIVE_TIME_OVER_PEERS)


def _ratios(ours: Outcome, others: Outcome) -> str:
    def ratio(mine: float | None, other: float | None) -> str:
        return f"{mine / other:.2f}" if mine is not None and other else "-"

    extra = " and ".join(f"{each.evictions / each.fewest:.3f}" if each.fewest else "-" for each in (ours, others))
    return (
        f"  {ours.side} over {others.side}: balanced {ratio(ours.done_seconds, others.done_seconds)}, CPU"
        f" {ratio(ours.cost.cpu_seconds, others.cost.cpu_seconds)}, memory"
        f" {ratio(ours.cost.peak_mib, others.cost.peak_mib)}; evictions over the fewest {extra}"
    )


def _world(arguments: argparse.Namespace) -> World:
    small: bool = arguments.small
    return World(
        nodes=arguments.nodes or (30 if small else 300),
        zones=3,
        namespaces=arguments.namespaces,
        deployments=arguments.deployments or (40 if small else 400),
        replicas=arguments.replicas or (12 if small else 15),
        hostname=arguments.hostname,
        ready_seconds=_ready_seconds(arguments),
        seed=arguments.seed,
    )


def _ready_seconds(arguments: argparse.Namespace) -> float:
    """Return how long pods take to become Ready, which is longer with limits, because limits wait for replacements."""
    if arguments.ready_seconds is not None:
        seconds: float = arguments.ready_seconds
        return seconds
    return READY_SECONDS_WITH_LIMITS if arguments.default_limits else 0.0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--live", action="store_true", help="start the program before the scale-down")
    parser.add_argument("--small", action="store_true", help="480 pods of 40 Deployments on 30 nodes")
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--namespaces", type=int, default=1, help="over which the Deployments are dealt out")
    parser.add_argument("--deployments", type=int)
    parser.add_argument("--replicas", type=int, help="of each Deployment before it is scaled down to 5/15…9/15 of it")
    parser.add_argument("--hostname", action="store_true", help="a constraint over hostnames beside, maxSkew 1 too")
    parser.add_argument(
        "--default-limits", action="store_true", help="the limits of a policy that says nothing of them"
    )
    parser.add_argument(
        "--ready-seconds", type=float, help="how long pods take to be Ready; 0 if left out, 2 with --default-limits"
    )
    parser.add_argument("--peer-default-qps", action="store_true", help="leave the peer at 5 requests a second")
    parser.add_argument("--only", choices=tuple(LIVE_SIDES), nargs="+", help="not all sides")
    parser.add_argument("--keep-logs", action="store_true")
    parser.add_argument("--seed", type=int, default=1)
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
