"""Creates the objects that act for policies."""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial
from typing import NamedTuple

from respread.cluster.decode.decoder import Kind
from respread.cluster.stores import POLICY_KINDS
from respread.controller.announcements import Announcements
from respread.controller.evictions import Evictions
from respread.controller.follow_up import FollowUp
from respread.controller.lanes import Lanes
from respread.controller.permission import Confirmations, Leading, Permission, read_versions
from respread.controller.records.journal import Journal, Recording
from respread.controller.records.status_writer import ExclusiveRequests, StatusWriter
from respread.eviction.eviction_api import EvictionApi
from respread.eviction.owners.last_look import Owners
from respread.handlers.informer import Informers
from respread.holds.holds import Holds
from respread.holds.other_evictions import OtherEvictions
from respread.kube.requests import Requests
from respread.telemetry.metrics import Metrics
from respread.timing import ClockReading


class Acting(NamedTuple):
    """The objects that act for policies. They belong to one event loop."""

    journal: Journal
    """The moves, and what was done."""
    statuses: StatusWriter
    announcements: Announcements
    permission: Permission
    lanes: Lanes
    holds: Holds
    evictions: Evictions
    follow_up: FollowUp

    @property
    def uncertain(self) -> bool:
        """Whether something was sent that may still be on its way. The Lease must not be released meanwhile."""
        return self.journal.ledger.uncertain or self.statuses.uncertain

    def next_end(self, moment: ClockReading) -> float:
        """Return when a hold or a pause ends that no plan shows, on the clock; infinity if none does."""
        resumes = moment.now + self.journal.history.breakers.next_end(moment.time) - moment.time
        return min(self.holds.next_end(moment), resumes)

    def next_look(self) -> float:
        """Return when moves must be looked at again without an event, or something is to be sent again, on the clock.

        No new plan is needed for that, unless a move ends. Infinite if never.
        """
        ledger = self.journal.ledger
        return min(ledger.next_deadline(), ledger.next_due(), self.follow_up.next_ask())

    async def aclose(self) -> None:
        """Cancel everything that has not started, and wait for the answers to sent requests."""
        await self.evictions.aclose()
        await self.permission.aclose()


def put_together(
    requests: Requests,
    informers: Informers,
    leading: Leading,
    journal: Journal,
    *,
    announcements: Announcements,
    metrics: Metrics,
    policy_kinds: Iterable[Kind] = POLICY_KINDS,
    others: OtherEvictions | None = None,
) -> Acting:
    """Return what acts through an API server."""
    clock, kinds, notify = journal.clock, tuple(policy_kinds), partial(informers.changes.notify, "evictions")
    holds, lanes = Holds(clock, others), Lanes(clock)
    statuses = StatusWriter(
        requests,
        ExclusiveRequests(requests, clock, leading.exclusive_seconds),
        clock,
        kinds=kinds,
        completed=lambda policy, record: journal.in_record(policy, record, informers.state.snapshot),
    )
    permission = Permission(
        leading,
        lambda: informers.policies.policies,
        Confirmations(partial(read_versions, requests, clock, kinds=kinds), clock),
        clock=clock,
        now=lambda: journal.moment().time_of_day,
    )
    owners = Owners(requests, clock, note=announcements.top_owners.note)
    api = EvictionApi(requests)
    refusals, seen = holds.refusals, lambda: informers.policies.statuses
    recording = Recording(journal, statuses, announcements=announcements, metrics=metrics, refusals=refusals, seen=seen)
    evictions = Evictions(
        api,
        owners,
        refusals,
        permission=permission,
        journal=journal,
        recording=recording,
        lanes=lanes,
        notify=notify,
        current=lambda: informers.state.snapshot,
    )
    follow_up = FollowUp(evictions, owners, api, hurry=statuses.hurry, notify=notify, clock=clock)
    return Acting(journal, statuses, announcements, permission, lanes, holds, evictions, follow_up)
