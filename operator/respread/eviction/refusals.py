"""What was refused, so that it is not asked for again until something has changed.

Budgets are read before anything is asked, so most refusals never happen. Those that do come from a watch that lags
behind, from admission webhooks or from rights that are missing; asking for the same again at once would get the same
answer, only faster. What the last look at a pod's controllers finds and what lasts is remembered likewise, so that
another pod is planned in its place.
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
"""The budgets that select a pod, as `BudgetLedger.budgets_of` returns them."""

_BY_BUDGET: Final = frozenset(
    {EvictionResult.HELD_BY_BUDGET, EvictionResult.OVERLAPPING_BUDGETS, EvictionResult.BUDGET_REFUSED}
)
"""Holds until a budget of the pod changes."""
_AT_MOST_SECONDS: Final = 600.0
"""After that it is asked again all the same: a change and its reversal may both have been missed."""
_FOR_SECONDS: Final = {
    EvictionResult.BUDGET_OUT_OF_DATE: 10.0,
    EvictionResult.NAMESPACE_TERMINATING: 60.0,
    EvictionResult.FORBIDDEN: 60.0,
    EvictionResult.INVALID: 60.0,
    EvictionResult.UNAUTHORIZED: 10.0,
}
"""Holds for so long, where the API server does not say for how long itself."""
_FOR_ALL_SECONDS: Final = {EvictionResult.THROTTLED: 1.0, EvictionResult.UNREACHABLE: 1.0}
"""Holds for every pod, and for so long where the API server does not say."""
_OF_POD: Final = frozenset({Reason.PROTECTED_POD, Reason.REPLACEMENT_WOULD_WAIT, Reason.TEMPLATE_DIFFERS})
"""What the last look finds that lasts, and is so of one pod."""
_OF_CONTROLLER: Final = frozenset(
    {
        Reason.GROUP_TOO_LARGE,
        Reason.REPLACEMENT_REFUSED,
        Reason.TOO_FEW_REPLICAS,
        Reason.UNKNOWN_OWNER,
        Reason.UNKNOWN_REPLACEMENT,
    }
)
"""What it finds that is so of all pods of a controller."""
_LOOK_AGAIN_SECONDS: Final = 60.0
"""When the last look is worth another try."""

_Key: TypeAlias = tuple[str, ...]
"""The namespace first, then what was refused there."""


class _Refusal(msgspec.Struct, frozen=True):
    held: Held
    until: float
    budgets: Budgets | None = None
    """It ends as soon as the pod's budgets are not these very objects any more: a snapshot keeps what has not changed,
    and a budget that has changed and changed back is another object. None: it ends by time alone."""

    def lasts(self, budgets: Budgets, now: float) -> bool:
        if self.budgets is not None:
            same = len(self.budgets) == len(budgets) and all(map(is_, self.budgets, budgets))
            return same and now < self.until
        return now < self.until


class Refusals:
    """What was refused, by pod or budget, for as long as that is worth remembering."""

    __slots__ = ("_clock", "_of_all", "_refusals")

    def __init__(self, clock: Callable[[], float]) -> None:
        """Remember nothing yet; `clock` returns seconds that never go back."""
        self._clock = clock
        self._refusals: dict[_Key, _Refusal] = {}
        self._of_all: _Refusal | None = None

    def note(self, pod: Pod, budgets: Budgets, answer: Answer) -> None:
        """Remember what the API server answered to a pod's eviction, if that was a refusal.

        Args:
            pod: the pod.
            budgets: the budgets that selected it in the snapshot by which it was asked for.
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
        """Remember what the last look at a pod's controllers found, if it is of the kind that lasts.

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
        """Return why there is no point in asking for a pod's eviction now, or None if there is.

        Args:
            pod: the pod.
            budgets: the budgets that select it now.
        """
        now = self._clock()
        if self._of_all is not None and self._of_all.lasts((), now):
            return self._of_all.held
        return _why_not(self._refusals, pod, budgets, now)

    def for_planning(self) -> Refused:
        """Return what was refused of single pods and budgets, as it is now: what holds all pods is soon over."""
        now = self._clock()
        self._forget_ended(now)
        refusals = self._refusals.copy()
        return Refused(
            lambda pod, budgets: _why_not(refusals, pod, budgets, now),
            frozenset(namespace for namespace, *_ in refusals),
        )

    def next_end(self) -> float | None:
        """Return when a refusal ends by time alone, on the clock; None where none does."""
        return min((each.until for each in self._refusals.values()), default=None)

    def _forget_ended(self, now: float) -> None:
        self._refusals = {key: refusal for key, refusal in self._refusals.items() if refusal.until > now}


def _why_not(refusals: Mapping[_Key, _Refusal], pod: Pod, budgets: Budgets, now: float) -> Held | None:
    for key in {_key(pod, budgets), _key(pod, ()), _controller_key(pod)}:
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
