"""The duration of violations."""

from __future__ import annotations

from respread.controller.reporter import ViolationTimes
from respread.spread.group import GroupKey, SpreadGroup
from tests.spreads import spread_of
from tests.worlds import cluster, constraint, node, pods, spec


def group(a: int, b: int) -> dict[GroupKey, SpreadGroup]:
    counts = {"a1": a, "b1": b}
    return dict(spread_of(cluster([node("a1", "a"), node("b1", "b")], pods(counts, spec(constraint())))).groups)


def test_a_violation_lasts_until_the_group_is_balanced() -> None:
    times = ViolationTimes()
    (key,) = group(3, 0)
    assert times.see(group(1, 1), {key: "default"}, 1.0) == []
    assert times.see(group(3, 0), {key: "default"}, 10.0) == []
    assert times.see(group(3, 1), {key: "default"}, 20.0) == []
    assert times.see(group(2, 1), {key: "default"}, 30.0) == [("default", 20.0)]
    assert times.see(group(2, 1), {key: "default"}, 40.0) == []


def test_a_deleted_or_deselected_group_does_not_count_as_restored() -> None:
    times = ViolationTimes()
    (key,) = group(3, 0)
    assert times.see(group(3, 0), {key: "default"}, 10.0) == []
    assert times.see({}, {}, 20.0) == []
    assert times.see(group(3, 0), {key: "default"}, 30.0) == []
    assert times.see(group(2, 1), {}, 40.0) == []
    assert times.see(group(2, 1), {key: "default"}, 50.0) == []
