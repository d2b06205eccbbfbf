"""Measures a program that has nothing to do when the cluster changes under it."""

from __future__ import annotations

import math
import shutil
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NamedTuple

from bench.balancing import Change, Outcome, Patience, watch
from bench.busy_world import World, change, filled, lose_zones, quiet
from bench.limits import AtOnce
from bench.sides import (
    FAST_LIMITS,
    HARD,
    HARD_AND_SOFT,
    OURS,
    Side,
    cost_of,
    has_looked,
    order_evictions,
    running,
    stored_policy,
)
from respread.api.fields import parse_duration
from respread_sandbox import Binaries
from tests.processes import wait_until

LATE_SECONDS: Final = 2.0
"""How much later than the pods themselves need, the control plane may let replacements become Ready: a second for the
whole seconds that pods store, and as much for controllers and the scheduler."""


class Live(NamedTuple):
    """The result of one side."""

    outcome: Outcome
    changing_seconds: float
    """The time until the change was complete: the last pod was scaled down, or the last node could take pods."""
    quiet_seconds: float
    rounds: int
    replacement_seconds: float
    used: float | None
    """The share of the possible evictions in flight that were, while some were left; None if one round is enough."""

    @property
    def ideal_seconds(self) -> float:
        """The time from the change in which a program is done that uses all that the limits allow."""
        return self.changing_seconds + self.quiet_seconds + self.rounds * self.replacement_seconds


def measure(
    side: Side,
    world: World,
    patience: Patience,
    *,
    limits: Mapping[str, Any] | None = FAST_LIMITS,
    peer_client_limits: bool = True,
    keep_logs: bool = False,
    binaries: Binaries | None = None,
) -> Live:
    """Start a control plane and one side, wait until it has nothing to do, change the cluster, and return the result.

    Args:
        side: the side.
        world: the cluster, and how it changes.
        patience: how long the side is watched.
        limits: the limits of Respread's policy; None for its defaults, also of its quiet period. The side `evictions`
            keeps them too.
        peer_client_limits: whether the peer's limit of 5 requests a second is raised.
        keep_logs: whether the side's log is kept and its path printed.
        binaries: the programs of the control plane; by default they are found or built.
    """

    def say(line: str) -> None:
        print(f"{side}: {line}", file=sys.stderr, flush=True)

    directory = Path(tempfile.mkdtemp(prefix="bench-live-"))
    hurried, limits = limits is not None, limits or {}
    with filled(world, say, binaries=binaries) as (sandbox, judge):
        spec = stored_policy(sandbox, limits, hurried=hurried)
        smallest, ordered = min(world.in_the_end().values()), world.kind == "OrderedReady"
        at_once = AtOnce.of(spec["limits"], smallest, world.max_unavailable, ordered=ordered)
        with running(
            side,
            sandbox,
            directory,
            limits=limits,
            constraints=HARD_AND_SOFT if world.soft else HARD,
            peer_client_limits=peer_client_limits,
            hurried=hurried,
        ) as process:
            say(f"it is process {process.pid}; its log is in {directory}")
            wait_until(lambda: has_looked(side, sandbox, directory), f"{side} to look at the cluster")
            if world.outage:
                say("removing zones …")
                lose_zones(sandbox, judge, world)
            say(f"the control plane uses {quiet(sandbox):.2f} cores; changing the cluster …")
            judge.before_change()
            began = Change(time.monotonic(), cost_of(process.pid), world.in_the_end())
            change(sandbox, judge, world)
            changed_at = time.monotonic()
            if side == "evictions":
                wait_until(lambda: len(judge.staying()) == sum(began.wanted.values()), "the pods to be scaled down")
                order_evictions(process, judge.victims(), at_once)
            outcome = watch(side, process, judge, patience, say, fewest=0, change=began)
        moves = judge.fewest(judge.left_by_change())
        if not world.zones_back:
            changed_at = max(judge.deleted_by_change())
        quiet_seconds = parse_duration(spec["quietPeriod"]).total_seconds() if side in OURS else 0.0
        rounds = at_once.rounds(moves)
        used = at_once.used(moves, judge.flights(), changed_at + quiet_seconds) if rounds > 1 else None
        live = Live(
            outcome._replace(fewest=sum(moves.values()), violated=sum(map(bool, moves.values()))),
            changing_seconds=changed_at - began.at,
            quiet_seconds=quiet_seconds,
            rounds=rounds,
            replacement_seconds=min(judge.replacement_seconds(), _slowest(world)),
            used=used,
        )
    if keep_logs:
        say(f"its log is kept in {directory}")
    else:
        shutil.rmtree(directory)
    return live


def _slowest(world: World) -> float:
    """Return the longest time that a replacement may need: a StatefulSet creates it when the evicted pod is gone."""
    stopping = 0.0 if world.kind == "Deployment" else world.stop_seconds
    return math.fsum((stopping, world.ready_seconds, LATE_SECONDS))
