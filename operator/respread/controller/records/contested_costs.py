"""Contested pod deletion costs in records, for the next leader."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final

from respread.api.record import ContestedCosts, Recorded
from respread.prevention.contests import WAIT, Contest, Contested, Contests
from respread.prevention.prevention import CostClock

_LONGEST_WRITER: Final = 128


def contested_to_remember(contested: Iterable[Contested]) -> dict[str, tuple[ContestedCosts, ...]]:
    """Return what is recorded, by the policies' names, those that were lost most often first."""
    found: defaultdict[str, list[ContestedCosts]] = defaultdict(list)
    for replica_set, policy, contest in contested:
        found[policy].append(
            ContestedCosts(
                namespace=replica_set.namespace,
                kind=replica_set.workload.kind,
                name=replica_set.workload.name,
                replica_set=replica_set.controller.uid,
                writer=contest.writer[:_LONGEST_WRITER],
                times=contest.times,
                until=contest.until_time.replace(microsecond=0),
            )
        )
    return {
        policy: tuple(sorted(each, key=lambda one: (-one.times, one.namespace, one.name, one.replica_set)))
        for policy, each in found.items()
    }


def recalled_contests(records: Iterable[Recorded], moment: CostClock) -> Contests:
    """Return what an earlier leader has recorded. A time further away than any wait means that a clock was set."""
    return Contests(
        {each.replica_set: _recalled(each, moment) for record in records for each in record.contested_costs}
    )


def _recalled(each: ContestedCosts, moment: CostClock) -> Contest:
    left = (each.until - moment.time).total_seconds()
    wait_seconds = left if 0 < left <= WAIT.longest_seconds else 0.0
    return Contest(
        times=each.times,
        until=moment.now + wait_seconds,
        until_time=each.until,
        lost_at=moment.now,
        writer=each.writer,
    )
