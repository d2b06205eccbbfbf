"""Small clusters without room for all pods, with different constraints, taints, namespaces and policies."""

from __future__ import annotations

from random import Random
from typing import Final

from tests.properties.planning.scarce_worlds import IMPORTANT, ORDINARY, TRIED, ScarceWorld, skewed, spare
from tests.properties.planning.small_worlds import HOSTNAME, Host, Place, Rule, Shape, World

_MOST_PODS: Final = 15
"""The maximum number of pods, small enough to examine every sequence of evictions."""


def mixed_world(seed: int) -> ScarceWorld:
    """Return the world of a seed."""
    random = Random(f"mixed {seed}")
    zones = random.choice((2, 3, 3, 3, 4))
    hosts = [
        Host(
            {HOSTNAME: f"n{zone}-{number}", "zone": f"z{zone}", "pool": random.choice(("x", "x", "y"))},
            room=0,
            tainted=_seldom(random, 0.12),
            cordoned=_seldom(random, 0.06),
        )
        for zone in range(zones)
        for number in range(random.choice((1, 1, 2)))
    ]
    kinds = random.choice(((ORDINARY,), (ORDINARY, IMPORTANT), (ORDINARY, IMPORTANT, TRIED)))
    namespaces = random.choice((("default",), ("default",), ("default", "other")))
    importance: list[str] = []
    shapes: list[Shape] = []
    pods: list[Place] = []
    for number in range(random.randint(2, 4)):
        app = _application(random, f"app{number}", random.choice(kinds), random.choice(namespaces), zones)
        for shape in (app, *_variants(random, app)):
            most = max(0, min(4, _MOST_PODS - len(pods)))
            importance.append(shape.labels["importance"])
            shapes.append(shape)
            pods.extend(
                Place(len(shapes) - 1, host, movable=not _seldom(random, 0.1))
                for host in skewed(random, hosts, shape, min(most, random.randint(2, 4)))
            )
    if _seldom(random, 0.2):  # like pods of a DaemonSet with labels that an application's constraint selects
        shapes.append(Shape({**shapes[0].labels}, (), namespace=shapes[0].namespace, tolerates=True))
        importance.append(importance[0])
        pods.extend(Place(len(shapes) - 1, host, movable=False) for host in range(len(hosts)))
    held = [0] * len(hosts)
    for pod in pods:
        held[pod.host] += shapes[pod.shape].size
    world = World(
        hosts=tuple(
            host._replace(room=room + spare(random, host, zones)) for host, room in zip(hosts, held, strict=True)
        ),
        shapes=tuple(shapes),
        pods=tuple(pods),
        restores_soft=_seldom(random, 0.3),
    )
    return ScarceWorld(world, tuple(importance))


def _seldom(random: Random, share: float) -> bool:
    return random.random() < share


def _application(random: Random, name: str, importance: str, namespace: str, zones: int) -> Shape:
    selector = (("app", name),)
    rules = [
        Rule(
            "zone",
            random.choice((1, 1, 1, 2)),
            selector,
            hard=not _seldom(random, 0.15),
            min_domains=zones if _seldom(random, 0.1) else 1,
            honor_affinity=not _seldom(random, 0.1),
            honor_taints=_seldom(random, 0.15),
        )
    ]
    if not rules[0].hard:
        rules[0] = rules[0]._replace(min_domains=1)
    if _seldom(random, 0.25):
        rules.append(Rule(HOSTNAME, random.choice((1, 2)), selector, hard=not _seldom(random, 0.4)))
    return Shape(
        labels={"app": name, "importance": importance},
        rules=tuple(rules),
        pools=random.choice((None, None, None, None, ("x",), ("x", "y"))),
        tolerates=_seldom(random, 0.3),
        size=random.choice((1, 1, 1, 2, 3)),
        namespace=namespace,
    )


def _variants(random: Random, app: Shape) -> list[Shape]:
    """Return the templates of an application: seldom a second one, whose pods are counted together with the first."""
    if not _seldom(random, 0.2):
        return []
    return [
        app._replace(
            labels={**app.labels, "track": "canary"},
            rules=random.choice((app.rules, app.rules[:1])),
            pools=random.choice((app.pools, None, ("y",))),
            size=random.choice((app.size, 1, 2)),
        )
    ]
