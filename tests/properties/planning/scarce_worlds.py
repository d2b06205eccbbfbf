"""Small clusters in which several applications compete for the room on a few nodes, and not all of them fit."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Final, NamedTuple

from immutables import Map

from respread.api.fields import LabelSelector
from respread.api.policy import ClusterPolicySpec, ConstraintRules, Policy, VictimRules, WhenUnsatisfiable
from tests.properties.planning.small_worlds import HOSTNAME, Host, Place, Rule, Shape, World

IMPORTANT, ORDINARY, TRIED = "important", "ordinary", "tried"
RANKS: Final = {IMPORTANT: 0, ORDINARY: 1, TRIED: 2}
"""The importance of policies, the most important first."""
_PRIORITIES: Final = {IMPORTANT: 10, ORDINARY: 0, TRIED: 20}
"""The importance of a policy in dry run, which does not count."""


class ScarceWorld(NamedTuple):
    """A cluster, and the importance of its applications."""

    world: World
    importance: tuple[str, ...]
    """The importance of each shape."""

    @property
    def policies(self) -> list[Policy]:
        """One policy for each importance."""
        kinds: tuple[WhenUnsatisfiable, ...] = ("DoNotSchedule",)
        if self.world.restores_soft:
            kinds += ("ScheduleAnyway",)
        return [
            Policy(
                kind="ClusterRebalancePolicy",
                object_name=name,
                spec=ClusterPolicySpec(
                    pod_selector=LabelSelector(match_labels=Map(importance=name)),
                    priority=priority,
                    mode="DryRun" if name == TRIED else "Enforce",
                    constraints=ConstraintRules(when_unsatisfiable=kinds),
                    victims=VictimRules(min_replicas=1),
                ),
            )
            for name, priority in _PRIORITIES.items()
        ]


def scarce_world(seed: int) -> ScarceWorld:
    """Return the cluster of a seed."""
    random = Random(seed)
    zones = random.choice((2, 3, 3, 3, 4))
    hosts = [
        Host({HOSTNAME: f"n{zone}-{number}", "zone": f"z{zone}", "pool": random.choice(("x", "x", "y"))}, room=0)
        for zone in range(zones)
        for number in range(random.choice((1, 1, 2)))
    ]
    several = random.random() < 0.3
    importance: list[str] = []
    shapes: list[Shape] = []
    pods: list[Place] = []
    for number in range(random.randint(2, 4)):
        importance.append(random.choice((IMPORTANT, ORDINARY)) if several else ORDINARY)
        shapes.append(_application(random, f"app{number}", importance[-1]))
        pods.extend(Place(number, host) for host in skewed(random, hosts, shapes[-1], random.randint(3, 5)))
    return filled(random, World(tuple(hosts), tuple(shapes), tuple(pods)), importance, zones)


def filled(random: Random, world: World, importance: Iterable[str], zones: int) -> ScarceWorld:
    """Return a world whose nodes have room for their pods, and hardly more."""
    held = [0] * len(world.hosts)
    for pod in world.pods:
        held[pod.host] += world.shapes[pod.shape].size
    rooms = zip(world.hosts, held, strict=True)
    hosts = tuple(host._replace(room=room + spare(random, host, zones)) for host, room in rooms)
    return ScarceWorld(world._replace(hosts=hosts), tuple(importance))


def _application(random: Random, name: str, importance: str) -> Shape:
    rules = [Rule("zone", random.choice((1, 1, 1, 2)), (("app", name),))]
    if random.random() < 0.2:
        rules.append(Rule(HOSTNAME, random.choice((1, 2)), (("app", name),)))
    return Shape(
        labels={"app": name, "importance": importance},
        rules=tuple(rules),
        pools=random.choice((None, None, None, None, ("x",), ("x", "y"))),
        size=random.choice((1, 1, 1, 2)),
    )


def skewed(random: Random, hosts: list[Host], shape: Shape, count: int) -> list[int]:
    """Place few pods in the last zone, as after its return."""
    allowed = [at for at, host in enumerate(hosts) if shape.pools is None or host.labels["pool"] in shape.pools]
    last = hosts[-1].labels["zone"]
    elsewhere = [at for at in allowed if hosts[at].labels["zone"] != last]
    if not allowed:
        return []
    return [random.choice(elsewhere if elsewhere and random.random() < 0.93 else allowed) for _ in range(count)]


def spare(random: Random, host: Host, zones: int) -> int:
    """Return the free room of a host: some in the last zone, and little elsewhere."""
    if host.labels["zone"] == f"z{zones - 1}":
        return random.randint(1, 4)
    return random.choice((0, 0, 0, 1))
