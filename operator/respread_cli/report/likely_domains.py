"""Which topology domains a pod may land in: the certain answer, and the likely one."""

from __future__ import annotations

import msgspec

from respread.scheduling.prepared_pod import PreparedPod
from respread.scheduling.verdict import Unknown


class LikelyDomains(msgspec.Struct, frozen=True):
    """Where a pod may go, as values of one topology key."""

    topology_key: str
    sure: frozenset[str]
    """The domains of all feasible nodes. The pod goes to one of these, or nowhere if there are none.

    With more than 100 nodes, the scheduler examines only some of them, and it picks at random among equal scores. So
    the node itself can't be predicted.
    """
    likely: frozenset[str]
    """The domains of the nodes that PodTopologySpread scores highest, by the pod's ScheduleAnyway constraints.

    Other scores (free resources, images, preferred affinity) may outweigh it. Without such constraints, or if they are
    unknown, this equals `sure`.
    """


def likely_domains(prepared: PreparedPod) -> tuple[LikelyDomains, ...] | Unknown:
    """Return the domains for each topology key of a pod's effective constraints, hard ones first, each key once.

    A node without a key is in none of its domains. The pod can go there only if it has only ScheduleAnyway constraints.
    """
    if prepared.unknown is not None:
        return prepared.unknown
    in_force = prepared.constraints
    feasible = prepared.admitted()
    best = prepared.best_nodes(feasible)
    keys = dict.fromkeys(each.topology_key for each in (*in_force.hard, *in_force.soft))
    return tuple(LikelyDomains(key, prepared.domains(feasible, key), prepared.domains(best, key)) for key in keys)
