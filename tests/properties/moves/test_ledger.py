"""Whatever happens to moves, in whatever order, the ledger knows each of them exactly once.

It is compared with the plainest bookkeeping that there is: a dictionary of what was said about each pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from random import Random
from typing import Any

import msgspec
import pytest
from immutables import Map

from respread.api.record import Recorded, decode_record, encode_record
from respread.cluster.meta import OwnerReference
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot
from respread.moves.codec import RecordedMoves, group_name, recorded_moves
from respread.moves.entry import CERTAIN_SECONDS, Ended, MovePhase, Outcome
from respread.moves.ledger import Ledger
from respread.planning.plan import Move
from respread.timing import ClockReading
from tests.eviction_moves import SPEC, group, move
from tests.properties.instances import factor
from tests.worlds import NOW, cluster, pod

EVENTS = 100
BEGAN = NOW.timestamp()
GROUPS = {group_name(key): key for key in map(group, ("web", "api"))}


class Story:
    """Random events about the pods of some controllers, told to a ledger and to a dictionary."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.moves = [self._move(number) for number in range(8)]
        self.there = {each.pod.uid: each.pod for each in self.moves}
        self.came: dict[str, Pod] = {}
        self.ledger = Ledger()
        self.plain: dict[str, MovePhase] = {}
        self.sent: list[str] = []
        """The pods in flight in the order in which their evictions were sent."""
        self.counts: dict[str, set[str]] = {}
        """By pod, the policies for which it counts until it is certain whether it was evicted."""
        self.doubted: set[str] = set()
        self.seconds = 0.0
        self.checked = self.ledger
        self.sent_then: set[str] = set()

    def _move(self, number: int) -> Move:
        app, namespace = f"app-{number % 3}", f"team-{number % 2}"
        owner = OwnerReference("apps/v1", "ReplicaSet", app, f"uid-{namespace}-{app}")
        victim = pod(
            f"{app}-{number}", f"node-{number % 4}", SPEC, labels=Map(app=app), namespace=namespace, controller=owner
        )
        groups = tuple(map(group, self.random.sample(("web", "api"), self.random.randint(1, 2))))
        policy = self.random.choice(("default", "other"))
        return move(victim, policy=policy, groups=groups, from_domains=("zone-a",) * len(groups), component=number)

    @property
    def snapshot(self) -> ClusterSnapshot:
        return cluster([], [*self.there.values(), *self.came.values()])

    @property
    def now(self) -> tuple[float, float]:
        return self.seconds, BEGAN + self.seconds

    # Events

    def choose(self, each: Move) -> None:
        if each.pod.uid not in self.plain and each.pod.uid in self.there:
            bounded = (each.policy, self.random.choice(("one", "two")))
            self.ledger = self.ledger.with_chosen([each], self.snapshot, *self.now, {each.pod.uid: bounded})
            self.plain[each.pod.uid] = MovePhase.CHOSEN
            self.counts.setdefault(each.pod.uid, set()).update(bounded)

    def record(self, each: Move) -> None:
        self.ledger = self.ledger.recorded(each)
        if self.plain.get(each.pod.uid) is MovePhase.CHOSEN:
            self.plain[each.pod.uid] = MovePhase.RECORDED

    def drop(self, each: Move) -> None:
        self.ledger = self.ledger.forgotten(each)
        if self.plain.get(each.pod.uid, MovePhase.OWED) < MovePhase.OWED:
            phase = self.plain.pop(each.pod.uid)
            if phase is MovePhase.CHOSEN and each.pod.uid not in self.doubted:
                del self.counts[each.pod.uid]

    def send(self, each: Move) -> None:
        if self.plain.get(each.pod.uid) is MovePhase.RECORDED:
            self.ledger = self.ledger.sent(each, self.snapshot, *self.now)
            self.plain[each.pod.uid] = MovePhase.SENT
            self.sent.append(each.pod.uid)

    def answer(self, each: Move) -> None:
        uid, made = each.pod.uid, self.random.choice((True, None, False))
        if self.plain.get(uid, MovePhase.CHOSEN) not in {MovePhase.OWED, MovePhase.SENT}:
            return
        self.ledger = self.ledger.answered(each, made, self.seconds)
        if made is False:
            del self.plain[uid]
            self.sent.remove(uid)
        else:
            self.plain[uid] = MovePhase.EVICTED if made else MovePhase.SENT

    def doubt(self, each: Move) -> None:
        if each.pod.uid in self.there:
            self.ledger = self.ledger.doubted(each, self.seconds)
            self.doubted |= {each.pod.uid} & self.counts.keys()

    def settle(self, each: Move) -> None:
        """It is certain for a move that was answered, and for one that is over."""
        if self.plain.get(each.pod.uid, MovePhase.EVICTED) >= MovePhase.EVICTED:
            self.ledger = self.ledger.settled(each)
            self.counts.pop(each.pod.uid, None)
            self.doubted.discard(each.pod.uid)

    def leave(self, each: Move) -> None:
        if self.plain.get(each.pod.uid, MovePhase.CHOSEN) >= MovePhase.SENT:
            self.there.pop(each.pod.uid, None)

    def replace(self, each: Move) -> None:
        if each.pod.uid not in self.there:
            new: dict[str, Any] = {"name": f"{each.pod.name}-new", "uid": f"{each.pod.uid}-new"}
            new |= self.random.choice((
                {"node_name": "", "ready": False}, {"node_name": "n", "ready": False}, {"node_name": "n", "ready": True}
            ))  # fmt: skip
            self.came[each.pod.uid] = msgspec.structs.replace(each.pod, creation_timestamp=NOW, **new)

    def watch(self, _: Move) -> None:
        before = self.ledger
        self.ledger, over = before.updated(self.snapshot, self.seconds, lambda *_: Outcome.IMPROVED)
        began, ended = self.ledger.since(before)
        assert began == []
        assert {each.pod.uid for each in ended} == {each.move.pod.uid for each in over}
        assert all(each.replacement is not None and each.replacement.ready for each in over)
        self._end(over)
        for entry in self.ledger.in_flight:
            if entry.uid in self.there:
                assert entry.phase is self.plain[entry.uid], "nothing happened to it"
            else:
                assert entry.phase >= MovePhase.LEAVING
                self.plain[entry.uid] = entry.phase
        made = {uid for uid, phase in self.plain.items() if phase >= MovePhase.EVICTED}
        made |= {each.pod.uid for each in ended}
        assert {each.uid for each in self.ledger.confirmed} == self.doubted & made
        for entry in self.ledger.confirmed:
            self.settle(entry.move)

    def _end(self, over: tuple[Ended, ...]) -> None:
        for each in over:
            del self.plain[each.move.pod.uid]
            self.sent.remove(each.move.pod.uid)

    # What must hold

    def check(self) -> None:
        ledger, known = self.ledger, {each.pod.uid: each for each in self.moves}
        entries = {uid: found for uid, each in known.items() if (found := ledger.of(each)) is not None}
        assert [each.uid for each in ledger.in_flight] == self.sent, "in the order in which they were sent"
        assert {each.uid: each.phase for each in ledger.under_way} == self.plain
        assert len(ledger) == len(self.sent)
        assert ledger.unmade == ledger.uncertain == (MovePhase.SENT in self.plain.values())
        began, ended = ({each.pod.uid for each in which} for which in ledger.since(self.checked))
        assert began == set(self.sent) - self.sent_then
        assert ended == self.sent_then - set(self.sent)
        self.checked, self.sent_then = ledger, set(self.sent)
        assert {each.uid for each in ledger.on_record} == {
            uid for uid, phase in self.plain.items() if phase is not MovePhase.CHOSEN
        }
        assert {uid: set(found.counts.bounded) for uid, found in entries.items() if found.counts} == self.counts
        certain = {uid for uid, phase in self.plain.items() if phase is MovePhase.CHOSEN} - self.doubted
        assert len(ledger.expected) == len(self.counts.keys() - certain)
        assert len(ledger.expected_with_chosen) == len(self.counts)
        assert {uid for uid, found in entries.items() if found.doubted_at is not None} == self.doubted
        over = self.counts.keys() - self.plain.keys()
        assert {each.uid for each in ledger.due(self.seconds + CERTAIN_SECONDS)} == over & self.doubted
        views: tuple[Callable[[Move], object], ...] = (
            lambda each: each.policy,
            lambda each: each.groups,
            lambda each: each.pod.namespace,
            lambda each: each.workload,
            lambda each: each.pod.node_name,
        )
        assert ledger.of_policies == Counter(known[uid].policy for uid in self.plain)
        for view in views:
            assert Counter(map(view, ledger.moves)) == Counter(view(known[uid]) for uid in self.plain)
        for each in self.moves:
            assert each.pod.controller is not None
            mine = {uid for uid in self.sent if known[uid].pod.controller == each.pod.controller}
            assert ledger.leaving(each.pod.controller.uid) == mine
        shown = ledger.overlay(self.snapshot).pods.values()
        assert {each.uid for each in shown if each.terminating} == self.plain.keys() & self.there.keys()
        self.check_records()

    def check_records(self) -> None:
        """The next leader knows the same of every move that may have been made, by the records alone."""
        snapshot = self.snapshot
        records = {
            policy: decode_record(encode_record(Recorded(moves_in_flight=moves)))
            for policy, moves in RecordedMoves().of(self.ledger, snapshot).items()
        }
        moment = ClockReading(self.seconds, BEGAN + self.seconds)
        found = recorded_moves(records, snapshot, lambda _: GROUPS, moment)
        resumed = Ledger().resumed(found)
        before = {each.uid: each for each in self.ledger.on_record}
        assert {each.uid for each in resumed.in_flight} == before.keys()
        for each in resumed.in_flight:
            was = before[each.uid]
            assert (each.move.policy, each.move.groups, each.move.from_domains) == (
                was.move.policy,
                was.move.groups,
                was.move.from_domains,
            )
            assert each.time_sent == datetime.fromtimestamp(int(was.sent_time), UTC)
            siblings = {each.uid for each in (*self.there.values(), *self.came.values())}
            assert each.known & siblings <= was.known, "no replacement is overlooked"


@pytest.mark.parametrize("seed", range(60 * factor()))
def test_the_ledger_knows_every_move_once_whatever_happens(seed: int) -> None:
    story = Story(seed)
    weights = {
        story.choose: 4,
        story.record: 4,
        story.send: 4,
        story.answer: 3,
        story.drop: 1,
        story.doubt: 2,
        story.settle: 2,
        story.leave: 2,
        story.replace: 2,
        story.watch: 2,
    }
    for _ in range(EVENTS):
        story.seconds += 0.5
        (event,) = story.random.choices([*weights], [*weights.values()])
        event(story.random.choice(story.moves[: story.random.choice((2, 8))]))  # some get through all phases
        story.check()
