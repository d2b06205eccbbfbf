"""How Respread gives way to somebody else who removes or replaces its pod deletion costs again and again.

Two persistent writers would overwrite each other forever. So each time that costs of a ReplicaSet are lost, Respread
waits twice as long before it writes there again. It writes at once when pods of the ReplicaSet go, because the next
step of a scale-down may follow.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timedelta
from math import inf
from typing import Final

import msgspec
from immutables import Map

from respread.api.record import ContestedCosts, Recorded
from respread.cluster.pod import Pod
from respread.prevention.replica_set import CostSelection, ReplicaSetPods
from respread.timing import ClockReading, GrowingPause

WAIT: Final = GrowingPause(first_seconds=15.0, longest_seconds=3600.0)
WAIT_IF_REPLACING: Final = GrowingPause(first_seconds=15.0, longest_seconds=60.0)
"""The wait if the policy says that Respread's costs win. Others that sweep over the pods, such as Karpenter,
do so once a minute."""
FORGOTTEN_SECONDS: Final = 3600.0
"""Costs that have lasted for this long are not contested any more."""
REPEATED: Final = 2
"""Costs that were lost this often are contested. Once may be a person."""
HURRY_INTERVAL_SECONDS: Final = 10.0
"""The minimum time between two writes because pods go."""
MOST_TIMES: Final = 1000
_LONGEST_WRITER: Final = 128


class Contest(msgspec.Struct, frozen=True, kw_only=True):
    """What is known about somebody else who writes the costs of one ReplicaSet."""

    times: int
    """How often costs were lost after Respread had written them."""
    until: float
    """Before this time, Respread writes none; seconds on a monotonic clock."""
    until_time: datetime
    """The same time with a time zone."""
    lost_at: float
    """When a cost was last lost, on the clock."""
    writer: str = ""
    """The field manager of a cost that replaced one of Respread's; empty if costs were only removed."""
    hurried_at: float = -inf
    """When Respread last wrote without waiting, on the clock."""

    @property
    def repeated(self) -> bool:
        """Whether costs were lost so often that users should know."""
        return self.times >= REPEATED

    @property
    def forgotten_at(self) -> float:
        """When Respread's costs have lasted long enough if none is lost until then."""
        return max(self.until, self.lost_at) + FORGOTTEN_SECONDS

    def hurried(self, now: float, time: datetime) -> Contest:
        """Return it with the permission to write now, unless the last such permission is too young."""
        if self.until <= now or now < self.hurried_at + HURRY_INTERVAL_SECONDS:
            return self
        return msgspec.structs.replace(self, until=now, until_time=time, hurried_at=now)


def lost(before: Contest | None, writer: str, *, replacing: bool, again: bool, now: float, time: datetime) -> Contest:
    """Return what follows from another loss of costs.

    The writer is the field manager of the pod's cost, empty if it has none. Respread may be `replacing` the costs of
    others, and may have written one of these `again` since it last did so at once. `now` is on a monotonic clock.
    """
    if before is not None and (now < before.until or not again):
        # It is still about the costs that were written before the last wait began.
        return msgspec.structs.replace(before, lost_at=now, writer=writer or before.writer)
    times = 1 if before is None else min(before.times + 1, MOST_TIMES)
    wait_seconds = (WAIT_IF_REPLACING if replacing else WAIT).seconds(times)
    return Contest(
        times=times,
        until=now + wait_seconds,
        until_time=time + timedelta(seconds=wait_seconds),
        lost_at=now,
        writer=writer or ("" if before is None else before.writer),
        hurried_at=-inf if before is None else before.hurried_at,
    )


class Contests:
    """Recognizes them from one state of a ReplicaSet to the next."""

    def __init__(self, remembered: Mapping[str, Contest] = Map()) -> None:
        """Start with what is remembered, by the UIDs of ReplicaSets."""
        self._known = dict(remembered)
        self._seen: dict[str, ReplicaSetPods] = {}
        self._policies: dict[str, str] = {}
        """Of the ReplicaSets in `_known` that were seen."""
        self._written: dict[str, set[str]] = {}
        """By ReplicaSet, UIDs of pods to which Respread gave a cost that no snapshot has shown yet."""
        self._missed: dict[str, set[str]] = {}
        """Those among them that had lost it before a snapshot could show it."""
        self._older: dict[str, set[str]] = {}
        """By ReplicaSet, UIDs of pods whose costs are older than the last write without waiting."""
        self._lost: Counter[str] = Counter()
        self.version = 0
        """Another one as soon as `repeated` may have changed."""

    def observe(
        self,
        replica_set: ReplicaSetPods,
        may_have_ours: Callable[[Pod], bool],
        selection: CostSelection,
        now: float,
        time: datetime,
    ) -> Contest | None:
        """Take over the state of a ReplicaSet that a policy protects, and return what is known about other writers.

        `may_have_ours` returns whether a pod has, or may have, a cost of Respread. `now` is on a monotonic clock.
        """
        uid = replica_set.controller.uid
        before, contest = self._seen.get(uid), self._known.get(uid)
        self._seen[uid] = replica_set
        if taken := self._taken(replica_set, before, may_have_ours):
            self.version += 1
            writer = next((pod.deletion_cost_writer for pod in taken if pod.deletion_cost_writer), "")
            again = not self._older.get(uid, set()).issuperset(pod.uid for pod in taken)
            contest = lost(contest, writer, replacing=selection.replacing, again=again, now=now, time=time)
            self._lost[selection.policy] += len(taken)
        elif contest is not None and now >= contest.forgotten_at:
            contest = None
        if contest is None:
            if self._known.pop(uid, None) is not None:
                self._policies.pop(uid, None)
                self.version += 1
            return None
        fewer = before is not None and len(replica_set.pods) < len(before.pods)
        if fewer and not replica_set.on_its_way_out and (hurried := contest.hurried(now, time)) is not contest:
            had = {pod.uid for pod in replica_set.pods if pod.deletion_cost_is_ours}
            contest, self._older[uid] = hurried, had | self._written.get(uid, set())
        if contest != self._known.get(uid) or self._policies.get(uid) != selection.policy:
            self._known[uid], self._policies[uid] = contest, selection.policy
            self.version += 1
        return contest

    def written(self, replica_set: str, pod: Pod) -> None:
        """Record that the API server has accepted a cost for a pod that had none of Respread."""
        written = self._written.setdefault(replica_set, set())
        if pod.uid in written:
            self._missed.setdefault(replica_set, set()).add(pod.uid)
        written.add(pod.uid)
        self._older.get(replica_set, set()).discard(pod.uid)

    def forget(self, replica_set: str) -> None:
        """Forget a ReplicaSet that is gone or that no policy protects."""
        self.version += replica_set in self._policies
        for kept in (self._known, self._seen, self._policies, self._written, self._missed, self._older):
            kept.pop(replica_set, None)

    def take_lost(self) -> Counter[str]:
        """Return by policy how many costs were lost since the last call."""
        found, self._lost = self._lost, Counter()
        return found

    def repeated(self) -> dict[str, tuple[ContestedCosts, ...]]:
        """Return the ReplicaSets whose costs were lost more than once, by the policies' names.

        Those that were lost most often are first.
        """
        found: defaultdict[str, list[ContestedCosts]] = defaultdict(list)
        for uid, policy in self._policies.items():
            if (contest := self._known[uid]).repeated:
                found[policy].append(_recorded(self._seen[uid], contest))
        return {
            policy: tuple(sorted(each, key=lambda one: (-one.times, one.namespace, one.name, one.replica_set)))
            for policy, each in found.items()
        }

    def _taken(
        self, replica_set: ReplicaSetPods, before: ReplicaSetPods | None, may_have_ours: Callable[[Pod], bool]
    ) -> list[Pod]:
        """Return the pods that had a cost of Respread and lost it."""
        uid = replica_set.controller.uid
        unseen = self._written.pop(uid, set())
        had = unseen.union(() if before is None else (pod.uid for pod in before.pods if pod.deletion_cost_is_ours))
        if not had:
            return []
        missed = self._missed.pop(uid, set())
        gone = [pod for pod in replica_set.pods if pod.uid in had and not may_have_ours(pod)]
        here = {pod.uid for pod in replica_set.pods if not pod.deletion_cost_is_ours}
        if unseen := unseen & here - {pod.uid for pod in gone}:
            self._written[uid] = unseen
        return gone + [pod for pod in replica_set.pods if pod.uid in missed]


# Records


def _recorded(replica_set: ReplicaSetPods, contest: Contest) -> ContestedCosts:
    return ContestedCosts(
        namespace=replica_set.namespace,
        kind=replica_set.workload.kind,
        name=replica_set.workload.name,
        replica_set=replica_set.controller.uid,
        writer=contest.writer[:_LONGEST_WRITER],
        times=contest.times,
        until=contest.until_time.replace(microsecond=0),
    )


def recalled_contests(records: Iterable[Recorded], moment: ClockReading) -> Contests:
    """Return what an earlier leader has recorded. A time further away than any wait means that a clock was set."""
    return Contests(
        {each.replica_set: _recalled(each, moment) for record in records for each in record.contested_costs}
    )


def _recalled(each: ContestedCosts, moment: ClockReading) -> Contest:
    left = (each.until - moment.time_of_day).total_seconds()
    wait_seconds = left if 0 < left <= WAIT.longest_seconds else 0.0
    return Contest(
        times=each.times, until=moment.now + wait_seconds, until_time=each.until, lost_at=moment.now, writer=each.writer
    )
