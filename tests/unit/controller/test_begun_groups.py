"""Evictions are kept for groups that were begun: as many as they need when those in flight have ended."""

from __future__ import annotations

import msgspec
import pytest
from immutables import Map

from respread.api.reasons import Reason
from respread.cluster.meta import OwnerReference
from respread.cluster.pod import Pod, PodSpec
from respread.cluster.state import ClusterSnapshot
from respread.controller.choosing import begun_groups, later_moves
from respread.controller.records.history import History
from respread.moves.entry import Counting, Outcome
from respread.moves.ledger import Ledger
from respread.planning.plan import BlockedGroup
from tests.eviction_moves import move
from tests.spreads import spread_of
from tests.unit.controller.observations import observation
from tests.worlds import NOW, cluster, constraint, node, pod, spec

SPEC = spec(constraint())
NODES = [node(f"{zone}1", zone) for zone in "abc"]
OWNER = OwnerReference("apps/v1", "ReplicaSet", "web", "uid-web")


def web(name: str, on: str, **fields: object) -> Pod:
    return pod(name, on, SPEC, controller=OWNER, **fields)  # type: ignore[arg-type]  # a Pod's


PODS = [web(f"web-{number}", "a1") for number in range(6)]
BEFORE = cluster(NODES, PODS)
(GROUP,) = spread_of(BEFORE).groups
MOVE = move(PODS[0], groups=(GROUP,), from_domains=("a",), to_domains=(("b", "c"),))
SENT = Ledger().sent(MOVE, BEFORE, 0.0, NOW.timestamp())


def needed(
    snapshot: ClusterSnapshot, in_flight: Ledger, *, reason: Reason = Reason.IN_MOTION, begun: bool = True
) -> list[list[int]]:
    """Return the evictions that are kept for the group while a plan leaves it alone, and those to come later."""
    history = History(NOW.timestamp)
    if begun:
        history.count(Counting("default", ("default",), (GROUP,)))
    observed = observation(snapshot, ledger=in_flight, history=history)
    blocked = BlockedGroup(group=GROUP, policy="default", reason=reason, message="")
    return [[each.evictions for each in found([blocked], observed)] for found in (begun_groups, later_moves)]


def test_an_eviction_in_flight_counts_from_its_request_to_its_replacement() -> None:
    leaving = msgspec.structs.replace(PODS[0], deletion_timestamp=NOW)
    pending, placed = web("web-6", "", ready=False), web("web-6", "b1", ready=False)
    assert needed(BEFORE, SENT) == [[3], [3]]
    assert needed(cluster(NODES, PODS[:5]), SENT) == [[2], [2]]
    assert needed(cluster(NODES[1:], PODS), SENT) == [[0], [0]]  # the domain that it leaves is gone
    assert needed(cluster([], PODS), SENT) == [[0], [0]]  # all are
    assert needed(cluster(NODES, [leaving, *PODS[1:]]), SENT) == [[3], [3]]
    for replacement, others, more in ((pending, PODS[1:4], 1), (placed, PODS[1:], 3)):
        after = cluster(NODES, [*others, replacement])
        in_flight, _ = SENT.updated(after, 1.0, lambda *_: Outcome.IMPROVED)
        assert needed(after, in_flight) == [[more], [more]]


@pytest.mark.parametrize(
    ("reason", "begun", "expected"),
    [
        (Reason.QUIET_PERIOD, True, [[3], [3]]),
        (Reason.IN_MOTION, False, [[], [3]]),  # what somebody else changes
        (Reason.BACKING_OFF, True, [[], [3]]),  # for longer than a moment
        (Reason.HELD_BY_BUDGET, True, [[], [3]]),  # until those in flight have ended
        (Reason.PROTECTED_POD, True, [[], []]),
    ],
)
def test_evictions_are_kept_only_for_groups_that_were_begun_and_will_be_continued(
    reason: Reason, begun: bool, expected: list[list[int]]
) -> None:
    assert needed(BEFORE, SENT, reason=reason, begun=begun) == expected
    assert needed(BEFORE, Ledger(), reason=Reason.HELD_BY_BUDGET) == [[], []], "nothing is in flight that may end that"


def test_groups_that_hold_need_none() -> None:
    evenly = cluster(NODES, [web(f"web-{number}", f"{'abc'[number % 3]}1") for number in range(6)])
    assert needed(evenly, Ledger()) == [[0], [0]]
    for others in ([], [web("web-6", "a1", labels=Map(app="api"))]):
        assert needed(cluster(NODES, others), Ledger()) == [[], []], "no pod counts any more"


@pytest.mark.parametrize(
    ("per_app", "on", "expected"),
    [
        ((6, 6), "aa", 8),  # each needs 4, and so do all together
        ((6, 6), "ab", 8),  # each needs 4, and all together do no more than one
        ((2, 2), "aa", 2),  # each needs one, and so do all together
        ((1, 1, 1, 1, 1, 1), "aaaaaa", 4),  # only all together do
    ],
)
def test_an_eviction_counts_once_for_a_selector_and_one_that_contains_it(
    per_app: tuple[int, ...], on: str, expected: int
) -> None:
    pods = [
        pod(f"{app}-{number}", f"{on[app]}1", _own_and_shared(f"{app}"), labels=Map(app=f"{app}", tier="web"))
        for app, count in enumerate(per_app)
        for number in range(count)
    ]
    assert needed_later(pods) == [expected] * 2


def test_groups_in_other_namespaces_or_with_only_some_pods_in_common_need_evictions_of_their_own() -> None:
    assert needed_later([web(f"web-{number}", "a1", namespace=f"n-{number % 2}") for number in range(12)]) == [8] * 2
    of_tier = spec(constraint(selector=Map(tier="x")))
    pods = [
        pod(f"{app}-{tier}-{number}", "a1", of, labels=Map(app=app, tier=tier))
        for app, tier, of in (("web", "x", SPEC), ("web", "y", SPEC), ("api", "x", of_tier))
        for number in range(3)
    ]
    assert needed_later(pods) == [8] * 2, "4 of each"


def needed_later(pods: list[Pod]) -> list[int]:
    """Return how many evictions all groups of these pods need later, in both orders."""
    observed = observation(cluster(NODES, pods), history=History(NOW.timestamp))
    blocked = [
        BlockedGroup(group=key, policy="default", reason=Reason.QUIET_PERIOD, message="")
        for key in observed.spread.groups
    ]
    return [sum(each.evictions for each in later_moves(order, observed)) for order in (blocked, blocked[::-1])]


def _own_and_shared(app: str) -> PodSpec:
    return spec(constraint(selector=Map(app=app)), constraint(when="ScheduleAnyway", selector=Map(tier="web")))
