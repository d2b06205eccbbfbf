"""Every setting of a kubeconfig for reaching the API server, for the operator's requests and the commands'."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import socket
import socketserver
import stat
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from http import HTTPStatus
from pathlib import Path
from typing import Any, ClassVar

import pytest
import yaml

from respread.handlers.session import open_session
from respread.kube.access import ClusterAccess, find_service_account, load_access
from respread.kube.requests import open_requests
from respread_cli.read.connection import open_connection
from respread_sandbox import Binaries, Sandbox

Change = Callable[[Sandbox, Path, dict[str, Any]], None]
"""Makes a variant of the administrator's kubeconfig with the same permissions."""

PATH = "/api/v1/namespaces/kube-system"


class Tunnel(socketserver.BaseRequestHandler):
    """A proxy that supports only CONNECT."""

    asked: ClassVar[list[str]] = []

    def handle(self) -> None:
        """Return the client and the requested address."""
        head = b""
        while b"\r\n\r\n" not in head:
            head += self.request.recv(1)
        target = head.split()[1].decode()
        self.asked.append(target)
        host, _, port = target.rpartition(":")
        with socket.create_connection((host, int(port))) as other:
            self.request.sendall(b"HTTP/1.1 200 Connection established\r\n\r\n")
            back = threading.Thread(target=pump, args=(other, self.request), daemon=True)
            back.start()
            pump(self.request, other)
            back.join()


def pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        pass  # the peer has closed the connection


@pytest.fixture
def proxy() -> Iterator[str]:
    Tunnel.asked.clear()
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Tunnel) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def unchanged(_sandbox: Sandbox, _folder: Path, _content: dict[str, Any]) -> None:
    """Change nothing."""


def relative_files(sandbox: Sandbox, folder: Path, content: dict[str, Any]) -> None:
    (folder / "ca.crt").write_bytes(sandbox.files.serving_certificate.read_bytes())
    (folder / "token").write_text(f"{content['users'][0]['user'].pop('token')}\n", encoding="utf-8")
    content["users"][0]["user"]["tokenFile"] = "token"
    content["clusters"][0]["cluster"]["certificate-authority"] = "ca.crt"


def everything_inline(sandbox: Sandbox, folder: Path, content: dict[str, Any]) -> None:
    content["clusters"][0]["cluster"] = {
        "server": content["clusters"][0]["cluster"]["server"],
        "certificate-authority-data": base64.b64encode(sandbox.files.serving_certificate.read_bytes()).decode(),
    }
    certificate, key = client_certificate(folder)
    content["users"][0]["user"]["client-certificate-data"] = base64.b64encode(certificate.read_bytes()).decode()
    content["users"][0]["user"]["client-key-data"] = base64.b64encode(key.read_bytes()).decode()


def client_certificate(folder: Path) -> tuple[Path, Path]:
    """Return a certificate that the API server does not request, and its key."""
    certificate, key = folder / "me.crt", folder / "me.key"
    made = ["req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-subj", "/CN=me"]
    subprocess.run(["openssl", *made, "-keyout", key, "-out", certificate], check=True, capture_output=True)
    return certificate, key


def client_certificate_in_files(_sandbox: Sandbox, folder: Path, content: dict[str, Any]) -> None:
    client_certificate(folder)
    content["users"][0]["user"].update({"client-certificate": "me.crt", "client-key": "me.key"})


def another_name(_sandbox: Sandbox, _folder: Path, content: dict[str, Any]) -> None:
    content["clusters"][0]["cluster"]["tls-server-name"] = "kubernetes.default.svc"


def not_verified(_sandbox: Sandbox, _folder: Path, content: dict[str, Any]) -> None:
    cluster = content["clusters"][0]["cluster"]
    del cluster["certificate-authority"]
    cluster.update({"insecure-skip-tls-verify": True, "tls-server-name": "somebody.else"})


def exec_plugin(_sandbox: Sandbox, folder: Path, content: dict[str, Any]) -> None:
    version = "client.authentication.k8s.io/v1"
    answer = {
        "apiVersion": version,
        "kind": "ExecCredential",
        "status": {"token": content["users"][0]["user"]["token"]},
    }
    plugin = folder / "plugin"
    plugin.write_text(f"#!{sys.executable}\nprint({json.dumps(json.dumps(answer))})\n", encoding="utf-8")
    plugin.chmod(stat.S_IRWXU)
    content["users"][0]["user"] = {"exec": {"apiVersion": version, "command": str(plugin), "interactiveMode": "Never"}}


def statuses(access: ClusterAccess) -> tuple[int, int]:
    """Return the API server's answers to the operator's requests and the commands', as status codes."""

    async def operator() -> int:
        async with open_requests(access) as requests:
            return (await requests.send("GET", PATH, {}, timeout_seconds=30)).status_code

    connection = open_connection(access)
    try:
        return asyncio.run(operator()), connection.client.session.get(
            access.endpoint.server + PATH, timeout=30
        ).status_code
    finally:
        connection.close()


OK = (HTTPStatus.OK, HTTPStatus.OK)


@pytest.mark.filterwarnings("ignore::urllib3.exceptions.InsecureRequestWarning")
@pytest.mark.parametrize(
    "change",
    [
        unchanged,
        relative_files,
        everything_inline,
        client_certificate_in_files,
        another_name,
        not_verified,
        exec_plugin,
    ],
    ids=lambda change: change.__name__,
)
def test_a_kubeconfig_works_for_both_clients(api_sandbox: Sandbox, tmp_path: Path, change: Change) -> None:
    content = yaml.safe_load(api_sandbox.kubeconfig.read_text())
    change(api_sandbox, tmp_path, content)
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(content))
    assert statuses(load_access(kubeconfig=str(file))) == OK


def test_both_clients_use_the_proxy_of_the_kubeconfig(api_sandbox: Sandbox, tmp_path: Path, proxy: str) -> None:
    content = yaml.safe_load(api_sandbox.kubeconfig.read_text())
    content["clusters"][0]["cluster"]["proxy-url"] = proxy
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(content))
    assert statuses(load_access(kubeconfig=str(file))) == OK
    assert Tunnel.asked == [api_sandbox.server.removeprefix("https://")] * 2


BY_ADDRESS = "https://240.0.0.1:6443"
BY_IPV6 = "https://[fd00::1]:443"
BY_NAME = "https://api.test.invalid:6443"


def test_the_environment_chooses_the_same_proxy_as_for_kubectl(
    binaries: Binaries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, proxy: str
) -> None:
    """The addresses can't be reached, and the names don't exist: the proxy shows what it was asked for."""
    cases = [
        *((BY_ADDRESS, each) for each in ("", "10.0.0.0/8,.svc", "10.0.0.0/8, 240.0.0.0/16")),
        *((BY_ADDRESS, each) for each in ("240.0.0.1", "240.0.0.1:443", "240.0.0.1:6443")),
        *((BY_IPV6, each) for each in ("fd00::/64", "fd00::1", "[fd00::1]:443", "[fd00::1]:6443", "fd00::/a,,fd00")),
        *((BY_NAME, each) for each in ("test.invalid", ".test.invalid", "*.test.invalid:6443", "*", "TEST.INVALID")),
        *((BY_NAME, each) for each in ("i.test.invalid,api.test.invalid:443", ".api.test.invalid")),
        *((server, "") for server in ("https://127.0.0.1:1", "https://localhost:1", "https://[::1]:1")),
    ]
    file = tmp_path / "kubeconfig"
    for name in ("http_proxy", "https_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    ours, theirs = {}, {}
    for server, exceptions in cases:
        content = {
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": {"token": "t"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
            "current-context": "x",
        }
        file.write_text(yaml.safe_dump(content))
        environment = {"HTTPS_PROXY": proxy.removeprefix("http://"), "NO_PROXY": exceptions}
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        ours[server, exceptions] = load_access(kubeconfig=str(file)).proxy
        Tunnel.asked.clear()
        command = [
            str(binaries.path("kubectl")),
            f"--kubeconfig={file}",
            "--request-timeout=1s",
            "get",
            "--raw=/version",
        ]
        subprocess.run(command, env={**environment, "HOME": str(tmp_path)}, check=False, capture_output=True)
        theirs[server, exceptions] = proxy if Tunnel.asked else None
    assert ours == theirs
    assert set(theirs.values()) == {None, proxy}


def test_both_clients_merge_several_files_and_select_a_context(api_sandbox: Sandbox, tmp_path: Path) -> None:
    content = yaml.safe_load(api_sandbox.kubeconfig.read_text())
    first, second = tmp_path / "first", tmp_path / "second"
    first.write_text(yaml.safe_dump({"current-context": "nowhere", "users": content.pop("users")}))
    second.write_text(yaml.safe_dump(content))
    files = os.pathsep.join((str(first), str(tmp_path / "absent"), str(second)))
    assert statuses(load_access(kubeconfig=files, context=api_sandbox.name)) == OK


def test_both_clients_use_the_service_account_of_a_pod(
    api_sandbox: Sandbox, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    content = yaml.safe_load(api_sandbox.kubeconfig.read_text())
    (tmp_path / "token").write_text(content["users"][0]["user"]["token"], encoding="utf-8")
    (tmp_path / "ca.crt").write_bytes(api_sandbox.files.serving_certificate.read_bytes())
    (tmp_path / "namespace").write_text("respread", encoding="utf-8")
    host, _, port = api_sandbox.server.removeprefix("https://").rpartition(":")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    access = ClusterAccess(*find_service_account(tmp_path), in_cluster=True)
    assert statuses(access) == OK
    assert access.endpoint.namespace == "respread"


def test_neither_client_trusts_another_authority(api_sandbox: Sandbox, tmp_path: Path) -> None:
    """If the kubeconfig names an authority, those that the system or Python packages trust do not count."""
    authority, _ = client_certificate(tmp_path)
    content = yaml.safe_load(api_sandbox.kubeconfig.read_text())
    content["clusters"][0]["cluster"]["certificate-authority"] = str(authority)
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(content))
    access = load_access(kubeconfig=str(file))
    with pytest.raises(OSError, match="CERTIFICATE_VERIFY_FAILED"):
        open_connection(access).client.session.get(access.endpoint.server + PATH, timeout=30)
    assert len(access.ssl_context.get_ca_certs()) <= 1


def who_am_i(access: ClusterAccess) -> list[Any]:
    """Return the users of all three clients according to the API server: the operator's, Kopf's and the commands'."""
    path = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}

    async def operator() -> list[Any]:
        async with open_requests(access) as requests, open_session(access, {}) as session:
            answer = await requests.send("POST", path, {}, body=body, timeout_seconds=30)
            async with session.post(access.endpoint.server + path, json=body) as response:
                return [json.loads(answer.body), await response.json()]

    connection = open_connection(access)
    try:
        answers = [
            *asyncio.run(operator()),
            connection.client.session.post(access.endpoint.server + path, json=body).json(),
        ]
        return [each["status"]["userInfo"] for each in answers]
    finally:
        connection.close()


def test_all_clients_impersonate_the_user_of_the_kubeconfig(api_sandbox: Sandbox, tmp_path: Path) -> None:
    content = yaml.safe_load(api_sandbox.kubeconfig.read_text())
    extra = {"example.com/why": ["a", "b"], "plain": ["c"]}
    content["users"][0]["user"].update(
        {"as": "jane", "as-uid": "7", "as-groups": ["dev", "ops"], "as-user-extra": extra}
    )
    file = tmp_path / "kubeconfig"
    file.write_text(yaml.safe_dump(content))
    theirs = json.loads(api_sandbox.kubectl("auth", "whoami", "-o", "json", kubeconfig=file))["status"]["userInfo"]
    assert (theirs["username"], theirs["uid"], theirs["extra"]) == ("jane", "7", extra)
    assert {"dev", "ops"} <= set(theirs["groups"])
    assert who_am_i(load_access(kubeconfig=str(file))) == [theirs] * 3
