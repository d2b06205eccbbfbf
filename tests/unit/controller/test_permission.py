"""The reasons that hold a move at the last moment."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import msgspec
import pytest
from immutables import Map

from respread.api.fields import LabelSelector, Problem
from respread.api.policy import ClusterPolicySpec, Limits, Policy, PolicySpec, Window
from respread.api.reasons import Held, Reason
from respread.controller.permission import (
    CONFIRMED_SECONDS,
    EVERYWHERE,
    OLD_SECONDS,
    Confirmations,
    Leading,
    Permission,
    PolicyVersions,
    versions_of,
)
from respread.planning.plan import Move
from tests.plans import plan_cluster
from tests.worlds import NOW, cluster, constraint, node, pods, spec


def policy(name: str = "default", **fields: Any) -> Policy:
    return Policy(
        kind="ClusterRebalancePolicy", object_name=name, spec=ClusterPolicySpec(**{"mode": "Enforce", **fields})
    )


ENFORCES = policy()
WRONG = msgspec.structs.replace(ENFORCES, problems=(Problem("spec.windows[0].timeZone", "there is no such zone"),))
AT_NIGHT = msgspec.structs.replace(
    ENFORCES,
    spec=ClusterPolicySpec(
        mode="Enforce", windows=(Window(schedule="0 2 * * *", duration=timedelta(hours=1), time_zone="UTC"),)
    ),
)


async def read_nothing(place: str) -> PolicyVersions:
    raise AssertionError(place)


class Inputs:
    """The inputs of a permission."""

    def __init__(self) -> None:
        self.leads = True
        self.policies = Map({"default": ENFORCES})
        self.seconds = 100.0
        self.term = 1
        self.confirmations = Confirmations(read_nothing, lambda: self.seconds)
        self.permission = self.make_permission()
        self.planned = self.permission.planned_for(self.policies, self.seconds)
        self.confirm()

    def make_permission(self) -> Permission:
        """Return a permission without confirmations."""
        return Permission(
            Leading(lambda: self.leads, lambda: self.term),
            lambda: self.policies,
            self.confirmations,
            clock=lambda: self.seconds,
            now=lambda: NOW,
        )

    def confirm(self) -> None:
        """Confirm that the API server has the known policies."""
        for place in (EVERYWHERE, "default", "shop"):
            there = Map({name: each for name, each in self.policies.items() if each.namespace == place})
            self.confirmations.note(place, PolicyVersions(versions_of(there), self.seconds))

    def reason(self, move: Move) -> Reason | None:
        held = self.permission.why_not(move, self.planned)
        return None if held is None else held.reason


@pytest.fixture
def move() -> Move:
    snapshot = cluster([node("a1", "a"), node("b1", "b")], pods({"a1": 2}, spec(constraint())))
    (move,) = plan_cluster(snapshot, [ENFORCES], now=NOW).moves
    return move


def test_a_replica_that_is_not_the_leader_or_was_not_in_between_or_is_stopping_makes_no_move(move: Move) -> None:
    """Another replica may have led in between, and evicted pods of the same groups."""
    inputs = Inputs()
    for inputs.leads, inputs.term in ((False, 1), (True, 2)):
        assert inputs.reason(move) is Reason.NOT_LEADING
    inputs.term = 1
    assert inputs.reason(move) is None
    inputs.permission.stop()
    assert inputs.reason(move) is Reason.NOT_LEADING


@pytest.mark.parametrize(
    ("now", "reason"),
    [
        ([], Reason.NOT_SELECTED),
        ([WRONG], Reason.INVALID_POLICY),
        ([policy(mode="DryRun")], Reason.DRY_RUN),
        ([AT_NIGHT], Reason.WINDOW_CLOSED),
        ([policy(pod_selector=LabelSelector(match_labels=Map(app="another")))], Reason.IN_MOTION),
        ([policy(limits=Limits(in_flight=1))], Reason.IN_MOTION),
        ([ENFORCES, policy("other")], Reason.IN_MOTION),
        ([policy()], None),  # equal, but not the same object
    ],
)
def test_a_changed_or_new_policy_holds_the_rest_of_the_wave(
    move: Move, now: list[Policy], reason: Reason | None
) -> None:
    inputs = Inputs()
    inputs.policies = Map({each.name: each for each in now})
    assert inputs.reason(move) is reason


def test_a_wave_that_takes_too_long_is_planned_again(move: Move) -> None:
    inputs = Inputs()
    inputs.seconds += OLD_SECONDS
    inputs.confirm()
    assert inputs.reason(move) is None
    inputs.seconds += 0.1
    assert inputs.reason(move) is Reason.IN_MOTION


def test_nothing_is_evicted_for_policies_that_were_not_confirmed_recently(move: Move) -> None:
    inputs = Inputs()
    inputs.seconds += CONFIRMED_SECONDS
    assert inputs.reason(move) is None
    inputs.seconds += 0.1
    held = inputs.permission.why_not(move, inputs.planned)
    assert held is not None
    assert (held.reason, held.message) == (Reason.API_UNAVAILABLE, "the policies could not be read for 5 s")
    inputs.confirmations = Confirmations(read_nothing, lambda: inputs.seconds)
    fresh = inputs.make_permission()
    assert fresh.why_not(move, fresh.planned_for(inputs.policies, inputs.seconds)) == Held(
        Reason.API_UNAVAILABLE, "the policies could not be read yet"
    )


def test_one_line_tells_that_nothing_is_evicted_until_the_reason_changes(
    move: Move, caplog: pytest.LogCaptureFixture
) -> None:
    inputs = Inputs()
    told = []
    for seconds, generation in ((6, 1), (1, 1), (0, 2), (0, 1), (6, 1), (0, 0), (6, 0)):
        inputs.seconds += seconds
        if not seconds:
            there = Map({"default": msgspec.structs.replace(ENFORCES, generation=generation)})
            inputs.confirmations.note(EVERYWHERE, PolicyVersions(versions_of(there), inputs.seconds))
            inputs.confirmations.note("default", PolicyVersions(Map(), inputs.seconds))
        inputs.reason(move)
        told.append(caplog.text.count("Nothing is evicted for now"))
    assert told == [1, 1, 2, 2, 3, 3, 4]


@pytest.mark.parametrize(
    "there",
    [
        Map(),
        Map({"default": msgspec.structs.replace(ENFORCES, generation=2)}),
        Map({"default": msgspec.structs.replace(ENFORCES, uid="another")}),
        Map({"default": ENFORCES, "other": policy("other")}),
    ],
    ids=["deleted", "changed", "recreated", "another one"],
)
def test_the_api_servers_answer_counts_although_the_watch_is_silent(move: Move, there: Map[str, Policy]) -> None:
    inputs = Inputs()
    inputs.confirmations.note(EVERYWHERE, PolicyVersions(versions_of(there), inputs.seconds))
    assert inputs.reason(move) is Reason.IN_MOTION


def own(namespace: str, name: str = "own", generation: int = 1) -> Policy:
    spec = PolicySpec(mode="DryRun")
    return Policy(kind="RebalancePolicy", namespace=namespace, object_name=name, generation=generation, spec=spec)


def test_a_new_policy_of_a_namespace_holds_only_moves_in_that_namespace(move: Move) -> None:
    inputs = Inputs()
    again = inputs.permission.planned_for(inputs.policies, inputs.seconds)
    assert again.by_place is inputs.planned.by_place, "it is not worked out anew for each of thousands of moves"
    for number in range(3):
        inputs.policies = inputs.policies.set(f"shop/{number}", own("shop", str(number)))
        assert inputs.reason(move) is None
    inputs.policies = inputs.policies.set("default/own", own("default"))
    assert inputs.reason(move) is Reason.IN_MOTION


def test_the_api_servers_answer_for_the_pods_namespace_counts_too(move: Move) -> None:
    inputs = Inputs()
    unseen = Map({"shop/own": own("shop")})
    inputs.confirmations.note("shop", PolicyVersions(versions_of(unseen), inputs.seconds))
    assert inputs.reason(move) is None
    unseen = Map({"default/own": own("default")})
    inputs.confirmations.note("default", PolicyVersions(versions_of(unseen), inputs.seconds))
    held = inputs.permission.why_not(move, inputs.planned)
    assert held == Held(Reason.IN_MOTION, "the policies of default have changed, and the watch has not brought it yet")
