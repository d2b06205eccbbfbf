"""Reads of the policies' versions from the API server."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from aiohttp import web
from immutables import Map

from respread.api.policy import ClusterPolicySpec, Policy
from respread.cluster.decode.decoder import Kind
from respread.cluster.stores import CLUSTER_POLICIES, NAMESPACED_POLICIES, POLICY_KINDS
from respread.controller.permission import EVERYWHERE, MOST_POLICIES, PolicyVersions, read_versions, versions_of
from respread.kube.listing import ListError
from tests.integration.stub_api_server import Answering, StubApiServer, answering, dropping


def item(name: str, generation: int, namespace: str = "") -> dict[str, Any]:
    metadata = {"name": name, "uid": f"uid-{name}", "generation": generation}
    return {"metadata": metadata | ({"namespace": namespace} if namespace else {})}


def listed(*items: dict[str, Any], rest: str = "") -> dict[str, Any]:
    return {"metadata": {"resourceVersion": "7", **({"continue": rest} if rest else {})}, "items": list(items)}


async def read(
    answer: Answering, *, namespace: str = EVERYWHERE, kinds: Iterable[Kind] = POLICY_KINDS
) -> PolicyVersions:
    """Read from an API server that answers for one namespace only."""
    stub = StubApiServer()
    path = NAMESPACED_POLICIES.path_in_namespace.format(namespace=namespace) if namespace else CLUSTER_POLICIES.path
    stub.on("GET", path, answer)
    async with stub.running() as requests:
        found = await read_versions(requests, lambda: 5.0, namespace, kinds=kinds)
    assert {asked for _, asked in stub.requests} <= {path}  # no other path is requested
    return found


async def test_cluster_and_namespaced_policies_are_read_separately_with_full_names() -> None:
    spec = ClusterPolicySpec()
    known = Policy(kind="ClusterRebalancePolicy", object_name="all", uid="uid-all", generation=3, spec=spec)
    assert await read(answering(listed(item("all", 3)))) == PolicyVersions(versions_of(Map({"all": known})), 5.0)
    own = await read(answering(listed(item("own", 1, "shop"))), namespace="shop")
    assert own == PolicyVersions(Map({"shop/own": ("uid-own", 1)}), 5.0)
    none = await read(answering({"metadata": {"resourceVersion": "7"}, "items": None}), namespace="shop")
    assert none == PolicyVersions(Map(), 5.0)


async def test_a_kind_that_is_ignored_is_not_requested() -> None:
    assert await read(dropping, namespace="shop", kinds=(CLUSTER_POLICIES,)) == PolicyVersions(Map(), 5.0)


async def test_too_many_policies_are_not_read_at_all() -> None:
    pages: list[int] = []

    async def endless(request: web.Request) -> web.StreamResponse:
        limit = int(request.query["limit"])
        pages.append(limit)
        found = [item(f"own-{len(pages)}-{number}", 1, "shop") for number in range(limit)]
        return web.json_response(listed(*found, rest="token"))

    with pytest.raises(ListError, match=f"there are more than {MOST_POLICIES} in shop"):
        await read(endless, namespace="shop")
    assert (sum(pages), len(pages)) == (MOST_POLICIES, 40)
    assert max(pages) * 256 * 1024 < 10 * 2**20  # the annotations of a page, which tenants write


async def test_only_metadata_is_requested_and_all_pages_are_read() -> None:
    async def pages(request: web.Request) -> web.StreamResponse:
        assert request.headers["Accept"].startswith("application/json;as=PartialObjectMetadataList;")
        is_first = "continue" not in request.query
        assert request.query["limit"] == "500", "as client-go asks"
        return web.json_response(listed(*most, rest="token") if is_first else listed(item("last", 1)))

    most = [item(f"cluster-{number}", 1) for number in range(MOST_POLICIES)]  # which only a namespace may not have
    assert len((await read(pages)).versions) == MOST_POLICIES + 1


@pytest.mark.parametrize(
    ("cluster", "words"),
    [
        (dropping, "did not answer"),
        (answering("no JSON"), "clusterrebalancepolicies can't be listed: the answer is not a list"),
        (
            answering({"metadata": {}, "items": [{"metadata": {}}]}),
            "clusterrebalancepolicies can't be listed: .* not a list of them: .* `name`",
        ),
        (answering({"message": "forbidden"}, status=403), "can't be listed: 403, forbidden"),
    ],
)
async def test_a_malformed_answer_is_an_error(cluster: Answering, words: str) -> None:
    with pytest.raises(ListError, match=words):
        await read(cluster)
