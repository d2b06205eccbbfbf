"""No status and no record of a policy breaks the operator: it is read, used and overwritten."""

from __future__ import annotations

import asyncio
import json
import re
import tracemalloc
from collections.abc import Mapping
from typing import Any, Final

from hypothesis import example, given, settings
from hypothesis import strategies as st
from immutables import Map

from respread.api.decoding import decode_status
from respread.api.policy import PLURALS
from respread.api.record import MAX_RECORD_LENGTH, RECORD_PLURALS, decode_record, encode_record
from respread.api.status import encode_status
from respread.controller.records.codec import situation_of
from respread.kube.requests import NoResponseError, Response
from respread.moves.codec import group_name
from tests.informer_parts import page
from tests.properties.controller.statuses import largest, record_schema, status_schema, statuses
from tests.spreads import spread_of
from tests.unit.controller.test_control_loop import Loop, Scripted
from tests.worlds import cluster, constraint, node, pods, spec

CLUSTER: Final = "ClusterRebalancePolicy"
NAMESPACED: Final = "RebalancePolicy"
_OF: Final = spec(constraint())
WORLD: Final = cluster(
    [node(f"{zone}1", zone) for zone in "abc"],
    [
        *pods({"a1": 3, "b1": 1}, _OF, annotations=Map({"respread.dev/evict": "never"})),
        *pods({"a1": 2, "b1": 2}, _OF, namespace="shop", prefix="shop"),
    ],
)
GROUPS: Final = spread_of(WORLD).groups
WORDS: Final = sorted(
    {group_name(key) for key in GROUPS}
    | {situation_of(group) for group in GROUPS.values()}
    | {each for pod in WORLD.pods.values() for each in (pod.uid, pod.name, pod.namespace, pod.node_name)}
    | {"a", "b", "c", "web", "ReplicaSet/web", "ReplicaSet", "StatefulSet", "uid-web", "Ready", "Blocked", ""}
)
WITHOUT_SLASH: Final = {
    **dict.fromkeys(("uid", "namespace", "pod", "node", "controllerKind", "controllerName", "controllerUid"), ""),
    "workload": "é" * 512,
    "sent": "2027-01-15T08:00:00Z",
    "newest": "1970-01-01T00:00:00Z",
}
"""A move with a workload of maximum length and without kind and name."""
_MIB: Final = 1 << 20


def any_status(kind: Any) -> st.SearchStrategy[Any]:
    schema = status_schema(kind)
    return statuses(schema, WORDS, unchecked=False) | statuses(schema, WORDS, unchecked=True)


def any_record() -> st.SearchStrategy[Any]:
    schema = record_schema()
    return statuses(schema, WORDS, unchecked=False) | statuses(schema, WORDS, unchecked=True)


class Remembering(Scripted):
    """Answers lists of both kinds with policies that have a status and a record, and notes writes."""

    def __init__(self, found: Mapping[str, Any], recorded: Any) -> None:
        super().__init__()
        self.found = found
        """Statuses by the policies' plural names."""
        self.stored = json.dumps(recorded)

    async def answer(self, method: str, path: str, names: Mapping[str, str], **options: Any) -> Response:
        """Return the answer."""
        del names
        plural = path.split("/{name}", maxsplit=1)[0].rpartition("/")[2]
        if method == "GET" and options.get("query") is not None:
            items: list[dict[str, Any]] = []
            if plural in self.found:
                items = [{"metadata": metadata_of(plural), "status": self.found[plural]}]
            elif (kind := next((each for each, known in RECORD_PLURALS.items() if known == plural), None)) is not None:
                owner = metadata_of(PLURALS[kind])
                items = [{"metadata": {**owner, "name": owner["uid"]}, "record": self.stored}]
            return Response(status_code=200, body=json.dumps({"metadata": {}, "items": items}).encode())
        if "record" in (options.get("body") or {}):
            assert len(options["body"]["record"]) <= MAX_RECORD_LENGTH
            return Response(status_code=201, body=b"{}")
        if method == "PATCH":
            self.written.append((plural, options["body"]["status"]))
            return Response(status_code=200, body=b"{}")
        raise NoResponseError("not now", sent=False)


def metadata_of(plural: str) -> dict[str, Any]:
    namespace = {"namespace": "shop"} if plural == PLURALS[NAMESPACED] else {}
    return {"name": "one", "uid": f"uid-{plural}", "generation": 3, "resourceVersion": "5", **namespace}


def run(found: Mapping[str, Any], recorded: Any) -> list[tuple[str, dict[str, Any]]]:
    """Make a new leader read these statuses and the same record for both, and return what it writes in five hours."""
    requests = Remembering(found, recorded)
    loop = Loop(requests=requests)
    loop.parts.informers.state.apply("nodes", [(each.key, each) for each in WORLD.nodes.values()])
    loop.parts.informers.state.apply("namespaces", [(each.key, each) for each in WORLD.namespaces.values()])
    loop.parts.informers.state.apply("pods", [(each.key, each) for each in WORLD.pods.values()])
    for plural, status in found.items():
        rules = {"mode": "Enforce", "limits": {"perHour": 5}}
        body = {"metadata": metadata_of(plural), "spec": rules, "status": status}
        loop.parts.informer(plural).take_page(page(body, version=200))

    async def reconcile() -> None:
        for seconds in (0.0, 60.0, 400.0, 5 * 3600.0):
            loop.seconds = seconds
            await loop.loop.reconcile()

    asyncio.run(reconcile())
    return requests.written


def assert_admitted(schema: Mapping[str, Any], value: Any, at: str = "status") -> None:
    """Assert that the API server would accept a value; its schema has only these types of bounds."""
    match schema["type"]:
        case "object":
            assert set(schema.get("required", ())) <= set(value), at
            for name, each in value.items():
                if each is not None:  # a merge patch treats null as absent
                    assert_admitted(schema["properties"][name], each, f"{at}.{name}")
        case "array":
            assert len(value) <= schema["maxItems"], at
            if keys := schema.get("x-kubernetes-list-map-keys"):
                assert len({tuple(each[key] for key in keys) for each in value}) == len(value), at
            for number, each in enumerate(value):
                assert_admitted(schema["items"], each, f"{at}[{number}]")
        case "integer":
            assert schema.get("minimum", value) <= value <= schema.get("maximum", value), at
        case "string":
            assert len(value) <= schema.get("maxLength", len(value)), at
            assert value in schema.get("enum", (value,)), at
            assert re.search(schema.get("pattern", ""), value), at


@given(st.data(), st.sampled_from([CLUSTER, NAMESPACED]))
def test_a_decoded_status_is_within_bounds_and_a_valid_one_is_unchanged(data: st.DataObject, kind: Any) -> None:
    read = decode_status({"status": data.draw(any_status(kind))})
    written = encode_status(read)
    assert_admitted(status_schema(kind), written)
    assert decode_status({"status": written}) == read


@given(any_record())
def test_a_decoded_record_is_within_bounds_and_a_valid_one_is_unchanged(recorded: Any) -> None:
    read = decode_record(json.dumps(recorded))
    written = encode_record(read)
    assert_admitted(record_schema(), json.loads(written))
    assert decode_record(written) == read


@settings(max_examples=60)
@given(any_status(CLUSTER), any_status(NAMESPACED), any_record())
@example({}, {}, {"movesInFlight": [WITHOUT_SLASH]})
def test_any_status_and_record_is_recovered_and_overwritten(of_cluster: Any, of_namespace: Any, recorded: Any) -> None:
    written = run({PLURALS[CLUSTER]: of_cluster, PLURALS[NAMESPACED]: of_namespace}, recorded)
    assert {plural for plural, _ in written} == set(PLURALS.values())
    for plural, status in written:
        kind = next(kind for kind, each in PLURALS.items() if each == plural)
        assert_admitted(status_schema(kind), status)


def test_the_largest_status_and_record_are_processed_quickly() -> None:
    """Every list has sixteen items. With more, the object would exceed the 1.5 MiB that the API server stores."""
    status, record = largest(status_schema(CLUSTER), most_items=16), largest(record_schema(), most_items=16)
    size = len(json.dumps(status)) + len(json.dumps(record))
    assert _MIB / 4 < size < 3 * _MIB / 2
    tracemalloc.start()
    try:
        written = run({PLURALS[CLUSTER]: status, PLURALS[NAMESPACED]: status}, record)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert written
    assert peak < 32 * _MIB
