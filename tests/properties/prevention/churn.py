"""A ReplicaSet on a small simulated cluster, ranked by the product while it is scaled and nodes are added and removed.

Scheduler, ReplicaSet controller and time are simulated. `CostPlanner` is the operator's.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable
from datetime import timedelta

import msgspec
from immutables import Map

from respread.api.policy import ClusterPolicySpec, Policy
from respread.api.policy import Prevention as PreventionSpec
from respread.cluster.meta import POD_DELETION_COST
from respread.cluster.objects import Namespace
from respread.cluster.pod import Pod, PodSpec
from respread.cluster.state import ClusterState
from respread.planning.victims.policies import PolicyIndex
from respread.planning.victims.protection import deletion_cost
from respread.prevention.deletion_costs import Patch, Purpose
from respread.prevention.prevention import Answered, CostPlanner, View
from respread.prevention.ranks import HeldCost
from respread.spread.index import SpreadIndex
from respread.timing import ClockReading
from tests.properties.prevention.replica_set_model import Model, ModelNode, ModelPod, ModelRule, deletion_order
from tests.worlds import HOSTNAME, NOW, ZONE, node, pod

ENABLED = Policy(
    kind="ClusterRebalancePolicy",
    object_name="default",
    spec=ClusterPolicySpec(prevention=PreventionSpec(pod_deletion_cost="Enabled")),
)


class Churn:
    """One ReplicaSet, `web`."""

    def __init__(
        self, seed: int, spec: PodSpec, *, zones: int = 3, nodes_per_zone: int = 4, hard_hosts: bool = False
    ) -> None:
        """Create nodes without pods.

        Args:
            seed: the seed of all random choices.
            spec: the spec of the pods. Its zone constraint is DoNotSchedule with maxSkew 1.
            zones: the number of zones.
            nodes_per_zone: the number of nodes in each zone.
            hard_hosts: whether the hostname constraint is DoNotSchedule as well.
        """
        self.rng = random.Random(seed)
        self.zone_of = {f"{zone}{number}": zone for zone in "abcdef"[:zones] for number in range(nodes_per_zone)}
        self.up = set(self.zone_of)
        self.replicas = 0
        self.created = 0
        self.placed = 0
        """The number of created pods that got a node. The others are deleted by the next event."""
        self.patched: Counter[Purpose] = Counter()
        self.patches_of: Counter[str] = Counter()
        self._spec = spec
        self._hard_hosts = hard_hosts
        self._now = 0.0
        self._state = ClusterState()
        self._state.replace("nodes", [node(name, zone) for name, zone in self.zone_of.items()])
        self._state.replace("namespaces", [Namespace(name="default")])
        self._policies = PolicyIndex([ENABLED])
        self._spread = SpreadIndex()
        self.prevention = CostPlanner(self._now)

    @property
    def pods(self) -> list[Pod]:
        """Return all pods."""
        return list(self._state.snapshot.pods.values())

    def counts(self) -> Counter[str]:
        """Return the pods of each zone with nodes."""
        zones = Counter({self.zone_of[name]: 0 for name in self.up})
        zones.update(self.zone_of[each.node_name] for each in self.pods if each.node_name)
        return zones

    def places(self) -> list[int]:
        """Return the node of each pod, as an index into those of `model`."""
        names = sorted(self.zone_of)
        return [names.index(each.node_name) for each in self.pods if each.node_name]

    def model(self) -> Model:
        """Return the nodes that are up, and the constraints, for a model."""
        nodes = tuple(
            ModelNode(name, {HOSTNAME: name, ZONE: self.zone_of[name]} if name in self.up else {})
            for name in sorted(self.zone_of)
        )
        return Model(nodes, (ModelRule(ZONE), ModelRule(HOSTNAME, hard=self._hard_hosts)))

    # Events

    def restart(self) -> None:
        """Continue without any memory, as after a restart."""
        self.prevention = CostPlanner(self._now)

    def wait(self, seconds: float) -> None:
        """Advance the time, and reconcile whenever that is due."""
        end = self._now + seconds
        while (due := self.prevention.next_examination()) < end:
            self._now = max(self._now, due)
            self._reconcile()
        self._now = end
        self._reconcile()

    def scale(self, replicas: int) -> None:
        """Scale the ReplicaSet up or down."""
        self.replicas = replicas
        surplus = len(self.pods) - replicas
        if surplus > 0:
            self._delete(each.name for each in deletion_order([self._model(each) for each in self.pods])[:surplus])
        self._bring_back()

    def fail(self, name: str) -> None:
        """Remove a node with its pods."""
        self.up.discard(name)
        self._state.apply("nodes", [(node(name).key, None)])
        self._delete([each.name for each in self.pods if each.node_name == name])
        self._bring_back()

    def recover(self, name: str) -> None:
        """Return a node, empty."""
        self.up.add(name)
        back = node(name, self.zone_of[name])
        self._state.apply("nodes", [(back.key, back)])
        self._bring_back()

    # Their effects

    def _bring_back(self) -> None:
        """Create missing pods, and bind them one after another."""
        self._delete([each.name for each in self.pods if not each.node_name])
        coming = []
        for _ in range(self.replicas - len(self.pods)):
            self.created += 1
            coming.append(
                pod(f"web-{self.created}", "", self._spec, creation_timestamp=NOW + timedelta(seconds=self._now))
            )
        self._put(coming)
        self._reconcile()
        for each in coming:
            if (chosen := self._choose()) is not None:
                self.placed += 1
                self._put([msgspec.structs.replace(each, node_name=chosen, phase="Running", ready=True)])
                self._now += 0.02
                self._reconcile()

    def _choose(self) -> str | None:
        """Return the node that the scheduler would choose: by hard constraints, then mostly by soft ones."""
        zones = self.counts()
        hosts = Counter(dict.fromkeys(self.up, 0))
        hosts.update(each.node_name for each in self.pods if each.node_name)
        feasible = [
            name
            for name in sorted(self.up)
            if zones[self.zone_of[name]] < min(zones.values()) + 1
            and (not self._hard_hosts or hosts[name] < min(hosts[other] for other in self.up) + 1)
        ]
        if not feasible:
            return None
        if self.rng.random() < 0.3:  # another score plugin preferred it
            return self.rng.choice(feasible)
        least = min(hosts[name] for name in feasible)
        return self.rng.choice([name for name in feasible if hosts[name] == least])

    def _reconcile(self) -> None:
        """Let the operator observe, and make its patches."""
        snapshot = self._state.snapshot
        self.prevention.observe(View(snapshot, self._spread.update(snapshot), self._policies))
        self.prevention.examine(ClockReading(self._now, (NOW + timedelta(seconds=self._now)).timestamp()))
        while (patch := self.prevention.take(self._now)) is not None:
            self._carry_out(patch)

    def _carry_out(self, patch: Patch) -> None:
        self.patched[patch.purpose] += 1
        self.patches_of[patch.pod.name] += 1
        current = self._state.snapshot.pods[patch.pod.key]
        annotations: Map[str, str] = Map() if patch.cost is None else Map({POD_DELETION_COST: str(patch.cost)})
        self._put(
            [msgspec.structs.replace(current, annotations=annotations, deletion_cost_is_ours=patch.cost is not None)]
        )
        cost = None if patch.cost is None else HeldCost(patch.cost, ours=True)
        self.prevention.answered(patch, Answered(cost), self._now)

    def _put(self, pods: Iterable[Pod]) -> None:
        self._state.apply("pods", [(each.key, each) for each in pods])

    def _delete(self, names: Iterable[str]) -> None:
        gone = set(names)
        self._state.apply("pods", [(each.key, None) for each in self.pods if each.name in gone])

    def _model(self, each: Pod) -> ModelPod:
        nodes = sorted(self.zone_of)
        created = each.creation_timestamp or NOW
        return ModelPod(
            each.name,
            nodes.index(each.node_name) if each.node_name else -1,
            cost=deletion_cost(each),
            ready=each.ready,
            phase=each.phase,
            ready_seconds=int((NOW + timedelta(seconds=self._now) - created).total_seconds()),
            age_seconds=int((NOW + timedelta(seconds=self._now) - created).total_seconds()),
        )


def levelled(counts: Iterable[int], pods: int) -> list[int]:
    """Return the remaining counts when pods are deleted from the fullest domains, down to a total."""
    left = sorted(counts)
    while sum(left) > pods:
        left[-1] -= 1
        left.sort()
    return left
