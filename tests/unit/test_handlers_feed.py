"""Pages replace what was kept, events change it, and what can't be read stops nothing."""

from __future__ import annotations

import asyncio
import logging

import pytest

from respread.cluster.errors import DecodeError
from respread.cluster.meta import ObjectKey
from tests.unit.handlers_parts import Parts, broken_pod, page, pod

WEB, API, DB = (ObjectKey("shop", name) for name in ("web", "api", "db"))


def test_pages_are_taken_over_together_with_the_last() -> None:
    parts = Parts()
    feed = parts.feed("pods")
    feed.begin_list()
    feed.take_page(page(pod("web"), rest="more"))
    assert not parts.intake.state.snapshot.pods
    assert not parts.health.has_synced("pods")
    feed.take_page(page(pod("api")))
    assert set(parts.intake.state.snapshot.pods) == {WEB, API}
    assert parts.health.has_synced("pods")


def test_a_page_is_returned_without_items_and_otherwise_as_it_was() -> None:
    feed = Parts().feed("pods")
    feed.begin_list()
    assert feed.take_page(page(pod("web"), version=7, rest="more")) == {
        "kind": "List",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": "7", "continue": "more"},
        "items": [],
    }


def test_what_a_later_list_does_not_hold_is_gone() -> None:
    parts = Parts()
    feed = parts.feed("pods")
    feed.begin_list()
    feed.take_page(page(pod("web"), pod("api")))
    feed.begin_list()
    feed.take_page(page(pod("api"), pod("db"), version=200))
    assert set(parts.intake.state.snapshot.pods) == {API, DB}
    assert parts.counted("respread_watch_relists_total", "pods") == 1


def test_a_list_that_was_broken_off_leaves_nothing() -> None:
    parts = Parts()
    feed = parts.feed("pods")
    feed.begin_list()
    feed.take_page(page(pod("web"), rest="more"))
    feed.begin_list()
    feed.take_page(page(pod("api")))
    assert set(parts.intake.state.snapshot.pods) == {API}


def test_events_change_one_object_each() -> None:
    parts = Parts()
    feed = parts.feed("pods")
    feed.begin_list()
    feed.take_page(page(pod("web"), version=10))
    feed.take_event(pod("api", 11), deleted=False)
    feed.take_event(pod("web", 12, phase="Pending"), deleted=False)
    assert parts.intake.state.snapshot.pods[WEB].phase == "Pending"
    assert parts.intake.state.snapshot.pods[API].phase == "Running"
    feed.take_event(pod("web", 13), deleted=True)
    assert set(parts.intake.state.snapshot.pods) == {API}


def test_an_event_from_before_the_list_changes_nothing() -> None:
    parts = Parts()
    feed = parts.feed("pods")
    feed.begin_list()
    feed.take_page(page(pod("web", 90), version=100))
    feed.take_event(pod("gone", 95), deleted=False)
    feed.take_event(pod("web", 80), deleted=True)
    assert set(parts.intake.state.snapshot.pods) == {WEB}


def test_a_replayed_event_does_not_bring_a_deleted_pod_back() -> None:
    parts = Parts()
    feed = parts.feed("pods")
    feed.begin_list()
    feed.take_page(page(pod("web"), version=10))
    feed.take_event(pod("web", 11, phase="Pending"), deleted=False)
    feed.take_event(pod("web", 12), deleted=True)
    feed.take_event(pod("web", 11, phase="Pending"), deleted=False)
    assert not parts.intake.state.snapshot.pods


def test_changes_are_told_and_repetitions_are_not() -> None:
    async def scenario() -> None:
        parts = Parts()
        feed = parts.feed("pods")
        feed.begin_list()
        feed.take_page(page(version=10))  # nothing there, but now known
        assert await parts.intake.changes.wait() == {"pods"}
        feed.take_event(pod("web", 11), deleted=False)
        assert await parts.intake.changes.wait() == {"pods"}
        feed.take_event(pod("web", 12), deleted=False)  # nothing but its version differs
        feed.begin_list()
        feed.take_page(page(pod("web", 12), version=13))
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(parts.intake.changes.wait(), 0.01)

    asyncio.run(scenario())


def test_an_object_that_cannot_be_read_leaves_the_others_alone(caplog: pytest.LogCaptureFixture) -> None:
    parts = Parts()
    feed = parts.feed("pods")
    feed.begin_list()
    feed.take_page(page(pod("web"), broken_pod("api"), pod("db")))
    assert set(parts.intake.state.snapshot.pods) == {WEB, DB}
    assert set(feed.undecodable) == {API}
    assert parts.intake.undecodable() == {"pods": feed.undecodable}
    assert parts.counted("respread_decode_errors_total", "pods") == 1
    (record,) = (each for each in caplog.records if each.levelno == logging.ERROR)
    assert "pods shop/api" in record.getMessage()
    assert "operator" in record.getMessage()


def test_the_last_version_that_could_be_read_is_kept() -> None:
    parts = Parts()
    feed = parts.feed("pods")
    feed.begin_list()
    feed.take_page(page(pod("web", 5), version=10))
    feed.take_event(broken_pod("web", 11), deleted=False)
    assert parts.intake.state.snapshot.pods[WEB].node_name == "node-1"
    assert set(feed.undecodable) == {WEB}
    feed.begin_list()
    feed.take_page(page(broken_pod("web", 11), version=20))
    assert set(parts.intake.state.snapshot.pods) == {WEB}
    assert set(feed.undecodable) == {WEB}


def test_the_same_fault_is_logged_once_and_another_one_again(caplog: pytest.LogCaptureFixture) -> None:
    parts = Parts()
    feed = parts.feed("pods")
    for version in (11, 12, 13):
        feed.take_event(broken_pod("web", version), deleted=False)
    feed.begin_list()
    feed.take_page(page(broken_pod("web", 13), version=20))
    assert parts.counted("respread_decode_errors_total", "pods") == 1
    feed.take_event(broken_pod("web", 21, operator="Never"), deleted=False)
    assert parts.counted("respread_decode_errors_total", "pods") == 2
    assert sum(record.levelno == logging.ERROR for record in caplog.records) == 2


def test_an_object_that_can_be_read_again_or_is_gone_is_no_longer_reported() -> None:
    parts = Parts()
    feed = parts.feed("pods")
    feed.take_event(broken_pod("web", 1), deleted=False)
    feed.take_event(broken_pod("api", 2), deleted=False)
    feed.take_event(broken_pod("db", 3), deleted=False)
    feed.take_event(pod("web", 4), deleted=False)
    feed.take_event(broken_pod("api", 5), deleted=True)
    assert set(feed.undecodable) == {DB}
    feed.begin_list()
    feed.take_page(page(pod("web", 4), version=6))
    assert not feed.undecodable
    assert set(parts.intake.state.snapshot.pods) == {WEB}


@pytest.mark.parametrize("body", [b"", b"<html>bad gateway</html>", b'{"kind":"Status","code":500}', b"[1]"])
def test_what_is_no_list_is_refused_and_changes_nothing(body: bytes) -> None:
    parts = Parts()
    feed = parts.feed("pods")
    feed.begin_list()
    feed.take_page(page(pod("web")))
    feed.begin_list()
    with pytest.raises(DecodeError, match="pods"):
        feed.take_page(body)
    assert set(parts.intake.state.snapshot.pods) == {WEB}


def test_a_kind_that_is_no_longer_served_has_no_objects() -> None:
    parts = Parts()
    feed = parts.feed("pods")
    feed.begin_list()
    feed.take_page(page(pod("web")))
    feed.take_event(broken_pod("api", 101), deleted=False)
    feed.forget()
    assert not parts.intake.state.snapshot.pods
    assert not feed.undecodable


def test_objects_are_counted_by_kind() -> None:
    parts = Parts()
    feed = parts.feed("pods")
    feed.begin_list()
    feed.take_page(page(pod("web"), pod("api")))
    counts = parts.intake.object_counts()
    assert counts["pods"] == 2
    assert counts["nodes"] == counts["priorityclasses"] == counts["rebalancepolicies"] == 0


def test_ignoring_namespaced_policies_leaves_them_out_altogether() -> None:
    resources = {feed.kind.resource for feed in Parts(namespaced_policies=False).intake.feeds}
    assert "clusterrebalancepolicies" in resources
    assert "rebalancepolicies" not in resources
