"""Whether this replica leads, and by which Lease all operators of a cluster elect their leader."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from functools import partial
from typing import Final, NamedTuple

from respread.api.status import PolicyStatus
from respread.cluster.meta import ObjectKey
from respread.cluster.state import ClusterSnapshot
from respread.cluster.stores import POLICY_KINDS
from respread.controller.options import LeaseOptions
from respread.controller.permission import Leading
from respread.handlers.informer import Informers
from respread.kube.access import AccessError, ClusterAccess, Renewal
from respread.kube.leadership import COMMON_NAMESPACE, INSTALLED_NAMESPACE, Election, Elector
from respread.kube.requests import Requests, open_requests
from respread.planning.victims.protection import are_own, is_active
from respread.telemetry.logs import get_logger
from respread.telemetry.metrics import Metrics

_log: Final = get_logger(__name__)

_LEASE_CONNECTIONS: Final = 2
"""One for renewals, and one where a former request still hangs."""


class Leadership(NamedTuple):
    """Whether this replica leads, and what runs for that."""

    leading: Leading
    tasks: tuple[asyncio.Task[None], ...] = ()
    """The tasks that must run for it."""


@contextlib.asynccontextmanager
async def leadership_of(
    options: LeaseOptions,
    identity: str,
    access: ClusterAccess,
    renewal: Renewal,
    metrics: Metrics,
    informers: Informers,
    *,
    may_give_up: Callable[[], bool],
) -> AsyncIterator[Leadership]:
    """Take part in the election, if there is one. The Lease is released at the end, if that may be.

    It has connections of its own: where the API server answers slowly, others use all of theirs.
    """
    if not options.elect:
        _log.warning(
            "No leader is elected: beside another operator of this cluster, installed in it or run elsewhere, both "
            "evict at once, against limits and for the same skew; leave --no-leader-election out unless there is "
            "certainly none"
        )
        metrics.show_leadership(leading=True)
        yield Leadership(Leading(lambda: True, lambda: 0))
        return

    def on_change(leading: bool) -> None:
        metrics.show_leadership(leading=leading)
        informers.changes.notify("leases")

    def candidate(requests: Requests, lease: ObjectKey) -> Elector:
        return Elector(
            requests,
            lease,
            identity,
            times=options.times,
            on_change=on_change,
            may_give_up=may_give_up,
            is_first=partial(_nobody_has_led, informers),
        )

    async with open_requests(access, renewal, metrics.observe_request, connections=_LEASE_CONNECTIONS) as requests:
        election = Election(
            partial(candidate, requests),
            _place_of_lease(options, access, informers),
            may_wait=access.in_cluster or options.namespace is not None,
            changeover_seconds=options.times.lease_seconds,
        )
        metrics.show_leadership(leading=False)
        running = asyncio.create_task(election.run(), name="election")
        try:
            yield Leadership(Leading(election.holds, election.term, election.exclusive_seconds), (running,))
        finally:
            running.cancel()
            with contextlib.suppress(asyncio.CancelledError, AccessError):
                await running


def _place_of_lease(
    options: LeaseOptions, access: ClusterAccess, informers: Informers
) -> Callable[[], ObjectKey | None]:
    """Return what tells which Lease it is."""
    if options.namespace is not None or access.in_cluster:
        given = ObjectKey(options.namespace or access.endpoint.namespace, options.name)
        return lambda: given

    def find() -> ObjectKey | None:
        if not informers.health.synced:
            return None
        return ObjectKey(namespace_of_installed(informers.state.snapshot), options.name)

    return find


def own_namespace(options: LeaseOptions, access: ClusterAccess, informers: Informers) -> Callable[[], str | None]:
    """Return what tells the namespace of the Lease, which is the operator's own unless an option names another."""
    place = _place_of_lease(options, access, informers)
    return lambda: None if (lease := place()) is None else lease.namespace


def _nobody_has_led(informers: Informers) -> bool:
    """Return whether no leader has ever done anything: it would have written a status for every policy."""
    known = all(
        informers.health.has_synced(informer.kind.resource)
        for informer in informers.all
        if informer.kind in POLICY_KINDS
    )
    return known and all(status == PolicyStatus() for status in informers.policies.statuses.values())


def namespace_of_installed(snapshot: ClusterSnapshot) -> str:
    """Return the namespace of the operator that is installed in a cluster, by its pods, or else the common one.

    An operator may be installed at any time.
    """
    if INSTALLED_NAMESPACE in snapshot.namespaces:
        return INSTALLED_NAMESPACE
    installed = (
        namespace
        for namespace, by_labels in snapshot.pods_by_labels.items()
        if any(are_own(labels) and any(map(is_active, pods.values())) for labels, pods in by_labels.items())
    )
    return min(installed, default=COMMON_NAMESPACE)
