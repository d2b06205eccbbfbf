"""Creates the objects that act for policies."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import UTC, datetime
from functools import partial
from time import time
from typing import NamedTuple

from respread.api.policy import VictimRules
from respread.cluster.decode.decoder import Kind
from respread.controller.accounts import Accounts
from respread.controller.announcements import Announcements
from respread.controller.evictions import Evictions
from respread.controller.follow_up import FollowUp
from respread.controller.permits.confirmations import Confirmations
from respread.controller.permits.held_lately import HeldLately
from respread.controller.permits.lanes import Lanes
from respread.controller.permits.permission import Leading, Permission
from respread.controller.permits.policy_versions import PolicyReader
from respread.controller.records.exclusive_requests import ExclusiveRequests
from respread.controller.records.journal import Journal
from respread.controller.records.status_writer import StatusWriter
from respread.eviction.eviction_api import TIMEOUT_SECONDS, EvictionApi
from respread.eviction.owners.last_look import Owners
from respread.eviction.refusals import Refusals
from respread.handlers.informers import Informers
from respread.kube.requests import Requests
from respread.planning.plan import Move
from respread.stores.watched_kinds import POLICY_KINDS
from respread.telemetry.metrics import Metrics


class Acting(NamedTuple):
    """The objects that act for policies. They belong to one event loop."""

    journal: Journal
    """The moves, and what was done."""
    statuses: StatusWriter
    announcements: Announcements
    permission: Permission
    lanes: Lanes
    held_lately: HeldLately
    evictions: Evictions
    follow_up: FollowUp

    def next_end(self) -> float | None:
        """Return when something ends without an event that holds moves, or must be sent again; None if nothing does."""
        ends = (
            self.evictions.refusals.next_end(),
            self.held_lately.next_end(),
            self.follow_up.next_ask(),
            self.follow_up.next_find(),
        )
        return min((at for at in ends if at is not None), default=None)

    async def aclose(self) -> None:
        """Cancel everything that has not started, and wait for the answers to sent requests."""
        await self.evictions.aclose()
        await self.permission.aclose()


def put_together(
    requests: Requests,
    informers: Informers,
    leading: Leading,
    *,
    announcements: Announcements,
    metrics: Metrics,
    clock: Callable[[], float],
    wall_clock: Callable[[], float] = time,
    policy_kinds: Iterable[Kind] = POLICY_KINDS,
    exclusive_seconds: Callable[[], float] = lambda: TIMEOUT_SECONDS,
    journal: Journal | None = None,
) -> Acting:
    """Return what acts through an API server.

    Args:
        requests: sends requests.
        informers: the informers with their stores.
        leading: whether this replica acts.
        announcements: report decisions to users.
        metrics: count.
        clock: a monotonic clock in seconds.
        wall_clock: seconds since the epoch.
        policy_kinds: the kinds of policies that are used.
        exclusive_seconds: for how long no other replica can lead.
        journal: the moves in flight; empty without it.
    """

    def notify() -> None:
        informers.changes.notify("evictions")

    kinds = tuple(policy_kinds)
    journal = Journal(clock, wall_clock) if journal is None else journal
    held_lately, lanes = HeldLately(clock), Lanes(clock)
    statuses = StatusWriter(
        requests,
        ExclusiveRequests(requests, clock, exclusive_seconds),
        clock,
        kinds=kinds,
        remembering=lambda policy, record: journal.in_record(policy, record, informers.state.snapshot),
    )
    permission = Permission(
        leading,
        lambda: informers.policies.policies,
        Confirmations(PolicyReader(requests, clock, kinds=kinds), clock),
        clock=clock,
        now=lambda: datetime.fromtimestamp(wall_clock(), UTC),
    )
    owners = Owners(requests, clock, rules=partial(_victim_rules, informers), top=announcements.top_owners)
    api = EvictionApi(requests)
    evictions = Evictions(
        api,
        owners,
        Refusals(clock),
        permission=permission,
        journal=journal,
        accounts=Accounts(
            journal,
            statuses,
            announcements=announcements,
            metrics=metrics,
            held_lately=held_lately,
            seen=lambda: informers.policies.statuses,
        ),
        lanes=lanes,
        notify=notify,
        current=lambda: informers.state.snapshot,
        exclusive_seconds=exclusive_seconds,
    )
    return Acting(
        journal=journal,
        statuses=statuses,
        announcements=announcements,
        permission=permission,
        lanes=lanes,
        held_lately=held_lately,
        evictions=evictions,
        follow_up=FollowUp(evictions, owners, api, hurry=statuses.hurry, notify=notify, clock=clock),
    )


def _victim_rules(informers: Informers, move: Move) -> VictimRules:
    """Return `spec.victims` of a move's policy. Without the policy, the move is not made anyway."""
    policy = informers.policies.current(move.policy)
    return VictimRules() if policy is None else policy.spec.victims
