"""The order in which a StatefulSet brings back its pods: with `podManagementPolicy: OrderedReady` one after another.

Mirrors `updateStatefulSet` and `processReplica` (pkg/controller/statefulset/stateful_set_control.go, 1.36): the
controller goes through the ordinals from the lowest up and stops at the first pod that it has just created, that is
being deleted, or that is not Running, Ready and available.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from datetime import datetime
from typing import Final

from respread.api.reasons import Reason
from respread.eviction.owner_reading import ControllerObject, ListedPod
from respread.planning.held import Held

PARALLEL: Final = "Parallel"
"""The `podManagementPolicy` under which no pod waits for another."""


def ordinal_of(pod_name: str) -> int:
    """Return the ordinal at the end of a pod's name, -1 where there is none (`getOrdinal`)."""
    digits = pod_name.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else -1


def why_replacement_waits(
    stateful_set: ControllerObject,
    pods: Iterable[ListedPod],
    pod_name: str,
    leaving: Collection[str],
    now: datetime,
) -> Held | None:
    """Return which pods would wait for one another if a pod of a StatefulSet were evicted, or None if none would.

    Args:
        stateful_set: as it was read.
        pods: all of its pods as they were listed, those being deleted too.
        pod_name: of the pod that is to be evicted.
        leaving: UIDs of its pods that we evict besides, or have evicted and whose move is under way.
        now: the time, with a time zone.
    """
    spec, name = stateful_set.spec, stateful_set.metadata.name
    if spec.pod_management_policy == PARALLEL:
        return None
    by_ordinal = {ordinal_of(each.metadata.name): each for each in pods}
    start, own = spec.ordinals.start, ordinal_of(pod_name)
    for ordinal in range(start, own):
        if (lacks := _what_lacks(by_ordinal.get(ordinal), leaving, spec.min_ready_seconds, now)) is not None:
            return Held(
                Reason.REPLACEMENT_WOULD_WAIT,
                f"StatefulSet {name} (podManagementPolicy OrderedReady) creates {pod_name} anew only when all lower "
                f"ordinals are Ready and available, and {name}-{ordinal} {lacks}",
            )
    for ordinal in range(own + 1, start + spec.replicas):
        if (gone := _why_gone(by_ordinal.get(ordinal), leaving)) is not None:
            return Held(
                Reason.REPLACEMENT_WOULD_WAIT,
                f"StatefulSet {name} (podManagementPolicy OrderedReady) would create {name}-{ordinal}, which {gone}, "
                f"only when the replacement of {pod_name} is Ready and available",
            )
    return None


def _what_lacks(pod: ListedPod | None, leaving: Collection[str], min_ready_seconds: int, now: datetime) -> str | None:
    """Return why the controller would stop at a pod of a lower ordinal, or None if it would not."""
    if pod is None or (gone := _why_gone(pod, leaving)) is not None:
        return "is missing" if pod is None else gone
    if not pod.is_available(0, now):
        return "is not Ready"
    if not pod.is_available(min_ready_seconds, now):
        return f"has not been Ready for minReadySeconds, {min_ready_seconds} s, yet"
    return None


def _why_gone(pod: ListedPod | None, leaving: Collection[str]) -> str | None:
    if pod is None:
        return "is missing"
    if pod.metadata.uid in leaving:
        return "is being moved"
    return None if pod.active else "is being deleted or has run to its end"
