"""The clusters that bench/compare sets up, in the order of its table."""

from __future__ import annotations

from typing import Final

from bench.compare.world import Constraint, Workload, World, Zone

ZONES: Final = Constraint()
HOSTS: Final = Constraint(over="hosts")
EACH_TEMPLATE: Final = Constraint(each_template=True)

WORLDS: Final = (
    World(
        "scale-down",
        "Four Deployments were scaled down, and are left with [4, 1, 0], [3, 3, 0], [3, 1, 1] and [5, 2, 1] pods.",
        (
            Workload("web", {"a": (2, 2), "b": (1, 0)}),
            Workload("api", {"a": (2, 1), "b": (1, 2)}),
            Workload("queue", {"a": (2, 1), "b": (1, 0), "c": (0, 1)}),
            Workload("cache", {"a": (3, 2), "b": (1, 1), "c": (1, 0)}),
        ),
    ),
    World(
        "zone-comes-up",
        "zone-c is back, without a pod: [3, 3, 0] and [4, 4, 0].",
        (Workload("web", {"a": (2, 1), "b": (1, 2)}), Workload("api", {"a": (2, 2), "b": (2, 2)})),
    ),
    World(
        "max-skew-2",
        "maxSkew is 2: [4, 4, 0] and [5, 2, 2].",
        (
            Workload("web", {"a": (2, 2), "b": (2, 2)}, (Constraint(max_skew=2),)),
            Workload("api", {"a": (3, 2), "b": (1, 1), "c": (1, 1)}, (Constraint(max_skew=2),)),
        ),
    ),
    World(
        "zone-and-host",
        "Each Deployment has a constraint over zones and one over hostnames.",
        (
            Workload("web", {"a": (2, 2), "b": (1, 0), "c": (1, 0)}, (ZONES, HOSTS)),
            Workload("api", {"a": (3, 0), "b": (1, 1), "c": (1, 1)}, (ZONES, HOSTS)),
        ),
    ),
    World(
        "cordoned-zone",
        "zone-c is cordoned, and the scheduler still counts its pods: [4, 1, 0] can't be restored, [3, 1, 1] can.",
        (Workload("web", {"a": (2, 2), "b": (1, 0)}), Workload("api", {"a": (2, 1), "b": (1, 0), "c": (1, 0)})),
        {"a": Zone(), "b": Zone(), "c": Zone(cordoned=True)},
    ),
    World(
        "min-domains",
        "minDomains is 4 in three zones, so the minimum counts as 0: with maxSkew 2, [4, 1, 1] can be restored; with"
        " maxSkew 1, [3, 1, 1] can't.",
        (
            Workload("web", {"a": (2, 2), "b": (1, 0), "c": (1, 0)}, (Constraint(max_skew=2, min_domains=4),)),
            Workload("api", {"a": (2, 1), "b": (1, 0), "c": (1, 0)}, (Constraint(min_domains=4),)),
        ),
    ),
    World(
        "tight-room",
        "Nodes are full but for two pods of zone-c, which can restore one of two Deployments at [3, 3, 0].",
        (
            Workload("web", {"a": (3,), "b": (3,)}, milli_cpu=1000),
            Workload("api", {"a": (3,), "b": (3,)}, milli_cpu=1000),
            Workload("other", {"a": (2,), "b": (2,), "c": (6,)}, (), milli_cpu=1000),
        ),
        {"a": Zone(nodes=1), "b": Zone(nodes=1), "c": Zone(nodes=1)},
    ),
    World(
        "budgets",
        "Pods take 2 s to become Ready. One Deployment at [5, 1, 0] may lack one pod, another at [3, 1, 1] none.",
        (
            Workload("web", {"a": (3, 2), "b": (1, 0)}, ready_seconds=2, max_unavailable=1),
            Workload("api", {"a": (2, 1), "b": (1, 0), "c": (1, 0)}, ready_seconds=2, max_unavailable=0),
        ),
    ),
    World(
        "rollout",
        "A rollout has begun that replaces the pods of a Deployment at [4, 1, 0], with a constraint that counts each"
        " revision apart. Another, at [3, 1, 1], is at rest.",
        (
            Workload("web", {"a": (2, 2), "b": (1, 0)}, (EACH_TEMPLATE,), ready_seconds=2, changed=True),
            Workload("api", {"a": (2, 1), "b": (1, 0), "c": (1, 0)}),
        ),
    ),
    World(
        "affinity-and-taints",
        "zone-c has a taint. One Deployment has affinity to zone-a and zone-b, one has nodeTaintsPolicy Honor, one"
        " tolerates the taint and has anti-affinity over hostnames; a fourth, at [3, 1, 0], can't be restored.",
        (
            Workload("web", {"a": (2, 2), "b": (1, 0)}, only_zones="ab"),
            Workload("api", {"a": (2, 1), "b": (0, 1)}, (Constraint(honors_taints=True),)),
            Workload("cache", {"a": (1, 1), "b": (1, 1)}, tolerates=True, one_a_node=True),
            Workload("queue", {"a": (2, 1), "b": (1, 0)}),
        ),
        {"a": Zone(), "b": Zone(), "c": Zone(tainted=True)},
    ),
    World(
        "soft",
        "The constraints are ScheduleAnyway: [4, 1, 1] and [5, 0, 1].",
        (
            Workload("web", {"a": (2, 2), "b": (1, 0), "c": (1, 0)}, (Constraint(soft=True),)),
            Workload("api", {"a": (3, 2), "c": (0, 1)}, (Constraint(soft=True),)),
        ),
    ),
    World(
        "outage",
        "A zone was lost while two Deployments were rolled out, and is back. With DoNotSchedule, a pod of the rollout"
        " stayed Pending until then. With ScheduleAnyway, the rollout ended in time, and left [3, 3, 0].",
        (
            Workload("soft", {"a": (2, 1), "b": (1, 2)}, (Constraint(soft=True, each_template=True),), changed=True),
            Workload("hard", {"a": (2, 1), "b": (1, 2)}, (EACH_TEMPLATE,), changed=True),
        ),
        outage="c",
    ),
    World(
        "conflict",
        "zone-a has four nodes, the others one each: the six pods can be spread over hostnames, as they are, or over"
        " zones, but not over both.",
        (Workload("web", {"a": (1, 1, 1, 1), "b": (1,), "c": (1,)}, (ZONES, HOSTS)),),
        {"a": Zone(nodes=4), "b": Zone(nodes=1), "c": Zone(nodes=1)},
    ),
)
