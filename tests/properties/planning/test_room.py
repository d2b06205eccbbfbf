"""What is known of the room that solutions take equals what is counted anew, and moves that join leave room for all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import product
from random import Random
from sys import maxsize
from typing import Any, Final, NamedTuple

import msgspec
from immutables import Map

from respread.api.fields import LabelSelector
from respread.cluster.meta import OwnerReference
from respread.cluster.objects import Node
from respread.cluster.pod import HostPort, Pod, PodAffinityTerm, PodSpec
from respread.cluster.selectors import compile_selector
from respread.planning.placement import Placement, is_replaced_when_gone, replacement_of
from respread.planning.room.book import Claim, RoomBook, RoomForAll, Taken
from respread.planning.room.contention import Contention
from respread.planning.room.demand import Current, Demand, Leaving, Part, Relations, demands_in, largest_of
from respread.planning.search.board import Ample
from respread.scheduling.predictor import Predictor
from respread.scheduling.view.cluster_view import ClusterView
from respread.scheduling.view.free_resources import POD_SLOTS
from respread.scheduling.view.node_table import node_set, slots_of
from tests.properties.instances import factor
from tests.worlds import HOSTNAME, NOW, ZONE, cluster, constraint, node, pod, spec

NODES: Final = 3
STEPS: Final = 60
CLUSTERS: Final = range(30 * factor())
MOST_CROWDS: Final = 400
OWNERS: Final = ("ReplicaSet", "ReplicaSet", "StatefulSet")


def _placement(random: Random) -> Placement:
    nodes = [node(f"n{number}", pods=random.choice((2, 4, 110)), labels={}) for number in range(NODES)]
    return Placement(Predictor(ClusterView(cluster(nodes, []))))


def _pod(random: Random, name: str) -> Pod:
    # A node has 64 CPUs.
    requests = Map(cpu=random.choice((0, 8_000, 20_000, 33_000, 64_000)))
    return pod(name, "", spec(requests=requests, host_ports=(HostPort("TCP", 80),) * (random.random() < 0.15)))


def _taken(random: Random) -> tuple[Taken, ...]:
    return tuple(Taken(random.randrange(NODES), _pod(random, f"p{at}")) for at in range(random.randint(1, 3)))


def _amounts(taken: Iterable[Taken]) -> dict[int, Counter[str]]:
    """Return what is taken of each node, with how many pods may want more than amounts."""
    found: dict[int, Counter[str]] = {}
    for each in taken:
        amounts = found.setdefault(each.slot, Counter())
        amounts.update({**each.pod.spec.requests, POD_SLOTS: 1, "unclear": bool(each.pod.spec.host_ports)})
    return found


def _fits(placement: Placement, slot: int, amounts: Counter[str]) -> bool:
    free = placement.view.free
    return all(amount <= free.of(name).free[slot] for name, amount in amounts.items() if name != "unclear")


def test_there_is_room_where_all_that_is_taken_of_each_node_fits_that_others_take_of() -> None:
    answers: Counter[bool] = Counter()
    for seed in CLUSTERS:
        random = Random(seed)
        placement = _placement(random)
        room = RoomBook()
        before: list[Taken] = []
        for _ in range(STEPS // 10):
            new = _taken(random)
            others, together = _amounts(before), _amounts([*before, *new])
            expected = all(
                _fits(placement, each.slot, together[each.slot]) and not each.pod.spec.host_ports
                for each in new
                if each.slot in others
            )
            assert room.holds(new, placement.view.free) == expected
            answers[expected] += 1
            if random.random() < 0.7:
                room.take(new)
                before.extend(new)
    assert min(answers[True], answers[False]) > len(CLUSTERS)


def test_room_for_all_is_certain_where_a_node_is_taken_by_one_or_by_plain_pods_that_fit() -> None:
    answers: Counter[bool] = Counter()
    for seed in CLUSTERS:
        random = Random(seed)
        placement, room = _placement(random), RoomForAll()
        takers: list[Claim] = []
        for step in range(STEPS):
            changed = 0
            if random.random() < 0.7 or not takers:
                takers.append(Claim(_taken(random), "", is_waiting=False))
            while takers and random.random() < 0.45:
                takers.pop(random.randrange(len(takers)))
            if random.random() < 0.2:
                slot = random.randrange(NODES)
                placement.view.place(_pod(random, f"other-{step}"), placement.table.names[slot])
                changed = 1 << slot
            expected = _is_certain(placement, takers)
            assert room.holds(takers, changed, placement) == expected
            answers[expected] += 1
    assert min(answers[True], answers[False]) > len(CLUSTERS)


def _is_certain(placement: Placement, takers: Sequence[Claim]) -> bool:
    return all(
        amounts[POD_SLOTS] <= 1 or (not amounts["unclear"] and _fits(placement, slot, amounts))
        for slot, amounts in _amounts(taken for each in takers for taken in each.taken).items()
    )


def test_a_node_with_ample_room_stays_one_while_it_has_it_and_none_is_kept_for_nominated_pods() -> None:
    nodes = [node(f"n{number}", pods=10) for number in range(NODES)]
    filling = [
        pod("three-left", "n1", spec(requests=Map(cpu=61_000))),
        pod("two-left", "n2", spec(requests=Map(cpu=62_000))),
    ]
    placement = Placement(Predictor(ClusterView(cluster(nodes, filling))))
    view, slots = placement.view, placement.table.slot_of
    ample = Ample(node_set([slots["n0"], slots["n1"]]), {"cpu": 3_000, POD_SLOTS: 4})
    assert [ample.is_on(slots[f"n{at}"], view) for at in range(NODES)] == [True, True, False]
    assert ample.remains(0, view)
    assert ample.remains(1 << slots["n0"] | 1 << slots["n1"], view)
    assert not ample.remains(1 << slots["n0"] | 1 << slots["n2"], view), "n2 had too little"
    for number in range(7):
        assert ample.remains(1 << slots["n0"], view)
        view.place(pod(f"small-{number}", "", spec(requests=Map())), "n0")
    assert not ample.remains(1 << slots["n0"], view), "it has slots for three pods"
    nominated = pod("nominated", "", spec(), nominated_node_name="n1")
    view.advance(cluster(nodes, [*filling, nominated]))
    assert not ample.is_on(slots["n1"], view)
    assert not Ample().is_on(slots["n1"], view)


def _is_always_open(rooms: Sequence[int], most: Sequence[int], own: int, others: int) -> bool:
    """Return whether a pod finds a node wherever others land, of which so many of its own close a node."""
    for by_own in product((True, False), repeat=len(rooms)):
        used = sum(number for number, is_so in zip(most, by_own, strict=True) if is_so)
        filled = sum(room for room, is_so in zip(rooms, by_own, strict=True) if not is_so)
        if used <= own and used + filled <= own + others:
            return False
    return True


def test_a_pod_that_others_of_its_component_may_keep_off_a_node_joins_if_one_is_left_wherever_all_land() -> None:
    """Pods of equal size, one after another: some of component 1 keep another one off a node, the others do not."""
    seen: Counter[tuple[bool, bool]] = Counter()
    for seed in CLUSTERS:
        random = Random(seed)
        rooms = [random.randint(1, 3) for _ in range(random.randint(1, 4))]
        most = [random.randint(1, seed % 2 * 2 + 1) for _ in rooms]
        roomy = tuple(node_set([at for at, number in enumerate(most) if number > other]) for other in range(1, 3))
        placement = Placement(
            Predictor(ClusterView(cluster([node(f"n{at}", pods=room) for at, room in enumerate(rooms)], [])))
        )
        largest = {POD_SLOTS: 1, "cpu": 0}  # of those that go first, others come later
        current, contention = Current(placement), Contention(placement, (), Leaving(placement), largest, {})
        every, own, others = (1 << len(rooms)) - 1, 0, 0
        for number in range(6):
            is_own = random.random() < 0.5
            pending = pod(f"p{number}", "", spec(requests=Map(cpu=1)))
            demand = Demand(
                pending,
                placement.prepare(pending),
                every,
                component=1 if is_own else 2,
                closing=maxsize if is_own else 0,
                is_replacement=True,
                parts=(Part(every, roomy=roomy),) if is_own else None,
            )
            own, others = own + is_own, others + (not is_own)
            is_open = (not own or _is_always_open(rooms, most, own - 1, others)) and own + others <= sum(rooms)
            joined = contention.join([current.of(demand, component=demand.component)], {}) is None
            seen[joined, is_open] += 1
            assert is_open or not joined
            assert joined or not is_open or max(most) > 1, "what is shown is exact where all are alike"
            if not joined:
                break
    assert min(seen[True, True], seen[False, False]) > len(CLUSTERS) / 2
    assert seen[False, True] < len(CLUSTERS) / 10


class _Crowd(NamedTuple):
    """A tiny cluster with pods that need a node, pods that terminate, and pods that may be evicted."""

    placement: Placement
    pending: Sequence[Pod]
    terminating: Sequence[Pod]
    evictable: Sequence[Pod]
    gone: Sequence[Pod]
    """Pods whose replacements are to come."""


def _crowd(random: Random) -> _Crowd:
    """Draw one. Most pods need only room. The others also need ports, or have terms or constraints about each other."""
    zones = dict(zip(("n0", "n1", "n2", "n3"), random.choice(("ab", "aab", "abb", "aabb")), strict=False))
    kinds = [
        _kind(random, OwnerReference("apps/v1", random.choice(OWNERS), f"of-{at}", f"uid-{at}")) for at in range(3)
    ]
    placed = [random.choice(kinds)(f"p{at}", random.choice(list(zones))) for at in range(random.randint(1, 3))]
    going = random.sample(placed, random.choice((0, 0, 1)))
    terminating = [msgspec.structs.replace(each, deletion_timestamp=NOW) for each in going]
    gone = [random.choice(kinds)("gone", "n0", deletion_timestamp=NOW)] * (random.random() < 0.2)
    pending = [random.choice(kinds)(f"w{at}", "", creation_timestamp=NOW) for at in range(random.choice((0, 1, 2, 2)))]
    evictable = [each for each in placed if each not in going]
    nodes = [
        Node(
            name=name,
            labels=Map({HOSTNAME: name, ZONE: zone}),
            allocatable=Map(
                pods=sum(each.node_name == name for each in placed) + random.choice((1, 2, 9)),
                cpu=sum(each.spec.requests["cpu"] for each in placed if each.node_name == name) + random.randint(0, 4),
            ),
        )
        for name, zone in zones.items()
    ]
    snapshot = cluster(nodes, [*evictable, *terminating, *pending])
    return _Crowd(Placement(Predictor(ClusterView(snapshot))), pending, terminating, evictable, gone)


def _kind(random: Random, owner: OwnerReference) -> Callable[..., Pod]:
    """Draw a controller's template, and return what creates its pods."""
    app, key = random.choice(("web", "api")), random.choice((ZONE, HOSTNAME))
    terms = (PodAffinityTerm(key, LabelSelector(match_labels=Map(app=random.choice(("web", "api"))))),)
    more: list[dict[str, Any]] = [
        *({},) * 4,
        {"host_ports": (HostPort("TCP", 80),)},
        {"node_selector": Map({ZONE: "a"})},
        {"pod_affinity": terms},
        {"pod_anti_affinity": terms},
        *({"topology_spread_constraints": (constraint(key, selector=Map(app=app)),)},) * 2,
    ]
    of = PodSpec(requests=Map(cpu=random.choice((1, 1, 2))), **random.choice(more))
    return partial(pod, of=of, labels=Map(app=app), controller=owner)


def _may_be_lost(placement: Placement, waiting: Mapping[str, Pod], leaving: Mapping[str, Pod]) -> set[str]:
    """Return the names of pods that have no node in the end of some course, by whichever landings in whatever order.

    Args:
        placement: the cluster. It is restored.
        waiting: the pods that look for a node, by the names of themselves or of the evicted pods.
        leaving: the pods that terminate. Those of StatefulSets are replaced when they are gone.
    """
    seen: set[Hashable] = set()
    lost: set[str] = set()

    def go_on(waiting: Mapping[str, Pod], leaving: Mapping[str, Pod], landed: frozenset[tuple[str, int]]) -> None:
        if (state := (landed, frozenset(leaving))) in seen:
            return
        seen.add(state)
        is_end = not leaving
        for name, each in waiting.items():
            others = {other: pod for other, pod in waiting.items() if other != name}
            for slot in slots_of(placement.predictor.prepare(each).admitted()):
                is_end = False
                with placement.view.fork():
                    placement.view.place(each, placement.table.names[slot])
                    go_on(others, leaving, landed | {(name, slot)})
        for name, each in leaving.items():
            with placement.view.fork():
                placement.view.remove(each)
                new = {name: replacement_of(each)} if is_replaced_when_gone(each) else {}
                go_on({**waiting, **new}, {other: pod for other, pod in leaving.items() if other != name}, landed)
        if is_end:
            lost.update(waiting)

    go_on(waiting, leaving, frozenset())
    return lost


def _members(placement: Placement, pending: Sequence[Pod], evictable: Iterable[Pod]) -> Iterator[Demand]:
    """Yield the replacements of pods that no constraint counts and that lose no node when the pod is gone."""
    constraints = (each for other in pending for each in other.spec.topology_spread_constraints)
    counting = [compile_selector(each.label_selector) for each in constraints]
    for each in evictable:
        prepared = placement.prepare(each)
        nodes = prepared.admitted()
        with placement.view.fork():
            placement.view.remove(each)
            then = prepared.admitted()
        is_counted = any(selector.matches(each.labels) for selector in counting)
        if nodes and not nodes & ~then and not is_counted and not each.spec.topology_spread_constraints:
            closed = prepared.statically_feasible & ~then
            yield Demand(each, prepared, then, may_open=closed, is_replacement=True)


def test_no_move_that_joins_leaves_a_pod_without_a_node_that_would_have_one() -> None:
    """Wherever all land, in any order. Take the numbers anew after a change that lets more moves join."""
    found: Counter[str] = Counter()
    for seed in range(MOST_CROWDS):
        random = Random(seed)
        placement, pending, terminating, evictable, gone = _crowd(random)
        unreplaced = [each for each in terminating if random.random() < 0.7 or is_replaced_when_gone(each)]
        waiting = {each.name: each for each in pending}
        waiting |= {each.name: replacement_of(each) for each in unreplaced if not is_replaced_when_gone(each)}
        waiting |= {each.name: replacement_of(each) for each in gone}
        going = {each.name: each for each in terminating}
        before = _may_be_lost(placement, waiting, going)
        leaving, current = Leaving(placement, terminating), Current(placement)
        beside = gone if random.random() < 0.5 else []
        demands = demands_in(placement, pending, unreplaced if beside else [*unreplaced, *gone], leaving, NOW, beside)
        if beside:
            demands += demands_in(placement, (), beside, leaving, NOW, beside)
        members = list(_members(placement, pending, evictable))
        contention = Contention(placement, demands, leaving, largest_of(each.pod for each in members), {})
        for one in demands:
            found.update({name: getattr(one, name).bit_count() for name in ("nodes", "sure", "now", "may_open")})
            found["parts"] += sum(part.nodes.bit_count() for part in one.parts or ())
            found["closing"] += one.closing
        found["fragile"] += len(contention.fragile)
        left = closed = 0
        for number, member in enumerate(members):
            slot = placement.table.slot_of[member.pod.node_name]
            if (closed | member.may_open) & (left | 1 << slot | leaving.slots):
                continue  # Moves wait then.
            demand = current.of(member, component=number)
            reserved = demand._replace(closing=0)
            if random.random() < 0.3 and contention.reserve(reserved):
                conflict = contention.replace(reserved, demand, {slot: [member.pod]})
            else:
                conflict = contention.join([demand], {slot: [member.pod]})
            if conflict is not None:
                found["conflicts"] += 1
                found["at nodes"] += conflict.nodes.bit_count()
                found[f"with {conflict.who}".partition(" pod")[0]] += 1
                continue
            found["joined"] += 1
            left, closed = left | 1 << slot, closed | member.may_open
            going[member.pod.name] = member.pod
        with placement.view.fork():
            for each in going.values():
                placement.view.evict(each)
                if each not in terminating and not is_replaced_when_gone(each):
                    waiting[each.name] = replacement_of(each)
            lost = _may_be_lost(placement, waiting, going)
        # Of pods with affinity it is only known in part where they may follow others.
        follows = any(each.spec.pod_affinity for each in (*pending, *unreplaced, *gone))
        assert follows or lost <= before, f"seed {seed}"
    assert found == {
        "fragile": 194,
        "joined": 151,
        "conflicts": 202,
        "at nodes": 328,
        "with": 162,
        "with the replacement of": 40,
        "nodes": 1106,
        "sure": 1016,
        "now": 1028,
        "may_open": 596,
        "parts": 70,
        "closing": 107,
    }


def test_pods_with_ports_that_no_longer_look_for_a_node_are_removed_and_others_stay() -> None:
    placement = _placement(Random(0))
    relations, every = Relations(placement.table), (1 << NODES) - 1
    using = [pod(f"p{at}", "", spec(host_ports=(HostPort("TCP", 80 + at),))) for at in range(2)]
    one, other = (Demand(each, placement.prepare(each), every, number=3) for each in using)
    for demand, times in ((one, 1), (other, 1), (other._replace(number=2), -1)):
        relations.note(demand, times)
    assert relations.special == [one, other._replace(number=1)]


def test_pods_that_keep_off_more_than_each_others_nodes_do_not_join_beside_one_another() -> None:
    placement = Placement(Predictor(ClusterView(cluster([node("a1", "a"), node("a2", "a")], []))))
    relations = Relations(placement.table)
    apart = [PodAffinityTerm(key, LabelSelector(match_labels=Map(app="web"))) for key in (HOSTNAME, ZONE)]
    for terms, is_counted in ((apart[:1], True), (apart, False)):
        web = placement.prepare(pod("web", "", spec(pod_anti_affinity=tuple(terms))))
        of_one = Demand(web.pod, web, 3, component=1, closing=1)
        relations.note(of_one, 1)
        assert (relations.of(of_one) is None) is is_counted
        relations.note(of_one, -1)
