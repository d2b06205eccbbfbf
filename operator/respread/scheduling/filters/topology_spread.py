"""PodTopologySpread: which pods and nodes count for a constraint.

These are the small questions; what their answers add up to is kept by spread groups, and by views of the cluster.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from respread.cluster.meta import Labels
from respread.cluster.node import Node
from respread.cluster.pod import Pod, PodSpec, TopologySpreadConstraint, WhenUnsatisfiable
from respread.cluster.selectors import Selector, compile_selector
from respread.scheduling.filters.node_affinity import matches_node_affinity
from respread.scheduling.filters.taint_toleration import untolerated_taint


@lru_cache(maxsize=16384)
def effective_selector(constraint: TopologySpreadConstraint, labels: Labels) -> Selector:
    """Return the selector by which a constraint counts pods: its own, and `matchLabelKeys` as the pod's labels say.

    A key that the pod doesn't have asks for nothing (KEP 3243); where the API server has written the same requirement
    into the selector already (1.34 and later) it is there once. An absent selector stays one that matches nothing.

    Args:
        constraint: of the pod.
        labels: of the same pod.
    """
    wanted = [(key, labels[key]) for key in constraint.match_label_keys if key in labels]
    selector = compile_selector(constraint.label_selector)
    return selector.with_labels(wanted) if wanted else selector


def counts_as_pod(pod: Pod) -> bool:
    """Tell whether a pod whose labels match counts on the node it is bound to, if that node exists.

    Terminating and finished pods don't, whatever their readiness; whether the pod carries the constraint itself, and
    who owns or scheduled it, makes no difference (`countPodsMatchSelector`).
    """
    return bool(pod.node_name) and pod.deletion_timestamp is None and not pod.finished


def required_keys(constraints: Iterable[TopologySpreadConstraint], when: WhenUnsatisfiable) -> tuple[str, ...]:
    """Return the topology keys, sorted, that a node must have all of to count for any of a pod's constraints of a kind.

    Hard constraints ask for the keys of hard ones only, soft for those of soft ones.
    """
    return tuple(sorted({each.topology_key for each in constraints if each.when_unsatisfiable == when}))


def eligible(node: Node, spec: PodSpec, constraint: TopologySpreadConstraint, keys: Iterable[str]) -> bool:
    """Tell whether a node counts for a constraint: its pods are counted, and its domain is one even without any.

    By default a tainted, cordoned or not ready node counts: see KEP 3094 for the two policies.

    Args:
        node: whether it has room, or is ready, does not matter.
        spec: of the pod that carries the constraint; its affinity and tolerations are looked at as the policies say.
        constraint: of that pod.
        keys: as from `required_keys`.
    """
    if not all(key in node.labels for key in keys):
        return False
    if constraint.node_affinity_policy == "Honor" and not matches_node_affinity(
        spec.node_selector, spec.node_affinity, node
    ):
        return False
    return constraint.node_taints_policy == "Ignore" or untolerated_taint(spec.tolerations, node.taints) is None
