"""The next process follows the moves in flight that the policies' records contain."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from functools import partial

import msgspec
import pytest
from immutables import Map

from respread.api.fields import Problem
from respread.api.policy import ClusterPolicySpec, Limits, Policy, VictimRules
from respread.api.record import MAX_NEWEST_PODS, Recorded, decode_record, encode_record
from respread.cluster.meta import OwnerReference
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.controller.records.journal import Journal
from respread.controller.takeover import resumed
from respread.eviction.limiter import Limiter
from respread.moves.codec import RecordedMoves
from respread.moves.entry import LONGEST_SECONDS, STEP_SECONDS, Ended, MovePhase, Outcome
from respread.moves.following import compared
from respread.moves.ledger import Ledger
from respread.planning.plan import Move
from respread.planning.victims.policies import PolicySetting
from respread.timing import ClockReading
from tests.eviction_moves import move, send
from tests.spreads import spread_of
from tests.virtual_time import Clock
from tests.worlds import NOW, cluster, constraint, node, pod, pods, spec

SPEC = spec(constraint())
NODES = [node("a1", "a"), node("b1", "b"), node("c1", "c")]
ENFORCING = Policy(
    kind="ClusterRebalancePolicy",
    object_name="default",
    spec=ClusterPolicySpec(mode="Enforce", limits=Limits(in_flight=2, in_flight_per_workload=2)),
)
SETTING = PolicySetting((ENFORCING,))
ONE_SECOND = timedelta(seconds=1)
WALL = NOW.timestamp()


def world(*others: Pod, at_a: int = 3) -> ClusterSnapshot:
    return cluster(NODES, [*pods({"a1": at_a}, SPEC), *others])


def rest() -> list[Pod]:
    """Return the pods without the moved one."""
    return [each for each in world().pods.values() if each.name != "web-a1-0"]


def of_web(snapshot: ClusterSnapshot, name: str = "web-a1-0") -> Move:
    victim = next(each for each in snapshot.pods.values() if each.name == name)
    (key,) = spread_of(snapshot).groups
    return move(victim, groups=(key,), from_domains=("a",))


def process(seconds: float, wall: float = WALL) -> Journal:
    return Journal(Clock(seconds), Clock(wall))


def killed(journal: Journal, snapshot: ClusterSnapshot) -> dict[str, Recorded]:
    """Return the records in the API server after a process has died."""
    remembered = RecordedMoves().of(journal.ledger, snapshot)
    return {
        policy: decode_record(encode_record(Recorded(moves_in_flight=moves))) for policy, moves in remembered.items()
    }


def followed(journal: Journal, snapshot: ClusterSnapshot) -> tuple[Ended, ...]:
    journal.ledger, ended = journal.ledger.updated(snapshot, journal.clock(), partial(compared, spread_of(snapshot)))
    return ended


def resume(
    journal: Journal, records: Mapping[str, Recorded], snapshot: ClusterSnapshot, setting: PolicySetting = SETTING
) -> Journal:
    """Resume the moves in the records, and return the journal."""
    moment, spread = ClockReading(journal.clock(), journal.wall_clock()), spread_of(snapshot)
    journal.ledger = resumed(journal.ledger, records, snapshot, spread, setting, (Limiter.of(ENFORCING),), moment)
    return journal


def came(name: str = "new", on: str = "b1", **fields: object) -> Pod:
    given = {"creation_timestamp": NOW, **fields}
    return msgspec.structs.replace(pod(name, on, SPEC), **given)


@pytest.fixture
def sent() -> dict[str, Recorded]:
    """The recorded move of a process that died just after sending it."""
    first = process(50)
    before = world()
    send(first, of_web(before), before)
    return killed(first, before)


@pytest.mark.parametrize(
    ("on", "ready", "outcome"),
    [("b1", True, Outcome.IMPROVED), ("a1", True, Outcome.UNCHANGED), ("b1", False, None), ("", False, None)],
)
def test_the_next_process_finds_the_outcome_of_a_move(
    sent: dict[str, Recorded], on: str, ready: bool, outcome: Outcome | None
) -> None:
    after = cluster(NODES, [*rest(), came(on=on, ready=ready)])

    second = resume(process(7), sent, after)
    (flight,) = second.ledger.in_flight
    assert flight.move.policy == "default"
    assert str(flight.move.workload) == "ReplicaSet/web"
    assert flight.move.pod.node_name == "a1"
    assert flight.move.pod.controller == OwnerReference("apps/v1", "ReplicaSet", "web", "uid-web")
    assert sent["default"].moves_in_flight[0].controller_kind == "ReplicaSet"
    assert [each.outcome for each in followed(second, after)] == ([] if outcome is None else [outcome])
    assert len(second.ledger) == (outcome is None)


def test_a_replacement_in_the_wrong_domain_that_is_never_ready_is_a_failure(sent: dict[str, Recorded]) -> None:
    after = cluster(NODES, [*rest(), came(on="", ready=False)])
    clock = Clock(7)
    second = Journal(clock, Clock(WALL))
    resume(second, sent, after)
    assert followed(second, after) == ()
    clock.now += STEP_SECONDS
    assert [each.outcome for each in followed(second, after)] == [Outcome.UNPLACED]


def test_the_eviction_of_a_pod_that_still_exists_is_sent_again(sent: dict[str, Recorded]) -> None:
    second = resume(process(7, WALL + 6), sent, world())
    (flight,) = second.ledger.in_flight
    assert flight.phase is MovePhase.SENT
    assert second.ledger.unanswered(7, 5) == (flight,)
    assert second.ledger.unanswered(7, 7) == ()
    assert followed(second, world()) == ()


def test_an_eviction_sent_long_ago_is_not_sent_again(sent: dict[str, Recorded]) -> None:
    second = resume(process(7, WALL + 75), sent, world())
    assert second.ledger.unanswered(7, 5) == ()  # the cluster may have changed since the plan
    assert [each.outcome for each in followed(second, world())] == [Outcome.UNKNOWN]


def test_other_pods_of_the_same_age_are_not_taken_for_the_replacement() -> None:
    before = world(came("young"), came("replacement-of-another", creation_timestamp=NOW + ONE_SECOND))
    first = process(50, wall=WALL + 30)
    send(first, of_web(before), world(came("young")))
    flight = first.ledger.in_flight[0]
    other = before.pods[came("replacement-of-another").key]
    first.ledger = Ledger().resumed([msgspec.structs.replace(flight, known=flight.known | {other.uid})])
    ((remembered,),) = (record.moves_in_flight for record in killed(first, before).values())
    assert remembered.newest == NOW
    assert remembered.newest_pods == ("replacement-of-another", "young")
    after = cluster(NODES, [each for each in before.pods.values() if each.name != "web-a1-0"])
    second = resume(process(7, WALL + 31), killed(first, before), after)
    assert followed(second, after) == ()
    new = cluster(NODES, [*after.pods.values(), came("new")])  # within the same second as `young`
    (ended,) = followed(second, new)
    assert ended.replacement is not None
    assert ended.replacement.name == "new"


def test_older_pods_are_neither_recorded_nor_taken_for_the_replacement() -> None:
    before = world()
    first = process(50, wall=WALL + 60)
    send(first, of_web(before), before)
    records = killed(first, before)
    for _ in range(3):  # the next processes are killed too
        ((remembered,),) = (record.moves_in_flight for record in records.values())
        assert remembered.newest == max(before.pods[key].creation_timestamp or NOW for key in before.pods) + ONE_SECOND
        assert remembered.newest_pods == ()
        another = resume(process(7, WALL + 61), records, before)
        assert another.ledger.in_flight[0].known == {each.uid for each in before.pods.values()}
        records = killed(another, before)


@pytest.mark.parametrize(("others", "recorded"), [(MAX_NEWEST_PODS, MAX_NEWEST_PODS), (MAX_NEWEST_PODS + 1, 0)])
def test_no_pod_is_recorded_if_very_many_were_created_in_one_second(others: int, recorded: int) -> None:
    before = world(at_a=others + 1)
    before = cluster(NODES, [each for each in before.pods.values() if each.node_name == "a1"])
    first = process(50, wall=1_000_000)
    send(first, of_web(before), before)
    ((remembered,),) = (record.moves_in_flight for record in killed(first, before).values())
    assert len(remembered.newest_pods) == recorded
    second = resume(process(7), killed(first, before), before)
    assert second.ledger.in_flight[0].known == {each.uid for each in before.pods.values()}


def test_the_replacement_in_a_stateful_set_has_the_same_name() -> None:
    controller = OwnerReference("apps/v1", "StatefulSet", "db", "uid-db")
    old = [came(f"db-{number}", "a1", controller=controller) for number in range(3)]
    before = cluster(NODES, old)
    first = process(50)
    send(first, of_web(before, "db-0"), before)
    again = came("db-0", controller=controller, uid="another")
    after = cluster(NODES, [again, *old[1:]])
    second = resume(process(7), killed(first, before), after)
    assert [each.outcome for each in followed(second, after)] == [Outcome.IMPROVED]


def test_a_move_is_followed_even_without_its_group_or_another_pod(sent: dict[str, Recorded]) -> None:
    empty = cluster(NODES, [])
    second = resume(process(7), sent, empty)
    assert followed(second, empty) == ()
    (flight,) = second.ledger.in_flight
    assert flight.move.groups == ()
    assert flight.phase is MovePhase.LEAVING
    (ended,) = followed(second, cluster(NODES, [came()]))
    assert ended.outcome is Outcome.UNKNOWN


def test_a_move_that_must_have_ended_holds_no_other(sent: dict[str, Recorded]) -> None:
    gone = cluster(NODES, rest())
    for seconds, outcomes in {LONGEST_SECONDS - 2: [], LONGEST_SECONDS + 2: [Outcome.UNKNOWN]}.items():
        later = resume(process(50, WALL + seconds), sent, gone)
        assert [each.outcome for each in followed(later, gone)] == outcomes
    (ended,) = followed(resume(process(50, WALL + LONGEST_SECONDS + 2), sent, world()), world())
    assert (ended.unmade, ended.unreplaced) == (True, False), "its pod is there"
    replaced = cluster(NODES, [*rest(), came(on="a1")])
    later = resume(process(50, WALL + LONGEST_SECONDS + 2), sent, replaced)
    (ended,) = followed(later, replaced)
    assert ended.outcome is Outcome.UNCHANGED, "what came of it counts all the same"


def test_a_leader_that_returns_keeps_its_own_moves_and_drops_finished_ones(sent: dict[str, Recorded]) -> None:
    before = world()
    again = process(50)
    send(again, of_web(before), before)
    send(again, of_web(before, "web-a1-1"), before)
    own = again.ledger.in_flight[0]
    resume(again, sent, before)
    (resumed_own,) = again.ledger.in_flight
    assert msgspec.structs.replace(resumed_own, number=own.number) == own


def test_a_namespaced_policys_record_affects_no_other_namespace(sent: dict[str, Recorded]) -> None:
    (record,) = sent.values()
    for policy, known in (("default", 1), ("default/own", 1), ("elsewhere/own", 0)):
        journal = resume(process(7), {policy: record}, world())
        assert len(journal.ledger) == known


def test_a_recorded_move_that_breaks_a_rule_is_followed_and_not_sent_again() -> None:
    before = world(at_a=6)
    first = process(50)
    for number in range(4):
        send(first, of_web(before, f"web-a1-{number}"), before)
    records = killed(first, before)
    protected = msgspec.structs.replace(
        before.pods[of_web(before).pod.key], annotations=Map({"respread.dev/evict": "never"})
    )
    after = cluster(NODES, [protected, *(each for each in before.pods.values() if each.key != protected.key)])

    def asked(of: dict[str, Recorded], setting: PolicySetting = SETTING, then: ClusterSnapshot = after) -> list[str]:
        second = resume(process(7, WALL + 6), of, then, setting)
        assert len(second.ledger) == 4
        return [each.move.pod.name for each in second.ledger.unanswered(7, 5)]

    assert asked(records) == ["web-a1-1", "web-a1-2"]  # without the protected pod, and within the limits
    *others, last = sorted(after.pods.values(), key=lambda each: (each.node_name == "a1", each.name))
    assert len(asked(records, then=cluster(NODES, [*others, last, came(ready=False)]))) == 2  # it is a replacement
    assert len(asked(records, then=cluster(NODES, [*others, msgspec.structs.replace(last, ready=False)]))) == 1
    assert asked({"another": records["default"]}) == []  # that policy does not govern the pods
    assert asked(records, PolicySetting(())) == []
    invalid = msgspec.structs.replace(ENFORCING, problems=(Problem("spec.mode", "unknown"),))
    assert asked(records, PolicySetting((invalid,))) == []
    spec = msgspec.structs.replace(ENFORCING.spec, victims=VictimRules(budget="Required"))
    required = msgspec.structs.replace(ENFORCING, spec=spec)
    assert asked(records, PolicySetting((required,))) == []  # no budget selects the pods
