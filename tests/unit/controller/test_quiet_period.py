"""A group is held until it has not changed for a quiet period."""

from __future__ import annotations

from datetime import timedelta

import pytest

from respread.api.reasons import Reason
from respread.cluster.meta import OwnerReference
from respread.holds.holds import BEGUN_SECONDS, QuietPeriods
from respread.spread.group import GroupKey, SpreadGroup
from respread.timing import ClockReading
from tests.spreads import spread_of
from tests.worlds import NOW, cluster, constraint, node, pods, spec

QUIET = timedelta(seconds=30)
WEB = spec(constraint())
OURS = pods({"a1": 1}, WEB)
NODES = [node("a1", "a"), node("b1", "b")]


def at(seconds: float) -> ClockReading:
    return ClockReading(seconds, NOW.timestamp() + seconds)


def groups_of(a: int, b: int) -> dict[GroupKey, SpreadGroup]:
    return dict(spread_of(cluster(NODES, pods({"a1": a, "b1": b}, WEB))).groups)


def observed(a: int, b: int) -> tuple[QuietPeriods, GroupKey]:
    """Return quiet periods that have observed a group at 0 s, and the group."""
    settling, groups = QuietPeriods(), groups_of(a, b)
    settling.observe(groups, (), now=0)
    (key,) = groups
    return settling, key


def test_a_group_is_held_from_its_first_observation() -> None:
    settling = QuietPeriods()
    groups = groups_of(3, 0)
    (key,) = groups
    settling.observe(groups, (), now=100)
    held = settling.held(key, QUIET, at(110))
    assert held is not None
    assert held.reason is Reason.QUIET_PERIOD
    assert "10 s ago" in held.message
    assert held.until == at(130).time_of_day
    assert settling.held(key, QUIET, at(130)) is None


def test_a_change_restarts_the_quiet_period() -> None:
    settling = QuietPeriods()
    before = groups_of(3, 0)
    (key,) = before
    settling.observe(before, (), now=0)
    settling.observe(before, (), now=20)
    assert settling.held(key, QUIET, at(31)) is None
    settling.observe(groups_of(4, 0), (), now=40)
    assert settling.held(key, QUIET, at(69)) is not None


def test_changes_by_respreads_own_moves_do_not_restart_the_quiet_period() -> None:
    settling, key = observed(3, 0)
    settling.observe(groups_of(2, 1), OURS, now=40)
    assert settling.held(key, QUIET, at(41)) is None


def test_neither_do_moves_of_pods_that_only_another_workloads_constraint_counts() -> None:
    strict, loose = spec(constraint()), spec(constraint(max_skew=2))
    owner = OwnerReference("apps/v1", "ReplicaSet", "api", "uid-api")

    def groups(a: int, b: int) -> dict[GroupKey, SpreadGroup]:
        api = pods({"a1": 3}, loose, controller=owner, prefix="api")
        return dict(spread_of(cluster(NODES, [*pods({"a1": a, "b1": b}, strict), *api])).groups)

    settling = QuietPeriods()
    settling.observe(groups(3, 0), (), now=0)
    settling.observe(groups(2, 1), pods({"a1": 1}, strict), now=40)
    assert len(groups(2, 1)) == 2
    assert all(settling.held(key, QUIET, at(41)) is None for key in groups(2, 1))


@pytest.mark.parametrize("seconds", [20, BEGUN_SECONDS + 1])
def test_room_is_kept_for_a_group_that_moves_have_begun_to_restore(seconds: float) -> None:
    settling, key = observed(5, 0)
    assert settling.held(key, QUIET, at(1)) is not None
    assert not settling.begun, "nothing was done for it yet"
    settling.observe(groups_of(4, 1), OURS, now=40)
    settling.observe(groups_of(5, 1), (), now=40 + seconds)
    assert settling.held(key, QUIET, at(40 + seconds)) is not None
    assert (key in settling.begun) == (seconds < BEGUN_SECONDS)


def test_no_room_is_kept_once_a_group_was_restored() -> None:
    settling, key = observed(3, 0)
    settling.observe(groups_of(2, 1), OURS, now=40)
    settling.observe(groups_of(4, 1), (), now=60)
    assert settling.held(key, QUIET, at(61)) is not None
    assert not settling.begun
