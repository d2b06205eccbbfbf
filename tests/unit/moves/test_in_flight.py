"""A move is in flight until its replacement is Ready, none is expected, or Respread gives up on it."""

from __future__ import annotations

from datetime import timedelta
from math import inf
from typing import Any

import msgspec
import pytest
from immutables import Map

from respread.cluster.meta import OwnerReference
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.eviction.answers import Answer, EvictionResult
from respread.moves.entry import LONGEST_SECONDS, Ended, MovePhase, Outcome
from respread.moves.following import ReplacementPods, followed
from respread.moves.ledger import Ledger
from respread.planning.plan import Move
from tests.eviction_moves import SPEC, move
from tests.worlds import NOW, cluster, pod

EVICTED = Answer(result=EvictionResult.EVICTED)
UNKNOWN = Answer(result=EvictionResult.UNKNOWN)
LABELS = Map({"app": "web", "pod-template-hash": "abc"})


def web(name: str, on: str = "node-1", **fields: Any) -> Pod:
    return pod(name, on, SPEC, **{"labels": LABELS, **fields})


def world(*pods: Pod) -> ClusterSnapshot:
    return cluster([], pods)


def improved(_: Move, replacement: Pod) -> Outcome:
    return Outcome.UNCHANGED if replacement.node_name == "node-1" else Outcome.IMPROVED


A, B, C = web("a"), web("b"), web("c", creation_timestamp=None)  # the API says only that it is optional
BEFORE = world(A, B, C)


def evicted(*victims: Pod, snapshot: ClusterSnapshot = BEFORE, answer: Answer = EVICTED, at: float = 0) -> Ledger:
    ledger = Ledger()
    for victim in victims:
        ledger = ledger.sent(move(victim), snapshot, at).answered(move(victim), answer.made, at)
    return ledger


def ended(ledger: Ledger, snapshot: ClusterSnapshot, now: float) -> tuple[Ledger, list[Ended]]:
    after, over = ledger.updated(snapshot, now, improved)
    return after, list(over)


def stage(ledger: Ledger) -> MovePhase:
    (flight,) = ledger.in_flight
    return flight.phase


def test_a_move_from_its_eviction_to_its_ready_replacement() -> None:
    ledger = Ledger().sent(move(A), BEFORE, 10)
    assert stage(ledger) is MovePhase.SENT
    ledger = ledger.answered(move(A), EVICTED.made, 11)
    assert stage(ledger) is MovePhase.EVICTED
    assert ledger.confirmed == (), "it was never in doubt"
    ledger, over = ended(ledger, BEFORE, 12)
    assert (stage(ledger), over) == (MovePhase.EVICTED, [])
    going = web("a", deletion_timestamp=NOW)
    ledger, over = ended(ledger, world(going, B, C), 13)
    assert (stage(ledger), over) == (MovePhase.LEAVING, [])
    ledger, over = ended(ledger, world(going, B, C, web("d", "")), 14)
    assert (stage(ledger), over, ledger.without_node) == (MovePhase.REPLACED, [], frozenset({A.uid}))
    ledger, over = ended(ledger, placed := world(B, C, web("d", "node-2", ready=False)), 15)
    assert (stage(ledger), over, ledger.without_node) == (MovePhase.PLACED, [], frozenset())
    assert ended(ledger, placed, 16)[0] is ledger
    ledger, over = ended(ledger, world(B, C, web("d", "node-2")), 17)
    assert len(ledger) == 0
    (end,) = over
    assert (end.outcome, end.seconds, end.move.pod.name) == (Outcome.IMPROVED, 7, "a")
    assert end.message == "its replacement d on node-2 is Ready"


@pytest.mark.parametrize("result", [EvictionResult.HELD_BY_BUDGET, EvictionResult.GONE, EvictionResult.UNREACHABLE])
def test_a_refused_move_is_not_in_flight(result: EvictionResult) -> None:
    assert len(evicted(A, answer=Answer(result=result))) == 0


def test_a_pod_that_records_name_twice_is_in_flight_once() -> None:
    """Whoever may write records may write that a pod was evicted twice, from two controllers."""
    other = OwnerReference("apps/v1", "ReplicaSet", "api", "uid-api")
    (one,) = evicted(A).in_flight
    (two,) = evicted(web("a", controller=other)).in_flight
    resumed = Ledger().resumed([one, two])
    assert len(resumed) == len(resumed.in_flight) == 1
    for ledger in (resumed, resumed.without(two.move)):
        assert sum(ledger.unreplaced(uid, ()) for uid in ("uid-web", "uid-api")) == len(ledger)


def test_the_replacement_of_a_move_that_has_ended_is_not_that_of_one_sent_by_an_older_plan() -> None:
    """The plan was made before `d` replaced `a`. Only `e` replaces `b`."""
    d, e = web("d", "node-2"), web("e", "node-2")
    ledger, over = ended(evicted(A), world(B, C, d), 1)
    assert [each.replacement for each in over] == [d]
    ledger = ledger.sent(move(B), BEFORE, 2).answered(move(B), EVICTED.made, 2)
    ledger, over = ended(ledger, world(C, d), 3)
    assert over == []
    assert ledger.unreplaced("uid-web", {C.uid, d.uid}) == 1
    ledger, over = ended(ledger, world(C, d, e), 4)
    assert [each.replacement for each in over] == [e]
    assert ledger.exchanged("uid-web") == {A.uid: d.uid, B.uid: e.uid}
    ledger = ledger.sent(move(C), world(C, d, e), 60)
    ledger, _ = ended(ledger, world(d, e, web("f", "node-2")), 61)
    assert set(ledger.exchanged("uid-web")) == {B.uid, C.uid}, "the first is too long ago"


def test_pods_that_were_evicted_with_other_pods_beside_them_are_not_replaced_by_the_same_one() -> None:
    ledger = evicted(A).sent(move(B), world(B, C, web("x")), 0).answered(move(B), EVICTED.made, 0)
    _, over = ended(ledger, world(C, web("d", "node-2")), 1)
    assert [each.move.pod for each in over] == [A]


def test_nothing_is_kept_of_a_move_of_which_only_a_record_tells() -> None:
    ledger = Ledger().resumed(evicted(A, answer=UNKNOWN).in_flight)
    ledger, (end,) = ended(ledger, BEFORE, LONGEST_SECONDS)
    assert end.unmade
    for pods in ((A, B, C), (B, C)):
        ledger, _ = ended(ledger, world(*pods), LONGEST_SECONDS)
    assert ledger.of(move(A)) is None


class TestUnansweredEvictions:
    """Without an answer, the pod counts as evicted until that is known to be wrong."""

    ledger = evicted(A, answer=UNKNOWN)

    def test_an_unanswered_eviction_counts_as_in_flight(self) -> None:
        assert len(self.ledger) == 1
        assert self.ledger.overlay(BEFORE).pods[A.key].terminating
        assert self.ledger.unmade
        assert self.ledger.uncertain
        assert not evicted(A).unmade
        after, over = ended(self.ledger, world(B, C), 60)
        assert (stage(after), over) == (MovePhase.LEAVING, [])

    def test_an_unanswered_eviction_counts_as_not_made_after_a_while(self) -> None:
        after, over = ended(self.ledger, BEFORE, 74.9)
        assert (len(after), over) == (1, [])
        after = after.answered(move(A), UNKNOWN.made, 74.9)
        after, (end,) = ended(after, BEFORE, 75)
        assert len(after) == 0, "another answer of that kind gives it no more time"
        assert end.outcome is Outcome.UNKNOWN
        assert end.message == "its eviction was not confirmed, and it is still there after 75 s"


def test_no_pod_that_existed_before_or_has_another_controller_is_the_replacement() -> None:
    other = web("d", "node-2", controller=OwnerReference("apps/v1", "ReplicaSet", "api", "uid-api"))
    going = web("d", "node-2", deletion_timestamp=NOW)
    for shown in (world(B, C), world(B, C, other), world(B, C, going)):
        after, over = ended(evicted(A), shown, 1)
        assert (stage(after), over) == (MovePhase.LEAVING, [])


def test_a_pod_that_came_after_an_eviction_is_not_the_replacement_of_one_that_is_evicted_later() -> None:
    refused, new = evicted(A, answer=Answer(result=EvictionResult.HELD_BY_BUDGET)), web("d", "node-2")
    _, over = ended(refused.sent(move(B), world(A, B, C, new), 0), world(A, C, new), 1)
    assert over == []


def test_two_moves_of_one_controller_have_two_replacements() -> None:
    ledger = evicted(A, B)
    ledger, over = ended(ledger, world(C, web("d", "node-2")), 1)
    assert [end.move.pod.name for end in over] == ["a"]
    ledger, over = ended(ledger, world(C, web("d", "node-2")), 2)
    assert over == []
    ledger, over = ended(ledger, world(C, web("d", "node-2"), web("e", "node-2")), 3)
    assert [end.move.pod.name for end in over] == ["b"]
    assert len(ledger) == 0


def test_replacements_that_are_created_together_are_distinguished() -> None:
    for created in (NOW - timedelta(hours=2), None):
        late, early = web("d", "node-1"), web("e", "node-2", creation_timestamp=created)
        _, over = ended(evicted(A, B), world(C, late, early), 1)
        replaced_by = {end.move.pod.name: end.replacement.name for end in over if end.replacement is not None}
        assert replaced_by == {"a": "e", "b": "d"}


def test_a_replacement_that_fails_is_followed_by_the_next() -> None:
    ledger, _ = ended(evicted(A), world(B, C, web("d", "node-2", ready=False)), 1)
    assert stage(ledger) is MovePhase.PLACED
    failed = web("d", "node-2", ready=False, phase="Failed")
    ledger, over = ended(ledger, world(B, C, failed), 2)
    assert (stage(ledger), over) == (MovePhase.LEAVING, [])
    ledger, over = ended(ledger, world(B, C, failed, web("e", "node-3")), 3)
    (end,) = over
    assert end.replacement is not None
    assert end.replacement.name == "e"


def test_a_stateful_sets_replacement_has_the_pods_name_and_is_created_after_it() -> None:
    owner = OwnerReference("apps/v1", "StatefulSet", "db", "uid-db")
    zero, one = (pod(f"db-{n}", "node-1", SPEC, controller=owner) for n in (0, 1))
    ledger = evicted(zero, snapshot=cluster([], [zero, one]))
    two = pod("db-2", "node-2", SPEC, controller=owner)  # scaled up meanwhile
    going = pod("db-0", "node-1", SPEC, controller=owner, deletion_timestamp=NOW)
    ledger, over = ended(ledger, cluster([], [going, one, two]), 1)
    assert (stage(ledger), over) == (MovePhase.LEAVING, [])
    ledger, over = ended(ledger, cluster([], [going, one, two]), 3000)
    assert over == []  # the grace period of the pod does not count
    new = Pod(**{name: getattr(zero, name) for name in zero.__struct_fields__} | {"uid": "new", "node_name": "node-2"})
    _, (end,) = ended(ledger, cluster([], [new, one, two]), 3001)
    assert (end.outcome, end.replacement) == (Outcome.IMPROVED, new)
    # As long as it may take: answered, terminating, created, bound and Ready, each at the last moment.
    shown = (going, msgspec.structs.replace(new, node_name=""), msgspec.structs.replace(new, ready=False))
    ledger = evicted(zero, snapshot=cluster([], [zero, one]), answer=UNKNOWN)
    ledger = ledger.answered(move(zero), made=True, now=ledger.next_deadline())
    for each in shown:
        ledger, _ = ended(ledger, cluster([], [each, one]), ledger.next_deadline() - 1)
    assert LONGEST_SECONDS - len(shown) == ledger.next_deadline()


class TestDeadlines:
    """A move ends when a step takes longer than its patience, counted from the last step."""

    @pytest.mark.parametrize(
        ("shown", "outcome", "message"),
        [
            (BEFORE, Outcome.UNKNOWN, "its eviction was accepted, and it is still there after 300 s"),
            (world(B, C), Outcome.UNKNOWN, "it was not replaced within 300 s"),
            (world(B, C, web("d", "")), Outcome.UNPLACED, "its replacement d has no node after 300 s"),
            (
                world(B, web("d", "n", ready=False)),
                Outcome.NOT_READY,
                "its replacement d on n was not Ready after 300 s",
            ),
        ],
    )
    def test_a_move_that_stands_still_ends(self, shown: ClusterSnapshot, outcome: Outcome, message: str) -> None:
        ledger, _ = ended(evicted(A, at=5), shown, 5)
        ledger, over = ended(ledger, shown, 304.9)
        assert over == []
        _, (end,) = ended(ledger, shown, 305)
        assert (end.outcome, end.message, end.failed) == (outcome, message, shown is not BEFORE)

    def test_a_move_waits_for_readiness_as_long_as_the_policy_says(self) -> None:
        placed = world(B, C, web("d", "node-2", ready=False))
        quick = Map(default=20.0)
        ledger, _ = ended(evicted(A).patient(quick), placed, 10)
        assert ledger.next_deadline() == 30
        ledger, over = ended(ledger, placed, 29.9)
        assert over == []
        _, (end,) = ended(ledger, placed, 30)
        assert end.outcome is Outcome.NOT_READY
        _, over = ended(ledger.patient(Map(default=60.0)), placed, 30)
        assert over == []  # the policy has changed meanwhile

    def test_a_move_whose_replacements_keep_failing_ends(self) -> None:
        ledger = evicted(A)
        for second in range(10, 300, 20):
            placed = world(B, C, web(f"d-{second}", "node-2", ready=False))
            ledger, over = ended(ledger, placed, second)
            assert over == []
            ledger, over = ended(ledger, world(B, C), second + 10)
            assert over == []
        assert ledger.next_deadline() == 310
        _, (end,) = ended(ledger, world(B, C), 310)
        assert (end.outcome, end.failed) == (Outcome.NOT_READY, True)
        assert end.message == "its replacement failed, and no other was Ready after 300 s"
        _, (end,) = ended(ledger, world(B, C, web("e", "")), 310)
        assert end.message == "its replacement e, which has no node, was not Ready after 300 s"

    def test_the_next_deadline_is_the_earliest_of_all_moves(self) -> None:
        assert Ledger().next_deadline() == inf
        ledger = evicted(A, at=100)
        assert ledger.next_deadline() == 400
        ledger = ledger.sent(move(B), BEFORE, 150)
        assert ledger.next_deadline() == 225


class TestUnwantedReplacements:
    """After a scale-down or a rollout a move may have no replacement."""

    def test_a_move_without_a_wanted_replacement_ends_once_the_pod_is_deleted(self) -> None:
        ledger = evicted(A).not_wanted(move(A))
        ledger, over = ended(ledger, BEFORE, 1)
        assert (len(ledger), over) == (1, [])
        ledger, (end,) = ended(ledger, world(B, C), 2)
        assert (len(ledger), end.outcome) == (0, Outcome.UNKNOWN)
        assert end.message == "its controller wants no replacement any more"
        assert not end.failed

    def test_an_existing_replacement_counts_even_if_it_is_not_wanted(self) -> None:
        for on, outcome in (("node-1", Outcome.UNCHANGED), ("node-2", Outcome.IMPROVED)):  # as the caller decides
            _, (end,) = ended(evicted(A).not_wanted(move(A)), world(B, C, web("d", on)), 1)
            assert end.outcome is outcome

    def test_moves_of_other_owners_continue(self) -> None:
        ledger, over = ended(evicted(A, B).not_wanted(move(A)), world(C), 1)
        assert [end.move.pod.name for end in over] == ["a"]
        assert [each.pod.name for each in ledger.moves] == ["b"]

    @pytest.mark.parametrize(("created_after", "seconds"), [(2.0, 8), (-0.5, 6)])  # Kubernetes stores whole seconds
    def test_a_leader_that_takes_over_knows_how_long_a_replacement_took(
        self, created_after: float, seconds: float
    ) -> None:
        """It may have been Ready before anybody looked."""
        (before,) = evicted(A).in_flight
        created = before.time_sent + timedelta(seconds=created_after)
        ready = web("d", "node-2", creation_timestamp=created, ready_seconds=5)
        _, (end,) = ended(evicted(A), world(B, C, ready), 100)
        assert end.seconds == seconds

    def test_moves_without_a_replacement_are_listed(self) -> None:
        ledger, _ = ended(evicted(A, B), world(B, C), 10)
        assert ledger.unreplaced_since(9.9) == ()
        assert [each.pod.name for each in ledger.unreplaced_since(10)] == ["a"]
        ledger, _ = ended(ledger, world(B, C, web("d", "")), 11)
        assert ledger.unreplaced_since(20) == ()
        ledger, _ = ended(ledger, world(B, C), 12)
        assert [each.pod.name for each in ledger.unreplaced_since(0)] == ["a"], "its replacement was deleted"

    def test_a_controller_that_is_slow_is_asked_ever_more_seldom(self) -> None:
        ledger, _ = ended(evicted(A, B), world(B, C), 10)
        asked = []
        for second in range(10, 90):
            for each in ledger.unreplaced_since(second - 5):
                asked.append(second)
                ledger = ledger.asked([each], second)
        assert asked == [15, 25, 45, 85]


def test_plans_treat_pods_in_flight_as_terminating() -> None:
    ledger = evicted(A)
    overlaid = ledger.overlay(BEFORE)
    assert overlaid.pods[A.key].terminating
    assert overlaid.pods[B.key] is B
    assert not BEFORE.pods[A.key].terminating
    already_going = world(web("a", deletion_timestamp=NOW), B, C)
    assert ledger.overlay(already_going) is already_going
    namesake = Pod(**{name: getattr(A, name) for name in A.__struct_fields__} | {"uid": "another"})
    assert not ledger.overlay(world(namesake, B, C)).pods[A.key].terminating


GATED = msgspec.structs.replace(SPEC, has_scheduling_gates=True)
DB = pod("db-0", "node-1", SPEC, controller=OwnerReference("apps/v1", "StatefulSet", "db", "uid-db"))


@pytest.mark.parametrize(
    ("victim", "shown", "wanted", "unreplaced", "replacement", "late"),
    [
        (A, (A, B), True, True, False, False),
        (A, (B,), True, True, False, True),
        (A, (B,), False, False, False, False),
        (DB, (B,), True, True, False, False),  # it may take long to stop, and is replaced only then
        (A, (B, web("d", "")), True, False, True, True),
        (A, (B, pod("d", "", GATED, labels=LABELS)), True, True, True, False),
        (A, (B, web("d", "node-2", ready=False)), True, False, False, False),
    ],
)
def test_plans_reckon_with_replacements_that_need_a_node(
    victim: Pod, shown: tuple[Pod, ...], *, wanted: bool, unreplaced: bool, replacement: bool, late: bool
) -> None:
    """A replacement that has none after 15 s is late."""
    snapshot = world(*shown)
    ledger = evicted(victim, snapshot=world(victim, B))
    if not wanted:
        ledger = ledger.not_wanted(move(victim))
    stages = tuple(followed(flight, snapshot, 5.0, ReplacementPods(snapshot, ())) for flight in ledger.in_flight)
    ledger = Ledger().resumed(stages)
    for now, is_late in ((5.0, False), (19.9, False), (20.0, late)):
        under_way = ledger.for_planning(snapshot, now)
        assert under_way.unreplaced == (victim,) * unreplaced
        assert len(under_way.replacements) == replacement
        assert under_way.late == (victim,) * is_late


def test_budgets_count_pods_in_flight_as_watched_and_deleted_ones_as_terminating() -> None:
    ledger = evicted(A)
    assert ledger.pods(BEFORE) == (A,)
    (gone,) = ledger.pods(world(B, C))
    assert gone.terminating
    assert gone.uid == A.uid


def test_the_missing_pods_of_an_owner_include_respreads_evictions() -> None:
    ledger = evicted(A, B)
    assert ledger.leaving("uid-web") == {A.uid, B.uid}
    assert ledger.unreplaced("uid-web", ()) == 2
    ledger, _ = ended(ledger, world(C, web("d", "")), 1)
    assert ledger.unreplaced("uid-web", {C.uid, web("d", "").uid}) == 1
    assert ledger.unreplaced("uid-web", {C.uid}) == 2  # before the watch showed `d`
    assert ledger.leaving("uid-other") == frozenset()
    assert [each.pod.name for each in ledger.moves] == ["a", "b"]


class TestOwedMoves:
    """A refused move of a step whose other move was made."""

    REFUSED = Answer(result=EvictionResult.HELD_BY_BUDGET)

    @pytest.fixture
    def owing(self) -> Ledger:
        """A step of two: A is evicted, B was refused."""
        both = [move(each, component=3) for each in (A, B)]
        ledger = Ledger().sent(both[0], BEFORE, 0).answered(both[0], EVICTED.made, 0)
        ledger = ledger.sent(both[1], BEFORE, 0).answered(both[1], self.REFUSED.made, 0)
        assert len(ledger) == 1
        return ledger.sent(both[1], BEFORE, 0).owed(both[1])

    def test_an_owed_move_counts_as_in_flight_and_is_requested_again(self, owing: Ledger) -> None:
        moves = {each.pod.name for each in owing.moves}
        assert moves == {"a", "b"}
        assert not owing.uncertain  # no request is outstanding
        assert owing.unmade
        assert [each.move.pod.name for each in owing.unanswered(1, 1)] == ["b"]
        assert [each.is_owed for each in owing.in_flight] == [False, True]
        after = owing.answered(owing.moves[1], EVICTED.made, 2)
        assert [each.phase for each in after.in_flight] == [MovePhase.EVICTED] * 2
        after = owing.answered(owing.moves[1], UNKNOWN.made, 2)
        assert [each.phase for each in after.in_flight] == [MovePhase.EVICTED, MovePhase.SENT]

    def test_an_owed_move_ends_after_a_while(self, owing: Ledger) -> None:
        after, over = ended(owing, BEFORE, 75)
        assert [(each.move.pod.name, each.outcome) for each in over] == [("b", Outcome.UNKNOWN)]
        assert [each.uid for each in after.in_flight] == [A.uid]

    def test_a_move_is_not_owed_once_the_others_have_their_replacements(self, owing: Ledger) -> None:
        after, over = ended(owing, world(web("d", "node-2"), B, C), 10)
        assert [(each.move.pod.name, each.outcome) for each in over] == [("a", Outcome.IMPROVED)]
        assert after.in_flight == ()
