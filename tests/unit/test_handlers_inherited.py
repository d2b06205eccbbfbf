"""What a new leader takes over from the one before it: moves that are seen only by the pods that go and come."""

from __future__ import annotations

from datetime import timedelta

import msgspec
from immutables import Map

from respread.api.policy import ClusterPolicySpec, Limits, Policy
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.eviction.pacing import Limiter, Pace
from respread.handlers.inherited import PATIENCE_SECONDS, Inherited
from respread.planning.assembly import plan_cluster
from respread.planning.policies import PolicyIndex
from respread.spread.index import spread_of
from tests.unit.worlds import NOW, cluster, constraint, node, pod, pods, spec

SPEC = spec(constraint())
NODES = [node("a1", "a"), node("b1", "b"), node("c1", "c")]
POLICY = Policy(
    kind="ClusterRebalancePolicy",
    object_name="default",
    spec=ClusterPolicySpec(mode="Enforce", limits=Limits(in_flight=1)),
)


def world(*others: Pod) -> ClusterSnapshot:
    return cluster(NODES, [*pods({"a1": 3}, SPEC), *others])


def take_over(snapshot: ClusterSnapshot, ours: frozenset[str] = frozenset()) -> Inherited:
    inherited = Inherited()
    inherited.begin(snapshot, spread_of(snapshot), PolicyIndex([POLICY]), ours=ours, now=NOW, seconds=100)
    return inherited


def coming(name: str = "new", **fields: object) -> Pod:
    given = {"ready": False, "creation_timestamp": NOW - timedelta(seconds=2), **fields}
    return msgspec.structs.replace(pod(name, "b1", SPEC), **given)


def going(name: str = "old") -> Pod:
    return pod(name, "a1", SPEC, deletion_timestamp=NOW)


def test_nothing_is_inherited_where_nothing_moves() -> None:
    assert take_over(world()).moves(world(), 100) == ()


def test_a_pod_that_goes_and_the_one_that_comes_for_it_are_one_move() -> None:
    inherited = take_over(world(going(), coming()))
    (move,) = inherited.moves(world(going(), coming()), 100)
    assert move.policy == "default"
    assert len(inherited.moves(world(going(), coming("one"), coming("two")), 101)) == 2
    assert len(inherited.moves(world(coming()), 102)) == 1
    assert inherited.moves(world(coming(ready=True)), 103) == ()
    assert inherited.moves(world(coming()), 104) == ()  # what comes later is another's


def test_what_never_gets_ready_is_given_up_on() -> None:
    inherited = take_over(world(coming()))
    assert inherited.moves(world(coming()), 100 + PATIENCE_SECONDS - 1) != ()
    assert inherited.moves(world(coming()), 100 + PATIENCE_SECONDS) == ()
    old = coming(creation_timestamp=NOW - timedelta(seconds=PATIENCE_SECONDS + 1))
    assert take_over(world(old)).moves(world(old), 100) == ()


def test_own_moves_and_pods_that_nobody_governs_are_not_counted_twice() -> None:
    snapshot = world(coming())
    assert take_over(snapshot, frozenset({coming().uid})).moves(snapshot, 100) == ()
    elsewhere = world(pod("new", "b1", SPEC, namespace="kube-system", ready=False, creation_timestamp=NOW))
    assert take_over(elsewhere).moves(elsewhere, 100) == ()


def test_they_count_for_limits() -> None:
    other = spec(constraint(selector=Map(app="other")))
    snapshot = cluster(
        NODES,
        [
            *pods({"a1": 3}, SPEC, prefix="web"),
            *pods({"b1": 1}, other, prefix="other", labels=Map(app="other"), ready=False, creation_timestamp=NOW),
        ],
    )
    moves = plan_cluster(snapshot, [POLICY], now=NOW).moves
    assert moves
    inherited = take_over(snapshot).moves(snapshot, 100)
    assert len(inherited) == 1
    pace = Pace(snapshot=snapshot, limiters=(Limiter.of(POLICY),), in_flight=inherited, now=0)
    assert pace.of(moves).now == ()
    assert msgspec.structs.replace(pace, in_flight=()).of(moves).now != ()
