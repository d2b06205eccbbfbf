"""Small clusters without room for all pods, with different constraints, taints, namespaces and policies.

And others of particular shapes: domains that cross, zones of different sizes, pods that keep off each other.
"""

from __future__ import annotations

from random import Random
from typing import Final

from tests.properties.planning.scarce_worlds import IMPORTANT, ORDINARY, TRIED, ScarceWorld, filled, skewed
from tests.properties.planning.small_worlds import HOSTNAME, PLENTY, Host, Place, Rule, Shape, World

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
    found = filled(random, World(tuple(hosts), tuple(shapes), tuple(pods)), importance, zones)
    return found._replace(world=found.world._replace(restores_soft=_seldom(random, 0.3)))


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


_WEB = (("app", "web"),)


def crossing_world(random: Random, most: int = 9) -> World:
    """Return a cluster with constraints whose domains cross, or of which those of one are parts of the other's.

    Seldom there are fewer domains than a constraint wants.
    """
    zones, racks = random.choice(((2, 2), (3, 2), (2, 3), (4, 2)))
    without = random.choice((None, None, *range(zones * racks)))
    places = [divmod(at, racks) for at in range(zones * racks) if at != without]
    crossing = random.random() < 0.3
    hosts = tuple(
        Host({HOSTNAME: f"n{at}", "zone": f"z{zone}", "rack": f"r{rack}" if crossing else f"r{zone}{rack}"})
        for at, (zone, rack) in enumerate(places)
    )
    keys = random.choice((("zone", "rack"), ("zone", "rack", HOSTNAME)))
    rules = [Rule(key, random.randint(1, 2), _WEB, hard=random.random() < 0.7) for key in keys]
    rules = [each._replace(min_domains=random.choice((1,) * 9 + (9,)) if each.hard else 1) for each in rules]
    if rules[0].hard and random.random() < 0.5:  # the same domains twice, of which one is only preferred
        rules.append(Rule("zone", random.randint(1, 2), _WEB, hard=False))
    on = random.choice((range(len(hosts)), range(racks)))
    pods = tuple(Place(0, random.choice(on)) for _ in range(random.randint(6, most)))
    return World(hosts, (Shape({"app": "web"}, tuple(rules)),), pods, restores_soft=random.random() < 0.5)


def uneven_world(random: Random) -> World:
    """Return a cluster with most pods in one of its zones, and mostly soft constraints in these.

    Zones differ in size. If all constraints are soft, they mostly don't.
    """
    all_soft, sizes = random.random() < 0.5, [random.randint(1, 3) for _ in range(3)]
    if all_soft and random.random() < 0.75:
        sizes = sizes[:1] * random.randint(2, 3)
    places = [(zone, at) for zone, nodes in enumerate(sizes) for at in range(nodes)]
    hosts = tuple(
        Host({HOSTNAME: f"n{number}", "zone": f"z{zone}", "rack": f"r{zone}{at % 2}"})
        for number, (zone, at) in enumerate(places)
    )
    if random.random() < 0.2:
        hosts += (Host({HOSTNAME: f"n{len(hosts)}"}),)
    rules = [
        Rule(key, random.randint(1, 4 if key == HOSTNAME else 2), _WEB, hard=random.choice(hard) and not all_soft)
        for key, hard in (
            ("zone", (True, True, False)),
            (HOSTNAME, (False, False, True)),
            ("rack", (False, False, True)),
        )
        if key == "zone" or (all_soft and key == HOSTNAME) or random.random() < 0.5
    ]
    on = [*range(sizes[0])] * 3 + [*range(len(hosts))]
    pods = tuple(Place(0, random.choice(on)) for _ in range(random.randint(5, 8)))
    return World(hosts, (Shape({"app": "web"}, tuple(rules)),), pods, restores_soft=random.random() < 0.5)


def shared_world(random: Random) -> World:
    """Return one in which two workloads share constraints, or one is counted by both, and they have others."""
    world, is_narrow, pools = uneven_world(random), random.random() < 0.3, random.choice((None, None, ("y",)))
    (shape,) = world.shapes
    shapes = []
    for part in ("x", "y"):
        rules = [each._replace(honor_affinity=False) for each in shape.rules if each.hard or random.random() < 0.5]
        if is_narrow and part == "x":
            rules = [each._replace(selector=(("part", part),)) for each in rules]
        key = random.choice((None, "zone", HOSTNAME, "rack"))
        if key is not None and not any(each.key == key and not each.hard for each in rules):
            rules.append(Rule(key, random.randint(1, 2), (("part", part),), hard=random.random() < 0.5))
        shapes.append(Shape({"app": "web", "part": part}, tuple(rules), pools=pools if part == "y" else None))
    hosts = tuple(host._replace(labels={**host.labels, "pool": random.choice("xxy")}) for host in world.hosts)
    pods = tuple(Place(at if at < 2 else random.randint(0, 1), pod.host) for at, pod in enumerate(world.pods))
    return world._replace(hosts=hosts, shapes=tuple(shapes), pods=pods)


def half_bound_world() -> World:
    """Return one in which a workload has a constraint that counts the pods of another one, which does not have it."""
    own, of_both = (Rule("zone", 1, ((key, "x"),)) for key in ("part", "tier"))
    hosts = tuple(Host({HOSTNAME: f"n{at}", "zone": f"z{at}"}) for at in range(3))
    shapes = Shape({"tier": "x", "part": "x"}, (own,)), Shape({"tier": "x"}, (of_both,))
    return World(hosts, shapes, (Place(0, 0), Place(0, 0), Place(1, 1)))


def filling_world(random: Random) -> World:
    """Return one in which the nodes, or racks, of one or two zones take one pod each before any takes two."""
    back = random.choice((1, 2, 2, 3))
    nodes_of = [*(random.randint(1, 3) for _ in range(random.choice((1, 1, 2)))), back]
    filled = sum(nodes_of) - back
    nodes_of += random.choice(([], [], [back], [random.randint(1, 3)]))
    zone_of = [zone for zone, number in enumerate(nodes_of) for _ in range(number)]
    pods = random.choices(range(filled), k=9) if _seldom(random, 0.3) else [*range(filled)] * (9 // filled)
    numbers = random.choice(((0,), (0,), (0, 1), (1,), (0, 0, 1, 2, 3)))
    pods += [host for host in range(filled, len(zone_of)) for _ in range(random.choice(numbers))]
    hosts = tuple(
        Host(
            {HOSTNAME: f"n{host}", "zone": f"z{zone}", "rack": f"r{zone}{host % 2}", "pool": random.choice("xxxxxy")},
            room=pods.count(host) + random.choice((1, 2, 3, 4, 6, PLENTY)),
            cordoned=_seldom(random, 0.05),
        )
        for host, zone in enumerate(zone_of)
    )
    within = Rule(random.choice((HOSTNAME, HOSTNAME, "rack")), random.choice((1, 1, 2)), _WEB)
    rules = Rule("zone", random.choice((1, 1, 2)), _WEB), within
    shapes = [Shape({"app": "web"}, rules, pools=each) for each in random.choice(((None,), (None,), (None, ("x",))))]
    places = tuple(Place(at % len(shapes), host) for at, host in enumerate(pods))
    return World(hosts, (*shapes, Shape({"app": "other"}, (), size=random.choice((1, 2)))), places)


def apart_world(random: Random) -> World:
    """Return a cluster in which pods keep off each other's nodes, some of which are full."""
    numbers = (random.randint(3, 5), *(random.randint(1, 4) for _ in range(random.randint(1, 2))))
    hosts = tuple(
        Host({HOSTNAME: f"n{zone}{at}", "zone": f"z{zone}"}, room=random.choice((1, 2, PLENTY)))
        for zone, number in enumerate(numbers)
        for at in range(number)
    )
    rule = Rule("zone", random.randint(1, 2), _WEB, hard=random.random() < 0.7)
    shapes = [Shape({"app": "web"}, (rule,), is_apart=True)]
    if random.random() < 0.5:
        shapes.append(Shape({"app": "web"}, (rule,), is_apart=random.random() < 0.5))
    others = random.sample(range(numbers[0], len(hosts)), random.randint(0, min(2, len(hosts) - numbers[0])))
    pods = tuple(Place(random.randrange(len(shapes)), host) for host in (*range(numbers[0]), *others))
    return World(hosts, tuple(shapes), pods, restores_soft=not rule.hard)


def coupled_world(random: Random) -> World:
    """Return a cluster in which workloads of groups of their own wait for the room that others leave."""
    zones = random.randint(2, 4)
    places = [zone for zone in range(zones) for _ in range(random.choice((1, 1, 2)))]
    hosts = [
        Host({HOSTNAME: f"n{at}", "zone": f"z{zone}", "pool": random.choice("xxy")}) for at, zone in enumerate(places)
    ]
    shapes: list[Shape] = []
    pods: list[Place] = []
    for app in ("app0", "app1", "app2")[: random.choice((1, 2, 2, 3))]:
        selector = (("app", app),)
        rules = [Rule("zone", random.choice((1, 1, 1, 2)), selector, hard=random.random() < 0.85)]
        if random.random() < 0.3:
            rules.append(Rule(HOSTNAME, random.choice((1, 2)), selector, hard=random.random() < 0.5))
        for labels in ({"app": app}, {"app": app, "track": "canary"})[: random.choice((1, 1, 1, 2))]:
            pools = random.choice((None, None, None, ("x",)))
            shapes.append(Shape(labels, tuple(rules), pools=pools, size=random.choice((1, 1, 2, 3))))
            allowed = [at for at, host in enumerate(hosts) if pools is None or host.labels["pool"] in pools] or [0]
            on = random.sample(allowed, min(len(allowed), random.randint(1, 2)))
            pods += [Place(len(shapes) - 1, random.choice(on)) for _ in range(random.randint(2, 5))]
    del pods[14:]
    held = [sum(shapes[pod.shape].size for pod in pods if pod.host == at) for at in range(len(hosts))]
    rooms = [number + random.choice((0, 0, 1, 2, 3, 5)) for number in held]
    fitted = tuple(host._replace(room=room) for host, room in zip(hosts, rooms, strict=True))
    return World(fitted, tuple(shapes), tuple(pods), restores_soft=random.random() < 0.3)
