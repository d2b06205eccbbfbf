"""Whether this replica acts: it leads, and knows everything that earlier leaders did."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from respread.cluster.state import ClusterSnapshot
from respread.controller.acting import Acting
from respread.controller.permits.permission import Leading
from respread.controller.records.recovery import AskingRules, in_doubt, resumed, without
from respread.eviction.limits.limiter import Limiter
from respread.kube.listing import ListError
from respread.kube.retry import Retry, RetryDelays
from respread.planning.victims.policies import PolicySetting
from respread.spread.index import Spread
from respread.telemetry.logs import get_logger

_log: Final = get_logger(__name__)

LONGEST_PAUSE_SECONDS: Final = 5.0
"""The longest pause between attempts to read them."""


class Takeover:
    """Starts each term with the contents of the policies' statuses and records."""

    __slots__ = ("_acting", "_leading", "_notify", "_pausing", "_retry", "_term")

    def __init__(self, acting: Acting, leading: Leading, *, notify: Callable[[str], None]) -> None:
        """Start without a term.

        Args:
            acting: acts, and knows what was done.
            leading: whether this replica leads.
            notify: called with a word for what must be tried again.
        """
        self._acting = acting
        self._leading = leading
        self._notify = notify
        self._retry = Retry(RetryDelays(greatest_seconds=LONGEST_PAUSE_SECONDS))
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

        A new leader takes over here, by reading the statuses.

        Args:
            snapshot: the cluster as the watch shows it.
            spread: its spread groups.
            setting: the policies.
            limiters: one for each policy.
            known: whether everything that the spread depends on has been requested. Nobody takes over before.
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
        rules = AskingRules(setting, limiters, moment.time_of_day)
        ledger = resumed(journal.ledger, records, snapshot, spread, rules, moment)
        doubtful = in_doubt(ledger, records, moment.time)
        evicted = {name: each.status.summary.evicted for name, each in found.items()}
        journal.history.recall(without(doubtful, records, moment.time), spread.by_namespace, evicted)
        journal.take_over(ledger, doubtful)
        self._term = term
        return term

    def _try_again(self) -> None:
        self._pausing = False
        self._notify("takeover")
