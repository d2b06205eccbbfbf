"""Whether a move may still be made: what may have come in the way since it was planned."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import Final

from immutables import Map

from respread.api.policy import Policy
from respread.api.reasons import Reason
from respread.controller.policy_versions import EVERYWHERE, PolicyVersions, Versions, versions_of
from respread.eviction.windows import Windows
from respread.planning.held import Held
from respread.planning.plan import Move

Policies = Map[str, Policy]

WAVE_SECONDS: Final = 20.0
"""How long after it was planned a wave's last move may begin; the rest is planned anew."""
CONFIRMED_SECONDS: Final = 5.0
"""How long after the API server was asked for the policies a move may begin by its answer."""


class Permission:
    """Asked right before every step of a move.

    A wave is planned for the policies as they are. As soon as one that may have a say in a move changes, is deleted or
    comes to be, the move is not made any more, since another policy may govern its pod now, or other limits. These are
    the ClusterRebalancePolicies and the policies of the pod's namespace; those of other namespaces don't matter to it.
    That no policy has changed is taken from the watch, which is quick, and from the API server, which is right.
    """

    __slots__ = (
        "_clock",
        "_confirmed",
        "_leads",
        "_now",
        "_planned_at",
        "_planned_for",
        "_planned_versions",
        "_policies",
        "_seen",
        "_stopping",
    )

    def __init__(
        self,
        leads: Callable[[], bool],
        policies: Callable[[], Policies],
        *,
        clock: Callable[[], float],
        now: Callable[[], datetime],
    ) -> None:
        """Ask for what is so at the moment.

        Args:
            leads: whether this replica may evict.
            policies: all policies by name.
            clock: seconds that never go back.
            now: the time of day, with a time zone.
        """
        self._leads = leads
        self._policies = policies
        self._clock = clock
        self._now = now
        self._planned_for: Mapping[str, Policies] = {}
        """By namespace; those that belong to none under `EVERYWHERE`."""
        self._planned_versions: Mapping[str, Versions] = {}
        self._planned_at = 0.0
        self._seen: tuple[Policies, Mapping[str, Policies]] = (Map(), {})
        """The policies that were last looked at, and the same by namespace."""
        self._confirmed: dict[str, PolicyVersions] = {}
        self._stopping = False

    def begin_wave(self, policies: Policies, namespaces: Iterable[str], planned_at: float) -> None:
        """Note which policies the moves that follow were planned for, and when, on the clock.

        Args:
            policies: all there were.
            namespaces: of the moves' pods.
            planned_at: when they were planned, on the clock.
        """
        places = {EVERYWHERE, *namespaces}
        self._planned_for = _by_namespace(policies, places)
        self._planned_versions = {place: versions_of(there) for place, there in self._planned_for.items()}
        self._planned_at = planned_at
        self._seen = (policies, self._planned_for)
        self._confirmed = {place: read for place, read in self._confirmed.items() if place in places}

    def confirm(self, namespace: str, read: PolicyVersions) -> None:
        """Note which policies there are in a namespace, or under `EVERYWHERE`, by the API server's own word."""
        self._confirmed[namespace] = read

    def stop(self) -> None:
        """Let no move begin any more."""
        self._stopping = True

    def __call__(self, move: Move) -> Held | None:
        """Return what stands in a move's way, or None if nothing does."""
        if self._stopping:
            return Held(Reason.NOT_LEADING, "this replica is being stopped")
        if not self._leads():
            return Held(Reason.NOT_LEADING, "this replica does not lead")
        policies = self._policies()
        if (held := self.of_policy(policies.get(move.policy), move.policy)) is not None:
            return held
        namespace = move.pod.namespace
        there = self._by_namespace(policies)
        if any(there.get(place) != self._planned_for.get(place) for place in (EVERYWHERE, namespace)):
            return Held(Reason.IN_MOTION, "the policies have changed since it was planned")
        if (age := self._clock() - self._planned_at) > WAVE_SECONDS:
            return Held(Reason.IN_MOTION, f"it was planned {age:.0f} s ago, and is planned anew")
        return self.unconfirmed(namespace)

    def unconfirmed(self, namespace: str) -> Held | None:
        """Return why the policies that moves of a namespace were planned for may not be those there are.

        None if they are.
        """
        return self._unconfirmed_at(EVERYWHERE) or self._unconfirmed_at(namespace)

    def _unconfirmed_at(self, place: str) -> Held | None:
        where = f" of {place}" if place else ""
        confirmed = self._confirmed.get(place)
        if confirmed is None or (age := self._clock() - confirmed.asked_at) > CONFIRMED_SECONDS:
            since = "yet" if confirmed is None else f"for {age:.0f} s"
            return Held(Reason.API_UNAVAILABLE, f"the policies{where} could not be read {since}")
        if confirmed.versions != self._planned_versions.get(place):
            return Held(Reason.IN_MOTION, f"the policies{where} have changed, and the watch has not brought it yet")
        return None

    def _by_namespace(self, policies: Policies) -> Mapping[str, Policies]:
        """Return the policies that matter to the wave by namespace; looked for once for as long as none changes."""
        if policies is not self._seen[0]:
            self._seen = (policies, _by_namespace(policies, self._planned_for))
        return self._seen[1]

    def of_policy(self, policy: Policy | None, name: str) -> Held | None:
        """Return why nothing may be done in the name of a policy, or None if it may."""
        if policy is None:
            return Held(Reason.NOT_SELECTED, f"policy {name} was deleted")
        if policy.problems:
            return Held(Reason.INVALID_POLICY, f"policy {name} is invalid and evicts nothing until it is fixed")
        if policy.spec.mode != "Enforce":
            return Held(Reason.DRY_RUN, f"the mode of policy {name} is DryRun: it plans and does not evict")
        return Windows.of(policy.spec.windows).why_closed(self._now())


def _by_namespace(policies: Policies, places: Iterable[str]) -> Mapping[str, Policies]:
    found: dict[str, dict[str, Policy]] = {place: {} for place in places}
    for name, policy in policies.items():
        if policy.namespace in found:
            found[policy.namespace][name] = policy
    return {place: Map(there) for place, there in found.items()}
