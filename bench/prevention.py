"""The cost of ranking pods: a whole cluster at once, and one workload after a change.

Run `python bench/prevention.py [--pods 150000] [--nodes 5000] [--workloads 5000]`. Every workload has a zone constraint
(DoNotSchedule) and a hostname constraint (ScheduleAnyway), and its pods are on nodes that a scheduler may have chosen.
The targets are 5 s for the whole cluster and 1 ms for a changed workload.
"""

from __future__ import annotations

import argparse
import random
import statistics
import time
from datetime import UTC, datetime, timedelta

import msgspec
from immutables import Map

from respread.api.fields import LabelSelector
from respread.api.policy import ClusterPolicySpec, Policy
from respread.api.policy import Prevention as PreventionSpec
from respread.cluster.meta import POD_DELETION_COST, OwnerReference
from respread.cluster.objects import Namespace, Node
from respread.cluster.pod import Pod, PodSpec, TopologySpreadConstraint
from respread.cluster.state import ClusterState
from respread.lean_process import prepare_for_long
from respread.planning.victims.policies import PolicyIndex
from respread.prevention.prevention import CostPlanner, View
from respread.prevention.ranks import Costs, rank_new, rerank, roles_of
from respread.prevention.replica_set import ReplicaSetIndex, ReplicaSetPods
from respread.spread.index import SpreadIndex
from respread.timing import ClockReading

ZONE, HOSTNAME = "topology.kubernetes.io/zone", "kubernetes.io/hostname"
ZONES = ("zone-a", "zone-b", "zone-c")
NAMESPACES = 50
NOW = datetime(2026, 11, 21, tzinfo=UTC)
ENABLED = Policy(
    kind="ClusterRebalancePolicy",
    object_name="default",
    spec=ClusterPolicySpec(prevention=PreventionSpec(pod_deletion_cost="Enabled")),
)


def workload_spec(app: str) -> PodSpec:
    """Return the spec of a workload's pods."""
    selector = LabelSelector(match_labels=Map(app=app))
    return PodSpec(
        requests=Map(cpu=100),
        topology_spread_constraints=(
            TopologySpreadConstraint(1, ZONE, "DoNotSchedule", selector),
            TopologySpreadConstraint(1, HOSTNAME, "ScheduleAnyway", selector),
        ),
    )


def new_pod(workload: int, number: int, node: str, spec: PodSpec) -> Pod:
    """Return a Ready pod of a workload."""
    app = f"app-{workload}"
    name = f"{app}-5f7c9-{number:05}"
    return Pod(
        namespace=f"team-{workload % NAMESPACES}",
        name=name,
        uid=f"uid-{name}",
        spec=spec,
        labels=Map({"app": app, "pod-template-hash": "5f7c9"}),
        controller=OwnerReference("apps/v1", "ReplicaSet", f"{app}-5f7c9", f"uid-{app}"),
        node_name=node,
        phase="Running",
        ready=True,
        creation_timestamp=NOW - timedelta(seconds=number),
    )


def make_state(pods: int, nodes: int, workloads: int, rng: random.Random) -> ClusterState:
    """Return a cluster in which every workload is balanced over the zones, and as well as possible over the hosts."""
    state = ClusterState()
    names = [f"node-{number}" for number in range(nodes)]
    state.replace(
        "nodes",
        [
            Node(name=name, labels=Map({HOSTNAME: name, ZONE: ZONES[at % 3]}), allocatable=Map(pods=110))
            for at, name in enumerate(names)
        ],
    )
    state.replace("namespaces", [Namespace(name=f"team-{number}") for number in range(NAMESPACES)])
    found = []
    for workload in range(workloads):
        spec = workload_spec(f"app-{workload}")
        size = pods // workloads + (workload < pods % workloads)
        for number in range(size):
            node = names[(rng.randrange(nodes // 3) * 3 + number) % nodes]
            found.append(new_pod(workload, number, node, spec))
    state.replace("pods", found)
    return state


def with_cost(pod: Pod, cost: int) -> Pod:
    """Return a pod after its cost was patched."""
    return msgspec.structs.replace(pod, annotations=Map({POD_DELETION_COST: str(cost)}), deletion_cost_is_ours=True)


def rank(replica_set: ReplicaSetPods) -> Costs:
    """Return the patches of a ReplicaSet that has changed."""
    roles = roles_of(replica_set)
    if roles.new:
        return rank_new(replica_set, roles)
    return rerank(replica_set, roles) or {}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=150_000)
    parser.add_argument("--nodes", type=int, default=5_000)
    parser.add_argument("--workloads", type=int, default=5_000)
    parser.add_argument("--changes", type=int, default=500)
    options = parser.parse_args()
    prepare_for_long()  # as the operator does
    rng = random.Random(1)
    state = make_state(options.pods, options.nodes, options.workloads, rng)
    spread_index, policies = SpreadIndex(), PolicyIndex([ENABLED])
    spread = spread_index.update(state.snapshot)

    prevention = CostPlanner(0.0)
    started = time.process_time()
    prevention.observe(View(state.snapshot, spread, policies))
    indexed = time.process_time()
    prevention.examine(ClockReading(0.0, NOW.timestamp()))
    ranked = time.process_time()
    print(f"{options.pods} pods of {options.workloads} workloads on {options.nodes} nodes")
    print(f"whole cluster: {ranked - started:.2f} s, of which {indexed - started:.2f} s find the ReplicaSets")
    assert prevention.waiting == options.pods, prevention.waiting  # noqa: S101 - else something else was measured

    index = ReplicaSetIndex()
    costs: Costs = {}
    for replica_set in index.update(state.snapshot, spread).changed:
        costs |= rank(replica_set)
    state.apply("pods", [(each.key, with_cost(each, costs[each.uid])) for each in state.snapshot.pods.values()])
    index.update(state.snapshot, spread_index.update(state.snapshot))

    taken: dict[str, list[float]] = {"a new pod": [], "one pod less": [], "all pods again": []}
    finding: list[float] = []
    for _ in range(options.changes):
        uid = f"uid-app-{rng.randrange(options.workloads)}"
        before = index.by_uid[uid]
        spec = before.pods[0].spec
        workload = int(uid.rpartition("-")[2])
        fresh = new_pod(workload, 90_000 + rng.randrange(9_999), f"node-{rng.randrange(options.nodes)}", spec)
        for what, changes in (
            ("a new pod", [(fresh.key, fresh)]),
            ("one pod less", [(fresh.key, None), (before.pods[0].key, None)]),
            ("one pod less", [(before.pods[0].key, before.pods[0])]),
        ):
            state.apply("pods", changes)
            spread = spread_index.update(state.snapshot)
            started = time.process_time()
            (changed,) = index.update(state.snapshot, spread).changed
            found = time.process_time()
            rank(changed)
            taken[what].append(time.process_time() - found)
            finding.append(found - started)
        bare = msgspec.structs.replace(
            before, pods=tuple(msgspec.structs.replace(each, annotations=Map()) for each in before.pods)
        )
        started = time.process_time()
        rank(bare)
        taken["all pods again"].append(time.process_time() - started)
    print("one workload:      median      99 %")
    for what, seconds in (*taken.items(), ("(finding it)", finding)):
        late = sorted(seconds)[len(seconds) * 99 // 100]
        print(f"  {what:15} {statistics.median(seconds) * 1e3:6.3f} ms {late * 1e3:6.3f} ms")


if __name__ == "__main__":
    main()
