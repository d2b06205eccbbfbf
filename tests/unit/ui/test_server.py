"""The page's server over real HTTP: its responses, who may use it, and its messages about changes."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
import time
from collections.abc import AsyncIterator
from contextlib import closing

import aiohttp
import pytest

from respread_cli.page import ASSETS
from respread_cli.report.what_if import Cancellation
from respread_cli.ui.engine import Engine
from respread_cli.ui.guard import HEADERS, Guard, new_token
from respread_cli.ui.server import listener_on
from respread_cli.ui.what_if import WhatIfAnswer, WhatIfRequest
from tests.unit.ui.clusters import web, zones
from tests.unit.ui.served import served


async def events(response: aiohttp.ClientResponse) -> AsyncIterator[tuple[str, str]]:
    name = ""
    async for line in response.content:
        field, _, value = line.decode().rstrip("\n").partition(": ")
        if field == "event":
            name = value
        elif field == "data":
            yield name, value


async def test_the_page_and_its_files_are_served_with_strict_headers() -> None:
    async with served([*zones("a", "b"), *web(3, 1)]) as page:
        for path in ("", *ASSETS):
            async with page.client.get(page.url + path) as response:
                assert response.status == 200, path
                assert {name: response.headers[name] for name in HEADERS} == HEADERS
        async with page.client.get(page.url + "secrets.txt") as response:
            assert response.status == 404


@pytest.mark.parametrize(
    ("change", "headers"),
    [
        (("/a-secret/", "/wrong/"), {}),
        (("/a-secret/", "/"), {}),
        (("", ""), {"Host": "attacker.example"}),
        (("", ""), {"Origin": "http://attacker.example"}),
        (("", ""), {"Sec-Fetch-Site": "same-site"}),
    ],
)
async def test_other_clients_get_no_data(change: tuple[str, str], headers: dict[str, str]) -> None:
    async with served([*zones("a", "b"), *web(3, 1)]) as page:
        for path in (
            "",
            "app.js",
            "api/cluster",
            "api/nodes",
            "api/events",
            "api/history",
            "api/changes",
            "api/workload?workload=web",
        ):
            url = (page.url + path).replace(*change) if change[0] else page.url + path
            async with page.client.get(url, headers=headers) as response:
                assert response.status == 403, path
                assert "web" not in await response.text()
        async with page.client.post(page.url.replace(*change) + "api/simulate", json={}, headers=headers) as response:
            assert response.status == 403


async def test_the_views_are_answered_as_json() -> None:
    async with served([*zones("a", "b"), *web(3, 1)]) as page:
        cluster = await page.get("api/cluster")
        assert (cluster["version"], cluster["live"], cluster["overview"]["violated"]) == (1, True, 1)
        workload = await page.get("api/workload?namespace=default&workload=deploy/web")
        assert workload["explain"]["kind"] == "ExplainReport"
        assert [node["name"] for node in await page.get("api/nodes")] == ["node-a", "node-b"]  # type: ignore[index]
        async with page.client.post(page.url + "api/simulate", json={"scale": ["default/deploy/web=2"]}) as response:
            answer = await response.json()
        assert answer["report"]["scaled"][0]["replicas"] == 2
        assert answer["command"] == "respread simulate --scale default/deploy/web=2"


async def test_a_simulation_ends_with_its_request_and_nothing_else_waits_for_it() -> None:
    begun, ended = threading.Event(), threading.Event()

    class Endless(Engine):
        """Simulates until the request for the outcome has ended."""

        def simulate(self, request: WhatIfRequest, cancellation: Cancellation) -> WhatIfAnswer:
            assert request.drain == ("node-a",)
            begun.set()
            try:
                while True:
                    cancellation.check()
                    time.sleep(0.01)
            finally:
                ended.set()

    async with asyncio.timeout(60), served([*zones("a", "b"), *web(3, 1)], kind=Endless) as page:

        async def ask() -> None:
            async with page.client.post(page.url + "api/simulate", json={"drain": ["node-a"]}):
                pass

        asking = asyncio.create_task(ask())
        assert await asyncio.to_thread(begun.wait, 60)
        assert (await page.get("api/cluster"))["version"] == 1
        assert not ended.is_set()
        asking.cancel()
        assert await asyncio.to_thread(ended.wait, 60)


async def test_an_invalid_request_is_an_error_with_a_reason() -> None:
    async with served([*zones("a", "b"), *web(3, 1)]) as page:
        for body, status in (({"drain": ["nowhere"]}, 422), ({"evict": ["web"]}, 400), ({"drain": "a"}, 400)):
            async with page.client.post(page.url + "api/simulate", json=body) as response:
                assert response.status == status
                assert (await response.json())["error"]
        async with page.client.post(page.url + "api/simulate", data="drain=node-a") as response:
            assert response.status == 415  # a form of another site could send this without a preflight request
        for view in ("workload", "events"):
            async with page.client.get(f"{page.url}api/{view}?workload=deploy/none") as response:
                assert response.status == 422


async def test_a_change_of_the_cluster_is_sent_to_every_open_page() -> None:
    async with (
        asyncio.timeout(120),
        served([*zones("a", "b"), *web(2, 2), *web(1, 1, name="other")]) as page,
        page.client.get(page.url + "api/changes") as one,
        page.client.get(page.url + "api/changes") as two,
    ):
        streams = [events(one), events(two)]
        for stream in streams:
            assert await anext(stream) == ("version", "1")
        page.change(web(4, 2))
        for stream in streams:
            name, data = await anext(stream)
            update = json.loads(data)
            assert name == "update"
            assert update["change"]["version"] == 2
            (row,) = update["change"]["rows"]
            assert row["group"]["workloads"] == [{"kind": "Deployment", "name": "web"}]
            assert row["group"]["skew"] == 2
            assert update["change"]["fields"]["violated"] == 1


async def test_another_context_is_shown_to_every_open_page_once_it_was_read() -> None:
    west = {"west": [*zones("a", "b"), *web(2, 2, name="other")]}
    async with (
        asyncio.timeout(120),
        served([*zones("a", "b"), *web(3, 1)], others=west) as page,
        page.client.get(page.url + "api/changes") as stream,
    ):
        assert await page.get("api/contexts") == ["west", "broken"]  # type: ignore[comparison-overlap]
        for body, status in (({"context": "broken"}, 422), ({"context": "none"}, 422), ({"name": "west"}, 400)):
            async with page.client.post(page.url + "api/context", json=body) as response:
                assert response.status == status
                assert (await response.json())["error"]
        assert (await page.get("api/cluster"))["overview"]["violated"] == 1
        async with page.client.post(page.url + "api/context", json={"context": "west"}) as response:
            assert response.status == 200
        shown = await page.get("api/cluster")
        assert (shown["overview"]["source"], shown["overview"]["violated"]) == ("context west", 0)
        assert [each async for each in events(stream)] == [("version", "1")]  # it ended, so the browser loads again


async def test_large_answers_are_compressed() -> None:
    pods = [pod for number in range(50) for pod in web(1, 1, name=f"w{number}")]
    async with (
        served([*zones("a", "b"), *pods]) as page,
        aiohttp.ClientSession(auto_decompress=False) as client,
        client.get(page.url + "api/cluster", headers={"Accept-Encoding": "gzip"}) as response,
    ):
        body = await response.read()
    assert len(gzip.decompress(body)) > 5 * len(body)


async def test_environment_variables_and_commands_are_never_sent() -> None:
    pods = web(3, 1)
    for pod in pods:
        pod["spec"]["containers"] = [
            {
                "name": "main",
                "image": "app",
                "env": [{"name": "PASSWORD", "value": "hunter2"}],
                "args": ["--key=hunter2"],
            }
        ]
        pod["metadata"]["annotations"] = {"note": "hunter2"}
    async with served([*zones("a", "b"), *pods]) as page:
        for path in ("api/cluster", "api/nodes", "api/workload?namespace=default&workload=deploy/web"):
            assert "hunter2" not in json.dumps(await page.get(path))


def test_the_server_listens_on_the_loopback_interface_only() -> None:
    with closing(listener_on(0)) as listener:
        assert listener.getsockname()[0] == "127.0.0.1"


def test_the_files_are_small_and_contain_no_url_of_another_site() -> None:
    compressed = sum(len(gzip.compress(asset.content)) for asset in ASSETS.values())
    assert compressed <= 150_000
    for name, asset in ASSETS.items():
        text = asset.content.decode().replace("http://www.w3.org/2000/svg", "")
        assert "http://" not in text, name
        assert "https://" not in text, name
        assert "innerHTML" not in text, name
        assert " style=" not in text, name


GUARD = Guard("secret", 8000)
BROWSER = {"Host": "127.0.0.1:8000", "Sec-Fetch-Site": "same-origin"}


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "127.0.0.1:8000"},
        {"Host": "localhost:8000"},
        BROWSER,
        BROWSER | {"Origin": "http://127.0.0.1:8000"},
        {"Host": "127.0.0.1:8000", "Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate"},  # a link in a chat
    ],
)
def test_requests_of_the_users_browser_are_answered(headers: dict[str, str]) -> None:
    assert GUARD.refusal(headers, "secret") is None


@pytest.mark.parametrize(
    ("headers", "token"),
    [
        (BROWSER, "wrong"),
        (BROWSER, ""),
        ({}, "secret"),
        (BROWSER | {"Host": "attacker.example:8000"}, "secret"),  # DNS rebinding
        (BROWSER | {"Host": "127.0.0.1:8001"}, "secret"),
        (BROWSER | {"Origin": "http://attacker.example"}, "secret"),
        (BROWSER | {"Origin": "null"}, "secret"),
        (BROWSER | {"Sec-Fetch-Site": "cross-site"}, "secret"),
        (BROWSER | {"Sec-Fetch-Site": "same-site"}, "secret"),  # another port of this machine
    ],
)
def test_other_requests_are_rejected(headers: dict[str, str], token: str) -> None:
    assert GUARD.refusal(headers, token) is not None


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "127.0.0.1:9000"},  # kubectl port-forward 9000:8765
        {"Host": "localhost:8765", "Origin": "http://localhost:8765"},
        {"Host": "page.example", "Origin": "https://page.example", "Sec-Fetch-Site": "same-origin"},
    ],
)
def test_a_page_without_token_answers_forwarded_ports_and_the_names_of_proxies(headers: dict[str, str]) -> None:
    assert Guard(None, 8765, ["page.example"]).refusal(headers, "") is None


@pytest.mark.parametrize(
    "headers",
    [
        {"Host": "10.0.0.1:8765"},
        {"Host": "attacker.example:8765"},  # DNS rebinding
        {"Host": "127.0.0.1:9000", "Origin": "http://attacker.example"},
        {"Host": "127.0.0.1:9000", "Origin": "http://127.0.0.1:3000"},  # another program's page on the same machine
        {"Host": "page.example", "Sec-Fetch-Site": "cross-site"},
    ],
)
def test_a_page_without_token_refuses_other_names_and_sites(headers: dict[str, str]) -> None:
    assert Guard(None, 8765, ["page.example"]).refusal(headers, "") is not None


def test_tokens_are_long_and_unique() -> None:
    assert len({new_token() for _ in range(10)}) == 10
    assert len(new_token()) >= 32


def test_only_scripts_of_the_page_are_allowed() -> None:
    policy = HEADERS["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "script-src 'self'" in policy
    assert "unsafe" not in policy
