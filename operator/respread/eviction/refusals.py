"""Remembers refusals, so that an eviction is not sent again until something has changed.

Budgets are checked before an eviction is sent, so most refusals never happen. The others come from a watch that is
behind, from admission webhooks or from missing permissions. Sending the same again at once would get the same answer.
Lasting results of the last look at a pod's controllers are remembered too, so that another pod is planned instead.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from operator import is_
from typing import Final, TypeAlias

import msgspec

from respread.api.reasons import Reason
from respread.cluster.objects import PodDisruptionBudget
from respread.cluster.pod import Pod
from respread.eviction.answers import Answer, EvictionResult
from respread.planning.held import Held
from respread.planning.victims.refused import Refused

Budgets: TypeAlias = tuple[PodDisruptionBudget, ...]
"""The budgets that select a pod, as from `BudgetLedger.budgets_of`."""

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

_Key: TypeAlias = tuple[str, ...]
"""The namespace first, then what was refused there."""


class _Refusal(msgspec.Struct, frozen=True):
    held: Held
    until: float
    budgets: Budgets | None = None
    """It ends when the pod's budgets are no longer these objects. A snapshot keeps unchanged objects, and a budget that
    changed back is another object. None: only time ends it."""

    def lasts(self, budgets: Budgets, now: float) -> bool:
        if self.budgets is not None:
            same = len(self.budgets) == len(budgets) and all(map(is_, self.budgets, budgets))
            return same and now < self.until
        return now < self.until


class Refusals:
    """What was refused, by pod or budget, while it is valid."""

    __slots__ = ("_clock", "_of_all", "_refusals")

    def __init__(self, clock: Callable[[], float]) -> None:
        """Start empty. `clock` returns seconds of a monotonic clock."""
        self._clock = clock
        self._refusals: dict[_Key, _Refusal] = {}
        self._of_all: _Refusal | None = None

    def note(self, pod: Pod, budgets: Budgets, answer: Answer) -> None:
        """Remember the API server's answer to a pod's eviction, if it was a refusal.

        Args:
            pod: the pod.
            budgets: the budgets that selected it in the snapshot at that time.
            answer: the API server's answer.
        """
        held = answer.held
        if held is None or answer.may_have_evicted:
            return
        now = self._clock()
        self._forget_ended(now)
        if answer.result in _BY_BUDGET:
            self._refusals[_key(pod, budgets)] = _Refusal(held, now + _AT_MOST_SECONDS, budgets)
        elif answer.result in _FOR_ALL_SECONDS:
            seconds = answer.retry_after_seconds or _FOR_ALL_SECONDS[answer.result]
            self._of_all = _Refusal(held, now + seconds)
        elif answer.result in _FOR_SECONDS:
            seconds = answer.retry_after_seconds or _FOR_SECONDS[answer.result]
            self._refusals[_key(pod, ())] = _Refusal(held, now + seconds)

    def hold(self, pod: Pod, held: Held) -> None:
        """Remember the result of the last look at a pod's controllers, if it is a lasting one.

        Args:
            pod: the pod that was to be evicted.
            held: why it was not.
        """
        if held.reason not in _OF_POD | _OF_CONTROLLER:
            return
        now = self._clock()
        self._forget_ended(now)
        key = _key(pod, ()) if held.reason in _OF_POD else _controller_key(pod)
        self._refusals[key] = _Refusal(held, now + _LOOK_AGAIN_SECONDS)

    def why_not(self, pod: Pod, budgets: Budgets) -> Held | None:
        """Return why evicting a pod would be useless now, or None.

        Args:
            pod: the pod.
            budgets: the budgets that select it now.
        """
        now = self._clock()
        if self._of_all is not None and self._of_all.lasts((), now):
            return self._of_all.held
        return _why_not(self._refusals, pod, budgets, now)

    def for_planning(self) -> Refused:
        """Return the current refusals for single pods and budgets. What holds all pods is over soon."""
        now = self._clock()
        self._forget_ended(now)
        refusals = self._refusals.copy()
        return Refused(
            lambda pod, budgets: _why_not(refusals, pod, budgets, now),
            frozenset(namespace for namespace, *_ in refusals),
        )

    def next_end(self) -> float | None:
        """Return when a refusal ends without an event, on the clock; None if none does."""
        return min((each.until for each in self._refusals.values()), default=None)

    def _forget_ended(self, now: float) -> None:
        self._refusals = {key: refusal for key, refusal in self._refusals.items() if refusal.until > now}


def _why_not(refusals: Mapping[_Key, _Refusal], pod: Pod, budgets: Budgets, now: float) -> Held | None:
    for key in (_key(pod, budgets), _key(pod, ()), _controller_key(pod)):
        refusal = refusals.get(key)
        if refusal is not None and refusal.lasts(budgets, now):
            return refusal.held
    return None


def _key(pod: Pod, budgets: Budgets) -> _Key:
    if not budgets:
        return (pod.namespace, "pod", pod.uid)
    return (pod.namespace, "budgets", *(budget.name for budget in budgets))


def _controller_key(pod: Pod) -> _Key:
    controller = pod.controller
    return _key(pod, ()) if controller is None else (pod.namespace, "controller", controller.uid)
