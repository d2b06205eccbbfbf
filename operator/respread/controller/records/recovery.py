"""Recorded moves in flight: the next leader follows them to their outcome.

Groups that a move did not improve back off in the next process too. Without this, a crash at every start could evict
another pod each time. `moves.codec` says what is recorded.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import NamedTuple

import msgspec

from respread.api.record import Recorded
from respread.clock_reading import ClockReading
from respread.cluster.state import ClusterSnapshot
from respread.controller.records.checkpoint import without_one
from respread.eviction.limits.limiter import Limiter
from respread.eviction.pacing import Pace
from respread.moves.codec import by_name, remembered_moves
from respread.moves.entry import MoveEntry, MovePhase
from respread.moves.hour import HOUR_SECONDS, MINUTE_SECONDS
from respread.moves.ledger import Ledger
from respread.planning.plan import Move
from respread.planning.victims.budgets import BudgetLedger, why_no_budget
from respread.planning.victims.controllers import siblings_of
from respread.planning.victims.policies import PolicySetting
from respread.spread.index import Spread


class AskingRules(NamedTuple):
    """What decides whether a recovered move may be sent again, because a record is not a plan of ours."""

    setting: PolicySetting
    limiters: tuple[Limiter, ...]
    now: datetime
    """With a time zone."""

    def allow(self, entries: Iterable[MoveEntry], snapshot: ClusterSnapshot) -> frozenset[str]:
        """Return the UIDs of the pods that could be planned with the current policies, protection and limits.

        Pods that their controllers have created since don't count as not Ready, because they are replacements.
        """
        index, protections, budgets = self.setting.index, self.setting.protections, BudgetLedger(snapshot)

        def may_go(move: Move) -> bool:
            policies = index.in_namespace(move.pod.namespace, snapshot.namespaces)
            policy = policies.governance(move.pod.labels).policy
            return (
                policy is not None
                and policy.name == move.policy
                and policy.name in protections
                and protections[policy.name].of_pod(move.pod, self.now) is None
                and why_no_budget(policy.spec.victims, budgets.budgets_of(move.pod)) is None
            )

        asked = [entry for entry in entries if may_go(entry.move)]
        replacements = frozenset(
            pod.uid for entry in asked for pod in siblings_of(snapshot, entry.move.pod) if pod.uid not in entry.known
        )
        pace = Pace(snapshot=snapshot, limiters=self.limiters, replacements=replacements, now=self.now.timestamp())
        return frozenset(move.pod.uid for move in pace.of([entry.move for entry in asked]).now)


def resumed(
    known: Ledger,
    records: Mapping[str, Recorded],
    snapshot: ClusterSnapshot,
    spread: Spread,
    rules: AskingRules,
    moment: ClockReading,
) -> Ledger:
    """Return exactly the moves that are in flight according to the policies' records.

    Args:
        known: the moves known here. Those that are no longer in a record were followed to their end by others.
        records: by the policies' names.
        snapshot: the cluster as the watch shows it.
        spread: its spread groups.
        rules: decide whether those that may not have been made may be sent again.
        moment: now.
    """
    entries = list(remembered_moves(records, snapshot, by_name(spread.by_namespace), moment, known.patience))
    allowed = rules.allow(entries, snapshot)
    return known.resumed(msgspec.structs.replace(entry, ours=entry.uid in allowed) for entry in entries)


def in_doubt(ledger: Ledger, records: Mapping[str, Recorded], now: float) -> tuple[Move, ...]:
    """Return the moves that a former leader may not have made and whose counts the records contain.

    Args:
        ledger: the moves according to the policies' records.
        records: by the policies' names. A move that is known here may have been made for another policy than the
            recorded one of the same pod.
        now: seconds since the epoch.
    """
    listed = {name: {each.uid for each in record.moves_in_flight} for name, record in records.items()}
    # The minute of the count may differ from that of the move by one, and must be within the last hour.
    since = now - HOUR_SECONDS + 2 * MINUTE_SECONDS
    return tuple(
        entry.move
        for entry in ledger.in_flight
        if entry.phase <= MovePhase.SENT and entry.sent_time > since and entry.uid in listed.get(entry.move.policy, ())
    )


def without(doubtful: Iterable[Move], records: Mapping[str, Recorded], now: float) -> dict[str, Recorded]:
    """Return the policies' records without the counts of some moves for the limits of an hour.

    Args:
        doubtful: the moves; see `in_doubt`.
        records: by the policies' names.
        now: seconds since the epoch.
    """
    left = dict(records)
    for move in doubtful:
        left[move.policy] = without_one(left[move.policy], move.groups, now)
    return left
