"""The order in which a StatefulSet creates its pods: with `podManagementPolicy: OrderedReady`, one after another.

Mirrors `updateStatefulSet` and `processReplica` (pkg/controller/statefulset/stateful_set_control.go, 1.36): the
controller processes the ordinals from the lowest up, and stops at the first pod that it has just created, that is being
deleted, or that is not Running, Ready and available.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Final, NamedTuple

from respread.api.reasons import Reason
from respread.eviction.owners.reading import ControllerObject, ListedPod
from respread.planning.held import Held
from respread.planning.victims.controllers import ordinal_of

PARALLEL: Final = "Parallel"
"""The `podManagementPolicy` with which no pod waits for another."""


class _Lack(NamedTuple):
    """Why a StatefulSet's controller would stop at a pod."""

    reason: Reason
    words: str


def why_replacement_waits(
    stateful_set: ControllerObject,
    pods: Iterable[ListedPod],
    pod_name: str,
    *,
    leaving: Collection[str],
    together: Collection[str],
    now: datetime,
) -> Held | None:
    """Return which pods would wait for one another after the eviction of a StatefulSet's pod, or None.

    Missing or leaving pods are a temporary reason (`InMotion`). Others may last.

    Args:
        stateful_set: the StatefulSet as it was read.
        pods: all of its pods as they were listed, including those being deleted.
        pod_name: the name of the pod to be evicted.
        leaving: UIDs of its pods that Respread evicted and whose move is in flight.
        together: UIDs of the pods to be evicted together with this one.
        now: the time, with a time zone.
    """
    spec, name = stateful_set.spec, stateful_set.metadata.name
    if spec.pod_management_policy == PARALLEL:
        return None
    by_ordinal = {ordinal_of(each.metadata.name): each for each in pods}
    start, own = spec.ordinals.start, ordinal_of(pod_name)

    def lack(ordinal: int) -> _Lack | None:
        return _absence(by_ordinal.get(ordinal), leaving, together)

    for ordinal in range(start, own):
        found = lack(ordinal) or _unavailability(by_ordinal[ordinal], spec.min_ready_seconds, now)
        if found is not None:
            return Held(
                found.reason,
                f"StatefulSet {name} (podManagementPolicy OrderedReady) recreates {pod_name} only when all lower "
                f"ordinals are Ready and available, and {name}-{ordinal} {found.words}",
            )
    for ordinal in range(own + 1, start + spec.replicas):
        if (found := lack(ordinal)) is not None:
            return Held(
                found.reason,
                f"StatefulSet {name} (podManagementPolicy OrderedReady) would create {name}-{ordinal}, which "
                f"{found.words}, only when the replacement of {pod_name} is Ready and available",
            )
    return None


def _absence(pod: ListedPod | None, leaving: Collection[str], together: Collection[str]) -> _Lack | None:
    """Return why a pod is missing, or soon will be; None if it stays."""
    if pod is None:
        return _Lack(Reason.IN_MOTION, "is missing")
    if pod.metadata.uid in leaving:
        return _Lack(Reason.IN_MOTION, "is being moved")
    if not pod.active:
        return _Lack(Reason.IN_MOTION, "is being deleted or has run to its end")
    if pod.metadata.uid in together:
        return _Lack(Reason.REPLACEMENT_WOULD_WAIT, "would have to go together with it")
    return None


def _unavailability(pod: ListedPod, min_ready_seconds: int, now: datetime) -> _Lack | None:
    """Return why the controller would wait for an existing pod, or None."""
    if not pod.is_available(0, now):
        return _Lack(Reason.REPLACEMENT_WOULD_WAIT, "is not Ready")
    if not pod.is_available(min_ready_seconds, now):
        words = f"has not been Ready for minReadySeconds, {min_ready_seconds} s, yet"
        return _Lack(Reason.REPLACEMENT_WOULD_WAIT, words)
    return None
