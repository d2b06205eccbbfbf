"""Whether the controllers of some pods have all the pods they want: until they do, the spread they end in is not known.

A pod that was evicted and is gone leaves no trace but this: its controller is one pod short. So a planner that has just
been started, or has just come to lead, sees by it that a skew is being cured already.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from respread.api.reasons import Reason
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.planning.controllers import controller_of, siblings_of
from respread.planning.held import Held


def why_incomplete(snapshot: ClusterSnapshot, pods: Iterable[Pod]) -> Held | None:
    """Return which controller of some pods has more or fewer pods than it wants, or None if none has.

    Controllers that are not watched, or of kinds that are not, are passed over.

    Args:
        snapshot: the cluster; pods in flight count as gone, so it may be overlaid with them or not.
        pods: pods whose controllers matter, such as all those that the groups of one component count.
    """
    sample: dict[str, Pod] = {}
    active: Counter[str] = Counter()
    for pod in pods:
        if pod.controller is not None:
            sample.setdefault(pod.controller.uid, pod)
            active[pod.controller.uid] += _is_active(pod)
    for uid, pod in sample.items():
        if pod.controller is None or (workload := controller_of(snapshot, pod)) is None:
            continue
        named = f"{pod.controller.kind} {pod.controller.name}"
        if workload.observed_generation < workload.generation:
            return Held(Reason.IN_MOTION, f"{named} has changed and its controller has not caught up with that yet")
        # the given pods are all of the controller's but where their labels differ: count those only if it matters
        count = active[uid]
        if count != workload.replicas:
            count = sum(map(_is_active, siblings_of(snapshot, pod)))
        if count < workload.replicas:
            return Held(
                Reason.IN_MOTION,
                f"{named} has {count} pods and wants {workload.replicas}: a replacement is still to come",
            )
        if count > workload.replicas:
            return Held(
                Reason.IN_MOTION, f"{named} has {count} pods and wants {workload.replicas}: it is being scaled down"
            )
    return None


def _is_active(pod: Pod) -> bool:
    """Mirrors `IsPodActive`, by which controllers count their pods."""
    return not pod.terminating and not pod.finished
