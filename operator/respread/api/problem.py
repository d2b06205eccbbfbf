"""What is wrong with a policy, and where."""

from __future__ import annotations

import msgspec


class Problem(msgspec.Struct, frozen=True):
    """Something in a policy that is wrong, so that nothing is done in its name until it is put right."""

    field: str
    """Where it is, as `kubectl explain` would be asked: `spec.windows[0].timeZone`."""
    message: str
    """What is wrong there and what to do."""

    def __str__(self) -> str:
        """Return both, as a condition's message or a line of an error shows them."""
        return f"{self.field}: {self.message}"


class UnknownField(Problem, frozen=True):
    """A field that does not exist: wrong in a policy of ours, and passed over by readers of Kubernetes' own."""
