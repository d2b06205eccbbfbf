"""Pages replace the stored objects, events change them, and malformed ones stop nothing."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from respread.cluster.meta import ObjectKey
from respread.cluster.objects import DecodeError
from respread.cluster.stores import PODS
from respread.handlers.event_buffer import EventBuffer, EventIdentity, NotAnEventError
from tests.informer_parts import Parts, broken_pod, page, pod

WEB, API, DB = (ObjectKey("shop", name) for name in ("web", "api", "db"))


def test_the_pages_of_a_list_are_applied_together_after_the_last() -> None:
    parts = Parts()
    informer = parts.informer("pods")
    informer.begin_list()
    informer.take_page(page(pod("web"), rest="more"))
    assert not parts.informers.state.snapshot.pods
    assert not parts.health.has_synced("pods")
    informer.take_page(page(pod("api")))
    assert set(parts.informers.state.snapshot.pods) == {WEB, API}
    assert parts.health.has_synced("pods")


def test_a_page_is_returned_unchanged_but_without_items() -> None:
    informer = Parts().informer("pods")
    informer.begin_list()
    assert informer.take_page(page(pod("web"), version=7, rest="more")) == {
        "kind": "List",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": "7", "continue": "more"},
        "items": [],
    }


def test_an_object_missing_in_a_later_list_is_deleted() -> None:
    parts = Parts()
    parts.list(pod("web"), pod("api"))
    parts.list(pod("api"), pod("db"), version=200)
    assert set(parts.informers.state.snapshot.pods) == {API, DB}
    assert parts.counted("respread_watch_relists_total", "pods") == 1


def test_an_aborted_list_changes_nothing() -> None:
    parts = Parts()
    informer = parts.informer("pods")
    informer.begin_list()
    informer.take_page(page(pod("web"), rest="more"))
    parts.list(pod("api"))
    assert set(parts.informers.state.snapshot.pods) == {API}


def test_each_event_changes_one_object() -> None:
    parts = Parts()
    parts.list(pod("web"), version=10)
    parts.event("pods", pod("api", 11))
    parts.event("pods", pod("web", 12, phase="Pending"))
    assert parts.informers.state.snapshot.pods[WEB].phase == "Pending"
    assert parts.informers.state.snapshot.pods[API].phase == "Running"
    parts.event("pods", pod("web", 13), deleted=True)
    assert set(parts.informers.state.snapshot.pods) == {API}


def test_an_event_from_before_the_list_changes_nothing() -> None:
    parts = Parts()
    parts.list(pod("web", 90), version=100)
    parts.event("pods", pod("gone", 95))
    parts.event("pods", pod("web", 80), deleted=True)
    assert set(parts.informers.state.snapshot.pods) == {WEB}


def test_a_replayed_event_does_not_bring_a_deleted_pod_back() -> None:
    parts = Parts()
    parts.list(pod("web"), version=10)
    parts.event("pods", pod("web", 11, phase="Pending"))
    parts.event("pods", pod("web", 12), deleted=True)
    parts.event("pods", pod("web", 11, phase="Pending"))
    assert not parts.informers.state.snapshot.pods


async def test_changes_are_reported_and_repetitions_are_not() -> None:
    parts = Parts()
    parts.list(version=10)  # no objects, but the kind is listed now
    assert await parts.informers.changes.wait() == {"pods"}
    parts.event("pods", pod("web", 11))
    assert await parts.informers.changes.wait() == {"pods"}
    parts.event("pods", pod("web", 12))  # only its version differs
    parts.list(pod("web", 12), version=13)
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(parts.informers.changes.wait(), 0.01)


def test_a_malformed_object_does_not_affect_the_others(caplog: pytest.LogCaptureFixture) -> None:
    parts = Parts()
    informer = parts.list(pod("web"), broken_pod("api"), pod("db"))
    snapshot = parts.informers.state.snapshot
    assert set(snapshot.pods) == {WEB, API, DB}
    assert snapshot.pods[API].node_name == "node-1", "what can be read of it is known all the same"
    assert {key: each.node_name for key, each in snapshot.unread["pods"].items()} == {API: "node-1"}
    assert set(informer.undecodable) == {API}
    assert parts.informers.by_kind[PODS].undecodable == informer.undecodable
    assert parts.counted("respread_decode_errors_total", "pods") == 1
    (record,) = (each for each in caplog.records if each.levelno == logging.ERROR)
    assert "pods shop/api" in record.getMessage()
    assert "operator" in record.getMessage()


def test_the_last_valid_version_of_an_object_is_kept() -> None:
    parts = Parts()
    informer = parts.list(pod("web", 5), version=10)
    parts.event("pods", broken_pod("web", 11))
    assert parts.informers.state.snapshot.pods[WEB].node_name == "node-1"
    assert set(informer.undecodable) == {WEB}
    parts.list(broken_pod("web", 11), version=20)
    assert set(parts.informers.state.snapshot.pods) == {WEB}
    assert set(informer.undecodable) == {WEB}


def test_the_same_decode_error_is_logged_once_and_a_different_one_again(caplog: pytest.LogCaptureFixture) -> None:
    parts = Parts()
    for version in (11, 12, 13):
        parts.event("pods", broken_pod("web", version))
    parts.list(broken_pod("web", 13), version=20)
    assert parts.counted("respread_decode_errors_total", "pods") == 1
    parts.event("pods", broken_pod("web", 21, operator="Never"))
    assert parts.counted("respread_decode_errors_total", "pods") == 2
    assert sum(record.levelno == logging.ERROR for record in caplog.records) == 2


def test_an_object_that_is_valid_again_or_deleted_is_no_longer_reported() -> None:
    parts = Parts()
    informer = parts.informer("pods")
    parts.event("pods", broken_pod("web", 1))
    parts.event("pods", broken_pod("api", 2))
    parts.event("pods", broken_pod("db", 3))
    parts.event("pods", pod("web", 4))
    parts.event("pods", broken_pod("api", 5), deleted=True)
    assert set(informer.undecodable) == {DB}
    parts.list(pod("web", 4), version=6)
    assert not informer.undecodable
    assert set(parts.informers.state.snapshot.pods) == {WEB}


def test_kopf_receives_only_the_identity_of_an_object() -> None:
    line = json.dumps({"type": "ADDED", "object": pod("web", 7)}).encode()
    assert Parts().light("pods", line) == {
        "type": "ADDED",
        "object": {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": "web", "namespace": "shop", "uid": "uid-web", "resourceVersion": "7"},
        },
    }


def test_an_object_is_applied_once_when_kopf_calls_the_handler() -> None:
    parts = Parts()
    informer = parts.informer("pods")
    light = parts.light("pods", json.dumps({"type": "ADDED", "object": pod("web", 7)}).encode())["object"]
    assert not parts.informers.state.snapshot.pods
    informer.take_event(light, deleted=False)
    assert set(parts.informers.state.snapshot.pods) == {WEB}
    informer.forget()
    informer.take_event(light, deleted=False)
    assert not parts.informers.state.snapshot.pods


def test_an_event_applies_all_earlier_events_first_in_order() -> None:
    parts = Parts()
    informer = parts.informer("pods")
    lights = [
        parts.light("pods", json.dumps({"type": what, "object": body}).encode())
        for what, body in [
            ("ADDED", pod("web", 7)),
            ("DELETED", pod("web", 8)),
            ("ADDED", pod("api", 9)),
            ("DELETED", pod("db", 9)),
            ("ADDED", broken_pod("db", 10)),
            ("MODIFIED", pod("api", 11, phase="Pending")),
            ("ADDED", pod("web", 12)),
        ]
    ]
    assert informer.take_event(lights[5]["object"], deleted=False) == 6
    assert set(parts.informers.state.snapshot.pods) == {API, DB}
    assert parts.informers.state.snapshot.pods[API].phase == "Pending"
    assert set(informer.undecodable) == {DB}
    assert informer.take_event(lights[1]["object"], deleted=True) == 0  # a late worker of Kopf
    assert informer.take_event(lights[6]["object"], deleted=False) == 1
    assert WEB in parts.informers.state.snapshot.pods


def test_kopf_receives_a_bookmark_for_an_event_that_changes_nothing() -> None:
    parts = Parts()
    informer = parts.list(pod("web", 5), version=10)
    heartbeat = json.dumps({"type": "MODIFIED", "object": pod("web", 11)}).encode()
    assert parts.light("pods", heartbeat) == {
        "type": "BOOKMARK",
        "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"resourceVersion": "11"}},
    }
    parts.event("pods", pod("web", 11), deleted=True)  # a deletion may have the last version of the object
    assert not parts.informers.state.snapshot.pods
    again = parts.light("pods", heartbeat)
    assert again["type"] == "MODIFIED"
    informer.take_event(again["object"], deleted=False)
    assert not parts.informers.state.snapshot.pods


def test_an_event_that_reverts_a_buffered_one_is_not_skipped() -> None:
    parts = Parts()
    informer = parts.list(pod("web", 5), version=10)
    parts.light("pods", json.dumps({"type": "MODIFIED", "object": pod("web", 11, phase="Pending")}).encode())
    back = parts.light("pods", json.dumps({"type": "MODIFIED", "object": pod("web", 12)}).encode())
    assert informer.take_event(back["object"], deleted=False) == 2
    assert parts.informers.state.snapshot.pods[WEB].phase == "Running"


def test_the_event_buffer_tells_how_far_the_watch_is_behind() -> None:
    seconds = [100.0]
    event_buffer = EventBuffer(PODS, lambda document: (ObjectKey("shop", "web"), document), clock=lambda: seconds[0])
    for version in ("7", "8"):
        metadata = {"name": "web", "namespace": "shop", "uid": "uid-web", "resourceVersion": version}
        event_buffer.lighten(json.dumps({"type": "MODIFIED", "object": {"metadata": metadata}}).encode())
        seconds[0] += 1
    assert event_buffer.lag_seconds() == 2
    event_buffer.call_for(EventIdentity(ObjectKey("shop", "web"), "uid-web", "7"), deleted=False)
    assert event_buffer.lag_seconds() == 1
    event_buffer.clear()
    assert event_buffer.lag_seconds() == 0


def test_a_new_list_discards_buffered_events() -> None:
    parts = Parts()
    informer = parts.informer("pods")
    light = parts.light("pods", json.dumps({"type": "ADDED", "object": pod("web", 7)}).encode())["object"]
    parts.list(version=6)  # as after a restored backup, the event is newer than the list
    informer.take_event(light, deleted=False)
    assert not parts.informers.state.snapshot.pods


@pytest.mark.parametrize("line", [b"{}", b"<html>", b'{"type":"ADDED"}', b'{"type":"ADDED","object":5}'])
def test_a_malformed_event_is_rejected(line: bytes) -> None:
    with pytest.raises(NotAnEventError, match="pods"):
        Parts().informer("pods").read_event(line)


@pytest.mark.parametrize("body", [b"", b"<html>bad gateway</html>", b'{"kind":"Status","code":500}', b"[1]"])
def test_a_malformed_list_is_rejected_and_changes_nothing(body: bytes) -> None:
    parts = Parts()
    informer = parts.list(pod("web"))
    informer.begin_list()
    with pytest.raises(DecodeError, match="pods"):
        informer.take_page(body)
    assert set(parts.informers.state.snapshot.pods) == {WEB}


def test_a_kind_that_is_no_longer_served_has_no_objects() -> None:
    parts = Parts()
    informer = parts.list(pod("web"))
    parts.event("pods", broken_pod("api", 101))
    informer.forget()
    assert not parts.informers.state.snapshot.pods
    assert not informer.undecodable


def test_objects_are_counted_by_kind() -> None:
    parts = Parts()
    parts.list(pod("web"), pod("api"))
    counts = parts.informers.object_counts()
    assert counts["pods"] == 2
    assert counts["nodes"] == counts["priorityclasses"] == counts["rebalancepolicies"] == 0


def test_ignored_namespaced_policies_are_not_watched() -> None:
    resources = {informer.kind.resource for informer in Parts(namespaced_policies=False).informers.all}
    assert "clusterrebalancepolicies" in resources
    assert "rebalancepolicies" not in resources


@pytest.mark.parametrize("resource", ["pods", "clusterrebalancepolicies", "priorityclasses"])
@pytest.mark.parametrize(
    "body",
    [
        b'{"kind":"List","metadata":{"resourceVersion":5},"items":[]}',
        b'{"kind":"List","metadata":null,"items":[]}',
        b'{"kind":"List","metadata":{"continue":5},"items":[]}',
        b"\xff\xfe",
        b"null",
        b"",
    ],
)
def test_a_malformed_page_is_rejected(resource: str, body: bytes) -> None:
    """Any other exception would end the process."""
    informer = Parts().informer(resource)
    with pytest.raises(DecodeError):
        informer.take_page(body)


@pytest.mark.parametrize("resource", ["pods", "clusterrebalancepolicies", "priorityclasses"])
@pytest.mark.parametrize("item", [b"5", b'{"metadata":5}', b'{"metadata":{"name":"\xff"}}'])
def test_a_malformed_item_does_not_affect_the_list(resource: str, item: bytes) -> None:
    parts = Parts()
    parts.informer(resource).take_page(b'{"metadata":{"resourceVersion":"7"},"items":[' + item + b"]}")
    assert parts.health.has_synced(resource)
