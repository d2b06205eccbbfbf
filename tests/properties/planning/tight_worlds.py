"""Clusters with little room: several applications compete for the room on a few nodes, and pods are Pending.

They are made from a seed and not by hypothesis, because a loop takes seconds, which is too long to shrink an example.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

from respread.api.policy import Limits
from tests.properties.planning.small_worlds import HOSTNAME, Host, Place, Rule, Shape, World

FOLLOWERS = 0.3
"""How often foreign pods have affinity to pods of an application, or to other foreign ones."""
_WIDE = Limits(in_flight=50, in_flight_per_namespace=50, in_flight_per_node=50, in_flight_per_workload=3)


class TightWorld(NamedTuple):
    """A cluster, and the parameters of its loop."""

    world: World
    """Its pods are those of the applications. The shapes of foreign pods are last."""
    applications: int
    """The number of shapes that are applications."""
    stateful: frozenset[int]
    """The shapes whose pods are replaced only after their deletion, under the same name."""
    foreign: tuple[tuple[int, ...], ...]
    """The shapes of foreign pods: those that are Pending at the start, and those created once all pods are at rest."""
    most_ticks: int
    """The longest termination of a pod."""
    limits: Limits


def tight_world(seed: int) -> TightWorld:
    """Return the cluster of a seed."""
    random = Random(seed)
    zones = random.choice((2, 3, 3, 4))
    hosts = tuple(
        Host({HOSTNAME: f"n{zone}-{number}", "zone": f"z{zone}", "pool": random.choice(("x", "x", "y"))}, room=0)
        for zone in range(zones)
        for number in range(random.choice((1, 1, 2, 3)))
    )
    priorities = random.choice(((0,), (0,), (0, 1), (0, 1, 2)))
    applications = random.randint(1, 6)
    shapes = [_application(random, f"app{number}", priorities) for number in range(applications)]
    pods = [
        Place(shape, host)
        for shape in range(applications)
        for host in _skewed(random, hosts, shapes[shape], random.randint(3, 6))
    ]
    foreign_kinds = random.randint(0, 3)
    for number in range(foreign_kinds):
        shapes.append(_foreign(random, f"foreign{number}", priorities))
    following = Random(f"affinity {seed}")
    for at in range(applications, len(shapes)):
        if following.random() < FOLLOWERS:
            shapes[at] = shapes[at]._replace(near=following.choice(shapes).labels["app"])
    epochs = random.choice((1, 1, 2))
    foreign = tuple(
        tuple(applications + random.randrange(foreign_kinds) for _ in range(random.randint(0, 3)))
        if foreign_kinds
        else ()
        for _ in range(epochs)
    )
    held = [0] * len(hosts)
    for pod in pods:
        held[pod.host] += shapes[pod.shape].size
    tight = tuple(host._replace(room=held[at] + _spare(random)) for at, host in enumerate(hosts))
    return TightWorld(
        world=World(hosts=tight, shapes=tuple(shapes), pods=tuple(pods)),
        applications=applications,
        stateful=frozenset(shape for shape in range(applications) if random.random() < 0.3),
        foreign=foreign,
        most_ticks=random.choice((0, 2, 10, 30)),
        limits=random.choice((Limits(), Limits(), _WIDE)),
    )


def _spare(random: Random) -> int:
    return random.choice((0, 0, 1, 1, 2, 3))


def _application(random: Random, name: str, priorities: tuple[int, ...]) -> Shape:
    rules = [Rule("zone", 1, (("app", name),))]
    if random.random() < 0.2:
        rules.append(Rule(HOSTNAME, 2, (("app", name),)))
    return Shape(
        labels={"app": name},
        rules=tuple(rules),
        pools=None if random.random() < 0.8 else ("x",),
        size=random.choice((1, 1, 1, 2)),
        priority=random.choice(priorities),
    )


def _foreign(random: Random, name: str, priorities: tuple[int, ...]) -> Shape:
    return Shape(
        labels={"app": name},
        rules=(Rule("zone", 1, (("app", name),)),) if random.random() < 0.2 else (),
        pools=random.choice((None, None, ("x",), ("y",))),
        size=random.choice((1, 1, 2)),
        priority=random.choice((-1, *priorities, 3)),
    )


def _skewed(random: Random, hosts: tuple[Host, ...], shape: Shape, pods: int) -> list[int]:
    """Return hosts for an application's pods, more often those of the first zones."""
    allowed = [at for at, host in enumerate(hosts) if shape.pools is None or host.labels["pool"] in shape.pools]
    order = allowed or [0]
    weights = [1 + len(order) - at for at in range(len(order))] if random.random() < 0.7 else [1] * len(order)
    return random.choices(order, weights, k=pods)
