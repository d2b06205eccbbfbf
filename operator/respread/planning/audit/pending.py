"""Why a pod is Pending: what kube-scheduler would answer now, with each constraint on its own."""

from __future__ import annotations

from collections import Counter
from typing import Final

from respread.scheduling.prepared_pod import PreparedPod

_WORDS: Final = {
    "NodeUnschedulable": "are cordoned",
    "TaintToleration": "have a taint that it does not tolerate",
    "NodeAffinity": "do not match its nodeSelector or affinity",
    "NodePorts": "have no free port for it",
    "NodeResourcesFit": "have too little room",
    "InterPodAffinity": "do not match its affinity to other pods",
}


def why_pending(pod: PreparedPod, nodes: list[str]) -> str:
    """Return how many nodes reject a pod, by the first filter that does, as in the Event `FailedScheduling`.

    kube-scheduler gives one number for all topology spread constraints. Here each has its own, and what it says of one
    of the nodes.

    Args:
        pod: the pod, on the current view.
        nodes: the names of all nodes, sorted.
    """
    if pod.unknown is not None:
        return f"it can't be told why: {pod.unknown.message}"
    numbers: Counter[str] = Counter()
    examples: dict[str, str] = {}
    for name in nodes:
        rejection = pod.first_rejection(name)
        if rejection is None:
            continue
        # The message of PodTopologySpread begins with the topology key.
        why = _WORDS.get(rejection.plugin, f"are rejected by {rejection.plugin}")
        if rejection.plugin == "PodTopologySpread":
            key = rejection.message.split(" ", 1)[0]
            why = f"would break {key}" if key != "has" else "lack a topology key"
        numbers[why] += 1
        examples.setdefault(why, f"{name}: {rejection.message}")
    fitting = len(nodes) - numbers.total()
    if fitting:
        return f"{fitting} of {len(nodes)} nodes can take it now"
    parts = [f"{number} {why} ({examples[why]})" for why, number in numbers.most_common()]
    return f"0 of {len(nodes)} nodes are available: {'; '.join(parts)}"
