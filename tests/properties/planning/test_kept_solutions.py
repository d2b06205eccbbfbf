"""A planner that keeps solutions while other pods come and go plans as well as one that has just started."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from immutables import Map
from msgspec.structs import replace

from respread.api.fields import LabelSelector
from respread.api.policy import ClusterPolicySpec, Policy
from respread.cluster.meta import ObjectKey
from respread.cluster.objects import Namespace
from respread.cluster.pod import HostPort, Pod, PodAffinityTerm
from respread.cluster.state import ClusterState
from respread.planning.plan import Plan
from respread.planning.planner import Planner
from respread.planning.solution import Finder
from respread.planning.victims.policies import PolicySetting
from respread.spread.index import SpreadIndex
from tests.properties.instances import factor
from tests.properties.planning.mixed_worlds import mixed_world
from tests.properties.planning.scarce_worlds import ScarceWorld, scarce_world
from tests.properties.planning.small_worlds import HOSTNAME, NOW, Host, snapshot_of
from tests.worlds import constraint, node, pod, spec

WORLDS = range(8 * factor())
CHANGES = 10
ROOM = 30
"""What is added to the room of every other node: enough for all pods of an application."""
OWN_CHANGES = 5
"""The number of changes of the applications' pods, after those of other pods."""
MOST_SEARCHES = 0.68
"""The share of searches that changes of others cause, of those that new planners make. It is 0.76 if each change of a
node counts on which a search has placed a pod."""


def outcome(plan: Plan) -> object:
    """Return what plans have in common that are as good as each other."""
    restored = {key: sorted(counts.values()) for key, counts in plan.counts_after.items()}
    not_ready = sum(not move.pod.ready for move in plan.moves)
    return len(plan.moves), not_ready, sorted(str(each.group) for each in plan.blocked), restored


def own_change(random: Random, state: ClusterState) -> tuple[ObjectKey, Pod | None]:
    """Return a change of an application's pod: it becomes Ready or not Ready, or is deleted and then gone."""
    key, changed = random.choice([each for each in state.snapshot.pods.items() if each[1].labels["app"] != "another"])
    if changed.terminating or random.random() < 0.3:
        return key, None if changed.terminating else replace(changed, deletion_timestamp=NOW)
    return key, replace(changed, ready=not changed.ready)


def other_pod(random: Random, name: str, hosts: tuple[Host, ...], apps: list[str]) -> Pod:
    """Return a pod of no application. It may take much room, and repel an application."""
    host = random.choice(hosts)
    repelled = LabelSelector(match_labels=Map(app=random.choice(apps)))
    term = PodAffinityTerm(topology_key=HOSTNAME, label_selector=repelled)
    return pod(
        name,
        host.labels[HOSTNAME],
        spec(
            requests=Map(cpu=random.choice((0, 1, 2, ROOM))),
            pod_anti_affinity=(term,) * (random.random() < 0.2),
            host_ports=(HostPort("TCP", 80),) * (random.random() < 0.2),
        ),
        labels=Map(app="another"),
    )


def roomy(world: ScarceWorld) -> ScarceWorld:
    hosts = [host._replace(room=host.room + ROOM * (number % 2 == 0)) for number, host in enumerate(world.world.hosts)]
    return world._replace(world=world.world._replace(hosts=tuple(hosts)))


@pytest.mark.parametrize("draw", [scarce_world, mixed_world])
def test_kept_solutions_are_as_good_as_new_ones(
    draw: Callable[[int], ScarceWorld], monkeypatch: pytest.MonkeyPatch
) -> None:
    searches = 0
    find = Finder.find

    def counted(*arguments: object) -> object:
        nonlocal searches
        searches += 1
        return find(*arguments)  # type: ignore[arg-type]  # passed on as they are

    monkeypatch.setattr(Finder, "find", counted)
    of_kept = of_new = 0
    for seed in WORLDS:
        random, world = Random(seed), roomy(draw(seed))
        apps = sorted({shape.labels["app"] for shape in world.world.shapes})
        setting = PolicySetting(tuple(world.policies))
        state, index, planner = ClusterState(), SpreadIndex(), Planner()
        start = snapshot_of(world.world)
        for kind in ("nodes", "namespaces"):
            state.replace(kind, list(getattr(start, kind).values()))
        state.replace("pods", list(start.pods.values()))
        others: list[ObjectKey] = []
        for number in range(CHANGES + OWN_CHANGES):
            if is_own := number >= CHANGES:
                state.apply("pods", [own_change(random, state)])
            elif others and random.random() < 0.4:
                state.apply("pods", [(others.pop(random.randrange(len(others))), None)])
            else:
                other = other_pod(random, f"other-{number}", world.world.hosts, apps)
                others.append(other.key)
                state.apply("pods", [(other.key, other)])
            spread, before = index.update(state.snapshot), searches
            kept = planner.plan(state.snapshot, spread, setting, now=NOW)
            of_kept, before = of_kept + (not is_own) * (searches - before), searches
            new = Planner().plan(state.snapshot, spread, setting, now=NOW)
            of_new += (not is_own) * (searches - before)
            assert outcome(kept) == outcome(new), (seed, number)
            # A search may end within its budget in one case only.
            assert max(kept.lower_bound, new.lower_bound) <= len(new.moves), (seed, number)
    assert of_kept < MOST_SEARCHES * of_new


def test_a_solution_is_kept_while_its_pods_become_ready_and_terminating_ones_are_gone() -> None:
    """Neither makes a difference to the scheduler or the skew. In a zone outage, two of five searches were in vain."""
    of, state, index, planner = spec(constraint()), ClusterState(), SpreadIndex(), Planner()
    state.replace("nodes", [node(name, name[0]) for name in ("a1", "b1", "c1")])
    state.replace("namespaces", [Namespace(name="default")])
    gone = pod("web-gone", "b1", of, deletion_timestamp=NOW)
    state.replace("pods", [gone, *(pod(f"web-{at}", "a1", of, ready=False) for at in range(9))])
    policy = Policy(kind="ClusterRebalancePolicy", object_name="default", spec=ClusterPolicySpec())
    components: list[set[int]] = []

    def plan(*changes: tuple[ObjectKey, Pod | None]) -> set[ObjectKey]:
        state.apply("pods", changes)
        made = planner.plan(state.snapshot, index.update(state.snapshot), PolicySetting((policy,)), now=NOW)
        components.append({move.component for move in made.moves})
        return {move.pod.key for move in made.moves}

    moved = plan()
    left = [each for key, each in sorted(state.snapshot.pods.items()) if key not in {*moved, gone.key}]
    assert plan((gone.key, None)) == moved
    assert all(plan((each.key, replace(each, ready=True))) == moved for each in left)
    assert components == components[:1] * (2 + len(left))
    plan((left[0].key, left[0]))  # not Ready again
    assert components[-1] != components[0]
