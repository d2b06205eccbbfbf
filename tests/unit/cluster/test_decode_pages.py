"""Pages of a LIST: every object separately, and the rest of the document unchanged."""

from __future__ import annotations

import json
from types import MappingProxyType
from typing import Any

import pytest

from respread.cluster.decode.decoder import KINDS, Decoder
from respread.cluster.objects import DecodeError
from respread.cluster.pod import Pod
from respread.cluster.state import RESOURCES

METADATA = {"resourceVersion": "12345", "continue": "eyJ2IjoibWV0YSJ9", "remainingItemCount": 1234}


def page(*items: Any, **members: Any) -> bytes:
    document = {"kind": "PodList", "apiVersion": "v1", "metadata": METADATA, "items": list(items), **members}
    return json.dumps(document).encode()


def pod(name: str, **spec: Any) -> dict[str, Any]:
    return {"metadata": {"namespace": "shop", "name": name}, "spec": {"containers": [], **spec}}


def test_items_are_decoded_in_order_and_the_remaining_list_is_returned() -> None:
    decoded = Decoder().decode_page("pods", page(pod("web-2"), pod("web-1")))

    assert [str(each.key) for each in decoded.items] == ["shop/web-2", "shop/web-1"]
    assert decoded.errors == []
    assert json.loads(decoded.remainder) == json.loads(page())


def test_unknown_fields_of_a_list_are_returned_too() -> None:
    decoded = Decoder().decode_page("pods", page(pod("web-1"), future={"a": [1, 2.50, None, "ü\n"]}))
    assert json.loads(decoded.remainder) == json.loads(page(future={"a": [1, 2.50, None, "ü\n"]}))


@pytest.mark.parametrize("items", ["[]", "null", " [ ] "])
def test_a_list_without_items_is_empty(items: str) -> None:
    decoded = Decoder().decode_page("nodes", f'{{"kind":"NodeList","items":{items},"metadata":{{}}}}'.encode())
    assert decoded.items == []
    assert decoded.errors == []
    assert json.loads(decoded.remainder)["items"] == []


def test_a_malformed_object_does_not_affect_the_others() -> None:
    bad_quantity = pod("bad-quantity", containers=[{"name": "a"}, {"resources": {"requests": {"cpu": "lots"}}}])
    bad_operator = pod(
        "bad-operator",
        topologySpreadConstraints=[
            {
                "maxSkew": 1,
                "topologyKey": "zone",
                "whenUnsatisfiable": "DoNotSchedule",
                "labelSelector": {"matchExpressions": [{"key": "app", "operator": "Is", "values": ["web"]}]},
            }
        ],
    )
    empty_key = pod(
        "empty-key",
        affinity={
            "podAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"topologyKey": "zone", "labelSelector": {"matchExpressions": [{"key": "", "operator": "Exists"}]}}
                ]
            }
        },
    )
    bad_type = pod("bad-type", nodeName=7)
    decoded = Decoder().decode_page(
        "pods", page(pod("web-1"), bad_quantity, bad_operator, empty_key, bad_type, "no object", {}, pod("web-2"))
    )

    assert [str(each.key) for each in decoded.items] == ["shop/web-1", "shop/web-2"]
    assert [str(each) for each in decoded.errors] == [
        (
            "pods shop/bad-quantity: spec.containers[1].resources.requests[cpu]: 'lots' is not a quantity: quantities "
            "must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
        ),
        (
            "pods shop/bad-operator: spec.topologySpreadConstraints[0].labelSelector.matchExpressions[0].operator: "
            "Invalid enum value 'Is'"
        ),
        (
            "pods shop/empty-key: spec.affinity.podAffinity.requiredDuringSchedulingIgnoredDuringExecution[0]"
            ".labelSelector: matchExpressions[0]: '' is not a label key: it is empty"
        ),
        "pods shop/bad-type: spec.nodeName: Expected `str`, got `int`",
        "pods (without a name): Expected `object`, got `str`",
        "pods (without a name): Object missing required field `metadata`",
    ]
    assert (decoded.errors[0].namespace, decoded.errors[0].name) == ("shop", "bad-quantity")
    assert decoded.errors[0].resource == "pods"
    assert decoded.errors[0].path == "spec.containers[1].resources.requests[cpu]"


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (b'{"metadata":{"name":"\xff"}}', "pods (without a name): it is not UTF-8: "),
        (b'{"metadata":{"name":"bad","labels":{"a":"\xff"}}}', "pods bad: metadata.labels: it is not UTF-8: "),
        (b'{"metadata":{"name":"bad"},"spec":{"tolerations":[{"key":"\xff"}]}}', "pods bad: spec: it is not UTF-8: "),
        (
            b'{"metadata":{"name":"bad","creationTimestamp":"2026-03-01T00:00:00"}}',
            "pods bad: metadata.creationTimestamp: Expected `datetime` with a timezone component",
        ),
        (
            b'{"metadata":{"name":"bad"},"spec":{"containers":[{"resources":{"requests":{"cpu":1e999}}}]}}',
            "pods bad: spec.containers[0].resources.requests[...]: Number out of range",
        ),
    ],
)
def test_arbitrary_bytes_in_an_item_do_not_affect_the_others(bad: bytes, message: str) -> None:
    good = b'{"metadata":{"name":"good"}}'
    decoded = Decoder().decode_page("pods", b'{"items":[%s,%s]}' % (bad, good))

    assert [str(each.key) for each in decoded.items] == ["good"]
    assert len(decoded.errors) == 1
    assert str(decoded.errors[0]).startswith(message)


NESTED = b"[" * 100_000 + b"]" * 100_000


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b'"x"',
        b"{",
        b'{"kind":"Status","status":"Failure"}',
        b'{"items":{}}',
        b'{"items":[}',
        b"\xff",
        NESTED,
    ],
    ids=lambda body: repr(body[:20]),
)
def test_a_document_that_is_not_a_list_is_rejected(body: bytes) -> None:
    with pytest.raises(DecodeError, match=r"^pods \(without a name\): .*not a list"):
        Decoder().decode_page("pods", body)


def test_an_item_that_is_nested_too_deeply_does_not_affect_the_others() -> None:
    decoded = Decoder().decode_page("pods", b'{"items":[%s,%s]}' % (NESTED, json.dumps(pod("good")).encode()))
    assert [each.key.name for each in decoded.items] == ["good"]
    assert len(decoded.errors) == 1


def test_the_object_of_an_event_is_decoded_like_an_item_of_a_page() -> None:
    decoder, obj = Decoder(), pod("web-1", nodeName="node-1")
    from_page = decoder.decode_page("pods", page(obj)).items[0]

    assert decoder.decode_object("pods", obj) == from_page
    assert decoder.decode_object("pods", json.dumps(obj).encode()) == from_page


def test_the_object_of_an_event_may_be_any_mapping() -> None:
    """For example Kopf's views of a body."""
    obj = pod("web-1", nodeName="node-1")
    assert Decoder().decode_object("pods", MappingProxyType(obj)) == Decoder().decode_object("pods", obj)


def test_an_error_names_the_object_of_the_event() -> None:
    with pytest.raises(DecodeError) as raised:
        Decoder().decode_object("pods", pod("web-1", priority="high"))
    assert str(raised.value) == "pods shop/web-1: spec.priority: Expected `int | null`, got `str`"


def test_an_error_names_the_field_even_if_metadata_is_malformed() -> None:
    with pytest.raises(DecodeError) as raised:
        Decoder().decode_object("nodes", {"metadata": {"name": ["a"]}})
    assert str(raised.value) == "nodes (without a name): metadata.name: Expected `str`, got `array`"


def test_the_table_of_kinds_is_complete_and_has_their_paths() -> None:
    assert set(KINDS) == RESOURCES
    assert {kind.resource: kind.path for kind in KINDS.values()} == {
        "pods": "/api/v1/pods",
        "nodes": "/api/v1/nodes",
        "namespaces": "/api/v1/namespaces",
        "services": "/api/v1/services",
        "replicationcontrollers": "/api/v1/replicationcontrollers",
        "persistentvolumeclaims": "/api/v1/persistentvolumeclaims",
        "persistentvolumes": "/api/v1/persistentvolumes",
        "poddisruptionbudgets": "/apis/policy/v1/poddisruptionbudgets",
        "resourcequotas": "/api/v1/resourcequotas",
        "replicasets": "/apis/apps/v1/replicasets",
        "statefulsets": "/apis/apps/v1/statefulsets",
        "storageclasses": "/apis/storage.k8s.io/v1/storageclasses",
        "csinodes": "/apis/storage.k8s.io/v1/csinodes",
    }
    assert KINDS["pods"].api_version == "v1"
    assert KINDS["replicasets"].api_version == "apps/v1"


@pytest.mark.parametrize("resource", sorted(KINDS))
def test_every_kind_can_be_decoded_from_its_name_alone(resource: str) -> None:
    """All other fields may be absent, as in objects of old servers or tests."""
    metadata = {"name": "x", **({"namespace": "shop"} if KINDS[resource].namespaced else {})}
    decoded = Decoder().decode_object(resource, {"metadata": metadata})
    assert decoded.name == "x"
    assert isinstance(decoded, Pod) is (resource == "pods")
