"""The cost per move in flight does not depend on their number. It is counted in calls, not in time."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import msgspec
import pytest
from immutables import Map

from respread.api.fields import LabelSelector
from respread.cluster.meta import OwnerReference
from respread.cluster.objects import PodDisruptionBudget
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.eviction.answers import Answer, EvictionResult
from respread.eviction.limiter import BudgetsBesideMoves
from respread.moves.entry import Outcome
from respread.moves.ledger import Ledger
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
    """A budget that allows the eviction of some pods of a workload."""
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
        budgets = [budget(workload, moves // workloads) for workload in range(workloads)]
        self.before = cluster([], pods, poddisruptionbudgets=budgets)
        self.after: list[ClusterSnapshot] = [
            cluster([], each)
            for each in (leaving + stay, waiting + stay, placed + stay, ready[::2] + placed[1::2] + stay)
        ]

    def send(self) -> Ledger:
        """Return all moves, sent and answered."""
        ledger = Ledger()
        for victim in self.victims:
            each = move(victim)
            ledger = ledger.sent(each, self.before, 0).answered(each, EVICTED.made, 0)
            entry = ledger.of(each)
            assert entry is not None
            assert not entry.is_owed
        return ledger

    def follow(self) -> None:
        """Send the moves, and follow them until half of the replacements are Ready."""
        ledger = self.send()
        for snapshot in self.after:
            ledger.for_planning(snapshot)
            ledger, over = ledger.updated(snapshot, 1, lambda *_: Outcome.IMPROVED)
        assert len(ledger) == len(over) == len(self.victims) // 2

    def give_up(self) -> None:
        """Send the moves, and end them one after another without a replacement."""
        ledger = self.send()
        for victim in self.victims:
            ledger = ledger.owed(move(victim)).not_wanted(move(victim)).answered(move(victim), False, 1)
        assert len(ledger) == 0

    def look(self) -> None:
        """Check budgets before each move is sent, and before each is sent again."""
        ledger, budgets = Ledger(), BudgetsBesideMoves(self.before)
        for victim in self.victims:
            each = move(victim)
            assert isinstance(budgets.beside(ledger).verdict(victim), Needs)
            ledger = ledger.sent(each, self.before, 0)
            assert isinstance(budgets.beside(ledger.without(each)).verdict(victim), Needs)
        others = [victim for victim in self.before.pods.values() if victim not in self.victims]
        for known, allows in ((ledger, False), (Ledger(), True), (ledger, False)):
            assert isinstance(budgets.beside(known).verdict(others[0]), Needs) is allows


@pytest.mark.parametrize("each_its_own", [False, True], ids=["one workload", "a workload each"])
@pytest.mark.parametrize("step", [Wave.send, Wave.follow, Wave.give_up, Wave.look])
def test_twice_the_moves_cost_about_twice_as_much(step: Callable[[Wave], object], *, each_its_own: bool) -> None:
    waves = [Wave(moves, workloads=moves if each_its_own else 1) for moves in SIZES]
    small, medium, large = (calls(partial(step, wave)) for wave in waves)
    assert medium <= LINEAR * small, (small, medium, large)
    assert large <= LINEAR * medium, (small, medium, large)
