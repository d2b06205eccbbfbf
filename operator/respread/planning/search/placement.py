"""Where the replacement of an evicted pod may be placed: the scheduler's rules, as planning asks for them."""

from __future__ import annotations

import msgspec

from respread.cluster.pod import Pod
from respread.scheduling.predictor import Predictor
from respread.scheduling.prepared_pod import PreparedPod
from respread.scheduling.view.cluster_view import ClusterView
from respread.scheduling.view.node_sets import NodeSet, members
from respread.scheduling.view.node_table import NodeTable


class Placement:
    """The cluster under change, and what the scheduler would say of it."""

    __slots__ = ("_predictor",)

    def __init__(self, predictor: Predictor) -> None:
        """Ask a predictor; plans change its view, and take their changes back."""
        self._predictor = predictor

    def prepare_waiting(self, pod: Pod) -> PreparedPod:
        """Return what answers for a pod that has no node."""
        return self._predictor.prepare(pod)

    @property
    def view(self) -> ClusterView:
        """The cluster as it is, with the steps that were tried on it."""
        return self._predictor.view

    @property
    def table(self) -> NodeTable:
        """The nodes in their slots."""
        return self._predictor.view.table

    def prepare(self, pod: Pod) -> PreparedPod:
        """Return what answers for the replacement of a pod, whatever the view shows."""
        return self._predictor.prepare(replacement_of(pod))

    def names(self, nodes: NodeSet) -> list[str]:
        """Return the names of nodes."""
        return members(nodes, self.table.names)


def replacement_of(pod: Pod) -> Pod:
    """Return the pod that its controller creates in a pod's place.

    A StatefulSet gives it the name of the old one, and so the same claims; from all others it has a name that nobody
    knows yet.
    """
    name = pod.name if is_replaced_when_gone(pod) else ""
    return msgspec.structs.replace(
        pod, name=name, uid="", node_name="", nominated_node_name="", phase="Pending", ready=False, held_requests=None
    )


def is_replaced_when_gone(pod: Pod) -> bool:
    """Whether the controller creates the replacement only when the pod is gone, rather than as it begins to terminate.

    A StatefulSet does, because of the name.
    """
    return pod.controller is not None and pod.controller.kind == "StatefulSet"
