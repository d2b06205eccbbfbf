"""What a leader has to know of what was done before it came: kept in the policies' statuses.

Which groups are left alone because moves did not improve them, and how many evictions count for `limits.perHour`.
Groups and situations are kept as digests: names that are the same in every process, and short.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from immutables import Map

from respread.api.status import MAX_BACK_OFFS, PolicyStatus, RecentEvictions, RememberedBackOff
from respread.eviction.backoff import BackOff, BackOffRules, BackOffs
from respread.eviction.pacing import EvictionHistory
from respread.spread.group import GroupKey, SpreadGroup

_MINUTE_SECONDS: Final = 60


def group_name(key: GroupKey) -> str:
    """Return a name for a group that is the same in every process."""
    return _digest(key)


def situation_of(group: SpreadGroup) -> str:
    """Return how things stand for a group, in a form that is equal while they do: its pods and nodes per domain."""
    nodes = {domain: len(names) for domain, names in group.domains.nodes.items()}
    return _digest([sorted(group.counts.items()), sorted(nodes.items())])


def recalled(statuses: Mapping[str, PolicyStatus], rules: BackOffRules) -> tuple[BackOffs, EvictionHistory]:
    """Return what the policies' statuses remember.

    Args:
        statuses: by the policies' names.
        rules: how long groups are left alone.
    """
    groups: dict[str, BackOff] = {}
    times: dict[str, tuple[float, ...]] = {}
    for policy, status in statuses.items():
        for each in status.back_offs:
            known = groups.get(each.group)
            if known is None or known.failures < each.failures:
                groups[each.group] = BackOff(each.failures, each.until.timestamp(), each.situation)
        if status.recent_evictions:
            # as if all had been made at the end of their minute: rather too few evictions than too many
            times[policy] = tuple(
                each.minute.timestamp() + _MINUTE_SECONDS
                for each in sorted(status.recent_evictions, key=lambda each: each.minute)
                for _ in range(each.evictions)
            )
    return BackOffs(rules, Map(groups)), EvictionHistory(Map(times))


def back_offs_to_remember(back_offs: BackOffs, groups: Iterable[GroupKey]) -> tuple[RememberedBackOff, ...]:
    """Return what a policy's status is to say of its groups, those that failed most often first."""
    names = (group_name(key) for key in groups) if back_offs.groups else ()
    found = [(name, known) for name in names if (known := back_offs.groups.get(name)) is not None]
    found.sort(key=lambda each: (-each[1].failures, -each[1].until, each[0]))
    return tuple(
        RememberedBackOff(
            group=name,
            failures=known.failures,
            until=_whole_seconds(known.until + 1),  # never earlier than it is
            situation=known.situation,
        )
        for name, known in found[:MAX_BACK_OFFS]
    )


def evictions_to_remember(history: EvictionHistory, policy: str, now: float) -> tuple[RecentEvictions, ...]:
    """Return what a policy's status is to say of its evictions in the last hour.

    Args:
        history: when evictions were made.
        policy: the policy's name.
        now: seconds since the epoch.
    """
    minutes = Counter(int(time // _MINUTE_SECONDS) for time in history.in_last_hour(policy, now))
    # Minutes beyond those of an hour are there only after a clock was set back: they become one.
    kept = sorted(minutes)[-_MINUTE_SECONDS:]
    older = sum(count for minute, count in minutes.items() if minute not in set(kept))
    return tuple(
        RecentEvictions(
            minute=_whole_seconds(minute * _MINUTE_SECONDS),
            evictions=minutes[minute] + (older if minute == kept[0] else 0),
        )
        for minute in kept
    )


def without_settled(
    back_offs: BackOffs, groups: Mapping[GroupKey, SpreadGroup], busy: Collection[GroupKey], now: float
) -> BackOffs:
    """Forget the groups whose time is over and which are balanced or gone.

    A group with a move under way is neither: with its pod gone it may look balanced for the moment.

    Args:
        back_offs: what is remembered.
        groups: as they stand.
        busy: groups with moves under way.
        now: seconds since the epoch.
    """
    if not any(each.until <= now for each in back_offs.groups.values()):
        return back_offs
    unsettled = {group_name(key) for key, group in groups.items() if group.violated or key in busy}
    waiting = {name for name, each in back_offs.groups.items() if each.until > now}
    return back_offs.without_others(unsettled | waiting)


def _digest(value: Any) -> str:
    encoded = msgspec.json.encode(value, enc_hook=_sorted_map)
    return hashlib.blake2b(encoded, digest_size=16).hexdigest()


def _sorted_map(value: Any) -> dict[Any, Any]:
    if isinstance(value, Map):
        return dict(sorted(value.items()))
    raise NotImplementedError(f"no stable form of a {type(value).__name__} is known")


def _whole_seconds(seconds: float) -> datetime:
    return datetime.fromtimestamp(int(seconds), UTC)
