"""PodTopologySpread: which pods and nodes count for a constraint.

Both spread groups and views of the cluster use these rules.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import lru_cache

from respread.api.policy import WhenUnsatisfiable
from respread.cluster.bounded_cache import MOST_RESULTS, MOST_SMALL
from respread.cluster.meta import Labels
from respread.cluster.objects import Node
from respread.cluster.pod import Pod, PodSpec, TopologySpreadConstraint
from respread.cluster.selectors import Selector, compile_selector
from respread.scheduling.filters.node_affinity import matches_node_affinity
from respread.scheduling.filters.taint_toleration import untolerated_taint


def effective_selector(constraint: TopologySpreadConstraint, labels: Labels) -> Selector:
    """Return the selector by which a constraint counts pods: its own, plus `matchLabelKeys` with the pod's values.

    A key that the pod does not have is ignored (KEP 3243). If the API server has already added the requirement to the
    selector (1.34 and later), it appears once. An absent selector stays absent and matches nothing.

    Args:
        constraint: a constraint of the pod.
        labels: the labels of the pod.
    """
    wanted = tuple((key, labels[key]) for key in constraint.match_label_keys if key in labels)
    selector = compile_selector(constraint.label_selector)
    if not wanted:
        return selector
    is_small = selector.size + len(wanted) <= MOST_SMALL
    return _narrowed(selector, wanted) if is_small else selector.with_labels(wanted)


@lru_cache(maxsize=MOST_RESULTS)
def _narrowed(selector: Selector, labels: tuple[tuple[str, str], ...]) -> Selector:
    return selector.with_labels(labels)


def counts_as_pod(pod: Pod) -> bool:
    """Return whether a pod with matching labels counts on the node that it is bound to, if that node exists.

    Terminating and finished pods don't count. Readiness makes no difference, nor whether the pod has the constraint
    itself, nor its owner or scheduler (`countPodsMatchSelector`).
    """
    return bool(pod.node_name) and pod.deletion_timestamp is None and not pod.finished


def required_keys(constraints: Iterable[TopologySpreadConstraint], when: WhenUnsatisfiable) -> tuple[str, ...]:
    """Return the topology keys, sorted, that a node must have to count for a pod's constraints of one kind.

    Hard constraints require the keys of hard ones only, soft constraints those of soft ones.
    """
    return tuple(sorted({each.topology_key for each in constraints if each.when_unsatisfiable == when}))


def minimum_is_zero(domains: int, min_domains: int) -> bool:
    """Return whether the global minimum is 0 because there are fewer eligible domains than minDomains (KEP 3022)."""
    return domains < min_domains


def eligible(node: Node, spec: PodSpec, constraint: TopologySpreadConstraint, keys: Iterable[str]) -> bool:
    """Return whether a node counts for a constraint: its pods are counted, and its domain exists even without pods.

    By default, tainted, cordoned and not Ready nodes count. KEP 3094 defines the two policies.

    Args:
        node: the node. Its free resources and readiness make no difference.
        spec: the spec of the pod with the constraint. The policies decide whether its affinity and tolerations are
            used.
        constraint: the constraint.
        keys: as from `required_keys`.
    """
    if not all(key in node.labels for key in keys):
        return False
    if constraint.node_affinity_policy == "Honor" and not matches_node_affinity(
        spec.node_selector, spec.node_affinity, node
    ):
        return False
    return constraint.node_taints_policy == "Ignore" or untolerated_taint(spec.tolerations, node.taints) is None
