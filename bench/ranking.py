"""The benefit of Respread's ranking of pods over plain ordinals per domain, in quality and in patches.

Run `python -m bench.ranking`. The same events happen to the same ReplicaSet (scale-ups, scale-downs, nodes that fail
and return), once with the product's ranks and once with a plain rule: a new pod takes the lowest free ordinal among the
pods of its zone and keeps it. The table shows how many scale-downs left a constraint violated, and the patches for each
pod that got a node.
"""

from __future__ import annotations

from collections import Counter

import msgspec
from immutables import Map

from respread.cluster.meta import POD_DELETION_COST
from respread.cluster.pod import Pod, PodSpec
from respread.planning.victims.protection import deletion_cost
from tests.properties.prevention.churn import Churn
from tests.worlds import HOSTNAME, ZONE, constraint, spec

EVENTS = 600
SEEDS = (11, 12, 13)
MOST_REPLICAS = 24
MOST_NODES_DOWN = 3
SHARES = {"node fails": 8, "node comes back": 7, "scale-up": 45, "scale-down": 40}
STEP = 1_000
"""The distance between the costs of two ordinals."""

WORLDS = {
    "zone": (spec(constraint(ZONE)), False),
    "zone and soft hostname": (spec(constraint(ZONE), constraint(HOSTNAME, when="ScheduleAnyway")), False),
    "zone and hostname": (spec(constraint(ZONE), constraint(HOSTNAME)), True),
}


class PlainOrdinals(Churn):
    """The same ReplicaSet, whose pods get ordinals by the plain rule."""

    def _reconcile(self) -> None:
        for each in self.pods:
            if each.node_name and POD_DELETION_COST not in each.annotations:
                annotations = Map({POD_DELETION_COST: str(-STEP * (self._lowest_free(each) + 1))})
                self._put([msgspec.structs.replace(each, annotations=annotations, deletion_cost_is_ours=True)])
                self.patches_of[each.name] += 1

    def _lowest_free(self, new: Pod) -> int:
        taken = {
            -deletion_cost(each) // STEP - 1
            for each in self.pods
            if each.node_name
            and POD_DELETION_COST in each.annotations
            and self.zone_of[each.node_name] == self.zone_of[new.node_name]
        }
        return next(ordinal for ordinal in range(len(taken) + 1) if ordinal not in taken)


RULES: dict[str, type[Churn]] = {"Respread's ranks": Churn, "ordinal in the zone": PlainOrdinals}


def live(rule: type[Churn], of: PodSpec, seed: int, *, hard_hosts: bool) -> tuple[Counter[str], int, int]:
    """Return the skew that scale-downs left, the patches, and the pods that got a node."""
    churn = rule(seed, of, hard_hosts=hard_hosts)
    rng = churn.rng
    left: Counter[str] = Counter()
    churn.scale(6)
    for _ in range(EVENTS):
        churn.wait(rng.choice((0.5, 10.0, 90.0)))
        (what,) = rng.choices(list(SHARES), weights=list(SHARES.values()))
        down = sorted(churn.zone_of.keys() - churn.up)
        if what == "node fails" and len(down) < MOST_NODES_DOWN:
            churn.fail(rng.choice(sorted(churn.up)))
        elif what == "node comes back" and down:
            churn.recover(rng.choice(down))
        elif what == "scale-down":
            churn.wait(90.0)
            churn.scale(max(1, churn.replicas - rng.randint(1, 6)))
            zones = churn.counts()
            hosts = Counter(dict.fromkeys(churn.up, 0))
            hosts.update(each.node_name for each in churn.pods if each.node_name)
            left["scale-downs"] += 1
            left["zones violated"] += max(zones.values()) - min(zones.values()) > 1
            left["hosts violated"] += max(hosts.values()) - min(hosts.values()) > 1
        else:
            churn.scale(min(MOST_REPLICAS, churn.replicas + rng.randint(1, 6)))
    return left, churn.patches_of.total(), churn.placed


def main() -> None:
    """Print the table."""
    print(f"{'world':24}{'rule':26}{'zones violated':>16}{'hosts violated':>16}{'patches a pod':>15}")
    for world, (of, hard_hosts) in WORLDS.items():
        for name, rule in RULES.items():
            left: Counter[str] = Counter()
            patches = placed = 0
            for seed in SEEDS:
                found, more, pods = live(rule, of, seed, hard_hosts=hard_hosts)
                left += found
                patches += more
                placed += pods
            share = {what: 100 * left[what] / left["scale-downs"] for what in ("zones violated", "hosts violated")}
            print(
                f"{world:24}{name:26}{share['zones violated']:14.1f} %{share['hosts violated']:14.1f} %"
                f"{patches / placed:15.2f}"
            )


if __name__ == "__main__":
    main()
