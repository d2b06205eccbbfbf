"""What was done for the policies, and its outcomes, as far as it affects the next decisions or is reported."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from datetime import UTC, datetime
from typing import Final, NamedTuple

import msgspec
from immutables import Map

from respread.api.fields import MAX_COUNT
from respread.api.policy import Policy
from respread.api.reasons import Held, Reason
from respread.api.record import MoveInFlight, Recorded, RecordedBackOff
from respread.cluster.pod import Pod, workload_of
from respread.cluster.state import ClusterSnapshot
from respread.controller.records.codec import (
    back_offs_to_record,
    evictions_to_record,
    failures_to_record,
    group_evictions_to_record,
    recalled,
    recalled_failures,
    recalled_group_history,
    situation_of,
    without_expired,
)
from respread.eviction.limiter import GroupPace
from respread.eviction.standing import Standings, Trust
from respread.eviction.tallies import EvictionHistory, GroupHistory
from respread.holds.backoff import BackOffs, Breakers
from respread.moves.codec import GroupNames, GroupsByNamespace
from respread.moves.entry import Counting, Ended, Outcome
from respread.planning.plan import Move
from respread.planning.victims.protection import is_active
from respread.spread.group import GroupKey, SpreadGroup

LATE_SECONDS: Final = 60.0
"""A move that ends sooner without a Ready replacement was not given up on: no replacement was wanted."""


class _Counts(NamedTuple):
    """The evictions of the last hour."""

    of_policies: EvictionHistory = EvictionHistory()
    of_groups: GroupHistory = GroupHistory()


class History:
    """The leader's memory. A new leader starts with the contents of the records."""

    def __init__(self, wall_clock: Callable[[], float], expected: Callable[[], tuple[Counting, ...]] = tuple) -> None:
        """Start empty. `expected` returns what moves count for of which it is not certain whether they are made."""
        self._wall_clock = wall_clock
        self.back_offs = BackOffs()
        self.breakers = Breakers()
        self.standings = Standings()
        self.trust = Trust()
        self._awaiting: set[str] = set()
        """The policies whose replacements that are not Ready are waited for, instead of a trial."""
        self._trials: dict[str, tuple[ClusterSnapshot, Breakers, Pod | None]] = {}
        """By policy, what `_trial` found last: every move of a paused policy asks for it."""
        self._counts = _Counts()
        self._expected = expected
        self._with_expected: tuple[tuple[Counting, ...], _Counts, _Counts] | None = None
        """The counts, with what is expected, of these; kept while neither changes."""
        self._names = GroupNames()
        self.evicted: Counter[str] = Counter()
        """All evictions so far by policy, including those of earlier leaders."""
        self.last_eviction_time: dict[str, datetime] = {}
        """When this process last evicted, by policy."""

    def recall(self, records: Mapping[str, Recorded], groups: GroupsByNamespace, evicted: Mapping[str, int]) -> None:
        """Start again with what earlier leaders have written, and all evictions so far, by the policies' names."""
        now = self._wall_clock()
        self.back_offs, of_policies = recalled(records, groups, now)
        self.breakers = recalled_failures(records, now)
        self._counts = _Counts(of_policies, recalled_group_history(records, groups, now))
        self.evicted = Counter(evicted)
        self.last_eviction_time = {}

    def at(self, seconds: float, expected: tuple[Counting, ...]) -> History:
        """Return what is known now as a value, as of a time in seconds since the epoch, with what moves count for."""
        frozen = copy(self)
        frozen.evicted = self.evicted.copy()
        frozen.last_eviction_time = self.last_eviction_time.copy()
        frozen._wall_clock = lambda: seconds  # noqa: SLF001 - our own class
        frozen._expected = lambda: expected  # noqa: SLF001 - our own class
        return frozen

    def forget_others(self, policies: Collection[str]) -> None:
        """Forget what was done for other policies than these."""
        for names in (self.evicted, self.last_eviction_time):
            for gone in names.keys() - set(policies):
                del names[gone]
        minutes = {name: each for name, each in self._counts.of_policies.minutes.items() if name in policies}
        self._counts = self._counts._replace(of_policies=EvictionHistory(Map(minutes)))
        for gone in set(self.breakers.policies) - set(policies):
            self.breakers = self.breakers.succeeded(gone)

    # Groups

    def learn(self, ended: Ended, groups: Mapping[GroupKey, SpreadGroup], policy: Policy | None) -> None:
        """Record the outcome of a move: its groups back off unless it improved them, or no replacement is wanted.

        The policy is None if it is gone.
        """
        now = self._wall_clock()
        if (ready := was_ready(ended)) is not None:
            self.standings = self.standings.with_end(ended.move.pod.namespace, ready=ready)
            self.trust = self.trust.with_end(ended.move.workload, now, ready=ready, seconds=ended.seconds)
        if ended.outcome is Outcome.IMPROVED:
            return  # Until it is known to last.
        for key in ended.move.groups if ended.failed or ended.unmade else ():
            if (group := groups.get(key)) is not None:
                name, situation = self._names.of(key), situation_of(group)
                self.back_offs = self.back_offs.failed(name, situation, now, took_seconds=ended.seconds)
        if policy is not None and ended.failed:
            most = policy.spec.limits.failures_in_a_row
            self.breakers = self.breakers.failed(policy.name, ended.move.workload, most, now)
        else:
            self.learn_undecided(policy)

    def learn_lasting(self, move: Move) -> None:
        """Record that a move has improved its groups lastingly: earlier failures are forgotten."""
        for key in move.groups:
            self.back_offs = self.back_offs.improved(self._names.of(key))
        self.breakers = self.breakers.succeeded(move.policy)

    def learn_undecided(self, policy: Policy | None) -> None:
        """Record that a move was neither a success nor a failure. If it was the one that was tried, the pause repeats.

        The policy is None if it is gone.
        """
        if policy is not None:
            most = policy.spec.limits.failures_in_a_row
            self.breakers = self.breakers.undecided(policy.name, most, self._wall_clock())

    def forget_other_namespaces(self, namespaces: Collection[str]) -> None:
        """Forget the standings of other namespaces than these."""
        self.standings = self.standings.among(namespaces)

    def forget_expired(self, groups: Mapping[GroupKey, SpreadGroup], busy: Collection[GroupKey]) -> None:
        """Forget what no longer matters about groups that are balanced or gone and have no move in flight."""
        now = self._wall_clock()
        self.trust = self.trust.without_old(now)
        self.back_offs = without_expired(self.back_offs, groups, busy, now)
        self._counts = self._counts._replace(of_groups=self._counts.of_groups.without_old(now))
        self._names.keep(groups)

    def why_left_alone(self, group: SpreadGroup) -> Held | None:
        """Return why a group is left alone, or None if it is not."""
        name = self._names.of(group.key) if self.back_offs.groups else ""
        if name not in self.back_offs.groups:
            return None
        return self.back_offs.held(name, situation_of(group), self._wall_clock())

    def pace_of(self, group: SpreadGroup) -> GroupPace:
        """Return the evictions of a group for `limits.perHourPerGroup`."""
        made = 0
        if (history := self.group_history).policies:
            made = history.in_last_hour(self._names.of(group.key), self._wall_clock())
        return GroupPace(sum(group.counts.values()), made)

    # Policies

    def paused(self, policy: Policy, namespace: str | None = None) -> Held | None:
        """Return why a policy evicts nothing now, as a whole or in a namespace, or None if failures don't pause it."""
        return self.breakers.paused(policy.name, policy.spec.limits.failures_in_a_row, self._wall_clock(), namespace)

    def follow_trials(self, policies: Mapping[str, Policy], snapshot: ClusterSnapshot) -> Sequence[Policy]:
        """Record that policies succeed again if the replacements that were not Ready are now, and return them."""
        self._trials = {}
        resumed: list[Policy] = []
        for name in self.breakers.policies:
            policy = policies.get(name)
            if policy is None or self.single(policy) is None:
                continue
            if self._trial(policy, snapshot) is not None:
                self._awaiting.add(name)
            elif name in self._awaiting:
                self._awaiting.discard(name)
                self.breakers = self.breakers.succeeded(name)
                resumed.append(policy)
        return resumed

    def _trial(self, policy: Policy, snapshot: ClusterSnapshot) -> Pod | None:
        """Return a pod of a workload that has failed for a policy, which is not Ready; None if there is none."""
        known = self._trials.get(policy.name)
        if known is not None and known[0] is snapshot and known[1] is self.breakers:
            return known[2]
        namespaces = self.breakers.failing_namespaces(policy.name)
        found = next(
            (
                pod
                for namespace in sorted(namespaces)
                for pods in snapshot.pods_by_controller.get(namespace, Map()).values()
                for pod in pods.values()
                if is_active(pod) and not pod.ready and self.breakers.has_failed(policy.name, workload_of(pod))
            ),
            None,
        )
        self._trials[policy.name] = snapshot, self.breakers, found
        return found

    def why_not_tried(
        self, policy: Policy, namespace: str, undecided: Collection[str], snapshot: ClusterSnapshot
    ) -> Held | None:
        """Return why nothing is evicted in a namespace after moves of a policy failed in a row, or None if it may be.

        In `undecided` namespaces, its moves are in flight or not known to be a lasting success. Namespaces where
        something has already failed don't delay others.
        """
        if (single := self.single(policy)) is None:
            return None
        most = policy.spec.limits.failures_in_a_row
        if (held := self.breakers.paused(policy.name, most, self._wall_clock(), namespace)) is not None:
            return held
        failing = self.breakers.failing_namespaces(policy.name)
        if namespace in failing and (trial := self._trial(policy, snapshot)) is not None:
            return Held(
                Reason.PAUSED,
                f"{single.message.rpartition('; ')[0]}; {trial.key} is not Ready: no other pod is tried before it is",
            )
        awaited = set(undecided) if namespace in failing else set(undecided) - failing
        return single if awaited else None

    def single(self, policy: Policy) -> Held | None:
        """Return why no more than one pod is tried for a policy, or None if failures don't restrict it."""
        return self.breakers.single(policy.name, policy.spec.limits.failures_in_a_row)

    # Evictions

    def serve(self, namespace: str) -> None:
        """Record that a pod of a namespace was evicted, or may have been."""
        self.standings = self.standings.with_eviction(namespace)

    @property
    def history(self) -> EvictionHistory:
        """The evictions that count for `limits.perHour`, including expected ones."""
        return self._all().of_policies

    @property
    def group_history(self) -> GroupHistory:
        """The evictions for spread groups, including expected ones."""
        return self._all().of_groups

    def count(self, move: Counting) -> None:
        """Count a move that was made, or may have been."""
        self._counts = self._counting(self._counts, move, self._wall_clock())

    def made(self, policy: str) -> None:
        """Record that the API server has confirmed an eviction for a policy."""
        self.evicted[policy] = min(self.evicted[policy] + 1, MAX_COUNT)
        self.last_eviction_time[policy] = datetime.fromtimestamp(self._wall_clock(), UTC)

    def _all(self) -> _Counts:
        expected, known = self._expected(), self._with_expected
        if known is not None and known[1] is self._counts and (known[0] is expected or known[0] == expected):
            return known[2]
        counts, now = self._counts, self._wall_clock()
        for each in expected:
            counts = self._counting(counts, each, now)
        self._with_expected = expected, self._counts, counts
        return counts

    def _counting(self, counts: _Counts, move: Counting, now: float) -> _Counts:
        return _Counts(
            counts.of_policies.with_evictions(move.bounded, now),
            counts.of_groups.with_evictions(move.policy, map(self._names.of, move.groups), now),
        )

    # Records

    def recorded_back_offs(self, groups: Iterable[GroupKey]) -> tuple[RecordedBackOff, ...]:
        """Return the back-offs of a policy's groups for its record."""
        return back_offs_to_record(self.back_offs, groups, self._names.of)

    def in_record(self, policy: Policy, record: Recorded, moves: tuple[MoveInFlight, ...]) -> Recorded:
        """Return a policy's record with the evictions of the last hour and the failures as they are now.

        If no limit needs the evictions by minute, there are none. An invalid policy keeps them, because its limits may
        be what is invalid.
        """
        now, unlimited = self._wall_clock(), policy.spec.limits.per_hour is None and not policy.problems
        return msgspec.structs.replace(
            record,
            recent_evictions=() if unlimited else evictions_to_record(self.history, policy.name, now),
            group_evictions=group_evictions_to_record(self.group_history, policy.name, now),
            failures_in_a_row=failures_to_record(self.breakers, policy.name),
            moves_in_flight=moves,
        )


def was_ready(ended: Ended) -> bool | None:
    """Return whether a move's replacement was Ready; None if none was wanted."""
    if ended.outcome is Outcome.NOT_READY:
        return False
    if ended.replacement is not None and ended.replacement.ready:
        return True
    return None if ended.seconds < LATE_SECONDS else False
