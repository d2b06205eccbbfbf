"""Evictions of a group count for an hour, whatever their outcome."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from respread.eviction.tallies import GroupHistory

HOUR = 3600.0
NOW = 1_800_000_000.0


def test_evictions_of_a_group_count_for_an_hour() -> None:
    history = GroupHistory().with_evictions("default", ["web", "api"], NOW)
    history = history.with_evictions("default", ["web"], NOW + 600)
    assert [history.in_last_hour(name, NOW + 600) for name in ("web", "api", "db")] == [2, 1, 0]
    assert history.in_last_hour("web", NOW + HOUR) == 1
    assert set(history.without_old(NOW + HOUR).policies) == set(history.without_old(NOW + HOUR).evictions.minutes)
    assert set(history.without_old(NOW + HOUR).policies) == {"web"}
    assert history.without_old(NOW + HOUR - 1) is history
    assert history.without_old(NOW + 2 * HOUR) == GroupHistory()


def test_evictions_of_a_group_belong_to_the_policy_that_evicted_last() -> None:
    history = GroupHistory().with_evictions("old", ["web"], NOW).with_evictions("new", ["web"], NOW + 60)
    assert list(history.of_policy("old", NOW + 60)) == []
    ((name, minutes),) = history.of_policy("new", NOW + 60)
    assert (name, sum(each.evictions for each in minutes), minutes[-1].last) == ("web", 2, NOW + 60)
    assert list(history.of_policy("new", NOW + 2 * HOUR)) == []


# Times since the epoch, because the sums of shorter times would have other rounding errors.
@given(st.lists(st.floats(NOW, NOW + 3 * HOUR), max_size=200).map(sorted))
def test_all_evictions_of_an_hour_are_counted_by_minute(times: list[float]) -> None:
    history = GroupHistory()
    for number, second in enumerate(times):
        history = history.with_evictions("default", ["web"], second)
        made = times[: number + 1]
        counted = history.in_last_hour("web", second)
        assert sum(other > second - HOUR for other in made) <= counted
        assert counted <= sum(other > second - HOUR - 60 for other in made)
        assert len(history.evictions.minutes["web"]) <= 64
