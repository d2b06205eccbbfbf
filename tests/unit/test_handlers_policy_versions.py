"""The policies' versions, as the API server has them."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from aiohttp import web
from immutables import Map

from respread.api.policy import ClusterPolicySpec, Policy
from respread.handlers.listing import ListError
from respread.handlers.policy_versions import PolicyReader, PolicyVersions, versions_of
from respread.handlers.resources import CLUSTER_POLICIES, NAMESPACED_POLICIES
from tests.integration.stub_api_server import Answering, StubApiServer, answering, dropping


def item(name: str, generation: int, namespace: str = "") -> dict[str, Any]:
    metadata = {"name": name, "uid": f"uid-{name}", "generation": generation}
    return {"metadata": metadata | ({"namespace": namespace} if namespace else {})}


def listed(*items: dict[str, Any], rest: str = "") -> dict[str, Any]:
    return {"metadata": {"resourceVersion": "7", **({"continue": rest} if rest else {})}, "items": list(items)}


def read(cluster: Answering, own: Answering | None = None, *, seconds: float = 5.0) -> PolicyVersions:
    stub = StubApiServer()
    stub.on("GET", CLUSTER_POLICIES.path, cluster)
    stub.on("GET", NAMESPACED_POLICIES.path, own or answering({"metadata": {"resourceVersion": "7"}, "items": None}))

    async def ask() -> PolicyVersions:
        async with stub.running() as requests:
            return await PolicyReader(requests, lambda: seconds).read()

    return asyncio.run(ask())


def test_both_kinds_are_read_by_the_names_they_have_here() -> None:
    found = read(answering(listed(item("all", 3))), answering(listed(item("own", 1, "shop"))))
    assert found == PolicyVersions(Map({"all": ("uid-all", 3), "shop/own": ("uid-own", 1)}), 5.0)


def test_they_equal_those_of_the_policies_as_they_are_known() -> None:
    known = Policy(
        kind="ClusterRebalancePolicy", object_name="all", uid="uid-all", generation=3, spec=ClusterPolicySpec()
    )
    assert read(answering(listed(item("all", 3)))).versions == versions_of(Map({"all": known}))


def test_only_metadata_is_asked_for_and_all_pages_are() -> None:
    async def pages(request: web.Request) -> web.StreamResponse:
        assert request.headers["Accept"].startswith("application/json;as=PartialObjectMetadataList;")
        is_first = "continue" not in request.query
        body = listed(item("one", 1), rest="token") if is_first else listed(item("two", 2))
        return web.json_response(body)

    assert set(read(pages).versions) == {"one", "two"}


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        (dropping, "did not answer"),
        (answering("no JSON"), "clusterrebalancepolicies can't be listed: the answer is no list"),
        (
            answering({"metadata": {}, "items": [{"metadata": {}}]}),
            "clusterrebalancepolicies can't be listed: .* no list of them: .* `name`",
        ),
        (answering({"message": "forbidden"}, status=403), "can't be listed: 403, forbidden"),
    ],
)
def test_whatever_is_no_answer_says_nothing(cluster: Answering, words: str) -> None:
    with pytest.raises(ListError, match=words):
        read(cluster)
