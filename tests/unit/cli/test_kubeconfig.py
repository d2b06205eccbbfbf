"""The cluster that a command uses, and the errors if there is none."""

from __future__ import annotations

import base64
import json
import socket
import stat
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import requests
import yaml
from click.testing import CliRunner

from respread import __version__
from respread.kube.kubeconfig import find_in_kubeconfig
from respread.program.command_line import CommandError
from respread_cli.main import respread
from respread_cli.read import connection as connections
from respread_cli.read.cluster_view import ConnectionOptions
from respread_cli.read.connection import Connection
from respread_sandbox.api import SandboxApi


def kubeconfig(
    file: Path,
    *contexts: str,
    current: str | None = None,
    user: Mapping[str, Any] = MappingProxyType({}),
    cluster: Mapping[str, Any] = MappingProxyType({}),
) -> Path:
    """Write a kubeconfig in which every context has its own cluster and user."""
    content: dict[str, Any] = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": f"{each}-cluster", "cluster": {"server": f"https://{each}:6443", **cluster}} for each in contexts
        ],
        "users": [{"name": f"{each}-user", "user": dict(user) or {"token": f"token-of-{each}"}} for each in contexts],
        "contexts": [
            {"name": each, "context": {"cluster": f"{each}-cluster", "user": f"{each}-user", "namespace": f"{each}-ns"}}
            for each in contexts
        ],
    }
    if current is not None:
        content["current-context"] = current
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    return file


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Remove all settings that name a cluster."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def connect(kubeconfig: str | None = None, context: str | None = None) -> Connection:
    return connections.connect(ConnectionOptions(kubeconfig, context))


def sent(connection: Connection) -> requests.PreparedRequest:
    """Return a request as it is sent."""
    request = requests.Request("GET", f"{connection.endpoint.server}/version")
    prepared: requests.PreparedRequest = connection.client.session.prepare_request(request)
    return prepared


def authorization(connection: Connection) -> str | None:
    value = sent(connection).headers.get("Authorization")
    assert not isinstance(value, bytes)
    return value


def test_the_current_context_is_used_unless_another_one_is_named(tmp_path: Path) -> None:
    connection = connect(str(kubeconfig(tmp_path / "config", "dev", "prod", current="prod")))
    assert connection.endpoint.server == "https://prod:6443"
    assert (connection.endpoint.name, connection.endpoint.namespace) == ("context prod", "prod-ns")
    assert authorization(connection) == "Bearer token-of-prod"
    connection = connect(str(kubeconfig(tmp_path / "config", "dev", "prod")), "dev")
    assert (connection.endpoint.name, authorization(connection)) == ("context dev", "Bearer token-of-dev")


def test_the_option_has_precedence_over_the_variable_and_that_over_the_home_directory(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "home" / ".kube").mkdir(parents=True)
    kubeconfig(tmp_path / "home" / ".kube" / "config", "home", current="home")
    assert connect().endpoint.name == "context home"
    monkeypatch.setenv("KUBECONFIG", str(kubeconfig(tmp_path / "one", "dev", current="dev")))
    assert connect().endpoint.name == "context dev"
    assert connect(str(kubeconfig(tmp_path / "two", "prod", current="prod"))).endpoint.name == "context prod"


def test_several_files_are_merged_as_kubectl_does(tmp_path: Path) -> None:
    first = kubeconfig(tmp_path / "one", "dev")
    second = kubeconfig(tmp_path / "two", "prod", current="prod")
    joined = f"{first}:{tmp_path / 'missing'}:{second}"
    assert connect(joined).endpoint.name == "context prod"
    assert authorization(connect(joined, "dev")) == "Bearer token-of-dev"


def test_an_exec_plugin_provides_the_token(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    answer = {
        "apiVersion": "client.authentication.k8s.io/v1",
        "kind": "ExecCredential",
        "status": {"token": "from-the-plugin"},
    }
    plugin.write_text(f"#!{sys.executable}\nprint({json.dumps(json.dumps(answer))})\n", encoding="utf-8")
    plugin.chmod(stat.S_IRWXU)
    user = {"exec": {"apiVersion": answer["apiVersion"], "command": str(plugin), "interactiveMode": "Never"}}
    connection = connect(str(kubeconfig(tmp_path / "config", "prod", current="prod", user=user)))
    assert authorization(connection) == "Bearer from-the-plugin"


def test_a_password_is_sent_as_basic_authentication(tmp_path: Path) -> None:
    user = {"username": "me", "password": "secret"}
    connection = connect(str(kubeconfig(tmp_path / "config", "prod", current="prod", user=user)))
    assert authorization(connection) == f"Basic {base64.b64encode(b'me:secret').decode()}"


def test_a_netrc_entry_for_the_host_is_not_sent(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    netrc = tmp_path / "netrc"
    netrc.write_text("machine prod login me password secret\n", encoding="utf-8")
    monkeypatch.setenv("NETRC", str(netrc))
    connection = connect(str(kubeconfig(tmp_path / "config", "prod", current="prod")))
    assert authorization(connection) == "Bearer token-of-prod"


def test_proxy_url_and_insecure_skip_tls_verify_are_respected(tmp_path: Path) -> None:
    fields = {"proxy-url": "http://proxy:3128", "insecure-skip-tls-verify": True}
    connection = connect(str(kubeconfig(tmp_path / "config", "prod", current="prod", cluster=fields)))
    assert connection.client.session.proxies["https"] == "http://proxy:3128"
    assert connection.client.session.verify is False


def test_certificates_may_be_relative_to_the_kubeconfig(tmp_path: Path) -> None:
    for name in ("ca.crt", "me.crt", "me.key"):
        (tmp_path / name).write_text("a certificate or a key", encoding="utf-8")
    user = {"client-certificate": "me.crt", "client-key": "me.key"}
    file = kubeconfig(
        tmp_path / "config", "prod", current="prod", user=user, cluster={"certificate-authority": "ca.crt"}
    )
    endpoint, _ = find_in_kubeconfig(str(file), None)
    assert endpoint.certificate_authority.path == str(tmp_path / "ca.crt")
    assert endpoint.client_key.path == str(tmp_path / "me.key")


def error_of(kubeconfig: str | None = None, context: str | None = None) -> str:
    with pytest.raises(CommandError) as caught:
        connect(kubeconfig, context)
    return caught.value.message


def test_a_missing_file_is_an_error(tmp_path: Path) -> None:
    advice = "there is no kubeconfig: ~/.kube/config does not exist. Name a kubeconfig by --kubeconfig"
    assert error_of().startswith(advice)
    assert f"{tmp_path}/missing does not exist" in error_of(f"{tmp_path}/missing")
    without = {"certificate-authority": "missing.crt"}
    assert "missing.crt" in error_of(str(kubeconfig(tmp_path / "config", "prod", current="prod", cluster=without)))


def test_a_context_that_is_unknown_or_not_named_is_an_error(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "config", "dev", "prod")
    assert error_of(str(file), "prdo") == f"there is no context 'prdo' in the kubeconfig {file}; it has dev, prod."
    assert "has no current context: choose one by --context; it has dev, prod." in error_of(str(file))


@pytest.mark.parametrize("content", [b"{", b"a: [b", b"just text", b"7", b"[1, 2]", b"contexts: 7", b"\xff\xfe\x00"])
def test_a_file_that_is_not_a_kubeconfig_is_an_error(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "config"
    file.write_bytes(content)
    assert f"{file} is not a kubeconfig" in error_of(str(file))


@pytest.mark.parametrize("part", ["clusters", "users"])
def test_a_missing_cluster_is_an_error_and_a_missing_user_is_anonymous(tmp_path: Path, part: str) -> None:
    file = kubeconfig(tmp_path / "config", "prod", current="prod")
    content = yaml.safe_load(file.read_text())
    content[part] = []
    file.write_text(yaml.safe_dump(content))
    if part == "users":
        assert authorization(connect(str(file))) is None  # the API server may allow anonymous requests
    else:
        assert f"no cluster can be reached through the kubeconfig {file}: " in error_of(str(file))


@pytest.mark.parametrize(
    ("in_file", "options", "expected"),
    [
        ({}, ("jane", ("dev", "ops")), [("User", "jane"), ("Group", "dev"), ("Group", "ops")]),
        ({"as": "jo", "as-groups": ["a", "b"]}, (None, ()), [("User", "jo"), ("Group", "a"), ("Group", "b")]),
        ({"as": "jo", "as-groups": ["a"]}, ("jane", ()), [("User", "jane"), ("Group", "a")]),
        ({"as": "jo", "as-groups": ["a"]}, (None, ("dev",)), [("User", "jo"), ("Group", "dev")]),
        ({"as-groups": ["a"]}, ("jane", ()), [("User", "jane"), ("Group", "a")]),
        ({"as-groups": ["a"]}, (None, ()), []),
    ],
)
def test_requests_impersonate_the_user_and_all_groups(
    tmp_path: Path,
    in_file: dict[str, Any],
    options: tuple[str | None, tuple[str, ...]],
    expected: list[tuple[str, str]],
) -> None:
    """Each option replaces its own field of the kubeconfig, as with kubectl."""
    seen: list[tuple[str, str]] = []

    class Handler(Quiet):
        def do_GET(self) -> None:
            seen.extend((name, value) for name, value in self.headers.items() if name.startswith("Impersonate"))
            self.send_response(200)
            self.end_headers()

    with served(Handler) as server:
        user = {"token": "t", **in_file}
        file = kubeconfig(tmp_path / "config", "dev", current="dev", cluster={"server": server}, user=user)
        as_user, as_groups = options
        with closing(
            connections.connect(ConnectionOptions(str(file), as_user=as_user, as_groups=as_groups))
        ) as connection:
            assert connection.client.session.get(connection.endpoint.server, timeout=30).ok
    assert seen == [(f"Impersonate-{name}", value) for name, value in expected]


def test_a_request_to_a_sandbox_is_repeated_once_if_the_server_hangs_up(tmp_path: Path) -> None:
    """An API server closes a connection that was idle, which may be when the next request comes."""
    asked: list[str] = []

    class Handler(Quiet):
        def do_POST(self) -> None:
            asked.append(self.path)
            self.close_connection = True
            if self.path == "/once" and len(asked) > 1:
                self.send_response(200)
                self.end_headers()

    with served(Handler) as server:
        api = SandboxApi(kubeconfig(tmp_path / "config", "dev", current="dev", cluster={"server": server}))
        with closing(api):
            assert api.request("POST", "/once", {}) == ""
            with pytest.raises(OSError, match="Remote end closed connection"):
                api.request("POST", "/twice", {})
    assert asked == ["/once"] * 2 + ["/twice"] * 2


def test_version_shows_that_of_the_program_without_a_cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(tmp_path / "none"))
    done = CliRunner().invoke(respread, ["version"])
    assert done.exit_code == 0
    assert done.stdout.startswith(f"Client:      {__version__} (Python ")
    assert done.stderr.count("\n") == 1
    assert "There is no kubeconfig" in done.stderr
    named = CliRunner().invoke(respread, ["version", "--kubeconfig", str(tmp_path / "none")])
    assert named.exit_code == 2


def test_groups_without_a_user_are_an_error(tmp_path: Path) -> None:
    file = kubeconfig(tmp_path / "config", "dev", current="dev")
    for command in ("skew", "version"):
        refused = CliRunner().invoke(respread, [command, "--kubeconfig", str(file), "--as-group", "dev"])
        assert refused.exit_code == 2
        assert "--as-group needs --as" in refused.stderr


def test_a_request_ends_after_its_timeout(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:  # accepts connections and sends no answer
        server = f"http://127.0.0.1:{silent.getsockname()[1]}"
        file = kubeconfig(tmp_path / "config", "dev", current="dev", cluster={"server": server})
        arguments = ["version", "--kubeconfig", str(file), "--request-timeout", "300ms"]
        started = time.monotonic()
        done = CliRunner().invoke(respread, arguments)
        assert time.monotonic() - started < 30  # 60 s without the option
    assert done.exit_code == 2
    assert "can't be reached: " in done.stderr
    assert done.stdout.startswith(f"Client:      {__version__} ")


class Quiet(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Ignore the message."""


@contextmanager
def served(handler: type[Quiet]) -> Iterator[str]:
    """Yield the address of a server."""
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--request-timeout", "soon"], "'soon' is not a duration such as 30s, 2m or 1h."),
        (["--request-timeout", "-1s"], "'-1s' is below 0."),
    ],
)
def test_invalid_client_options_are_rejected(arguments: list[str], said: str) -> None:
    for command in ("skew", "version"):
        refused = CliRunner().invoke(respread, [command, *arguments])
        assert refused.exit_code == 2
        assert said in refused.stderr
