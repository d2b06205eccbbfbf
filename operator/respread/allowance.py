"""How much may be done by now, where so much may be done in a time: a token bucket, as a value."""

from __future__ import annotations

import msgspec


class Allowance(msgspec.Struct, frozen=True, kw_only=True):
    """What may be done by now: it grows with time up to a limit."""

    per_second: float
    most: float
    saved: float
    at: float
    """When `saved` was right, in seconds on a clock that never goes back."""

    @classmethod
    def full(cls, per_second: float, most: float, now: float) -> Allowance:
        """Return an allowance of which nothing has been used."""
        return cls(per_second=per_second, most=most, saved=most, at=now)

    def left(self, now: float) -> float:
        """Return how much may be used now."""
        return min(self.most, self.saved + max(0.0, now - self.at) * self.per_second)

    def used(self, amount: float, now: float) -> Allowance:
        """Return what is left over; using more than there is is made up for by waiting longer afterwards."""
        return msgspec.structs.replace(self, saved=self.left(now) - amount, at=now)

    def wait_seconds(self, amount: float, now: float) -> float:
        """Return how long it takes until so much, or all that can be saved up, may be used."""
        return max(0.0, (min(amount, self.most) - self.left(now)) / self.per_second)
