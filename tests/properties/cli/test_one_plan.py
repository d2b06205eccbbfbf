"""What the operator plans, `respread plan` of the cluster and `respread plan` of its snapshot are the same plan."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from datetime import timedelta
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import strategies as st
from immutables import Map

from respread.api.fields import LabelSelector
from respread.api.policy import ClusterPolicySpec, ConstraintRules, Policy, TrustedController, VictimRules
from respread.api.reasons import Reason
from respread.cluster.meta import OwnerReference
from respread.cluster.objects import Namespace, Service, Workload
from respread.cluster.pod import Pod, TopologySpreadConstraint
from respread.cluster.state import ClusterSnapshot
from respread.controller.scheduler_model import OwnerSelectors, SchedulerModel
from respread.kube.requests import Response
from respread.planning.plan import Plan
from respread.planning.victims.policies import PolicyIndex, PolicySetting
from respread.scheduling.configuration import DEFAULT_SCHEDULER, Profile, SchedulerConfiguration
from respread_cli.read.cluster_view import ReadCluster
from respread_cli.report.planned import Planning, PlanningOptions
from tests.fake_requests import FakeRequests
from tests.informer_parts import Parts
from tests.properties.instances import try_on
from tests.virtual_time import run_in_virtual_time
from tests.worlds import NOW, ZONE, cluster, constraint, node, pod, spec

PARTS = 4
INSTANCES = 60
UNKNOWN = OwnerReference("example.com/v1", "Game", "chess", "uid-game")
DEPLOYMENT = OwnerReference("apps/v1", "Deployment", "web", "uid-deployment")
OWNERS = (DEPLOYMENT, DEPLOYMENT, UNKNOWN, None)
CARRIED: tuple[tuple[TopologySpreadConstraint, ...], ...] = (
    (constraint(),),
    (constraint(),),
    (),
    (constraint(when="ScheduleAnyway"),),
    (constraint(), constraint("kubernetes.io/hostname", when="ScheduleAnyway")),
)
PROFILES = (
    Profile(),
    Profile(),
    Profile(system_defaults=False, default_constraints=(TopologySpreadConstraint(1, ZONE, "DoNotSchedule"),)),
    Profile(system_defaults=False, default_constraints=(TopologySpreadConstraint(1, ZONE, "ScheduleAnyway"),)),
)
KINDS = {"ReplicaSet": "replicasets", "StatefulSet": "statefulsets"}


class World(NamedTuple):
    """A cluster whose owners are only known to those who read them."""

    snapshot: ClusterSnapshot
    owners: tuple[tuple[str, Workload], ...]
    """By kind."""
    policy: Policy
    configuration: SchedulerConfiguration


def world_of(
    placed: Iterable[tuple[str, str, OwnerReference | None, tuple[TopologySpreadConstraint, ...], Mapping[str, int]]],
    *,
    policy: Mapping[str, Any] = Map(),
    profile: Profile = PROFILES[0],
    services: Iterable[str] = (),
    selected: Mapping[str, str] = Map(),
) -> World:
    """Return a world of workloads.

    Args:
        placed: of each workload its namespace, its kind, who controls it, the constraints of its pods, and the number
            of pods on each node.
        policy: fields of the policy's spec.
        profile: of the scheduler.
        services: the namespaces with a Service that selects all pods.
        selected: the labels of namespaces that the policy needs.
    """
    pods: list[Pod] = []
    owners: list[tuple[str, Workload]] = []
    for number, (namespace, kind, above, carried, counts) in enumerate(placed):
        name = f"set{number}"
        labels = Map(app="web", set=name)
        of = spec(*carried)
        reference = OwnerReference("apps/v1", kind, name, f"uid-{namespace}-{name}")
        owners.append(
            (
                kind,
                Workload(
                    namespace=namespace,
                    name=name,
                    uid=reference.uid,
                    controller=above,
                    selector=LabelSelector(match_labels=Map(set=name)),
                ),
            )
        )
        for on, count in counts.items():
            for _ in range(count):
                pods.append(
                    pod(f"{name}-{len(pods)}", on, of, labels=labels, namespace=namespace, controller=reference)
                )
    return World(
        cluster(
            [node("a", "a"), node("b", "b"), node("c", "c")],
            pods,
            namespaces=[Namespace(name="default", labels=Map(selected)), Namespace(name="shop")],
            services=[Service(namespace=each, name="web", selector=Map(app="web")) for each in services],
        ),
        tuple(owners),
        Policy(
            kind="ClusterRebalancePolicy",
            object_name="default",
            spec=ClusterPolicySpec(**{"victims": VictimRules(min_age=timedelta()), **policy}),
        ),
        SchedulerConfiguration(profiles=Map({DEFAULT_SCHEDULER: profile})),
    )


class ApiServer(FakeRequests):
    """Answers for the owners of a world."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self._objects = {(kind, owner.namespace, owner.name): owner for kind, owner in world.owners}

    async def answer(self, method: str, path: str, names: Mapping[str, str], **_: Any) -> Response:
        assert method == "GET"
        kind = next(kind for kind, resource in KINDS.items() if f"/{resource}/" in path)
        owner = self._objects[kind, names["namespace"], names["name"]]
        metadata: dict[str, Any] = {"name": owner.name, "namespace": owner.namespace, "uid": owner.uid}
        if (above := owner.controller) is not None:
            metadata["ownerReferences"] = [
                {
                    "apiVersion": above.api_version,
                    "kind": above.kind,
                    "name": above.name,
                    "uid": above.uid,
                    "controller": True,
                }
            ]
        labels = dict(owner.selector.match_labels) if owner.selector is not None else {}
        body = {"metadata": metadata, "spec": {"selector": {"matchLabels": labels}}}
        return Response(status_code=200, body=msgspec.json.encode(body))


def plan_of_operator(world: World) -> Plan:
    """Return the operator's plan, once it has read what it depends on."""
    found: list[Plan] = []

    async def reconcile() -> None:
        parts = Parts()
        for resource in ("nodes", "pods", "namespaces", "services"):
            parts.informers.state.replace(resource, _objects(world.snapshot, resource))
        server = ApiServer(world)
        owners = OwnerSelectors(server, parts.informers, lambda: asyncio.get_running_loop().time())
        model = SchedulerModel(world.configuration, owners=owners)
        reading = asyncio.create_task(owners.run())
        model.follow([world.policy])
        for _ in range(3):
            snapshot = parts.informers.state.snapshot
            spread = model.index.update(snapshot)
            model.learn(spread, snapshot, PolicyIndex([world.policy]))
            plan = model.planner.plan(snapshot, spread, PolicySetting((world.policy,)), now=NOW)
            model.plan_depends_on(plan.owners)
            found.append(plan)
            await asyncio.sleep(1)
        reading.cancel()
        await asyncio.wait([reading])

    run_in_virtual_time(reconcile())
    return found[-1]


def _objects(snapshot: ClusterSnapshot, resource: str) -> list[Any]:
    if resource == "services":
        return [each for services in snapshot.services.values() for each in services.values()]
    return list(getattr(snapshot, resource).values())


def plan_of_commands(world: World, *, of_snapshot: bool) -> Plan:
    """Return the plan of `respread plan`, of the cluster or of its snapshot."""

    def with_owners(view: ReadCluster) -> ReadCluster:
        held: dict[str, dict[Any, Workload]] = {kind: {} for kind in KINDS}
        for kind, owner in world.owners:
            held[kind][owner.key] = owner
        snapshot = msgspec.structs.replace(
            view.snapshot, replica_sets=Map(held["ReplicaSet"]), stateful_sets=Map(held["StatefulSet"])
        )
        return msgspec.structs.replace(view, snapshot=snapshot)

    options = PlanningOptions((), namespaced_policies=True, scheduler_configuration=world.configuration)
    view = ReadCluster(snapshot=world.snapshot, policies=(world.policy,), time=NOW, source="a test")
    planning = Planning(options, "default")
    if of_snapshot:
        return planning.plan_with_owners(with_owners(view), lambda complete: complete).plan
    return planning.plan_with_owners(view, with_owners).plan


def said(plan: Plan) -> tuple[list[Any], object]:
    """Return what users are told of a plan: its moves in their order, and the rest."""
    moves = [(each.pod.key, each.wave, each.groups, each.to_domains, each.nodes, each.certain) for each in plan.moves]
    blocked = sorted((str(each.group), each.policy, each.reason, each.message) for each in plan.blocked)
    return moves, (blocked, plan.lower_bound, plan.held_pods)


def plans_of(world: World) -> Plan:
    """Return the plan that all three make, after comparing them."""
    plan = plan_of_commands(world, of_snapshot=True)
    moves, rest = said(plan)
    assert said(plan_of_commands(world, of_snapshot=False)) == (moves, rest)
    of_operator, rest_of_operator = said(plan_of_operator(world))
    # The operator keeps the order in which it planned the moves of different components first.
    assert sorted(of_operator, key=repr) == sorted(moves, key=repr)
    assert rest_of_operator == rest
    return plan


@pytest.mark.parametrize(
    ("workloads", "expected"),
    [  # Those without the constraint stay whatever the default score prefers.
        ([(DEPLOYMENT, (constraint(),), 1), (DEPLOYMENT, (), 3)], Reason.UNKNOWN_REPLACEMENT),
        ([(UNKNOWN, (constraint(),), 3)], Reason.UNKNOWN_OWNER),
    ],
)
def test_pods_whose_replacement_is_not_known_stay_in_every_plan(workloads: list[Any], expected: Reason) -> None:
    plan = plans_of(world_of([("default", "ReplicaSet", *each, {"a": number}) for *each, number in workloads]))
    assert not plan.moves
    assert [each.reason for each in plan.blocked] == [expected]


def test_pods_of_a_known_owner_are_moved_instead_of_those_of_an_unknown_one() -> None:
    plan = plans_of(
        world_of(
            [
                ("default", "ReplicaSet", UNKNOWN, (constraint(),), {"a": 2}),
                ("default", "ReplicaSet", DEPLOYMENT, (constraint(),), {"a": 2}),
            ]
        )
    )
    assert {each.pod.controller.name for each in plan.moves if each.pod.controller} == {"set1"}


workloads = st.lists(
    st.tuples(
        st.sampled_from(["default", "default", "shop"]),
        st.sampled_from(["ReplicaSet", "ReplicaSet", "StatefulSet"]),
        st.sampled_from(OWNERS),
        st.sampled_from(CARRIED),
        st.fixed_dictionaries({name: st.integers(0, most) for name, most in (("a", 4), ("b", 2), ("c", 1))}),
    ),
    min_size=1,
    max_size=4,
)
policies = st.fixed_dictionaries(
    {
        "constraints": st.sampled_from(
            [
                ConstraintRules(),
                ConstraintRules(when_unsatisfiable=("DoNotSchedule", "ScheduleAnyway")),
                ConstraintRules(when_unsatisfiable=("ScheduleAnyway",)),
            ]
        ),
        "victims": st.sampled_from(
            [
                VictimRules(min_age=timedelta()),
                VictimRules(
                    min_age=timedelta(), trusted_controllers=(TrustedController(group="example.com", kind="Game"),)
                ),
            ]
        ),
        "namespace_selector": st.sampled_from([LabelSelector(), LabelSelector(match_labels=Map(restored="yes"))]),
    }
)
drawn = st.tuples(
    workloads, policies, st.sampled_from(PROFILES), st.lists(st.sampled_from(["default", "shop"]), unique=True)
)


@pytest.mark.parametrize("part", range(PARTS))
def test_operator_live_plan_and_plan_of_a_snapshot_are_equal(part: int) -> None:
    def holds(drawing: tuple[Any, ...]) -> None:
        placed, policy, profile, services = drawing
        selected = {"restored": "yes"}
        plans_of(world_of(placed, policy=policy, profile=profile, services=services, selected=selected))

    try_on(drawn, INSTANCES, part, holds)
