"""What was done in the policies' names and came of it, as far as it decides what is done next, or is told."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Final

from respread.api.policy import Policy
from respread.api.status import MAX_COUNT, PolicyStatus, RecentEvictions, RememberedBackOff
from respread.eviction.backoff import BackOffRules, BackOffs
from respread.eviction.in_flight import Ended
from respread.eviction.outcomes import Outcome
from respread.eviction.pacing import EvictionHistory
from respread.eviction.standing import Standings
from respread.handlers.memory import (
    GroupsByNamespace,
    back_offs_to_remember,
    evictions_to_remember,
    group_name,
    recalled,
    situation_of,
    without_settled,
)
from respread.planning.held import Held
from respread.spread.group import GroupKey, SpreadGroup

LATE_SECONDS: Final = 60.0
"""What ends sooner without a replacement that is Ready has not been given up on: none was wanted."""


class Record:
    """The leader's memory. A new leader begins with what the statuses say."""

    __slots__ = ("_evicted", "_last_eviction", "_wall_clock", "back_offs", "history", "standings")

    def __init__(self, wall_clock: Callable[[], float], rules: BackOffRules | None = None) -> None:
        """Remember nothing yet.

        Args:
            wall_clock: seconds since the epoch.
            rules: how long groups are left alone.
        """
        self._wall_clock = wall_clock
        self.back_offs = BackOffs(rules or BackOffRules())
        self.history = EvictionHistory()
        self.standings = Standings()
        self._evicted: Counter[str] = Counter()
        self._last_eviction: dict[str, datetime] = {}

    def recall(self, statuses: Mapping[str, PolicyStatus], groups: GroupsByNamespace) -> None:
        """Begin anew with what the policies' statuses say.

        Args:
            statuses: by the policies' names.
            groups: the spread groups there are, by namespace.
        """
        self.back_offs, self.history = recalled(statuses, self.back_offs.rules, groups, self._wall_clock())
        self._evicted = Counter({policy: status.summary.evicted for policy, status in statuses.items()})
        self._last_eviction = {}

    def forget_others(self, policies: Collection[str]) -> None:
        """Forget what was done in the names of policies other than these."""
        for names in (self._evicted, self._last_eviction):
            for gone in names.keys() - set(policies):
                del names[gone]
        for gone in set(self.history.minutes) - set(policies):
            self.history = EvictionHistory(self.history.minutes.delete(gone))

    # Groups

    def learn(self, ended: Ended, groups: Mapping[GroupKey, SpreadGroup]) -> None:
        """Note what became of a move: its groups are left alone unless it improved them."""
        if (ready := was_ready(ended)) is not None:
            self.standings = self.standings.with_end(ended.move.pod.namespace, ready=ready)
        for key in ended.move.groups:
            if (group := groups.get(key)) is None:
                continue
            if ended.outcome is Outcome.IMPROVED:
                self.back_offs = self.back_offs.improved(group_name(key))
            else:
                self.back_offs = self.back_offs.failed(group_name(key), situation_of(group), self._wall_clock())

    def forget_other_namespaces(self, namespaces: Collection[str]) -> None:
        """Forget how namespaces other than these stood."""
        self.standings = self.standings.among(namespaces)

    def forget_settled(self, groups: Mapping[GroupKey, SpreadGroup], busy: Collection[GroupKey]) -> None:
        """Forget what no longer matters of groups that are balanced or gone and have no move under way."""
        self.back_offs = without_settled(self.back_offs, groups, busy, self._wall_clock())

    def why_left_alone(self, group: SpreadGroup) -> Held | None:
        """Return why a group is left alone, or None if it is not."""
        name = group_name(group.key) if self.back_offs.groups else ""
        if name not in self.back_offs.groups:
            return None
        return self.back_offs.held(name, situation_of(group), self._wall_clock())

    # Evictions

    def serve(self, namespace: str) -> None:
        """Note that a pod of a namespace was evicted, or may have been."""
        self.standings = self.standings.with_eviction(namespace)

    def count(self, policy: str, bounded: Iterable[str], *, certain: bool) -> None:
        """Count an eviction that was made, or may have been.

        Args:
            policy: in whose name.
            bounded: names of the policies whose `limits.perHour` it counts for.
            certain: whether the API server said that it was made.
        """
        now = self._wall_clock()
        self.history = self.history.with_evictions(bounded, now)
        if certain:
            self._evicted[policy] = min(self._evicted[policy] + 1, MAX_COUNT)
            self._last_eviction[policy] = datetime.fromtimestamp(now, UTC)

    @property
    def evicted(self) -> Mapping[str, int]:
        """All evictions so far by policy, those of earlier leaders included."""
        return self._evicted

    @property
    def last_eviction_time(self) -> Mapping[str, datetime]:
        """When this process last evicted, by policy."""
        return self._last_eviction

    # Statuses

    def remembered_back_offs(self, groups: Iterable[GroupKey]) -> tuple[RememberedBackOff, ...]:
        """Return what a policy's status is to say of the groups that it restores."""
        return back_offs_to_remember(self.back_offs, groups)

    def recent_evictions(self, policy: Policy) -> tuple[RecentEvictions, ...]:
        """Return what a policy's status is to say of the last hour; nothing where no limit asks for it.

        A policy that is wrong somewhere keeps it: what it says of limits may be what is wrong.
        """
        if not policy.spec.limits.per_hour and not policy.problems:
            return ()
        return evictions_to_remember(self.history, policy.name, self._wall_clock())


def was_ready(ended: Ended) -> bool | None:
    """Return whether a move's replacement was Ready; None if none was wanted, which tells nothing of its namespace."""
    if ended.replacement is not None and ended.replacement.ready:
        return True
    return None if ended.seconds < LATE_SECONDS else False
