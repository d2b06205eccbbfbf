"""Old events of each object are distinguished from new ones, with bounded memory."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from respread.cluster.meta import ObjectKey
from respread.handlers.informer import Versions

WEB, API = ObjectKey("shop", "web"), ObjectKey("shop", "api")


def test_a_version_of_an_object_is_new_only_once_and_compared_as_a_number() -> None:
    versions = Versions()
    assert versions.is_news(WEB, "7")
    assert not versions.is_news(WEB, "7")
    assert not versions.is_news(WEB, "6")
    assert versions.is_news(WEB, "9")
    assert versions.is_news(WEB, "10")
    assert versions.is_news(API, "8")


def test_a_deletion_may_have_the_last_version_of_the_object() -> None:
    versions = Versions()
    assert versions.is_news(WEB, "7")
    assert versions.is_news(WEB, "7", deleted=True)
    assert not versions.is_news(WEB, "6", deleted=True)


def test_an_event_older_than_the_list_is_not_new_and_a_list_may_be_older_after_a_restore() -> None:
    versions = Versions()
    versions.restart("100")
    assert not versions.is_news(WEB, "100")
    assert not versions.is_news(API, "99")
    assert versions.is_news(WEB, "101")
    versions.restart("50")
    assert versions.is_news(WEB, "60")


def test_versions_that_are_not_numbers_are_always_new() -> None:
    versions = Versions()
    assert versions.is_news(WEB, "abc")
    assert versions.is_news(WEB, "abc")
    assert versions.is_news(WEB, "")
    versions.restart("abc")
    assert versions.is_news(WEB, "1")


def test_an_old_event_does_not_bring_back_an_object_deleted_long_ago() -> None:
    versions = Versions(events_per_generation=10)
    assert versions.is_news(WEB, "5")
    for number in range(6, 60):
        assert versions.is_news(ObjectKey("shop", f"pod-{number}"), str(number))
    assert not versions.is_news(WEB, "5")


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 8)), max_size=60), st.integers(4, 20))
def test_replayed_events_never_pass_and_new_ones_always_do(steps: list[tuple[int, int]], per_generation: int) -> None:
    """Each event of a watch is followed by a replay of any earlier one."""
    versions = Versions(events_per_generation=per_generation)
    seen: list[tuple[ObjectKey, str]] = []
    for number, (name, back) in enumerate(steps, start=1):
        event = (ObjectKey("shop", str(name)), str(number))
        assert versions.is_news(*event)
        seen.append(event)
        assert not versions.is_news(*seen[-back % len(seen)])
