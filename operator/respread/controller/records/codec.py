"""The history in the policies' records: what the next leader must know of what was done before.

It contains the groups in back-off, the evictions that count for `limits.perHour` and `limits.perHourPerGroup`, and the
failures in a row. Groups and situations are stored as digests: short names that are the same in every process. What is
called `now` is in seconds since the epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import UTC, datetime

import msgspec
from immutables import Map

from respread.api.fields import LATEST, MAX_COUNT
from respread.api.record import (
    MAX_BACK_OFFS,
    MAX_FAILURES,
    MAX_GROUP_EVICTIONS,
    FailuresInARow,
    GroupEvictionCount,
    RecentEvictions,
    Recorded,
    RecordedBackOff,
)
from respread.eviction.tallies import HOUR_SECONDS, MINUTE_SECONDS, EvictionHistory, GroupHistory
from respread.holds.backoff import PAUSE, BackOff, BackOffs, Breakers, Failures, delay_seconds
from respread.moves.codec import GroupsByNamespace, by_name, digest, group_name
from respread.spread.group import GroupKey, SpreadGroup


def situation_of(group: SpreadGroup) -> str:
    """Return a group's situation, in a form that is equal while it does not change: its pods and nodes per domain."""
    nodes = {domain: len(names) for domain, names in group.domains.nodes.items()}
    return digest([sorted(group.counts.items()), sorted(nodes.items())])


def recalled(
    records: Mapping[str, Recorded], groups: GroupsByNamespace, now: float
) -> tuple[BackOffs, EvictionHistory]:
    """Return what the policies' records contain.

    The author of a policy's record must not affect more than the policy does: the record of a RebalancePolicy only
    counts for groups of its own namespace. The records are by the policies' names.
    """
    named = by_name(groups)
    back_offs: dict[str, BackOff] = {}
    history = EvictionHistory()
    for policy, record in records.items():
        namespace = policy.rpartition("/")[0]
        for each in record.back_offs:
            known = back_offs.get(each.group)
            more = known is None or known.failures < each.failures
            if more and any(each.group in named(among) for among in ([namespace] if namespace else groups)):
                until = min(each.until.timestamp(), now + delay_seconds(each.group, each.failures))
                back_offs[each.group] = BackOff(each.failures, until, each.situation)
        for minute in sorted(record.recent_evictions, key=lambda each: each.minute):
            # As if all had been made at the end of their minute, so that rather too few evictions follow than too many.
            last = min(minute.minute.timestamp(), now) + MINUTE_SECONDS
            history = history.with_evictions([policy], last, minute.evictions)
    return BackOffs(Map(back_offs)), history


def back_offs_to_record(
    back_offs: BackOffs, groups: Iterable[GroupKey], name_of: Callable[[GroupKey], str] = group_name
) -> tuple[RecordedBackOff, ...]:
    """Return the back-offs for a policy's record, those with the most failures first."""
    names = map(name_of, groups) if back_offs.groups else ()
    found = [(name, known) for name in names if (known := back_offs.groups.get(name)) is not None]
    found.sort(key=lambda each: (-each[1].failures, -each[1].until, each[0]))
    return tuple(
        RecordedBackOff(
            group=name,
            failures=min(known.failures, MAX_FAILURES),
            until=min(_whole_seconds(known.until + 1), LATEST),  # Never earlier than the actual time.
            situation=known.situation,
        )
        for name, known in found[:MAX_BACK_OFFS]
    )


def evictions_to_record(history: EvictionHistory, policy: str, now: float) -> tuple[RecentEvictions, ...]:
    """Return the evictions of the last hour for a policy's record."""
    return tuple(
        RecentEvictions(minute=_whole_seconds(each.minute * MINUTE_SECONDS), evictions=each.evictions)
        for each in history.in_last_hour(policy, now)
    )


def without_one(record: Recorded, groups: Iterable[GroupKey], now: float) -> Recorded:
    """Return a policy's record without one of the evictions of the last hour that it counts.

    Of the evictions for the policy the first one goes. It was not made later than the one that is meant, so none is
    forgotten too early. The eviction counts for the groups.
    """
    names = frozenset(map(group_name, groups))
    first = min(
        (
            each
            for each in record.recent_evictions
            if each.evictions and min(each.minute.timestamp(), now) + MINUTE_SECONDS > now - HOUR_SECONDS
        ),
        key=lambda each: each.minute,
        default=None,
    )
    return msgspec.structs.replace(
        record,
        recent_evictions=tuple(
            msgspec.structs.replace(each, evictions=each.evictions - 1) if each is first else each
            for each in record.recent_evictions
        ),
        group_evictions=tuple(
            msgspec.structs.replace(each, evictions=each.evictions - 1)
            if each.group in names and each.evictions
            else each
            for each in record.group_evictions
        ),
    )


def recalled_failures(records: Mapping[str, Recorded], now: float) -> Breakers:
    """Return the failures in a row from the records by the policies' names.

    No pause is longer than possible, whatever a record contains.
    """
    found = {
        policy: Failures(
            tuple(dict.fromkeys(failed.workloads)),
            failed.pauses,
            0.0 if failed.paused_until is None else min(failed.paused_until.timestamp(), now + PAUSE.longest_seconds),
        )
        for policy, record in records.items()
        if (failed := record.failures_in_a_row).workloads
    }
    return Breakers(Map(found))


def failures_to_record(breakers: Breakers, policy: str) -> FailuresInARow:
    """Return the failures in a row for a policy's record."""
    known = breakers.policies.get(policy)
    if known is None:
        return FailuresInARow()
    return FailuresInARow(
        workloads=known.workloads,
        pauses=min(known.pauses, MAX_FAILURES),
        paused_until=_whole_seconds(known.until + 1) if known.until else None,  # Never earlier than the actual time.
    )


def recalled_group_history(records: Mapping[str, Recorded], groups: GroupsByNamespace, now: float) -> GroupHistory:
    """Return the evictions by group from the policies' records, as if all had been made with the last one.

    The record of a RebalancePolicy only counts for its own namespace.
    """
    named = by_name(groups)
    found: dict[str, tuple[str, GroupEvictionCount]] = {}
    for policy, record in records.items():
        namespace = policy.rpartition("/")[0]
        for each in record.group_evictions:
            known = found.get(each.group)
            more = known is None or known[1].evictions < each.evictions
            if more and (not namespace or each.group in named(namespace)):
                found[each.group] = policy, each
    history = GroupHistory()
    for policy, each in found.values():
        last = min(each.last.timestamp(), now) + MINUTE_SECONDS  # The end of its minute.
        history = history.with_evictions(policy, [each.group], last, each.evictions)
    return history


def group_evictions_to_record(history: GroupHistory, policy: str, now: float) -> tuple[GroupEvictionCount, ...]:
    """Return the last hour's evictions for groups for a policy's record, the highest number first."""
    found = [
        GroupEvictionCount(
            group=name,
            evictions=min(sum(each.evictions for each in minutes), MAX_COUNT),
            last=_whole_seconds(max(each.minute for each in minutes) * MINUTE_SECONDS),
        )
        for name, minutes in history.of_policy(policy, now)
    ]
    found.sort(key=lambda each: (-each.evictions, each.group))
    return tuple(found[:MAX_GROUP_EVICTIONS])


def without_expired(
    back_offs: BackOffs, groups: Mapping[GroupKey, SpreadGroup], busy: Collection[GroupKey], now: float
) -> BackOffs:
    """Forget the groups whose back-off is over and which are balanced or gone.

    A `busy` group, with a move in flight, is neither: without the evicted pod it may look balanced for the moment.
    """
    if not any(each.until <= now for each in back_offs.groups.values()):
        return back_offs
    needed = {group_name(key) for key, group in groups.items() if group.violated or key in busy}
    return BackOffs(Map({name: each for name, each in back_offs.groups.items() if each.until > now or name in needed}))


def _whole_seconds(seconds: float) -> datetime:
    return datetime.fromtimestamp(int(seconds), UTC)
