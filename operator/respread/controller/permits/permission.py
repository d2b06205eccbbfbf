"""Whether a move may still be made: what has changed since it was planned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime
from math import inf
from typing import Final, NamedTuple

from immutables import Map

from respread.api.policy import Policy
from respread.api.reasons import Reason
from respread.controller.permits.confirmations import EVERYWHERE, Confirmations, VersionsByName, versions_of
from respread.holds.windows import Windows
from respread.planning.held import Held
from respread.planning.plan import Move
from respread.stores.stores import Policies
from respread.telemetry.logs import get_logger

_log: Final = get_logger(__name__)


OLD_SECONDS: Final = 20.0
"""A move may be sent until this long after it was planned. An older one is planned again."""
CONFIRMED_SECONDS: Final = 5.0
"""A move may be sent until this long after the request whose answer confirmed the policies."""


class Leading(NamedTuple):
    """The current state of leadership."""

    leads: Callable[[], bool]
    """Whether this replica evicts and writes statuses."""
    term: Callable[[], int]
    """A number that changes whenever another replica may have led."""
    exclusive_seconds: Callable[[], float] = lambda: inf
    """For how long no other replica can lead."""


class PoliciesThere(NamedTuple):
    """The policies of a namespace, or the cluster policies."""

    policies: Policies = Map()
    versions: VersionsByName = Map()


class PlannedFor(NamedTuple):
    """The policies for which moves were planned, and when."""

    policies: Policies
    by_place: Mapping[str, PoliciesThere]
    """By namespace; cluster policies are under `EVERYWHERE`."""
    term: int
    """The leader's."""
    at: float
    """Seconds on the clock."""

    def grace_period_seconds(self, move: Move) -> int | None:
        """Return the grace period of a move's policy; None if it does not set one."""
        policy = self.policies.get(move.policy)
        return None if policy is None else policy.spec.eviction.grace_period_seconds


class Permission:
    """Checked before every step of a move, the last time right before it is sent.

    A move is planned for the current policies. If one that applies to it changes, is deleted or is created, the move is
    not made, because another policy may govern its pod now, or other limits may apply. These are the
    ClusterRebalancePolicies and the policies of the pod's namespace; other namespaces don't matter. Both the watch,
    which is fast, and the API server, which is always right, must confirm that no policy has changed.
    """

    __slots__ = ("_clock", "_confirmations", "_leading", "_now", "_policies", "_seen", "_stopping", "_told")

    def __init__(
        self,
        leading: Leading,
        policies: Callable[[], Policies],
        confirmations: Confirmations,
        *,
        clock: Callable[[], float],
        now: Callable[[], datetime],
    ) -> None:
        """Create it.

        Args:
            leading: whether this replica may evict.
            policies: all policies by name.
            confirmations: the API server's answers about them.
            clock: a monotonic clock in seconds.
            now: the time of day, with a time zone.
        """
        self._leading = leading
        self._policies = policies
        self._confirmations = confirmations
        self._clock = clock
        self._now = now
        self._seen: tuple[Policies, Mapping[str, PoliciesThere]] = (Map(), {})
        """The policies of the last check, and the same by place."""
        self._told: dict[str, str] = {}
        """By namespace, the logged reason why nothing is evicted there now."""
        self._stopping = False

    @property
    def leads(self) -> bool:
        """Whether this replica leads."""
        return self._leading.leads()

    @property
    def exclusive_seconds(self) -> float:
        """For how long no other replica can lead. What is not answered by then counts as what may have been done."""
        return self._leading.exclusive_seconds()

    def planned_for(self, policies: Policies, at: float) -> PlannedFor:
        """Return the policies for which moves are planned.

        Args:
            policies: all policies.
            at: when they are planned, on the clock.
        """
        return PlannedFor(policies, self._by_place(policies), self._leading.term(), at)

    def stop(self) -> None:
        """Let no more moves be sent."""
        self._stopping = True

    async def confirm(self, namespace: str) -> None:
        """Request the policies of a namespace from the API server, unless a recent answer exists."""
        await self._confirmations.refresh((EVERYWHERE, namespace))

    def why_not(self, move: Move, planned: PlannedFor) -> Held | None:
        """Return why a move may not be made, or None."""
        if self._stopping:
            return Held(Reason.NOT_LEADING, "this replica is being stopped")
        if not self._leading.leads() or self._leading.term() != planned.term:
            return Held(Reason.NOT_LEADING, "this replica does not lead")
        policies = self._policies()
        if (held := self.of_policy(policies.get(move.policy), move.policy)) is not None:
            return held
        namespace, there = move.pod.namespace, self._by_place(policies)
        if any(_changed(there.get(place), planned.by_place.get(place)) for place in (EVERYWHERE, namespace)):
            return Held(Reason.IN_MOTION, "the policies have changed since it was planned")
        if (age := self._clock() - planned.at) > OLD_SECONDS:
            return Held(Reason.IN_MOTION, f"it was planned {age:.0f} s ago, and is planned again")
        return self.unconfirmed(namespace, planned)

    def unconfirmed(self, namespace: str, planned: PlannedFor) -> Held | None:
        """Return why the policies of a namespace may have changed since moves were planned for them.

        None if they have not.
        """
        held = self._unconfirmed_at(EVERYWHERE, planned) or self._unconfirmed_at(namespace, planned)
        self._tell(namespace, held)
        return held

    def of_policy(self, policy: Policy | None, name: str) -> Held | None:
        """Return why a policy may evict nothing, or None if it may."""
        if policy is None:
            return Held(Reason.NOT_SELECTED, f"policy {name} was deleted")
        if policy.problems:
            return Held(Reason.INVALID_POLICY, f"policy {name} is invalid and evicts nothing until it is fixed")
        if policy.spec.mode != "Enforce":
            return Held(Reason.DRY_RUN, f"the mode of policy {name} is DryRun: it plans and does not evict")
        return Windows.of(policy.spec.windows).why_closed(self._now())

    async def aclose(self) -> None:
        """Cancel the requests in progress."""
        await self._confirmations.aclose()

    def _unconfirmed_at(self, place: str, planned: PlannedFor) -> Held | None:
        where = f" of {place}" if place else ""
        confirmed = self._confirmations.of(place)
        if confirmed is None or (age := self._clock() - confirmed.asked_at) > CONFIRMED_SECONDS:
            since = "yet" if confirmed is None else f"for {age:.0f} s"
            return Held(Reason.API_UNAVAILABLE, f"the policies{where} could not be read {since}")
        if confirmed.versions != planned.by_place.get(place, PoliciesThere()).versions:
            return Held(Reason.IN_MOTION, f"the policies{where} have changed, and the watch has not brought it yet")
        return None

    def _tell(self, namespace: str, held: Held | None) -> None:
        """Log once that nothing is evicted in a namespace now."""
        if held is None:
            self._told.pop(namespace, None)
        elif self._told.get(namespace) != held.reason:
            self._told[namespace] = held.reason
            _log.warning("Nothing is evicted for now", namespace=namespace, reason=held.reason, message=held.message)

    def _by_place(self, policies: Policies) -> Mapping[str, PoliciesThere]:
        """Return the policies by place, computed once while none changes."""
        if policies is not self._seen[0]:
            self._seen = (policies, _by_place(policies))
        return self._seen[1]


def _changed(now: PoliciesThere | None, planned: PoliciesThere | None) -> bool:
    if now is planned:
        return False
    return now is None or planned is None or now.policies != planned.policies


def _by_place(policies: Policies) -> Mapping[str, PoliciesThere]:
    found: dict[str, dict[str, Policy]] = {}
    for name, policy in policies.items():
        found.setdefault(policy.namespace, {})[name] = policy
    return {place: PoliciesThere(there := Map(named), versions_of(there)) for place, named in found.items()}
