"""What is invalid in a policy, and in which field."""

from __future__ import annotations

import msgspec


class Problem(msgspec.Struct, frozen=True):
    """An error in a policy. The policy evicts nothing until it is fixed."""

    field: str
    """The field, in the form for `kubectl explain`: `spec.windows[0].timeZone`."""
    message: str
    """What is wrong there, and what to do."""

    def __str__(self) -> str:
        """Return both, as in a condition's message or in a line of an error."""
        return f"{self.field}: {self.message}"


class UnknownField(Problem, frozen=True):
    """A field that does not exist. Our policies reject it. Readers of Kubernetes' own objects ignore it."""
