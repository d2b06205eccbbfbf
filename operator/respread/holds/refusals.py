"""Remembers refusals, so that an eviction is not sent again until something has changed.

Budgets are checked before an eviction is sent, so most refusals never happen. The others come from a watch that is
behind, from admission webhooks or from missing permissions. Sending the same again at once would get the same answer.
Lasting results of the last look at a pod's controllers are remembered too, so that another pod is planned instead. What
held a move just now holds it, and the others of its groups, for a moment: the cause may be gone soon, but not at once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Hashable
from math import inf
from operator import is_
from typing import Final, Generic, TypeAlias, TypeVar

import msgspec

from respread.api.reasons import Held, Reason
from respread.cluster.objects import PodDisruptionBudget
from respread.cluster.pod import Pod
from respread.eviction.answers import Answer, EvictionResult
from respread.planning.plan import Move
from respread.planning.victims.selection import Refused
from respread.spread.group import GroupKey
from respread.timing import GrowingPause

Budgets: TypeAlias = tuple[PodDisruptionBudget, ...]
"""The budgets that select a pod, as from `BudgetBook.budgets_of`."""

_BY_BUDGET: Final = frozenset(
    {EvictionResult.HELD_BY_BUDGET, EvictionResult.OVERLAPPING_BUDGETS, EvictionResult.BUDGET_REFUSED}
)
"""Valid until a budget of the pod changes."""
_AT_MOST_SECONDS: Final = 600.0
"""After this time, the eviction is sent again in any case, because a change and its reversal may both have been
missed."""
_FOR_SECONDS: Final = {
    EvictionResult.BUDGET_OUT_OF_DATE: 10.0,
    EvictionResult.NAMESPACE_TERMINATING: 60.0,
    EvictionResult.FORBIDDEN: 60.0,
    EvictionResult.INVALID: 60.0,
    EvictionResult.UNAUTHORIZED: 10.0,
}
"""Valid for this time, if the API server does not specify one."""
_FOR_ALL_SECONDS: Final = {EvictionResult.THROTTLED: 1.0, EvictionResult.UNREACHABLE: 1.0}
"""Valid for every pod, and for this time if the API server does not specify one."""
_OF_POD: Final = frozenset({Reason.PROTECTED_POD, Reason.REPLACEMENT_WOULD_WAIT, Reason.TEMPLATE_DIFFERS})
"""Lasting results of the last look for one pod."""
_OF_CONTROLLER: Final = frozenset(
    {
        Reason.GROUP_TOO_LARGE,
        Reason.REPLACEMENT_REFUSED,
        Reason.TOO_FEW_REPLICAS,
        Reason.UNKNOWN_OWNER,
        Reason.UNKNOWN_REPLACEMENT,
    }
)
"""Lasting results of the last look for all pods of a controller."""
_LOOK_AGAIN_SECONDS: Final = 60.0
"""After this time, the last look is repeated."""

PAUSE: Final = GrowingPause(first_seconds=1.0, longest_seconds=10.0)
"""For this time after it was held, neither a move nor another one for its groups is chosen. It grows where what is
needed could not be read again and again, or where the same holds it for long, as in a rollout that is stuck."""
_PATIENT_TIMES: Final = 5
"""How often in a row the same may hold a move, if that is motion, before the pause grows: most of it ends soon."""
_FORGET_SECONDS: Final = 60.0
"""How long after a pause it is remembered how long it was."""

_Key: TypeAlias = tuple[str, ...]
"""The namespace first, then what was refused there."""
_ALL: Final[_Key] = ()
_K = TypeVar("_K", bound=Hashable)


class _Hold(msgspec.Struct, frozen=True):
    held: Held
    until: float
    budgets: Budgets | None = None
    """It ends when the pod's budgets are no longer these objects. A snapshot keeps unchanged objects, and a budget that
    changed back is another object. None: only time ends it."""
    times: int = 1
    """How often in a row it was held for the same reason, if that makes the pause longer."""

    def lasts(self, budgets: Budgets, now: float) -> bool:
        if self.budgets is not None:
            same = len(self.budgets) == len(budgets) and all(map(is_, self.budgets, budgets))
            return same and now < self.until
        return now < self.until


class _Table(dict[_K, _Hold], Generic[_K]):
    """What is held, by key. The first of several keys that is held says why."""

    def why(self, keys: Collection[_K], now: float, budgets: Budgets = ()) -> Held | None:
        holds = (hold for key in keys if (hold := self.get(key)) is not None)
        return next((hold.held for hold in holds if hold.lasts(budgets, now)), None)

    def forget_ended(self, now: float) -> None:
        for key in [key for key, hold in self.items() if hold.until <= now]:
            del self[key]

    def next_end(self, after: float = -inf) -> float:
        return min((hold.until for hold in self.values() if after < hold.until), default=inf)


class Refusals:
    """What was refused or held, while it is valid. It belongs to one event loop."""

    def __init__(self, clock: Callable[[], float]) -> None:
        """Start empty. `clock` returns seconds of a monotonic clock."""
        self._clock = clock
        self._refusals: _Table[_Key] = _Table()
        self._lately: _Table[str | GroupKey] = _Table()
        """By the UIDs of pods, and by the groups of moves."""

    def note(self, pod: Pod, budgets: Budgets, answer: Answer) -> None:
        """Remember the API server's answer to a pod's eviction, if it was a refusal.

        The budgets are those that selected it in the snapshot at that time.
        """
        held, now, result = answer.held, self._clock(), answer.result
        if held is None:
            return
        if result in _BY_BUDGET:
            self._refusals[_key(pod, budgets)] = _Hold(held, now + _AT_MOST_SECONDS, budgets)
        elif (seconds := _FOR_ALL_SECONDS.get(result)) is not None:
            self._refusals[_ALL] = _Hold(held, now + (answer.retry_after_seconds or seconds))
        elif (seconds := _FOR_SECONDS.get(result)) is not None:
            self._refusals[_key(pod, ())] = _Hold(held, now + (answer.retry_after_seconds or seconds))

    def hold(self, pod: Pod, held: Held) -> None:
        """Remember the result of the last look at a pod's controllers, if it is a lasting one."""
        if held.reason in _OF_POD | _OF_CONTROLLER:
            key = _key(pod, ()) if held.reason in _OF_POD else _controller_key(pod)
            self._refusals[key] = _Hold(held, self._clock() + _LOOK_AGAIN_SECONDS)

    def why_not(self, pod: Pod, budgets: Budgets) -> Held | None:
        """Return why evicting a pod would be useless now, or None."""
        return self._refusals.why((_ALL, *_keys(pod, budgets)), self._clock(), budgets)

    def for_planning(self) -> Refused:
        """Return the current refusals for single pods and budgets. What holds all pods is over soon."""
        now = self._clock()
        self._refusals.forget_ended(now)
        refusals = _Table(self._refusals)
        return Refused(
            lambda pod, budgets: refusals.why(_keys(pod, budgets), now, budgets),
            frozenset(key[0] for key in refusals if key is not _ALL),
        )

    # Held just now

    def held_back(self, move: Move, held: Held) -> None:
        """Record that a move was not made, and why."""
        now = self._clock()
        keys: tuple[str | GroupKey, ...] = (move.pod.uid, *move.groups)
        for key in keys:
            times, before = 1, self._lately.get(key)
            unread = held.reason is Reason.API_UNAVAILABLE
            if before is not None and (before.held.reason is held.reason if unread else before.held == held):
                times = before.times + (now >= before.until)
            pauses = times if unread else times - _PATIENT_TIMES
            self._lately[key] = _Hold(held, now + PAUSE.seconds(pauses), times=times)

    def why_not_chosen(self, move: Move) -> Held | None:
        """Return why a move is not chosen now, or None if it may be."""
        return self._lately.why((move.pod.uid, *move.groups), self._clock())

    def next_end(self) -> float:
        """Return when something ends without an event, on the clock; infinity if nothing does."""
        now = self._clock()
        self._lately.forget_ended(now - _FORGET_SECONDS)
        return min(self._refusals.next_end(), self._lately.next_end(now))


def _keys(pod: Pod, budgets: Budgets) -> tuple[_Key, ...]:
    return _key(pod, budgets), _key(pod, ()), _controller_key(pod)


def _key(pod: Pod, budgets: Budgets) -> _Key:
    if not budgets:
        return (pod.namespace, "pod", pod.uid)
    return (pod.namespace, "budgets", *(budget.name for budget in budgets))


def _controller_key(pod: Pod) -> _Key:
    controller = pod.controller
    return _key(pod, ()) if controller is None else (pod.namespace, "controller", controller.uid)
