"""A followed cluster: changes from watches, and messages while the API server can't be reached."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from respread.cluster.decode.decoder import KINDS
from respread.cluster.stores import CLUSTER_POLICIES
from respread.timing import GrowingPause
from respread_cli.read import following
from respread_cli.read.cluster_view import ConnectionOptions, WantedKind
from respread_cli.read.connection import connect
from respread_cli.read.following import FollowedCluster
from tests.integration.stub_api_server import write_kubeconfig
from tests.unit.cli.snapshots import manifest_of_node

LONG_SECONDS = 60


class Nodes(BaseHTTPRequestHandler):
    """An API server with one node that adds one more with each watch."""

    watches = 0
    refusals = 0
    """The number of further requests for nodes that it forbids."""

    def do_GET(self) -> None:
        if type(self).refusals and "nodes" in self.path:
            type(self).refusals -= 1
            return self.send_error(403)
        if "respread.dev" in self.path:
            return self.send_error(404)
        if "watch=1" not in self.path:
            items = [manifest_of_node("node-a", "zone-a")]
            kind = {"kind": "NodeList", "apiVersion": "v1", "metadata": {"resourceVersion": "1"}, "items": items}
            return self.answer(json.dumps(kind).encode() if "nodes" in self.path else b'{"gitVersion": "v1.36.3"}')
        type(self).watches += 1
        node = manifest_of_node(f"node-{self.watches}", "zone-b")
        node["metadata"]["resourceVersion"] = str(1 + self.watches)
        return self.answer(json.dumps({"type": "ADDED", "object": node}).encode() + b"\n")

    def answer(self, body: bytes) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        """Ignore the message."""


@contextmanager
def api_server(port: int = 0) -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", port), Nodes)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def wait_for(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + LONG_SECONDS
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.01)


@pytest.fixture
def kubeconfig(tmp_path: Path) -> Callable[[int], str]:
    def write(port: int) -> str:
        file = tmp_path / "config"
        write_kubeconfig(file, f"http://127.0.0.1:{port}", "any")
        return str(file)

    return write


def test_watches_deliver_changes_and_an_outage_is_reported_once(
    kubeconfig: Callable[[int], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    # So that a missing kind is requested again soon.
    monkeypatch.setattr(following, "PAUSE_IF_REFUSED", GrowingPause(0.1, 30.0))

    def nodes() -> int:
        view = cluster.take()
        return 0 if view is None else len(view.snapshot.nodes)

    with api_server() as port:
        connection = connect(ConnectionOptions(kubeconfig(port)))
        cluster = FollowedCluster(connection, lambda: None)
        cluster.start([WantedKind(KINDS["nodes"], required=True), WantedKind(CLUSTER_POLICIES, required=True)])
        wait_for(lambda: nodes() >= 3)  # each watch ends after one event, and the next one continues there
        assert cluster.lost is None
    wait_for(lambda: nodes() > 0 and cluster.lost is not None)
    since = cluster.lost
    assert since is not None
    assert "can't be reached" in since.message or "broke" in since.message
    time.sleep(1.2)  # time for two more attempts
    before = nodes()
    assert cluster.lost == since
    with api_server(port):
        wait_for(lambda: nodes() > before and cluster.lost is None)
    cluster.close()
    connection.close()


def test_requests_are_repeated_soon_after_a_temporary_403(kubeconfig: Callable[[int], str]) -> None:
    with api_server() as port:
        connection = connect(ConnectionOptions(kubeconfig(port)))
        cluster = FollowedCluster(connection, lambda: None)
        cluster.start([WantedKind(KINDS["nodes"], required=True)])
        wait_for(lambda: cluster.take() is not None)
        Nodes.refusals = 2  # two answers of 403, as after a restart
        begun = time.monotonic()
        wait_for(lambda: cluster.take() is not None and cluster.lost is not None)
        wait_for(lambda: cluster.take() is not None and cluster.lost is None)
        assert time.monotonic() - begun < 20  # usually 3 s; with a fault, each refusal took 30 s
    cluster.close()
    connection.close()
