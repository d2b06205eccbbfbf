"""Annotations by which a pod protects itself. Each is interpreted as by the project that defines it.

A value without a defined meaning protects the pod, because it more likely means no than yes. docs/policy.md lists the
annotations.
"""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

from respread.api.reasons import Reason
from respread.cluster.annotations import (
    DO_NOT_DISRUPT,
    EVICT,
    PREFER_NO_EVICTION,
    SAFE_TO_EVICT,
    SAFE_TO_EVICT_LOCAL_VOLUMES,
)
from respread.cluster.decode.go_duration import parse_go_duration
from respread.cluster.pod import Pod
from respread.planning.held import Held

NEVER: Final = "never"
"""The value of the annotation `respread.dev/evict` that protects a pod."""
_YES: Final = "true"
_NO: Final = "false"


def why_it_refuses(pod: Pod, now: datetime) -> Held | None:
    """Return the annotation that protects a pod from eviction, or None.

    Args:
        pod: the pod.
        now: the time, with a time zone.
    """
    annotations = pod.annotations
    if (word := annotations.get(EVICT)) is not None:
        known = "" if word == NEVER else f", which counts as {NEVER!r}, the only value there is"
        return _protected(f"its annotation {EVICT} says {word!r}{known}")
    if (word := annotations.get(SAFE_TO_EVICT, _YES)) != _YES:
        known = "" if word == _NO else f", which counts as {_NO!r}: it is neither that nor {_YES!r}"
        return _protected(f"its annotation {SAFE_TO_EVICT} says {word!r}{known}")
    if PREFER_NO_EVICTION in annotations:
        return _protected(f"it has the annotation {PREFER_NO_EVICTION}")
    return _while_not_to_be_disrupted(pod, now)


def minds_local_storage(pod: Pod) -> bool:
    """Return whether a pod has storage on its node that its annotations don't allow to lose.

    Mirrors Cluster Autoscaler's `HasBlockingLocalStorage`: names are separated by commas and nothing else.
    """
    annotations = pod.annotations
    if not pod.spec.has_local_storage or annotations.get(SAFE_TO_EVICT) == _YES:
        return False
    if (named := annotations.get(SAFE_TO_EVICT_LOCAL_VOLUMES)) is None:
        return True
    return not pod.spec.local_volumes or not set(named.split(",")).issuperset(pod.spec.local_volumes)


def _while_not_to_be_disrupted(pod: Pod, now: datetime) -> Held | None:
    """Mirrors Karpenter's `IsDoNotDisruptActive`, except for values that it ignores: those protect here."""
    word = pod.annotations.get(DO_NOT_DISRUPT, _NO)
    if word == _NO:
        return None
    says = f"its annotation {DO_NOT_DISRUPT} says {word!r}"
    if word == _YES:
        return _protected(says)
    duration = parse_go_duration(word)
    if duration is None or duration <= timedelta(0):
        return _protected(
            f"{says}, which counts as {_YES!r}: it is neither that nor {_NO!r} nor a duration such as 30m"
        )
    return _for_a_time(f"{says}, counted from its start", pod.start_time, duration, now)


def _for_a_time(says: str, start: datetime | None, duration: timedelta, now: datetime) -> Held | None:
    if start is None:
        return Held(Reason.PROTECTED_POD, f"{says}, and it has not started yet")
    if now - start >= duration:
        return None
    if datetime.max.replace(tzinfo=UTC) - start <= duration:
        return _protected(says)
    until = start + duration
    return Held(Reason.PROTECTED_POD, f"{says}: until {until.isoformat(timespec='seconds')}", until=until)


def _protected(which: str) -> Held:
    return Held(Reason.PROTECTED_POD, f"{which}; without it, the pod may be evicted")
