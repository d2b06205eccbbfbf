"""Which topology domains a pod may end up in: what is sure, apart from what is only likely."""

from __future__ import annotations

import msgspec

from respread.scheduling.prepared_pod import PreparedPod
from respread.scheduling.verdict import Unknown


class LikelyDomains(msgspec.Struct, frozen=True):
    """Where a pod may go, as values of one topology key."""

    topology_key: str
    sure: frozenset[str]
    """The domains of all feasible nodes: the pod goes to one of these or, if there are none, nowhere.

    Above 100 nodes the scheduler looks only at some of them, and it draws lots where scores are equal: which one it is
    can't be known.
    """
    likely: frozenset[str]
    """The domains of the nodes that PodTopologySpread scores highest, by the pod's ScheduleAnyway constraints.

    Other scores (free resources, images, preferred affinity) may outweigh it. Without such constraints, or where they
    are not known, all that are sure.
    """


def likely_domains(prepared: PreparedPod) -> tuple[LikelyDomains, ...] | Unknown:
    """Return the domains for each topology key of a pod's constraints in force, the hard ones first, each key once.

    Nodes that lack a key are in none of its domains; only with ScheduleAnyway constraints can the pod go there.
    """
    if prepared.unknown is not None:
        return prepared.unknown
    in_force = prepared.constraints
    feasible = prepared.admitted()
    best = prepared.best_nodes(feasible)
    keys = dict.fromkeys(each.topology_key for each in (*in_force.hard, *in_force.soft))
    return tuple(LikelyDomains(key, prepared.domains(feasible, key), prepared.domains(best, key)) for key in keys)
