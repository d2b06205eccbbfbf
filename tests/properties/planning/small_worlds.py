"""Small clusters for the oracles of planning: plain data, drawn by hypothesis, with the snapshot for the planner.

This module does not count spread and makes no plan. Two independent implementations do: the product reads the snapshot,
and `scheduler_model` reads the plain data.
"""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import NamedTuple

from hypothesis import strategies as st
from immutables import Map

from respread.api.fields import LabelSelector
from respread.api.policy import ClusterPolicySpec, ConstraintRules, Limits, Policy, VictimRules, WhenUnsatisfiable
from respread.cluster.meta import EVICT, OwnerReference
from respread.cluster.objects import Namespace, Node, Taint
from respread.cluster.pod import (
    NodeSelector,
    NodeSelectorRequirement,
    NodeSelectorTerm,
    Pod,
    PodAffinityTerm,
    PodSpec,
    Toleration,
    TopologySpreadConstraint,
)
from respread.cluster.state import ClusterSnapshot, ClusterState

NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)
HOSTNAME = "kubernetes.io/hostname"
DEDICATED = Taint(key="dedicated", effect="NoSchedule")
CORDON = Taint(key="node.kubernetes.io/unschedulable", effect="NoSchedule")
PLENTY = 100


class Host(NamedTuple):
    """A node."""

    labels: dict[str, str]
    """The labels, including its own name under `HOSTNAME`."""
    room: int = PLENTY
    """Its units of room for pods. The template of a pod says how many units the pod uses."""
    tainted: bool = False
    cordoned: bool = False


class Rule(NamedTuple):
    """A topology spread constraint."""

    key: str
    max_skew: int
    selector: tuple[tuple[str, str], ...] | None
    hard: bool = True
    min_domains: int = 1
    honor_affinity: bool = True
    honor_taints: bool = False


class Shape(NamedTuple):
    """The common properties of the pods of one template."""

    labels: dict[str, str]
    rules: tuple[Rule, ...]
    pools: tuple[str, ...] | None = None
    """The values of the label `pool` in its node affinity; None for any node."""
    tolerates: bool = False
    """Whether its pods tolerate the taint of tainted nodes."""
    size: int = 1
    priority: int = 0
    namespace: str = "default"
    near: str = ""
    """The label `app` of the pods to which its pods have zone affinity; empty for none."""
    is_apart: bool = False
    """Whether its pods have anti-affinity over hostnames to all with the same label `app`."""


class Place(NamedTuple):
    """A pod."""

    shape: int
    host: int
    movable: bool = True


class World(NamedTuple):
    """A cluster, and the constraints to restore."""

    hosts: tuple[Host, ...]
    shapes: tuple[Shape, ...]
    pods: tuple[Place, ...]
    restores_soft: bool = False
    restored_keys: tuple[str, ...] = ()
    """The topology keys that the policy selects; empty for all."""

    def restores(self, rule: Rule) -> bool:
        """Return whether the policy selects a constraint."""
        return (rule.hard or self.restores_soft) and (not self.restored_keys or rule.key in self.restored_keys)


def snapshot_of(world: World, stateful: Collection[int] = ()) -> ClusterSnapshot:
    """Return the snapshot of the cluster. The pods of some shapes are of StatefulSets, the others of ReplicaSets."""
    specs = [_spec(shape) for shape in world.shapes]
    names = [f"{number:02}" for number in range(len(world.pods))]
    pods = [
        Pod(
            namespace=world.shapes[place.shape].namespace,
            name=name,
            uid=f"uid-{name}",
            spec=specs[place.shape],
            labels=Map(world.shapes[place.shape].labels),
            annotations=Map() if place.movable else Map({EVICT: "never"}),
            controller=_owner(place.shape, stateful),
            node_name=world.hosts[place.host].labels[HOSTNAME],
            phase="Running",
            ready=True,
            creation_timestamp=NOW - timedelta(hours=1),
        )
        for name, place in zip(names, world.pods, strict=True)
    ]
    state = ClusterState()
    state.replace("nodes", [_node(host) for host in world.hosts])
    state.replace("pods", pods)
    state.replace("namespaces", [Namespace(name=name) for name in sorted({each.namespace for each in world.shapes})])
    return state.snapshot


def _owner(shape: int, stateful: Collection[int]) -> OwnerReference:
    kind = "StatefulSet" if shape in stateful else "ReplicaSet"
    return OwnerReference("apps/v1", kind, f"shape{shape}", f"uid-shape{shape}")


def policy_of(world: World, limits: Limits | None = None) -> Policy:
    """Return the policy that restores the selected constraints."""
    kinds: tuple[WhenUnsatisfiable, ...] = ("DoNotSchedule",)
    if world.restores_soft:
        kinds += ("ScheduleAnyway",)
    rules = ConstraintRules(when_unsatisfiable=kinds, topology_keys=world.restored_keys)
    return Policy(
        kind="ClusterRebalancePolicy",
        object_name="default",
        spec=ClusterPolicySpec(
            constraints=rules, victims=VictimRules(min_replicas=1), limits=Limits() if limits is None else limits
        ),
    )


def _node(host: Host) -> Node:
    taints = (DEDICATED,) * host.tainted + (CORDON,) * host.cordoned
    return Node(
        name=host.labels[HOSTNAME],
        labels=Map(host.labels),
        taints=taints,
        unschedulable=host.cordoned,
        allocatable=Map(pods=PLENTY, cpu=host.room),
    )


def _spec(shape: Shape) -> PodSpec:
    affinity = None
    if shape.pools is not None:
        wanted = NodeSelectorRequirement(key="pool", operator="In", values=shape.pools)
        affinity = NodeSelector(node_selector_terms=(NodeSelectorTerm(match_expressions=(wanted,)),))
    return PodSpec(
        requests=Map(cpu=shape.size),
        node_affinity=affinity,
        tolerations=(Toleration(key=DEDICATED.key, operator="Exists"),) * shape.tolerates,
        priority=shape.priority,
        pod_affinity=(_pods_of(shape.near, "zone"),) * bool(shape.near),
        pod_anti_affinity=(_pods_of(shape.labels.get("app", ""), HOSTNAME),) * shape.is_apart,
        topology_spread_constraints=tuple(_constraint(rule) for rule in shape.rules),
    )


def _pods_of(app: str, key: str) -> PodAffinityTerm:
    return PodAffinityTerm(topology_key=key, label_selector=LabelSelector(match_labels=Map(app=app)))


def _constraint(rule: Rule) -> TopologySpreadConstraint:
    return TopologySpreadConstraint(
        max_skew=rule.max_skew,
        topology_key=rule.key,
        when_unsatisfiable="DoNotSchedule" if rule.hard else "ScheduleAnyway",
        label_selector=None if rule.selector is None else LabelSelector(match_labels=Map(dict(rule.selector))),
        min_domains=rule.min_domains if rule.min_domains > 1 else None,
        node_affinity_policy="Honor" if rule.honor_affinity else "Ignore",
        node_taints_policy="Honor" if rule.honor_taints else "Ignore",
    )


# Strategies


class Size(NamedTuple):
    """The sizes of drawn clusters."""

    zones: int
    hosts: int
    pods: int
    shapes: int
    rules: int
    """Draws values for one template."""


TINY = Size(zones=4, hosts=6, pods=9, shapes=2, rules=2)
SMALL = Size(zones=6, hosts=12, pods=30, shapes=3, rules=3)

_KEYS = ("zone", HOSTNAME, "region", "rack")


def _often(likely: object, *rest: object) -> st.SearchStrategy:
    """Draw one of the first three in three of four cases if there are few others."""
    return st.sampled_from((likely,) * (3 * len(rest)) + rest)


@st.composite
def worlds(draw: st.DrawFn, size: Size) -> World:
    """Draw a cluster with everything that affects planning, most of it rarely, so that plain cases are frequent."""
    hosts = draw(_hosts(size))
    keys = tuple(key for key in _KEYS if any(key in host.labels for host in hosts))
    shapes = draw(st.lists(_shape(size, keys), min_size=1, max_size=size.shapes))
    count = draw(st.integers(min(4, size.pods), size.pods))
    pods = draw(
        st.lists(
            st.builds(
                Place,
                st.sampled_from(range(len(shapes))),
                _skewed(len(hosts)),
                _often(True, False) if draw(_often(False, True)) else st.just(True),
            ),
            min_size=count,
            max_size=count,
        )
    )
    used = sorted({pod.shape for pod in pods})
    return _with_room(
        World(
            hosts=hosts,
            shapes=tuple(shapes[shape] for shape in used),
            pods=tuple(pod._replace(shape=used.index(pod.shape)) for pod in pods),
            restores_soft=draw(_often(False, True)),
            restored_keys=draw(_often((), ("zone",), (HOSTNAME,))),
        ),
        draw,
    )


def _skewed(hosts: int) -> st.SearchStrategy[int]:
    """Draw a host's number, low ones more often, which causes skew."""
    return st.integers(0, hosts * (hosts + 1) // 2 - 1).map(lambda number: _triangular(number, hosts))


def _triangular(number: int, hosts: int) -> int:
    for host in range(hosts):
        if number < hosts - host:
            return host
        number -= hosts - host
    raise AssertionError(number)


@st.composite
def _hosts(draw: st.DrawFn, size: Size) -> tuple[Host, ...]:
    count = draw(st.integers(2, size.hosts))
    zones = draw(st.integers(1, min(size.zones, count)))
    racks = draw(_often("", "z{zone}-r{rack}", "r{rack}"))  # within zones, or across them
    regions = draw(_often(False, True))
    special = draw(_often(False, True))
    hosts = []
    for number in range(count):
        zone = number % zones
        labels = {HOSTNAME: f"n{number}", "zone": f"z{zone}"}
        if regions:
            labels["region"] = f"r{zone % 2}"
        if racks:
            labels["rack"] = racks.format(zone=zone, rack=number // zones % 2)
        if special:
            labels["pool"] = draw(_often("x", "y"))
            if draw(_often(False, True)) and zones > 1:
                del labels["zone"]
        hosts.append(
            Host(labels, tainted=special and draw(_often(False, True)), cordoned=special and draw(_often(False, True)))
        )
    return tuple(hosts)


@st.composite
def _shape(draw: st.DrawFn, size: Size, keys: tuple[str, ...]) -> Shape:
    labels = {"app": "web"} if draw(_often(True, False)) else {"app": "api", "tier": "back"}
    if draw(_often(False, True)):
        labels = {**labels, "tier": "front"}
    rules = draw(
        st.lists(_rule(labels, keys), min_size=1, max_size=size.rules, unique_by=lambda rule: (rule.key, rule.hard))
    )
    plain = draw(_often(True, False))
    return Shape(
        labels=labels,
        rules=tuple(rules),
        pools=None if plain else draw(_often(None, ("x",), ("x", "y"))),
        tolerates=not plain and draw(st.booleans()),
        size=1 if plain else draw(_often(1, 2)),
    )


@st.composite
def _rule(draw: st.DrawFn, labels: dict[str, str], keys: tuple[str, ...]) -> Rule:
    plain = draw(_often(True, False))
    hard = draw(_often(True, False))
    return Rule(
        key=draw(st.sampled_from(keys)),
        max_skew=draw(_often(1, 2, 3)),
        selector=(("app", labels["app"]),)
        if plain
        else draw(
            st.sampled_from([(("app", "web"),), (("app", "api"),), tuple(labels.items()), (("tier", "front"),), None])
        ),
        hard=hard,
        min_domains=1 if plain or not hard else draw(_often(1, 2, 3)),
        honor_affinity=plain or draw(_often(True, False)),
        honor_taints=not plain and draw(_often(False, True)),
    )


def _with_room(world: World, draw: st.DrawFn) -> World:
    """Make some hosts small, but never smaller than their pods."""
    return world if draw(_often(True, False)) else _crowded(world, draw, st.booleans(), 2)


@st.composite
def crowded_worlds(draw: st.DrawFn, size: Size) -> World:
    """Draw a cluster as `worlds` does, with little room on most hosts, and pods that need others in their zone."""
    world = _crowded(draw(worlds(size)), draw, _often(True, False), 1)
    if draw(_often(False, True)) and all("zone" in host.labels for host in world.hosts):
        near = draw(st.sampled_from(("web", "api")))
        world = world._replace(shapes=(world.shapes[0]._replace(near=near), *world.shapes[1:]))
    return world


def _crowded(world: World, draw: st.DrawFn, is_small: st.SearchStrategy[object], most_free: int) -> World:
    held = [sum(world.shapes[pod.shape].size for pod in world.pods if pod.host == at) for at in range(len(world.hosts))]
    return world._replace(
        hosts=tuple(
            host._replace(room=room + draw(st.integers(0, most_free))) if draw(is_small) else host
            for host, room in zip(world.hosts, held, strict=True)
        )
    )
