"""The cost per move in flight does not depend on their number. It is counted in calls, not in time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
import pytest
from immutables import Map

from respread.api.label_selector import LabelSelector
from respread.cluster.meta import OwnerReference
from respread.cluster.objects import PodDisruptionBudget
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.eviction.answers import Answer, EvictionResult
from respread.eviction.in_flight import InFlight
from respread.eviction.moving_ledger import MovingLedger
from respread.eviction.outcomes import Outcome
from respread.planning.victims.budgets import Needs
from tests.counting import LINEAR, calls
from tests.eviction_moves import SPEC, move
from tests.worlds import NOW, cluster, pod

SIZES: Final = (100, 200, 400)
EVICTED: Final = Answer(result=EvictionResult.EVICTED)


def pod_of(workload: int, name: str) -> Pod:
    controller = OwnerReference("apps/v1", "ReplicaSet", f"web-{workload}", f"uid-{workload}")
    return pod(name, "node-1", SPEC, controller=controller, labels=Map(app=f"web-{workload}"))


def budget(workload: int, pods: int) -> PodDisruptionBudget:
    """A budget that allows the eviction of all pods of a workload."""
    selector = LabelSelector(match_labels=Map(app=f"web-{workload}"))
    return PodDisruptionBudget(
        namespace="default",
        name=f"web-{workload}",
        selector=selector,
        disruptions_allowed=pods,
        current_healthy=pods,
        expected_pods=pods,
    )


class Wave:
    """Moves from their evictions to their outcomes, and the cluster after each step."""

    def __init__(self, moves: int, workloads: int) -> None:
        pods = [pod_of(number % workloads, f"old-{number}") for number in range(2 * moves)]
        self.victims, stay = pods[:moves], pods[moves:]
        leaving = [msgspec.structs.replace(each, deletion_timestamp=NOW) for each in self.victims]
        ready = [pod_of(number % workloads, f"new-{number}") for number in range(moves)]
        placed = [msgspec.structs.replace(each, ready=False) for each in ready]
        waiting = [msgspec.structs.replace(each, node_name="") for each in placed]
        budgets = [budget(workload, 2 * moves) for workload in range(workloads)]
        self.before = cluster([], pods, poddisruptionbudgets=budgets)
        self.after: list[ClusterSnapshot] = [
            cluster([], each)
            for each in (leaving + stay, waiting + stay, placed + stay, ready[::2] + placed[1::2] + stay)
        ]

    def send(self) -> InFlight:
        """Return all moves, sent and answered."""
        in_flight = InFlight()
        for victim in self.victims:
            each = move(victim)
            in_flight = in_flight.sent(each, self.before, 0).answered(each, EVICTED, 0)
            assert in_flight.sent_at(each) == 0
            assert not in_flight.is_owed(each)
        return in_flight

    def follow(self) -> None:
        """Send the moves, and follow them until half of the replacements are Ready."""
        in_flight = self.send()
        for snapshot in self.after:
            in_flight.for_planning(snapshot)
            in_flight, over = in_flight.updated(snapshot, 1, lambda *_: Outcome.IMPROVED)
        assert len(in_flight) == len(over) == len(self.victims) // 2

    def give_up(self) -> None:
        """Send the moves, and end them one after another without a replacement."""
        in_flight = self.send()
        for victim in self.victims:
            in_flight = in_flight.owed(move(victim)).not_wanted(move(victim)).answered(move(victim), None, 1)
        assert len(in_flight) == 0

    def look(self) -> None:
        """Check budgets before each move is sent, and before each is sent again."""
        in_flight, ledger = InFlight(), MovingLedger(self.before)
        for victim in self.victims:
            each = move(victim)
            assert isinstance(ledger.beside(in_flight).verdict(victim), Needs)
            in_flight = in_flight.sent(each, self.before, 0)
            assert isinstance(ledger.beside(in_flight.without(each)).verdict(victim), Needs)


@pytest.mark.parametrize("each_its_own", [False, True], ids=["one workload", "a workload each"])
@pytest.mark.parametrize("step", [Wave.send, Wave.follow, Wave.give_up, Wave.look])
def test_twice_the_moves_cost_about_twice_as_much(step: Callable[[Wave], object], *, each_its_own: bool) -> None:
    waves = [Wave(moves, workloads=moves if each_its_own else 1) for moves in SIZES]
    small, medium, large = (calls(partial(step, wave)) for wave in waves)
    assert medium <= LINEAR * small, (small, medium, large)
    assert large <= LINEAR * medium, (small, medium, large)
