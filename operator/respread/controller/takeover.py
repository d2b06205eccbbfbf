"""Whether this replica acts: it leads, and knows everything that earlier leaders did.

It follows the moves in flight that the policies' records contain to their outcome. Groups that a move did not improve
back off here too. Without this, a crash at every start could evict another pod each time. `moves.codec` and
`records.codec` say what is recorded.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec

from respread.api.record import Recorded
from respread.cluster.state import ClusterSnapshot
from respread.controller.acting import Acting
from respread.controller.permission import Leading
from respread.controller.records.codec import without_one
from respread.eviction.limiter import Limiter
from respread.eviction.pacing import Pace
from respread.eviction.tallies import HOUR_SECONDS, MINUTE_SECONDS
from respread.kube.listing import ListError
from respread.kube.retry import Retry
from respread.moves.codec import by_name, recorded_moves
from respread.moves.entry import MovePhase
from respread.moves.ledger import Ledger
from respread.planning.plan import Move
from respread.planning.victims.budgets import BudgetBook, why_no_budget
from respread.planning.victims.policies import PolicySetting
from respread.planning.victims.protection import siblings_of
from respread.spread.index import Spread
from respread.telemetry.logs import get_logger
from respread.timing import ClockReading

_log: Final = get_logger(__name__)

LONGEST_PAUSE_SECONDS: Final = 5.0
"""The longest pause between attempts to read them."""


def resumed(
    known: Ledger,
    records: Mapping[str, Recorded],
    snapshot: ClusterSnapshot,
    spread: Spread,
    setting: PolicySetting,
    limiters: tuple[Limiter, ...],
    moment: ClockReading,
) -> Ledger:
    """Return exactly the moves that are in flight according to the policies' records.

    Those known here that are no longer in a record were followed to their end by others. Those that may not have been
    made may be sent again if they could be planned with the current policies, protection and limits, because a record
    is not a plan of ours. Pods that their controllers have created since don't count as not Ready: they are
    replacements.
    """
    budgets, time = BudgetBook(snapshot), moment.time_of_day

    def may_go(move: Move) -> bool:
        policies = setting.index.in_namespace(move.pod.namespace, snapshot.namespaces)
        policy = policies.governance(move.pod.labels).policy
        return (
            policy is not None
            and policy.name == move.policy
            and policy.name in setting.protections
            and setting.protections[policy.name].of_pod(move.pod, time) is None
            and why_no_budget(policy.spec.victims, budgets.budgets_of(move.pod)) is None
        )

    entries = list(recorded_moves(records, snapshot, by_name(spread.by_namespace), moment))
    asked = [entry for entry in entries if may_go(entry.move)]
    replacements = frozenset(
        pod.uid for entry in asked for pod in siblings_of(snapshot, entry.move.pod) if pod.uid not in entry.known
    )
    pace = Pace(snapshot=snapshot, limiters=limiters, replacements=replacements, now=time.timestamp())
    allowed = {move.pod.uid for move in pace.of([entry.move for entry in asked]).now}
    return known.resumed(msgspec.structs.replace(entry, ours=entry.uid in allowed) for entry in entries)


def in_doubt(ledger: Ledger, records: Mapping[str, Recorded], now: float) -> tuple[Move, ...]:
    """Return the moves that a former leader may not have made and whose counts the records contain.

    A move that is known here may have been made for another policy than the recorded one of the same pod. `now` is in
    seconds since the epoch.
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

    `now` is in seconds since the epoch.
    """
    left = dict(records)
    for move in doubtful:
        left[move.policy] = without_one(left[move.policy], move.groups, now)
    return left


class Takeover:
    """Starts each term with the contents of the policies' statuses and records."""

    def __init__(self, acting: Acting, leading: Leading, *, notify: Callable[[str], None]) -> None:
        """Start without a term. `notify` is called with a word for what must be tried again."""
        self._acting = acting
        self._leading = leading
        self._notify = notify
        self._retry = Retry(greatest_seconds=LONGEST_PAUSE_SECONDS)
        self._pausing = False
        """Whether the statuses could not be read, and are not read again yet."""
        self._term: int | None = None
        """The latest term in which this replica knew everything that was done before; None if there was none."""

    @property
    def acts(self) -> bool:
        """Whether this replica leads, in a term in which it knows everything that was done before."""
        return self._leading.leads() and self._leading.term() == self._term

    async def take_over(
        self,
        snapshot: ClusterSnapshot,
        spread: Spread,
        setting: PolicySetting,
        limiters: tuple[Limiter, ...],
        *,
        known: bool,
    ) -> int | None:
        """Return the term in which this replica leads and has taken over; None if it has not.

        A new leader takes over here, by reading the statuses. `known` says whether everything that the spread depends
        on has been requested. Nobody takes over before.
        """
        if not self._leading.leads():
            return None
        term = self._leading.term()
        if self._term == term:
            return term
        if not known or self._pausing:
            return None
        acting, journal = self._acting, self._acting.journal
        try:
            found = await acting.statuses.read()
        except ListError as error:
            pause = self._retry.failed()
            _log.warning(
                "Not leading yet: what was done before is not known", error=str(error), pause_seconds=round(pause, 1)
            )
            self._pausing = True
            asyncio.get_running_loop().call_later(pause, self._try_again)
            return None
        self._retry.succeeded()
        acting.statuses.begin(found.values())
        records = {name: each.record for name, each in found.items() if each.record is not None}
        moment = journal.moment()
        ledger = resumed(journal.ledger, records, snapshot, spread, setting, limiters, moment)
        doubtful = in_doubt(ledger, records, moment.time)
        evicted = {name: each.status.summary.evicted for name, each in found.items()}
        journal.history.recall(without(doubtful, records, moment.time), spread.by_namespace, evicted)
        journal.take_over(ledger, doubtful)
        self._term = term
        return term

    def _try_again(self) -> None:
        self._pausing = False
        self._notify("takeover")
