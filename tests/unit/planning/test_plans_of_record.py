"""Plans of drawn clusters say what they have always said, in each process, and take as many looks.

    python -m tests.unit.planning.test_plans_of_record [NUMBER]

writes `tests/golden/plans.txt` anew, which has a line for each plan: what it comes to, and a digest of what it says.
With a number, prints the plans of that cluster in full. Do the first after a change that makes plans better, and the
second before and after it, to see what is better.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple
from unittest.mock import patch
from zlib import crc32

import msgspec
import pytest
from immutables import Map

from respread.api.fields import LabelSelector
from respread.api.policy import (
    ClusterPolicySpec,
    ConstraintRules,
    ExpectedDomains,
    Limits,
    Policy,
    PolicySpec,
    VictimRules,
)
from respread.api.reasons import Held, Reason
from respread.cluster.meta import EVICT, POD_DELETION_COST, OwnerReference
from respread.cluster.objects import Node, PodDisruptionBudget, Taint
from respread.cluster.pod import HostPort, Pod, PodAffinityTerm, PodSpec, Toleration
from respread.planning.moving_pods import UnderWay
from respread.planning.placement import is_replaced_when_gone
from respread.planning.plan import Plan
from respread.planning.planner import Planner
from respread.planning.search.board import SearchBudget
from respread.planning.solving import SearchLimits
from respread.planning.victims.policies import PolicySetting
from respread.scheduling.predictor import Predictor
from respread.scheduling.view.cluster_view import ClusterView
from respread.spread.group import GroupKey
from tests.properties.planning.mixed_worlds import mixed_world
from tests.properties.planning.scarce_worlds import scarce_world
from tests.properties.planning.small_worlds import snapshot_of
from tests.spreads import spread_of
from tests.unit.planning.blocked_plans import plan_of
from tests.worlds import HOSTNAME, NOW, ZONE, cluster, constraint, node, pod, pods, spec, taint

ROOT: Final = Path(__file__).parents[3]
RECORD: Final = ROOT / "tests" / "golden" / "plans.txt"
CLUSTERS: Final = 200
PARTS: Final = 40
SCARCE: Final = 5
"""Each fifth of them has little room, and nothing that the others have."""
PLANS: Final = 4
"""Of each cluster: at first, with moves in flight, when replacements have a node, and after a change by others."""
FEW_LOOKS: Final = SearchLimits(150, 300, 600, 800)
AT_REST: Final = Held(Reason.QUIET_PERIOD, "it has changed", NOW + timedelta(seconds=20))
SELDOM: Final = 0.1
OFTEN: Final = 0.3


class Scene(NamedTuple):
    """A cluster, and the moves that are under way in it."""

    nodes: tuple[Node, ...]
    pods: tuple[Pod, ...]
    budgets: tuple[PodDisruptionBudget, ...]
    under_way: UnderWay = UnderWay()


def plans_of(number: int) -> Iterator[tuple[Plan, int]]:
    """Yield the plans of a cluster, each with the looks that its searches have spent."""
    random = Random(f"cluster {number}")
    scene, policies = _scarce(number) if number % SCARCE == 0 else (_drawn(random), _policies(random))
    setting = PolicySetting(policies)
    planner = Planner(Predictor(ClusterView()), FEW_LOOKS)
    looks: list[int] = []
    for at in range(PLANS):
        snapshot = cluster(scene.nodes, scene.pods, poddisruptionbudgets=scene.budgets)
        spread = spread_of(snapshot)
        keys = sorted(spread.groups, key=str)
        held = dict.fromkeys((key for key in keys if random.random() < SELDOM / 2), AT_REST)
        begun = frozenset(key for key in keys if random.random() < SELDOM)
        looks.clear()
        with patch.object(SearchBudget, "spend", _counting(looks)):
            plan = planner.plan(
                snapshot,
                spread,
                setting,
                now=NOW + timedelta(seconds=at),
                on_hold=lambda key, _policy, held=held: held.get(key),  # type: ignore[misc]  # bound early
                begun=begun,
                under_way=scene.under_way,
                leaving_since={each.name: NOW - timedelta(seconds=30) for each in scene.nodes if each.taints},
            )
        yield plan, sum(looks)
        scene = (_evicted, _placed, _disturbed, _disturbed)[at](random, scene, plan)


def _counting(looks: list[int]) -> Any:
    spend = SearchBudget.spend

    def counted(budget: SearchBudget, number: int = 1) -> None:
        looks.append(number)
        spend(budget, number)

    return counted


def _scarce(number: int) -> tuple[Scene, tuple[Policy, ...]]:
    world = (scarce_world, mixed_world)[number // SCARCE % 2](number)
    found = snapshot_of(world.world)
    nodes = sorted(found.nodes.values(), key=lambda each: each.name)
    pods = sorted(found.pods.values(), key=lambda each: each.name)
    return Scene(tuple(nodes), tuple(pods), ()), tuple(world.policies)


def _drawn(random: Random) -> Scene:
    zones = "abcd"[: random.choice((2, 3, 3, 4))]
    names = [f"{zone}{at}" for zone in zones for at in range(random.choice((1, 2, 2, 3)))]
    pods: list[Pod] = []
    budgets: list[PodDisruptionBudget] = []
    for number in range(random.choice((1, 2, 3, 4, 4, 5))):
        app, namespace = f"app{number}", random.choice(("default", "default", "shop"))
        of = [_template(random, app) for _ in range(random.choice((1, 1, 1, 2)))]
        on = random.sample(names, max(2, len(names) // random.choice((1, 2, 2, 3))))
        kind = random.choice((*("ReplicaSet",) * 20, *("StatefulSet",) * 5, "ReplicationController", "DaemonSet", ""))
        owner = OwnerReference("v1" if kind == "ReplicationController" else "apps/v1", kind, app, f"uid-{app}")
        new = partial(_pod, random, app, namespace, owner if kind else None)
        size = random.choice((2, 3, 4, 6, 8, 10))
        pods += [new(f"{app}-{at}", random.choice(on), random.choice(of)) for at in range(size)]
        pods += [new(f"{app}-new{at}", "", of[0]) for at in range(random.choice((*(0,) * 12, 1, 2)))]
        for at in range(random.choice((*(0,) * 20, *(1,) * 9, 2))):
            budget = PodDisruptionBudget(
                namespace=namespace,
                name=f"{app}-{at}",
                selector=LabelSelector(match_labels=Map(app=app)),
                unhealthy_pod_eviction_policy=random.choice(("IfHealthyBudget", "AlwaysAllow")),
                disruptions_allowed=random.randint(0, 3),
                current_healthy=size,
                desired_healthy=size - 1,
                expected_pods=size,
            )
            budgets.append(budget)
    if random.random() < SELDOM:
        pods.append(_pod(random, "app0", "default", None, "lost", "gone", spec(constraint(selector={"app": "app0"}))))
    nodes = tuple(_node(random, name, [each for each in pods if each.node_name == name]) for name in names)
    return Scene(nodes, tuple(pods), tuple(budgets))


_TAINTS: Final[Sequence[Taint]] = (
    taint(),
    taint("slow", "PreferNoSchedule"),
    taint("DeletionCandidateOfClusterAutoscaler", "PreferNoSchedule"),
    taint("ToBeDeletedByClusterAutoscaler"),
    taint("karpenter.sh/disrupted"),
    taint("node.kubernetes.io/unreachable", "NoExecute"),
)


def _node(random: Random, name: str, pods: Sequence[Pod]) -> Node:
    is_roomy = random.random() > OFTEN
    of = node(
        name,
        name[0] if random.random() > SELDOM / 3 else None,
        labels={"rack": f"{name[0]}{random.choice('xy')}", "pool": random.choice("aab")},
        unschedulable=random.random() < SELDOM / 2,
        taints=(random.choice(_TAINTS),) * (random.random() < SELDOM),
    )
    cpu = sum(each.spec.requests["cpu"] for each in pods) + 100 * random.choice((0, 0, 1, 2, 3, 6))
    count = len(pods) + random.choice((0, 0, 1, 2, 3, 6))
    return of if is_roomy else msgspec.structs.replace(of, allocatable=Map(pods=count, cpu=cpu))


def _template(random: Random, app: str) -> PodSpec:
    own, another = ({"app": app}, {"app": random.choice(("app0", "app1", "app2", app))})
    term = LabelSelector(match_labels=Map(another))
    of_tier = random.random() < SELDOM
    fields: dict[str, Any] = {
        "min_domains": random.choice((None,) * 9 + (3, 4)),
        "node_taints_policy": random.choice(("Ignore", "Ignore", "Ignore", "Honor")),
        "node_affinity_policy": random.choice(("Honor", "Honor", "Honor", "Ignore")),
        "match_label_keys": random.choice(((),) * 7 + (("track",),)),
    }
    when: Any = random.choice(("DoNotSchedule",) * 5 + ("ScheduleAnyway",))
    if when == "ScheduleAnyway":
        fields["min_domains"] = None
    selector = {"tier": "web"} if of_tier else own
    constraints = [constraint(max_skew=random.choice((1, 1, 1, 2)), when=when, selector=selector, **fields)]
    if random.random() < OFTEN:
        when = random.choice(("DoNotSchedule", "ScheduleAnyway"))
        key = random.choice((HOSTNAME, "rack"))
        constraints.append(constraint(key, random.choice((1, 1, 2)), when, selector=own))
    more: list[dict[str, Any]] = [
        *({},) * 30,
        {"host_ports": (HostPort("TCP", 80),)},
        {"node_selector": Map(pool="a")},
        {"tolerations": (Toleration(key="dedicated", operator="Exists"),)},
        {"tolerations": (Toleration(operator="Exists", toleration_seconds=random.choice((None, 60))),)},
        {"pod_affinity": (PodAffinityTerm(ZONE, term),)},
        {"pod_anti_affinity": (PodAffinityTerm(random.choice((ZONE, HOSTNAME, HOSTNAME)), term),)},
        {"priority": random.choice((10, 10, 2_000_000_000))},
        {"priority": -10, "preempts": False},
        {"has_local_storage": True, "local_volumes": ("scratch",)},
        {"has_scheduling_gates": True},
        {"scheduler_name": "other"},
    ]
    return spec(*constraints, requests=Map(cpu=100 * random.choice((1, 1, 1, 2, 3))), **random.choice(more))


def _pod(
    random: Random, app: str, namespace: str, owner: OwnerReference | None, name: str, on: str, of: PodSpec
) -> Pod:
    annotations = random.choice(({},) * 40 + ({EVICT: "never"}, {POD_DELETION_COST: "5"}, {POD_DELETION_COST: "-5"}))
    fields: dict[str, Any] = {"ready": False} if random.random() < SELDOM / 3 else {}
    if random.random() < SELDOM / 6:
        fields["deletion_timestamp"] = NOW
    return pod(
        name,
        on,
        of,
        labels=Map(app=app, tier="web", track=random.choice(("stable",) * 5 + ("canary",))),
        namespace=namespace,
        controller=owner,
        annotations=Map(annotations),
        creation_timestamp=NOW - timedelta(seconds=random.choice((5, 50, *(3600,) * 9, 7200))),
        **fields,
    )


def _policies(random: Random) -> tuple[Policy, ...]:
    """Return one or two policies, by default one for everything and with limits that seldom bind."""
    wide = Limits(in_flight=50, in_flight_per_namespace=50, in_flight_per_node=50, in_flight_per_workload=50)
    kinds: Any = random.choice((("DoNotSchedule", "ScheduleAnyway"), ("DoNotSchedule",)))
    expected = ExpectedDomains(topology_key=ZONE, values=("a", "b", "e"))
    fields: dict[str, Any] = {
        "mode": "Enforce" if random.random() > SELDOM else "DryRun",
        "limits": random.choice((wide, wide, Limits(), Limits(in_flight=1))),
        "constraints": ConstraintRules(
            when_unsatisfiable=kinds, expected_domains=(expected,) * (random.random() < SELDOM)
        ),
        "victims": VictimRules(
            min_replicas=random.choice((1, 1, 1, 3)),
            min_age=timedelta(seconds=random.choice((0, 10, 60))),
            budget=random.choice((*("Optional",) * 12, "Required")),
            local_storage=random.choice(("Protect", "Evict")),
        ),
    }
    policies = [Policy(kind="ClusterRebalancePolicy", object_name="default", spec=ClusterPolicySpec(**fields))]
    if random.random() < OFTEN:
        own = PolicySpec(**{**fields, "priority": random.choice((-5, 5)), "limits": Limits(in_flight=2)})
        policies.append(Policy(kind="RebalancePolicy", namespace="shop", object_name="shop", spec=own))
    elif random.random() < OFTEN:
        selector = LabelSelector(match_labels=Map(app=random.choice(("app0", "app1"))))
        first = ClusterPolicySpec(**{**fields, "priority": 7, "pod_selector": selector})
        policies.append(Policy(kind="ClusterRebalancePolicy", object_name="first", spec=first))
    return tuple(policies)


def _evicted(random: Random, scene: Scene, plan: Plan) -> Scene:
    """Return a scene in which some of the moves that may be made now are made."""
    those = [move for move in plan.moves if move.wave == 0][: random.choice((1, 2, 9))]
    uids = {move.pod.uid for move in those}
    going = tuple(msgspec.structs.replace(move.pod, deletion_timestamp=NOW) for move in those)
    replaced = [each for each in going if random.random() > OFTEN and not is_replaced_when_gone(each)]
    under_way = UnderWay(
        in_flight=going,
        unreplaced=tuple(each for each in going if each not in replaced),
        replacements=tuple(map(_replacement, replaced)),
        of_policies=Map(Counter(move.policy for move in those)),
    )
    stay = [each for each in scene.pods if each.uid not in uids]
    return scene._replace(pods=(*stay, *going, *under_way.replacements), under_way=under_way)


def _replacement(of: Pod) -> Pod:
    name = of.name if is_replaced_when_gone(of) else f"{of.name}x"
    new = {"node_name": "", "phase": "Pending", "ready": False, "creation_timestamp": NOW, "deletion_timestamp": None}
    return msgspec.structs.replace(of, name=name, uid=f"{of.uid}x", **new)


def _placed(random: Random, scene: Scene, _plan: Plan) -> Scene:
    """Return a scene in which replacements without a node have one, seldom a bad one, and the others exist."""
    before = scene.under_way
    uids = {each.uid for each in (*before.in_flight, *before.replacements)}
    placed = [_on_any(random, scene, each) for each in before.replacements]
    under_way = before._replace(replacements=tuple(map(_replacement, before.unreplaced)), unreplaced=())
    stay = [each for each in scene.pods if each.uid not in uids]
    return scene._replace(pods=(*stay, *placed, *under_way.replacements), under_way=under_way)


def _on_any(random: Random, scene: Scene, each: Pod) -> Pod:
    return msgspec.structs.replace(each, node_name=random.choice(scene.nodes).name, phase="Running")


def _disturbed(random: Random, scene: Scene, _plan: Plan) -> Scene:
    """Return a scene with no move in flight, in which others have deleted a pod, and cordoned or repaired a node."""
    pods = [each if each.node_name else _on_any(random, scene, each) for each in scene.pods]
    pods.pop(random.randrange(len(pods)))
    at = random.randrange(len(scene.nodes))
    changed = msgspec.structs.replace(scene.nodes[at], unschedulable=not scene.nodes[at].unschedulable)
    return Scene((*scene.nodes[:at], changed, *scene.nodes[at + 1 :]), tuple(pods), scene.budgets)


def text_of(plan: Plan) -> str:
    """Return all that a plan says, the same in each process."""
    fields = msgspec.structs.asdict(plan)
    return "\n".join([*map(_said, fields.pop("moves")), *(f"{name}: {_said(value)}" for name, value in fields.items())])


def _said(value: object) -> str:
    match value:
        case Pod():
            return f"{value.namespace}/{value.name} on {value.node_name}"
        case msgspec.Struct() if not isinstance(value, GroupKey):
            return ", ".join(f"{name} {_said(each)}" for name, each in msgspec.structs.asdict(value).items())
        case Mapping():
            return f"{{{', '.join(sorted(f'{_said(key)}: {_said(each)}' for key, each in value.items()))}}}"
        case frozenset():
            return f"{{{', '.join(sorted(map(_said, value)))}}}"
        case tuple() if type(value) is tuple:
            return f"({', '.join(map(_said, value))})"
        case _:
            return str(value)


def line_of(plan: Plan, looks: int) -> str:
    """Return what a plan comes to, with a digest of all that it says."""
    at_once = sum(move.wave == 0 for move in plan.moves)
    stay = Counter(each.reason for each in plan.blocked)
    blocked = ",".join(f"{reason}:{number}" for reason, number in sorted(stay.items()))
    digest = f"{crc32(text_of(plan).encode()):08x}"
    return f"moves {len(plan.moves)} at once {at_once} looks {looks} {blocked or '-'} {digest}"


def lines_of(number: int) -> list[str]:
    """Return the lines of a cluster."""
    return [f"{number}.{at} {line_of(plan, looks)}" for at, (plan, looks) in enumerate(plans_of(number))]


_SHOW = """
from tests.unit.planning.test_plans_of_record import lines_of
for at in (2, 16, 37, 45, 67, 83, 137, 187, 188):
    print(*lines_of(at))
"""


@pytest.mark.parametrize("part", range(PARTS))
def test_plans_say_what_they_have_said(part: int) -> None:
    """At the top is what to do after a change that makes plans better."""
    numbers = range(part, CLUSTERS, PARTS)
    recorded = [line for line in RECORD.read_text().splitlines() if int(line.partition(".")[0]) in numbers]
    assert [line for number in numbers for line in lines_of(number)] == recorded


def test_a_plan_does_not_depend_on_the_order_of_sets() -> None:
    """Sets have another order in each process, and a new leader goes on with what the last one has begun."""

    def plans(hash_seed: int) -> str:
        environment = {**os.environ, "PYTHONHASHSEED": str(hash_seed)}
        return subprocess.run(
            [sys.executable, "-c", _SHOW], cwd=ROOT, env=environment, check=True, capture_output=True, text=True
        ).stdout

    assert plans(1) == plans(4) == plans(5)


def test_groups_of_a_component_are_named_in_the_order_of_their_topology_keys() -> None:
    of = spec(constraint(), constraint(HOSTNAME))
    there = [
        msgspec.structs.replace(each, namespace=f"team-{team}")
        for team in range(12)
        for each in (*pods({"a1": 3, "b1": 1}, of), pod("new", "", of))
    ]
    plan = plan_of(cluster([node("a1", "a"), node("b1", "b")], there))
    for team in range(12):
        keys = [each.group.topology_key for each in plan.blocked if each.group.namespace == f"team-{team}"]
        assert keys == sorted((HOSTNAME, ZONE))


if __name__ == "__main__":
    if sys.argv[1:]:
        for shown, spent in plans_of(int(sys.argv[1])):
            print(f"{text_of(shown)}\nlooks: {spent}\n")  # noqa: T201 - what the command is for
    else:
        RECORD.write_text("".join(f"{line}\n" for at in range(CLUSTERS) for line in lines_of(at)))
