"""Replacements that became Ready: whether they stay so for long enough for their moves to count as successes.

A container without a readiness probe is Ready as soon as it runs, and one that crashes again and again is so for an
instant every time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.eviction.flight import Ended
from respread.eviction.outcomes import Outcome
from respread.planning.plan import Move

STEADY_SECONDS: Final = 10.0
"""How long a replacement has to stay Ready."""


class _Watched(NamedTuple):
    ended: Ended
    replacement: Pod
    ready_at: float


class Judged(NamedTuple):
    """What has become of replacements."""

    lasting: tuple[Move, ...]
    """Theirs have stayed Ready."""
    relapsed: tuple[Ended, ...]
    """Theirs are not Ready any more: moves that ended well end once more, as `NotReady`."""


class Probation(msgspec.Struct, frozen=True):
    """Moves that ended well a moment ago. A value: every change returns another one."""

    watched: tuple[_Watched, ...] = ()

    @property
    def moves(self) -> tuple[Move, ...]:
        """The moves of which it is not known yet."""
        return tuple(each.ended.move for each in self.watched)

    def begun(self, ended: Iterable[Ended], now: float) -> Probation:
        """Return it with the moves that ended well just now; `now` is in seconds on the caller's clock."""
        more = tuple(
            _Watched(each, each.replacement, now)
            for each in ended
            if each.outcome is Outcome.IMPROVED and each.replacement is not None
        )
        return Probation(self.watched + more) if more else self

    def judged(self, snapshot: ClusterSnapshot, now: float) -> tuple[Probation, Judged]:
        """Return those that are still to be watched, and what became of the others.

        A replacement that is deleted in its turn, by a rollout or a scale-down, tells nothing of our move.
        """
        going_on: list[_Watched] = []
        lasting: list[Move] = []
        relapsed: list[Ended] = []
        for each in self.watched:
            pod = snapshot.pods.get(each.replacement.key)
            if pod is None or pod.uid != each.replacement.uid or pod.terminating:
                continue
            if not pod.ready or pod.finished:
                relapsed.append(_relapsed(each, now))
            elif now - each.ready_at >= STEADY_SECONDS:
                lasting.append(each.ended.move)
            else:
                going_on.append(each)
        return Probation(tuple(going_on)), Judged(tuple(lasting), tuple(relapsed))

    def next_end(self) -> float | None:
        """Return when `judged` may judge by time alone, on the caller's clock; None where nothing is watched."""
        return min((each.ready_at + STEADY_SECONDS for each in self.watched), default=None)


def _relapsed(watched: _Watched, now: float) -> Ended:
    pod = watched.replacement
    message = f"its replacement {pod.name} on {pod.node_name} was Ready for less than {now - watched.ready_at:.0f} s"
    return msgspec.structs.replace(watched.ended, outcome=Outcome.NOT_READY, message=message)
