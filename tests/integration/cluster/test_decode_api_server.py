"""Respread and the real API server agree on selectors, quantities and lists."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote

import pytest
from immutables import Map

from respread.api.fields import LabelSelector, LabelSelectorRequirement, SelectorOperator
from respread.cluster.decode.decoder import KINDS, Decoder
from respread.cluster.objects import Node
from respread.cluster.quantity import QuantityError, parse_nano
from respread.cluster.selectors import SelectorError, compile_selector
from respread_sandbox import Sandbox
from respread_sandbox.api import ApiError

KEYS = ["app", "tier", "example.com/zone"]
VALUES = ["", "a", "b.c", "D_9"]
OPERATORS: list[SelectorOperator] = ["In", "NotIn", "Exists", "DoesNotExist"]


def some_labels(rng: random.Random) -> dict[str, str]:
    return {key: rng.choice(VALUES) for key in KEYS if rng.random() < 0.6}


def some_selector(rng: random.Random) -> LabelSelector:
    expressions = []
    for _ in range(rng.randrange(3)):
        operator = rng.choice(OPERATORS)
        values = rng.choices(VALUES, k=rng.randint(1, 3)) if operator in {"In", "NotIn"} else ()
        expressions.append(LabelSelectorRequirement(rng.choice(KEYS), operator, tuple(values)))
    labels = some_labels(rng) if rng.random() < 0.4 else {}
    return LabelSelector(Map(labels), tuple(expressions))


@pytest.fixture(scope="module")
def labelled(api_sandbox: Sandbox) -> Iterator[tuple[str, dict[str, dict[str, str]]]]:
    """The path of objects with all kinds of labels, and the labels by name."""
    rng = random.Random(7)
    path = f"/api/v1/namespaces/{api_sandbox.create_namespace('labelled')}/configmaps"
    labels = {f"labelled-{position}": some_labels(rng) for position in range(40)}
    for name, each in labels.items():
        api_sandbox.api.request("POST", path, {"metadata": {"name": name, "labels": each}})
    yield path, labels
    for name in labels:
        api_sandbox.api.request("DELETE", f"{path}/{name}")


def test_the_api_server_and_respread_select_the_same_objects(
    api_sandbox: Sandbox, labelled: tuple[str, dict[str, dict[str, str]]]
) -> None:
    """The text form of a selector is the API server's query language, so the API server can evaluate any selector."""
    path, labels = labelled
    rng = random.Random(8)
    matched = 0
    for _ in range(150):
        selector = compile_selector(some_selector(rng))
        if selector.matches_everything:
            continue
        found = api_sandbox.api.get(f"{path}?labelSelector={quote(str(selector))}")["items"]
        ours = {name for name, each in labels.items() if selector.matches(each)}
        assert {item["metadata"]["name"] for item in found} == ours, str(selector)
        matched += len(ours)
    assert matched > 500


BAD_OR_GOOD: list[dict[str, Any]] = [
    {"matchLabels": {"app": "web"}},
    {"matchLabels": {"app": ""}},
    {"matchLabels": {"": "web"}},
    {"matchLabels": {"app": "-"}},
    {"matchLabels": {"a/b/c": "web"}},
    {"matchLabels": {"example.com/a": "x" * 63}},
    {"matchLabels": {"example.com/a": "x" * 64}},
    {"matchLabels": {"x" * 63: "a"}},
    {"matchLabels": {"x" * 64: "a"}},
    {"matchLabels": {"Example.com/a": "a"}},
    {"matchLabels": {"/a": "a"}},
    {"matchLabels": {"a/": "a"}},
    {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "b"]}]},
    {"matchExpressions": [{"key": "app", "operator": "In"}]},
    {"matchExpressions": [{"key": "app", "operator": "NotIn", "values": []}]},
    {"matchExpressions": [{"key": "app", "operator": "Exists", "values": ["a"]}]},
    {"matchExpressions": [{"key": "app", "operator": "DoesNotExist"}]},
    {"matchExpressions": [{"key": "app", "operator": "Is", "values": ["a"]}]},
    {"matchExpressions": [{"key": "", "operator": "Exists"}]},
    {"matchExpressions": [{"key": "app", "operator": "In", "values": ["a", "?"]}]},
]


@pytest.mark.parametrize("selector", BAD_OR_GOOD, ids=json.dumps)
def test_the_api_server_and_respread_reject_the_same_selectors(api_sandbox: Sandbox, selector: dict[str, Any]) -> None:
    budget = {"metadata": {"name": "tried", "namespace": "default"}, "spec": {"minAvailable": 1, "selector": selector}}
    path = "/apis/policy/v1/namespaces/default/poddisruptionbudgets?dryRun=All"
    try:
        api_sandbox.api.request("POST", path, budget)
        theirs = True
    except ApiError as error:
        assert error.status == 422  # noqa: PT017 - the answer decides what is expected
        theirs = False
    expressions = tuple(
        LabelSelectorRequirement(each["key"], each["operator"], tuple(each.get("values", ())))
        for each in selector.get("matchExpressions", ())
    )
    try:
        compile_selector(LabelSelector(Map(selector.get("matchLabels", {})), expressions))
        ours = True
    except SelectorError:
        ours = False
    assert ours == theirs


QUANTITIES = [
    "0",
    "1",
    "+5",
    "00012",
    "5.",
    ".5",
    "1.5",
    "100m",
    "1e3",
    "1E3",
    "1.5e3",
    "1k",
    "1K",
    "2Ei",
    "9Ei",
    "1Gi",
]
QUANTITIES += ["1.25Ki", "0.1Gi", "1e19", "Ki", "m", "Pi", "", "1 Gi", "1_000", "1e", "1mm", "0x10", "1.5.5", "1e0"]


@pytest.mark.parametrize("quantity", QUANTITIES)
def test_the_api_server_and_respread_parse_quantities_alike(api_sandbox: Sandbox, quantity: str) -> None:
    quota = {"metadata": {"name": "tried", "namespace": "default"}, "spec": {"hard": {"limits.memory": quantity}}}
    path = "/api/v1/namespaces/default/resourcequotas?dryRun=All"
    theirs: int | None
    try:
        answer: str = api_sandbox.api.request("POST", path, quota)["spec"]["hard"]["limits.memory"]
        theirs = parse_nano(answer)
    except ApiError as error:
        assert error.status == 400  # noqa: PT017 - the answer decides what is expected
        theirs = None
    ours: int | None
    try:
        ours = parse_nano(quantity)
    except QuantityError:
        ours = None
    assert ours == theirs


def test_pages_of_a_list_are_decoded_and_the_remaining_fields_kept(api_sandbox: Sandbox) -> None:
    api, path = api_sandbox.api, KINDS["nodes"].path
    for position in range(5):
        api.request("POST", path, {"metadata": {"name": f"paged-{position}", "labels": {"paged": "yes"}}})
        status = {
            "allocatable": {"cpu": "1.5", "memory": "4Gi"},
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": None}],
        }
        api.request("PATCH", f"{path}/paged-{position}/status", {"status": status})
    decoder, nodes, query = Decoder(), [], "limit=2&labelSelector=paged"
    for _ in range(3):
        body = api.client.session.get(f"{api.client.url}{path}?{query}", timeout=30).content
        page = decoder.decode_page("nodes", body)
        assert page.errors == []
        assert json.loads(page.remainder) == {**json.loads(body), "items": []}
        nodes += page.items
        query = f"limit=2&labelSelector=paged&continue={json.loads(page.remainder)['metadata'].get('continue', '')}"

    assert [each.name for each in nodes] == [f"paged-{position}" for position in range(5)]
    for each in nodes:
        assert isinstance(each, Node)
        assert each.ready
        assert each.allocatable == Map(cpu=1500, memory=4 << 30)
        assert decoder.decode_object("nodes", api.get(f"{path}/{each.name}")) == each
        api.request("DELETE", f"{path}/{each.name}")
