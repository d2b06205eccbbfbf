"""Objects with deeply nested `managedFields` are read. The API server stores them for every user who may write them."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import pytest

from respread.cluster.meta import ObjectKey
from respread.cluster.stores import POLICY_KINDS, watched_kinds
from respread.controller.records.status_writer import read_statuses
from respread.kube.requests import Response
from tests.fake_requests import FakeRequests
from tests.informer_parts import Parts, page, pod

LEVELS = (*range(800, 1010, 10), 9_900)
"""The depths of the fields. Python's recursion limit is reached at a depth that depends on the number of frames."""
KINDS = [kind.resource for kind in watched_kinds(namespaced_policies=True)]


def with_deep_fields(body: dict[str, Any]) -> dict[str, Any]:
    body["metadata"]["managedFields"] = [{"manager": "x", "operation": "Update", "fieldsV1": "DEEP"}]
    return body


def deepened(document: bytes, levels: int) -> bytes:
    assert document.count(b'"DEEP"') == 1
    return document.replace(b'"DEEP"', b'{"f:a":' * levels + b"{}" + b"}" * levels)


@pytest.mark.parametrize("levels", LEVELS)
def test_a_pod_with_deep_fields_is_read_from_lists_and_events(levels: int) -> None:
    parts = Parts()
    informer = parts.informer("pods")
    informer.take_page(deepened(page(with_deep_fields(pod("one")), pod("two")), levels))
    event = json.dumps({"type": "ADDED", "object": with_deep_fields(pod("three", 200))}).encode()
    informer.take_event(parts.light("pods", deepened(event, levels))["object"], deleted=False)
    pods = parts.informers.state.snapshot.pods
    assert {key.name: each.node_name for key, each in pods.items()} == dict.fromkeys(("one", "two", "three"), "node-1")
    assert not informer.undecodable


def test_an_invalid_pod_with_deep_fields_uses_only_its_own_node() -> None:
    parts = Parts()
    broken = with_deep_fields(pod("one"))
    broken["spec"]["containers"][0]["resources"] = {"requests": {"cpu": "much"}}
    parts.informer("pods").take_page(deepened(page(broken), 9_900))
    unread = parts.informers.state.snapshot.unread["pods"][ObjectKey("shop", "one")]
    assert (unread.node_name, unread.labels_read) == ("node-1", True)


@pytest.mark.parametrize("resource", KINDS)
def test_deep_fields_stop_the_list_of_no_kind(resource: str) -> None:
    informer = Parts().informer(resource)
    metadata = {"name": "one", "namespace": "shop", "uid": "uid-one", "resourceVersion": "1"}
    informer.take_page(deepened(page(with_deep_fields({"metadata": metadata, "value": 1})), 9_900))
    assert informer.count == 1
    assert not informer.undecodable


class Policies(FakeRequests):
    """Serves one policy of each kind, with deep fields, and no records."""

    async def answer(self, method: str, path: str, names: Mapping[str, str], **options: Any) -> Response:
        """Return the list."""
        del method, names, options
        items = []
        if not path.endswith("records"):
            metadata = {"name": "one", "namespace": "shop", "uid": "uid-one"}
            items = [with_deep_fields({"metadata": metadata, "status": {"summary": {"evicted": 3}}})]
        body = json.dumps({"metadata": {}, "items": items}).encode()
        return Response(status_code=200, body=deepened(body, 9_900) if items else body)


def test_deep_fields_do_not_keep_a_new_leader_from_reading_statuses() -> None:
    found = asyncio.run(read_statuses(Policies(), POLICY_KINDS))
    assert {each.status.summary.evicted for each in found.values()} == {3}
