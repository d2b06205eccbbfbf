"""No answer of the API server or of a proxy ends the process. Kopf runs against each kind of answer.

The answers are derived from Kopf's source (`_cogs/clients`). An exception that `request`, `fetch_objs`, `watch_objs`
and `scan_resources` do not catch ends the operator.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from aiohttp import web
from kopf._cogs.aiokits.aiotoggles import ToggleSet

from respread.cluster.stores import watched_kinds
from respread.handlers.operator import run_operator
from respread.kube.access import ClusterAccess, Renewal, load_access
from tests.informer_parts import Parts, pod
from tests.integration.stub_api_server import dropping, write_kubeconfig
from tests.unit.handlers.scripted_cluster import ScriptedCluster, Spoil, discovery_paths
from tests.virtual_time import until

PATHS = [kind.path for kind in watched_kinds()]
PODS = "/api/v1/pods"


def refusing(code: int, header: str = "X-Any", value: str = "") -> Spoil:
    async def give(_: web.Request) -> web.StreamResponse:
        document = {"kind": "Status", "code": code, "message": "not now"}
        return web.json_response(document, status=code, headers={header: value})

    return give


def saying(body: bytes, code: int = 200, content_type: str = "application/json") -> Spoil:
    async def give(_: web.Request) -> web.StreamResponse:
        return web.Response(status=code, body=body, headers={"Content-Type": content_type})

    return give


def writing(text: str) -> Spoil:
    """Write a text unchanged, and close the connection."""

    async def give(request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        request.transport.write(text.encode())
        await asyncio.sleep(0.01)
        request.transport.close()
        return web.Response()

    return give


FAULTS: dict[str, Spoil] = {
    **{f"{code}": refusing(code) for code in (400, 401, 403, 404, 405, 409, 410, 422, 500, 503, 504)},
    "429": refusing(429, "Retry-After", "0"),
    "429 until a date": refusing(429, "Retry-After", "Sat, 21 Nov 2026 12:00:00 GMT"),
    "a page in Latin-1": saying("<p>défaillant".encode("latin-1"), 502, "text/html"),
    "a login page": saying(b"<html>please log in</html>", 200, "text/html"),
    "another document": saying(b'["what"]'),
    "cut off": writing("HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 100\r\n\r\n{"),
    "a refusal cut off": writing("HTTP/1.1 500 No\r\nContent-Length: 100\r\n\r\n{"),
    "no HTTP": writing("SSH-2.0-OpenSSH_9.9\r\n"),
    "a redirection": refusing(302, "Location", "http://127.0.0.1:9/login"),
    "a redirection to nowhere": refusing(302),
    "nothing": saying(b"", 204),
    "a status that is none": refusing(666),
    "a lost connection": dropping,
}
NAMES = list(FAULTS)


@pytest.mark.parametrize("first", range(0, len(NAMES), 6), ids=lambda first: f"from {NAMES[first]}")
def test_the_operator_survives_any_single_faulty_answer(tmp_path: Path, first: int) -> None:
    """Each request gets another fault, and the faults rotate from test to test."""

    def assign(asked: list[str], shift: int) -> dict[str, Spoil]:
        return {each: FAULTS[NAMES[(number + shift) % len(NAMES)]] for number, each in enumerate(asked)}

    spoilt = {
        **assign(discovery_paths(), first),
        **assign([f"list {path}" for path in PATHS], first),
        **assign([f"watch {path}" for path in PATHS], first + 1),
    }

    async def recovers(cluster: ScriptedCluster, parts: Parts) -> None:
        event = {"type": "ADDED", "object": {"apiVersion": "v1", "kind": "Pod", **pod("web", 200)}}
        cluster.bring(PODS, event)
        await until(lambda: {key.name for key in parts.informers.state.snapshot.pods} == {"web"})
        await until(lambda: all(cluster.asked[f"watch {path}"] > 1 for path in PATHS))
        await until(lambda: all(check.passed for check in parts.health.sync_checks()))

    run(ScriptedCluster(spoilt), tmp_path, recovers)


@pytest.mark.parametrize("name", [name for name in NAMES if name != "401"])
def test_the_operator_recovers_from_any_faulty_watch(tmp_path: Path, name: str) -> None:
    """After a failed watch the kind is listed or watched again, and later events are known."""
    cluster = ScriptedCluster({f"watch {PODS}": FAULTS[name]})

    async def recovers(cluster: ScriptedCluster, parts: Parts) -> None:
        cluster.bring(PODS, {"type": "ADDED", "object": {"apiVersion": "v1", "kind": "Pod", **pod("web", 200)}})
        await until(lambda: {key.name for key in parts.informers.state.snapshot.pods} == {"web"})
        assert cluster.asked[f"watch {PODS}"] == 2

    run(cluster, tmp_path, recovers)


def test_every_kind_is_watched_whatever_discovery_says(tmp_path: Path) -> None:
    """Kopf reads it once, maybe from another API server, which does not know a new kind yet."""
    nothing_yet = saying(b'{"versions": [], "groups": [], "resources": []}')
    asked = [path for path in discovery_paths() if "respread.dev" not in path]  # which is asked for before Kopf begins

    async def recovers(cluster: ScriptedCluster, parts: Parts) -> None:
        await until(lambda: parts.health.synced)
        assert all(cluster.asked[path] == 1 for path in asked)

    run(ScriptedCluster(dict.fromkeys(asked, nothing_yet)), tmp_path, recovers)


def test_the_kind_of_a_silent_watch_is_listed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A list shows what the watch did not deliver, even if the version of the watch is one of the future."""
    for module in ("handlers.operator", "telemetry.health"):
        monkeypatch.setattr(f"respread.{module}.SILENT_SECONDS", 0.3)

    async def recovers(cluster: ScriptedCluster, parts: Parts) -> None:
        await until(lambda: cluster.asked[f"list {PODS}"] > 2)
        assert parts.health.synced

    run(ScriptedCluster({}), tmp_path, recovers)


def test_the_operator_waits_for_missing_credentials_after_they_are_rejected(tmp_path: Path) -> None:
    kubeconfig, away = tmp_path / "kubeconfig", tmp_path / "away"

    async def refuse(request: web.Request) -> web.StreamResponse:
        kubeconfig.rename(away)
        return await refusing(401)(request)

    async def recovers(cluster: ScriptedCluster, parts: Parts) -> None:
        await until(away.exists)
        await asyncio.sleep(1)  # time for several attempts
        assert not parts.health.synced
        away.rename(kubeconfig)
        await until(lambda: parts.health.synced)
        assert cluster.asked[f"list {PODS}"] == 2

    run(ScriptedCluster({f"list {PODS}": refuse}), tmp_path, recovers)


def test_the_operator_stops_while_a_watch_starts_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two watches Kopf ends a task of its own, and takes a cancellation of the watch for that one's."""
    wait_for, between = ToggleSet.wait_for, asyncio.Event()

    async def wait_for_slowly_ended(toggles: ToggleSet, state: bool) -> None:
        try:
            await wait_for(toggles, state)
        except asyncio.CancelledError:
            if not between.is_set():
                between.set()
                await asyncio.sleep(3600)
            raise

    monkeypatch.setattr(ToggleSet, "wait_for", wait_for_slowly_ended)

    async def reaches_it(_: ScriptedCluster, __: Parts) -> None:
        await between.wait()

    run(ScriptedCluster({f"watch {PODS}": refusing(410)}), tmp_path, reaches_it)


def run(
    cluster: ScriptedCluster, tmp_path: Path, scenario: Callable[[ScriptedCluster, Parts], Awaitable[None]]
) -> None:
    """Run the operator against a cluster. It must still run at the end, and stop on command."""
    parts, kubeconfig = Parts(), tmp_path / "kubeconfig"

    def load() -> ClusterAccess:
        return load_access(kubeconfig=str(kubeconfig))

    async def operate() -> None:
        async with asyncio.timeout(60), cluster.running():
            write_kubeconfig(kubeconfig, cluster.server, "secret")
            renewal, stop = Renewal(load(), load, time.monotonic), asyncio.Event()
            running = asyncio.create_task(
                run_operator(parts.informers, parts.metrics, identity="test", renewal=renewal, stop=stop)
            )
            working = asyncio.ensure_future(scenario(cluster, parts))
            done, _ = await asyncio.wait((running, working), return_when=asyncio.FIRST_COMPLETED)
            stop.set()
            if running in done:
                working.cancel()
            await running
            await working

    asyncio.run(operate())
