"""Why a pod is Pending: what kube-scheduler would answer now, with each constraint on its own."""

from __future__ import annotations

from typing import Final, NamedTuple

from respread.scheduling.prepared_pod import PreparedPod
from respread.scheduling.verdict import Plugin, Rejection, Unknown

_WORDS: Final = {
    "NodeUnschedulable": "are cordoned",
    "TaintToleration": "have a taint that it does not tolerate",
    "NodeAffinity": "do not match its nodeSelector or affinity",
    "NodePorts": "have no free port for it",
    "NodeResourcesFit": "have too little room",
    "InterPodAffinity": "do not match its affinity to other pods",
}


class RejectedNodes(NamedTuple):
    """The nodes that reject a pod for the same reason."""

    plugin: Plugin
    """The filter that does."""
    topology_key: str | None
    """Of the topology spread constraint, if the filter is PodTopologySpread."""
    nodes: int
    why: str
    """Such as `have too little room`."""
    example: str
    """One of the nodes, and what the filter says about it."""

    def __str__(self) -> str:
        """Return the reason in words."""
        return f"{self.nodes} {self.why} ({self.example})"


class WhyPending(NamedTuple):
    """Why a pod has no node."""

    nodes: int
    """How many nodes there are."""
    rejected: tuple[RejectedNodes, ...]
    """Those that reject it, the largest number first."""
    unknown: Unknown | None
    """Why it can't be told, or is not the nodes' fault; None if it can."""

    def __str__(self) -> str:
        """Return the sentence of the Event `FailedScheduling`, with the number of nodes for each constraint."""
        if self.unknown is not None:
            gated = self.unknown.subject == "schedulingGates"
            return self.unknown.message if gated else f"it can't be told why: {self.unknown.message}"
        if fitting := self.nodes - sum(each.nodes for each in self.rejected):
            return f"{fitting} of {self.nodes} nodes can take it now"
        return f"0 of {self.nodes} nodes are available: {'; '.join(map(str, self.rejected))}"


def why_pending(pod: PreparedPod, nodes: list[str]) -> WhyPending:
    """Return how many nodes reject a pod, by the first filter that does, as in the Event `FailedScheduling`.

    kube-scheduler gives one number for all topology spread constraints. Here each has its own, and what it says of one
    of the nodes.

    Args:
        pod: the pod, on the current view.
        nodes: the names of all nodes, sorted.
    """
    if pod.unknown is not None and not pod.unknown.filters_answer:
        return WhyPending(len(nodes), (), pod.unknown)
    found: dict[tuple[Plugin, str | None, str], RejectedNodes] = {}
    for name in nodes:
        if (rejection := pod.first_rejection(name)) is None:
            continue
        key, why = _reason(rejection)
        at = rejection.plugin, key, why
        first = found.get(at) or RejectedNodes(*at[:2], 0, why, f"{name}: {rejection.message}")
        found[at] = first._replace(nodes=first.nodes + 1)
    if pod.unknown is not None and sum(each.nodes for each in found.values()) < len(nodes):
        return WhyPending(len(nodes), (), pod.unknown)
    return WhyPending(len(nodes), tuple(sorted(found.values(), key=lambda each: -each.nodes)), None)


def _reason(rejection: Rejection) -> tuple[str | None, str]:
    """Return the topology key that a rejection is about, and the reason in words."""
    if rejection.plugin != "PodTopologySpread":
        return None, _WORDS.get(rejection.plugin, f"are rejected by {rejection.plugin}")
    # The message begins with the key, or it is `has no label KEY, …`.
    key, _, said = rejection.message.partition(" ")
    if key != "has":
        return key, f"would break {key}"
    key = said.removeprefix("no label ").partition(",")[0]
    return key, f"lack the label {key}"
