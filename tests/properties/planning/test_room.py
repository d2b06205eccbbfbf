"""What is known of the room that solutions take equals what is counted anew from the nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import product
from random import Random
from sys import maxsize
from typing import Final

from immutables import Map

from respread.cluster.pod import HostPort, Pod
from respread.planning.placement import Placement
from respread.planning.room.book import Claim, RoomBook, RoomForAll, Taken
from respread.planning.room.contention import Contention
from respread.planning.room.demand import Current, Demand, Leaving
from respread.planning.search.board import Ample
from respread.scheduling.predictor import Predictor
from respread.scheduling.view.cluster_view import ClusterView
from respread.scheduling.view.free_resources import POD_SLOTS
from respread.scheduling.view.node_table import node_set
from tests.properties.instances import factor
from tests.worlds import cluster, node, pod, spec

NODES: Final = 3
STEPS: Final = 60
CLUSTERS: Final = range(30 * factor())


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


def _is_always_open(rooms: Sequence[int], own: int, others: int) -> bool:
    """Return whether a pod finds a node wherever others land, each of which takes a whole node if it is its own."""
    for closed in product(range(len(rooms)), repeat=own):
        left = [room for at, room in enumerate(rooms) if at not in closed]
        for landed in product(range(len(left)), repeat=others if left else 0):
            taken = Counter(landed)
            if all(taken[at] >= room for at, room in enumerate(left)):
                return False
        if not left:
            return False
    return True


def test_a_pod_that_others_of_its_component_may_keep_off_a_node_joins_if_one_is_left_wherever_all_land() -> None:
    """Pods of equal size, one after another: those of component 1 keep one another off a node, the others do not."""
    seen: Counter[bool] = Counter()
    for seed in CLUSTERS:
        random = Random(seed)
        rooms = [random.randint(1, 3) for _ in range(random.randint(1, 4))]
        placement = Placement(
            Predictor(ClusterView(cluster([node(f"n{at}", pods=room) for at, room in enumerate(rooms)], [])))
        )
        current, contention = Current(placement), Contention(placement, (), Leaving(placement), {POD_SLOTS: 1})
        every, own, others = (1 << len(rooms)) - 1, 0, 0
        for number in range(6):
            is_own = random.random() < 0.5
            pending = pod(f"p{number}", "", spec(requests=Map()))
            demand = Demand(
                pending,
                placement.prepare(pending),
                every,
                component=1 if is_own else 2,
                closing=maxsize if is_own else 0,
                is_replacement=True,
                parts=(every,) if is_own else None,
            )
            own, others = own + is_own, others + (not is_own)
            is_open = (not own or _is_always_open(rooms, own - 1, others)) and own + others <= sum(rooms)
            joined = contention.join([current.of(demand, component=demand.component)], {}) is None
            seen[joined] += 1
            assert is_open or not joined
            assert joined or not is_open, "what is shown is exact where all are alike"
            if not joined:
                break
    assert min(seen[True], seen[False]) > len(CLUSTERS) / 2
