"""The kinds that Respread watches.

ReplicaSets, StatefulSets and ReplicationControllers are not among them: there may be hundreds of thousands, and few
ever matter. They are read when needed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from respread.api.policy import GROUP, PLURALS, VERSION, PolicyKind
from respread.api.record import RECORD_KINDS, RECORD_PLURALS
from respread.cluster.decode.decoder import KINDS, Kind

NODES: Final = KINDS["nodes"]
PODS: Final = KINDS["pods"]
UNFINISHED_PODS: Final = "status.phase!=Succeeded,status.phase!=Failed"
"""The field selector for pods. The scheduler never sees finished pods, and neither does Respread. If a pod finishes,
its watch reports a deletion."""

PRIORITY_CLASSES: Final = Kind("priorityclasses", "scheduling.k8s.io", "v1", "PriorityClass", namespaced=False)
CLUSTER_POLICIES: Final = Kind(
    PLURALS["ClusterRebalancePolicy"], GROUP, VERSION, "ClusterRebalancePolicy", namespaced=False
)
NAMESPACED_POLICIES: Final = Kind(PLURALS["RebalancePolicy"], GROUP, VERSION, "RebalancePolicy", namespaced=True)
POLICY_KINDS: Final = (CLUSTER_POLICIES, NAMESPACED_POLICIES)
_POLICY_KIND_NAMES: Final[tuple[tuple[Kind, PolicyKind], ...]] = (
    (CLUSTER_POLICIES, "ClusterRebalancePolicy"),
    (NAMESPACED_POLICIES, "RebalancePolicy"),
)
RECORDS: Final[Mapping[Kind, Kind]] = {
    kind: Kind(RECORD_PLURALS[name], GROUP, VERSION, RECORD_KINDS[name], namespaced=kind.namespaced)
    for kind, name in _POLICY_KIND_NAMES
}
"""The kind of the records of each kind of policy. The operator reads them when it begins to lead."""

_STATE_KINDS: Final = (
    PODS,
    *(
        KINDS[resource]
        for resource in (
            "nodes",
            "namespaces",
            "services",
            "persistentvolumeclaims",
            "persistentvolumes",
            "poddisruptionbudgets",
            "storageclasses",
            "csinodes",
        )
    ),
)


def watched_kinds(*, namespaced_policies: bool = True) -> tuple[Kind, ...]:
    """Return the watched kinds. Without `namespaced_policies`, RebalancePolicies are ignored."""
    policies = POLICY_KINDS if namespaced_policies else (CLUSTER_POLICIES,)
    return (*_STATE_KINDS, PRIORITY_CLASSES, *policies)


def full_name(kind: Kind) -> str:
    """Return a kind's resource as in messages of kubectl and RBAC: `pods`, `poddisruptionbudgets.policy`."""
    return f"{kind.resource}.{kind.group}" if kind.group else kind.resource
