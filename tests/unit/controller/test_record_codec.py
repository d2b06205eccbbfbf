"""The next leader reads the history of the last one from records."""

from __future__ import annotations

import os
import subprocess
import sys
from datetime import UTC, datetime
from math import inf

import msgspec
import pytest
from immutables import Map

from respread.api.fields import LATEST
from respread.api.record import (
    FailuresInARow,
    GroupEvictionCount,
    RecentEvictions,
    Recorded,
    RecordedBackOff,
    decode_record,
    encode_record,
)
from respread.cluster.pod import WorkloadName
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
    without_one,
)
from respread.eviction.tallies import HOUR_SECONDS, EvictionHistory, GroupHistory
from respread.holds.backoff import PAUSE, BackOff, BackOffs, Breakers, delay_seconds
from respread.moves.codec import GroupNames, group_name
from respread.spread.group import GroupKey, SpreadGroup
from tests.spreads import spread_of
from tests.worlds import HOSTNAME, cluster, constraint, node, pods, spec

NOW = 1_800_000_000.0

_NAMES = """
from immutables import Map
from respread.moves.codec import group_name
from tests.spreads import spread_of
from tests.worlds import *
of = spec(constraint(), constraint(HOSTNAME), node_selector=Map({c: c for c in "abcdefgh"}))
print(sorted(group_name(key) for key in spread_of(cluster([node("a1", "a")], pods({"a1": 2}, of))).groups))
"""


def world(*counts: int) -> ClusterSnapshot:
    nodes = [node(f"{zone}1", zone) for zone, _ in zip("abc", counts, strict=False)]
    return cluster(
        nodes, pods({each.name: count for each, count in zip(nodes, counts, strict=True)}, spec(constraint()))
    )


def group(*counts: int) -> tuple[GroupKey, SpreadGroup]:
    ((key, found),) = spread_of(world(*counts)).groups.items()
    return key, found


def through_the_api(record: Recorded) -> Recorded:
    return decode_record(encode_record(record))


def test_group_names_are_equal_in_every_process_and_differ_between_groups() -> None:
    said = {
        subprocess.run(
            [sys.executable, "-c", _NAMES],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(said) == 1
    of = [spec(constraint()), spec(constraint(HOSTNAME)), spec(constraint(), node_selector=Map(a="b"))]
    keys = {key for each in of for key in spread_of(cluster([node("a1", "a")], pods({"a1": 2}, each))).groups}
    assert len({group_name(key) for key in keys}) == 3
    assert all(len(group_name(key)) <= 64 for key in keys)


def test_names_are_computed_once_and_forgotten_when_most_groups_are_gone() -> None:
    keys = [msgspec.structs.replace(group(3, 1)[0], max_skew=skew) for skew in (1, 2, 3)]
    names = GroupNames()
    before = [names.of(key) for key in keys]
    for left, kept in ((keys[:2], [True] * 3), (keys[:1], [True, False, False])):
        names.keep(dict.fromkeys(left))
        assert [names.of(key) is name for key, name in zip(keys, before, strict=True)] == kept


def test_a_situation_is_defined_by_the_pods_and_nodes_of_each_domain() -> None:
    _, before = group(3, 1)
    assert situation_of(before) == situation_of(group(3, 1)[1])
    assert situation_of(before) != situation_of(group(2, 2)[1])
    more_nodes = cluster([*world(3, 1).nodes.values(), node("b2", "b")], world(3, 1).pods.values())
    ((_, after),) = spread_of(more_nodes).groups.items()
    assert situation_of(after) != situation_of(before)


def test_a_back_off_survives_a_restart() -> None:
    key, found = group(3, 1)
    situation = situation_of(found)
    before = BackOffs().failed(group_name(key), situation, NOW).failed(group_name(key), situation, NOW)
    record = through_the_api(Recorded(back_offs=back_offs_to_record(before, [key])))
    after, _ = recalled({"default": record}, {key.namespace: {key: found}}, NOW)
    assert after.groups[group_name(key)].failures == 2
    until = before.groups[group_name(key)].until
    assert until <= record.back_offs[0].until.timestamp() <= until + 1
    assert until <= after.groups[group_name(key)].until <= until + 1
    assert after.held(group_name(key), situation, NOW + 1) is not None
    changed = situation_of(group(2, 1)[1])
    held = before.held(group_name(key), changed, NOW)
    assert held is not None
    assert held.until is not None
    floor = held.until.timestamp()
    assert after.held(group_name(key), changed, floor - 0.1) is not None
    assert after.held(group_name(key), changed, floor + 1) is None
    assert after.held(group_name(key), situation, until + 1) is None


@pytest.mark.parametrize("order", [(1, 2), (2, 1)])
def test_the_policy_that_remembers_more_failures_of_a_group_counts(order: tuple[int, ...]) -> None:
    key, found = group(3, 1)
    records = {}
    for failures in order:
        before = BackOffs()
        for _ in range(failures):
            before = before.failed(group_name(key), "s", NOW)
        records[f"policy-{failures}"] = Recorded(back_offs=back_offs_to_record(before, [key]))
    after, _ = recalled(records, {key.namespace: {key: found}}, NOW)
    assert after.groups[group_name(key)].failures == 2


def test_the_groups_with_most_failures_are_kept_if_there_are_too_many() -> None:
    of = [spec(constraint(max_skew=skew)) for skew in range(1, 151)]
    nodes = [node("a1", "a")]
    many = cluster(nodes, [each for number, one in enumerate(of) for each in pods({"a1": 1}, one, prefix=f"p{number}")])
    keys = sorted(spread_of(many).groups, key=lambda key: key.max_skew)
    known = BackOffs(Map({group_name(key): BackOff(key.max_skew // 2, NOW, "") for key in keys}))
    remembered = back_offs_to_record(known, keys)
    assert [each.failures for each in remembered] == [number // 2 for number in range(150, 50, -1)]


@pytest.mark.parametrize("seconds", [0.0, 1.0, 59.9, 600.0, HOUR_SECONDS - 1])
def test_evictions_of_earlier_leaders_count_for_an_hour(seconds: float) -> None:
    history = EvictionHistory().with_evictions(["default", "other"], NOW).with_evictions(["default"], NOW + 0.5)
    assert evictions_to_record(history, "nobody", NOW) == ()
    for leader in range(1, 6):
        record = through_the_api(Recorded(recent_evictions=evictions_to_record(history, "default", NOW + 100 * leader)))
        _, history = recalled({"default": record}, {}, NOW + 100 * leader)
    assert history.count_in_last_hour("default", NOW + seconds) == 2
    assert history.count_in_last_hour("default", NOW + HOUR_SECONDS + 60) == 0


def test_a_clock_that_was_set_back_keeps_the_record_within_bounds() -> None:
    history = EvictionHistory()
    for minute in reversed(range(200)):
        history = history.with_evictions(["default"], NOW + minute * 60)
    remembered = evictions_to_record(history, "default", NOW)
    assert len(remembered) <= 64
    assert sum(each.evictions for each in remembered) == 200
    assert all(each.minute.tzinfo is UTC and each.minute > datetime(2026, 1, 1, tzinfo=UTC) for each in remembered)


def test_a_namespaced_policys_back_offs_count_only_in_its_namespace() -> None:
    key, found = group(3, 1)
    said = Recorded(
        back_offs=(RecordedBackOff(group=group_name(key), failures=3, until=LATEST, situation=situation_of(found)),)
    )
    groups = {key.namespace: {key: found}, "other": {}}
    for policy, counts in {"default": True, f"{key.namespace}/own": True, "other/own": False}.items():
        after, _ = recalled({policy: said}, groups, NOW)
        assert (group_name(key) in after.groups) == counts, policy
    (known,) = recalled({"default": said}, groups, NOW)[0].groups.values()
    assert known.until == NOW + delay_seconds(group_name(key), 3), "no record holds a group for longer than a failure"
    after, _ = recalled({"default": said}, {"other": {}}, NOW)
    assert not after.groups, "a group that is not there needs no memory"


def test_evictions_with_a_future_time_count_as_made_now() -> None:
    said = Recorded(recent_evictions=(RecentEvictions(minute=LATEST, evictions=3_000_000),))
    _, after = recalled({"default": said}, {}, NOW)
    assert after.count_in_last_hour("default", NOW) == 3_000_000
    assert after.count_in_last_hour("default", NOW + HOUR_SECONDS + 60) == 0


def test_the_back_off_of_a_balanced_group_is_forgotten_once_it_has_expired() -> None:
    key, violated = group(3, 1)
    _, balanced = group(2, 1)
    failed = BackOffs().failed(group_name(key), "", NOW)
    later = NOW + 1000
    assert without_expired(failed, {key: balanced}, (), NOW + 1) is failed
    assert without_expired(failed, {key: violated}, (), later) == failed
    assert without_expired(failed, {key: balanced}, {key}, later) == failed
    assert not without_expired(failed, {key: balanced}, (), later).groups
    assert not without_expired(failed, {}, (), later).groups
    assert not without_expired(failed, {}, (), failed.groups[group_name(key)].until).groups
    beside = failed.failed("waits", "", later)
    assert set(without_expired(beside, {key: balanced}, (), later).groups) == {"waits"}


def test_evictions_of_a_group_survive_a_restart_and_a_balanced_state() -> None:
    key, _ = group(3, 1)
    name = group_name(key)
    history = GroupHistory().with_evictions("default", [name], NOW).with_evictions("default", [name], NOW + 100)
    record = through_the_api(Recorded(group_evictions=group_evictions_to_record(history, "default", NOW + 200)))
    after = recalled_group_history({"default": record}, {}, NOW + 200)  # the group is balanced, or not even there
    assert after.in_last_hour(name, NOW + 200) == 2
    assert after.in_last_hour(name, NOW + 100 + HOUR_SECONDS - 1) == 2  # rather too few evictions than too many
    assert after.in_last_hour(name, NOW + 100 + HOUR_SECONDS + 60) == 0
    assert group_evictions_to_record(after, "other", NOW + 200) == ()


def test_the_groups_with_most_evictions_are_kept_if_there_are_too_many() -> None:
    history = GroupHistory()
    for number in range(1, 301):
        history = history.with_evictions("default", [f"group-{number}"], NOW, number)
    remembered = group_evictions_to_record(history, "default", NOW)
    assert [each.evictions for each in remembered] == list(range(300, 100, -1))


def test_a_namespaced_policys_evictions_count_only_in_its_namespace() -> None:
    key, found = group(3, 1)
    said = Recorded(group_evictions=(GroupEvictionCount(group=group_name(key), evictions=9, last=LATEST),))
    groups = {key.namespace: {key: found}, "other": {}}
    for policy, counts in {"default": True, f"{key.namespace}/own": True, "other/own": False}.items():
        after = recalled_group_history({policy: said}, groups, NOW)
        assert after.in_last_hour(group_name(key), NOW) == (9 if counts else 0), policy
        assert after.in_last_hour(group_name(key), NOW + HOUR_SECONDS + 60) == 0, "the future counts as now"
    less = Recorded(group_evictions=(GroupEvictionCount(group=group_name(key), evictions=3, last=LATEST),))
    for records in ({"own": said, "another": less}, {"own": less, "another": said}):
        assert recalled_group_history(records, groups, NOW).in_last_hour(group_name(key), NOW) == 9, "the most"


def test_consecutive_failures_survive_a_restart() -> None:
    before = Breakers()
    for name in "abc":
        before = before.failed("default", WorkloadName("Deployment", "shop", name), 3, NOW)
    record = through_the_api(Recorded(failures_in_a_row=failures_to_record(before, "default")))
    after = recalled_failures({"default": record, "other": Recorded()}, NOW)
    assert set(after.policies) == {"default"}
    assert after.policies["default"].workloads == before.policies["default"].workloads
    end, later = before.next_end(NOW), after.next_end(NOW)
    assert end <= later <= end + 1 < inf
    assert failures_to_record(before, "other") == FailuresInARow()
    once = Breakers().failed("default", WorkloadName("Deployment", "shop", "a"), 3, NOW)
    record = Recorded(failures_in_a_row=failures_to_record(once, "default"))
    assert record.failures_in_a_row.paused_until is None
    assert recalled_failures({"default": record}, NOW).policies == once.policies


def test_no_record_pauses_a_policy_for_longer_than_the_longest_pause() -> None:
    said = FailuresInARow(workloads=("a", "b", "c"), pauses=1000, paused_until=LATEST)
    after = recalled_failures({"default": Recorded(failures_in_a_row=said)}, NOW)
    assert after.paused("default", 3, NOW) is not None
    assert after.paused("default", 3, NOW + PAUSE.longest_seconds) is None


def test_an_eviction_that_was_not_made_is_taken_from_its_own_groups_alone() -> None:
    groups = list(spread_of(world(2, 1)).groups)
    counts = {group_name(groups[0]): 2, "another": 5, "none": 0}
    minute = datetime.fromtimestamp(NOW, UTC)
    record = Recorded(
        group_evictions=tuple(
            GroupEvictionCount(group=name, evictions=count, last=minute) for name, count in counts.items()
        )
    )
    left = without_one(record, groups, NOW)
    assert {each.group: each.evictions for each in left.group_evictions} == {**counts, group_name(groups[0]): 1}
    again = without_one(without_one(left, groups, NOW), groups, NOW)
    assert {each.group: each.evictions for each in again.group_evictions} == {**counts, group_name(groups[0]): 0}


def test_the_first_eviction_that_still_counts_is_taken_away() -> None:
    made = {3660: 4, 3659: 0, 3658: 2, 60: 1}  # a minute ends 60 s after it began
    recent = (RecentEvictions(minute=datetime.fromtimestamp(NOW - at, UTC), evictions=made[at]) for at in made)
    left = without_one(Recorded(recent_evictions=tuple(recent)), (), NOW)
    assert [each.evictions for each in left.recent_evictions] == [4, 0, 1, 1]
