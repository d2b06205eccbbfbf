"""Whether replacements that became Ready stay Ready long enough for their moves to count as successes.

A container without a readiness probe is Ready as soon as it runs, and one that crashes repeatedly is Ready for a moment
each time.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

import msgspec

from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.moves.entry import Ended, Outcome
from respread.planning.plan import Move

STEADY_SECONDS: Final = 10.0
"""How long a replacement must stay Ready."""


class _Watched(NamedTuple):
    ended: Ended
    replacement: Pod
    ready_at: float


class Judged(NamedTuple):
    """The results for replacements."""

    lasting: tuple[Move, ...]
    """Moves whose replacements have stayed Ready."""
    relapsed: tuple[Ended, ...]
    """Moves whose replacements are not Ready any more. They end once more, as `NotReady`."""
    undecided: tuple[Move, ...] = ()
    """Moves whose replacements were deleted: by a rollout, a scale-down or somebody else."""


class Probation(msgspec.Struct, frozen=True):
    """Moves that ended well just now. A value: every change returns another one."""

    watched: tuple[_Watched, ...] = ()

    @property
    def moves(self) -> tuple[Move, ...]:
        """The moves without a result yet."""
        return tuple(each.ended.move for each in self.watched)

    def begun(self, ended: Iterable[Ended], now: float) -> Probation:
        """Return it with the moves that ended well just now. `now` is in seconds on the caller's clock."""
        more = tuple(
            _Watched(each, each.replacement, now)
            for each in ended
            if each.outcome is Outcome.IMPROVED and each.replacement is not None
        )
        return Probation(self.watched + more) if more else self

    def judged(self, snapshot: ClusterSnapshot, now: float) -> tuple[Probation, Judged]:
        """Return the moves that are still being watched, and the results of the others.

        A replacement that a rollout or a scale-down deletes says nothing about our move.
        """
        going_on: list[_Watched] = []
        lasting: list[Move] = []
        relapsed: list[Ended] = []
        undecided: list[Move] = []
        for each in self.watched:
            pod = snapshot.pods.get(each.replacement.key)
            if pod is None or pod.uid != each.replacement.uid or pod.terminating:
                undecided.append(each.ended.move)
            elif not pod.ready or pod.finished:
                relapsed.append(_relapsed(each, now))
            elif now - each.ready_at >= STEADY_SECONDS:
                lasting.append(each.ended.move)
            else:
                going_on.append(each)
        return Probation(tuple(going_on)), Judged(tuple(lasting), tuple(relapsed), tuple(undecided))

    def next_end(self) -> float | None:
        """Return when `judged` may have a result without an event, on the caller's clock; None if never."""
        return min((each.ready_at + STEADY_SECONDS for each in self.watched), default=None)


def _relapsed(watched: _Watched, now: float) -> Ended:
    pod = watched.replacement
    message = f"its replacement {pod.name} on {pod.node_name} was Ready for less than {now - watched.ready_at:.0f} s"
    return msgspec.structs.replace(watched.ended, outcome=Outcome.NOT_READY, message=message)
