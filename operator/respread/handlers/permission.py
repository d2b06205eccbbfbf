"""Whether a move may still be made: what may have come in the way since it was planned."""

from __future__ import annotations

from collections.abc import Callable

from respread.api.policy import Policy
from respread.api.reasons import Reason
from respread.planning.held import Held
from respread.planning.plan import Move


class Permission:
    """Asked right before every step of a move."""

    __slots__ = ("_current_policy", "_leads")

    def __init__(self, leads: Callable[[], bool], current_policy: Callable[[str], Policy | None]) -> None:
        """Ask for what is so at the moment.

        Args:
            leads: whether this replica may evict.
            current_policy: the policy of a name; None if there is none.
        """
        self._leads = leads
        self._current_policy = current_policy

    def __call__(self, move: Move) -> Held | None:
        """Return what stands in a move's way, or None if nothing does."""
        if not self._leads():
            return Held(Reason.NOT_LEADING, "this replica does not lead")
        policy = self._current_policy(move.policy)
        if policy is None:
            return Held(Reason.NOT_SELECTED, f"policy {move.policy} was deleted")
        if policy.problems:
            return Held(
                Reason.INVALID_POLICY, f"policy {policy.name} is wrong somewhere, and evicts nothing until right"
            )
        if policy.spec.mode != "Enforce":
            return Held(Reason.DRY_RUN, f"the mode of policy {policy.name} is {policy.spec.mode}")
        return None
