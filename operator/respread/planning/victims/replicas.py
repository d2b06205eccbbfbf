"""How many replicas a workload must have for its pods to be evicted (`victims.minReplicas`)."""

from __future__ import annotations

from respread.api.reasons import Reason
from respread.planning.held import Held


def why_too_few(controller: str, replicas: int, min_replicas: int) -> Held | None:
    """Return why the pods of a workload are left alone because it is too small, or None if it is not.

    Args:
        controller: the name of the workload for the message.
        replicas: how many pods it wants, or how many it has, if only that is known.
        min_replicas: the value of the policy.
    """
    if replicas >= min_replicas:
        return None
    number = f"{replicas} replica{'' if replicas == 1 else 's'}"
    return Held(
        Reason.TOO_FEW_REPLICAS,
        f"{controller} has {number}, fewer than the policy's victims.minReplicas of {min_replicas}; more replicas, or "
        "a lower victims.minReplicas, would allow it",
    )
