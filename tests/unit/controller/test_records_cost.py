"""The cost of records is proportional to the changes, and zero at rest. It is counted in calls and requests."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

import msgspec
import pytest
from immutables import Map

from respread.api.record import MAX_MOVES_IN_FLIGHT, MAX_RECORD_LENGTH, Recorded, encode_record
from respread.cluster.meta import OwnerReference
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.controller.records.journal import Journal
from respread.eviction.answers import Answer, EvictionResult
from respread.moves.codec import RecordedMoves
from respread.moves.ledger import Ledger
from respread.planning.plan import Move
from tests.counting import LINEAR, calls
from tests.eviction_moves import SPEC, move
from tests.unit.controller.test_control_loop import Loop, policy
from tests.worlds import NOW, cluster, pod

SIZES: Final = (100, 200, 400)
BOUND: Final = 2 * MAX_MOVES_IN_FLIGHT
"""The number of moves in flight: two policies with the maximum of a record."""


def pod_of(workload: int, name: str) -> Pod:
    controller = OwnerReference("apps/v1", "ReplicaSet", f"web-{workload}", f"uid-{workload}")
    made = pod(name, "node-1", SPEC, controller=controller, labels=Map(app=f"web-{workload}"))
    return msgspec.structs.replace(made, creation_timestamp=NOW)


def wave(count: int, workloads: int, policies: int = 1) -> tuple[list[Move], ClusterSnapshot]:
    """Return moves of half of the pods of some workloads, all created in the same second, and the cluster."""
    pods = [pod_of(number % workloads, f"web-{number}") for number in range(2 * count)]
    moves = [move(each, policy=f"policy-{number % policies}") for number, each in enumerate(pods[:count])]
    return moves, cluster([], pods)


def sent(moves: Sequence[Move], snapshot: ClusterSnapshot) -> Ledger:
    in_flight = Ledger()
    for each in moves:
        in_flight = in_flight.sent(each, snapshot, 0.0, NOW.timestamp() + 1)
    return in_flight


@pytest.mark.parametrize("each_its_own", [False, True], ids=["one workload", "a workload each"])
def test_twice_the_moves_cost_about_twice_as_much_to_record(*, each_its_own: bool) -> None:
    def cost(count: int) -> int:
        moves, snapshot = wave(count, count if each_its_own else 1)
        in_flight = sent(moves, snapshot)
        return calls(lambda: RecordedMoves().of(in_flight, snapshot))

    small, medium, large = map(cost, SIZES)
    assert medium <= LINEAR * small, (small, medium, large)
    assert large <= LINEAR * medium, (small, medium, large)


def test_twice_the_policies_cost_about_twice_as_much_to_record() -> None:
    """Each policy has a move that is about to be made, and its record is computed."""

    def cost(count: int) -> int:
        moves, snapshot = wave(count, count, policies=count)
        journal = Journal(lambda: 0.0, NOW.timestamp)
        for each in moves:
            journal.chosen((each,), snapshot)
            journal.recorded(each)

        def ask() -> None:
            for each in moves:
                assert len(journal.for_records(snapshot)[each.policy]) == 1

        return calls(ask)

    small, medium, large = map(cost, SIZES)
    assert medium <= LINEAR * small, (small, medium, large)
    assert large <= LINEAR * medium, (small, medium, large)


def test_only_moves_that_have_changed_are_looked_at_again() -> None:
    moves, snapshot = wave(BOUND, 10, policies=2)
    in_flight, remembered = sent(moves, snapshot), RecordedMoves()
    at_first = calls(partial(remembered.of, in_flight, snapshot))
    assert calls(partial(remembered.of, in_flight, cluster([], []))) <= 2  # only pods of other moves have changed
    changed = in_flight.answered(moves[0], Answer(result=EvictionResult.EVICTED).made, 1.0)
    before = remembered.of(in_flight, snapshot)
    assert calls(partial(remembered.of, changed, snapshot)) * 4 <= at_first
    assert remembered.of(changed, snapshot) == before  # records do not contain the answer
    fewer = changed.without(moves[1])
    assert len(remembered.of(fewer, snapshot)["policy-1"]) == len(before["policy-1"]) - 1


def test_a_record_of_as_many_moves_as_it_may_contain_can_be_written() -> None:
    moves, snapshot = wave(BOUND, 10, policies=2)
    written = RecordedMoves().of(sent(moves, snapshot), snapshot)
    for name in ("policy-0", "policy-1"):
        assert len(written[name]) == MAX_MOVES_IN_FLIGHT
        assert len(encode_record(Recorded(moves_in_flight=written[name]))) < MAX_RECORD_LENGTH / 2


@pytest.mark.parametrize("moves_in_flight", [0, 30])
def test_nothing_is_written_while_nothing_changes(moves_in_flight: int) -> None:
    loop = Loop()
    loop.set_policies(policy("policy-0"), policy("policy-1"), version=200)

    def reconcile(times: int) -> int:
        """Reconcile every 10 s, and return the number of statuses and records written so far."""
        for _ in range(times):
            loop.seconds += 10
            asyncio.run(loop.loop.reconcile())
        return len(loop.requests.written) + len(loop.requests.recorded)

    assert reconcile(1) == 2
    loop.journal.ledger = sent(*wave(moves_in_flight, 3, policies=2))
    written = reconcile(3)
    assert written == 2 + 2 * 2 * bool(moves_in_flight)  # a record and a status for each policy
    assert reconcile(6) == written
