"""Whether a move may still be made: what may have come in the way since it was planned."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Final

from immutables import Map

from respread.api.policy import Policy
from respread.api.reasons import Reason
from respread.eviction.windows import Windows
from respread.handlers.policy_versions import PolicyVersions, Versions, versions_of
from respread.planning.held import Held
from respread.planning.plan import Move

Policies = Map[str, Policy]

WAVE_SECONDS: Final = 20.0
"""How long after it was planned a wave's last move may begin; the rest is planned anew."""
CONFIRMED_SECONDS: Final = 5.0
"""How long after the API server was asked for the policies a move may begin by its answer."""


class Permission:
    """Asked right before every step of a move.

    A wave is planned for the policies as they are; as soon as any of them changes, is deleted or comes to be, what is
    left of the wave is not made any more, since another policy may govern its pods now, or other limits. That no policy
    has changed is taken from the watch, which is quick, and from the API server, which is right.
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
        self._planned_for: Policies = Map()
        self._planned_versions: Versions = Map()
        self._planned_at = 0.0
        self._confirmed: PolicyVersions | None = None
        self._stopping = False

    def begin_wave(self, policies: Policies, planned_at: float) -> None:
        """Note which policies the moves that follow were planned for, and when, on the clock."""
        self._planned_for = policies
        self._planned_versions = versions_of(policies)
        self._planned_at = planned_at

    def confirm(self, read: PolicyVersions) -> None:
        """Note which policies there are by the API server's own word."""
        self._confirmed = read

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
        if policies is not self._planned_for and policies != self._planned_for:
            return Held(Reason.IN_MOTION, "the policies have changed since it was planned")
        if (age := self._clock() - self._planned_at) > WAVE_SECONDS:
            return Held(Reason.IN_MOTION, f"it was planned {age:.0f} s ago, and is planned anew")
        return self.unconfirmed()

    def unconfirmed(self) -> Held | None:
        """Return why the policies that the wave was planned for may not be those there are, or None if they are."""
        if self._confirmed is None or (age := self._clock() - self._confirmed.asked_at) > CONFIRMED_SECONDS:
            since = "yet" if self._confirmed is None else f"for {age:.0f} s"
            return Held(Reason.API_UNAVAILABLE, f"the policies could not be read {since}")
        if self._confirmed.versions != self._planned_versions:
            return Held(Reason.IN_MOTION, "the policies have changed, and the watch has not brought it yet")
        return None

    def of_policy(self, policy: Policy | None, name: str) -> Held | None:
        """Return why nothing may be done in the name of a policy, or None if it may."""
        if policy is None:
            return Held(Reason.NOT_SELECTED, f"policy {name} was deleted")
        if policy.problems:
            return Held(Reason.INVALID_POLICY, f"policy {name} is wrong somewhere, and evicts nothing until right")
        if policy.spec.mode != "Enforce":
            return Held(Reason.DRY_RUN, f"the mode of policy {name} is DryRun: it plans and does not evict")
        return Windows.of(policy.spec.windows).why_closed(self._now())
