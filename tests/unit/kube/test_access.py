"""The cluster is found as kubectl finds it, and credentials are renewed while the operator runs."""

from __future__ import annotations

import asyncio
import json
import stat
import sys
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import certifi
import pytest
from kubernetes.config import incluster_config

from respread.kube import access as access_module
from respread.kube.access import AccessError, load_access


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither a kubeconfig of the person's nor a pod around the test."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


def write_kubeconfig(path: Path, user: dict[str, Any], **cluster: Any) -> Path:
    document = {
        "clusters": [
            {"name": "one", "cluster": {"server": "https://one.example:6443", **cluster}},
            {"name": "two", "cluster": {"server": "https://two.example/k8s/two/", **cluster}},
        ],
        "users": [{"name": "user", "user": user}],
        "contexts": [
            {"name": "first", "context": {"cluster": "one", "user": "user"}},
            {"name": "second", "context": {"cluster": "two", "user": "user", "namespace": "shop"}},
        ],
        "current-context": "first",
    }
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(document), encoding="utf-8")
    return path


def authorization(*, kubeconfig: Path) -> str | None:
    return asyncio.run(load_access(kubeconfig=str(kubeconfig)).authorization())


def test_the_current_context_counts(tmp_path: Path) -> None:
    access = load_access(kubeconfig=str(write_kubeconfig(tmp_path / "config", {"token": "secret"})))
    assert (access.server, access.namespace) == ("https://one.example:6443", "default")
    assert asyncio.run(access.authorization()) == "Bearer secret"


def test_another_context_can_be_asked_for(tmp_path: Path) -> None:
    config = write_kubeconfig(tmp_path / "config", {"token": "secret"})
    access = load_access(kubeconfig=str(config), context="second")
    assert (access.server, access.namespace) == ("https://two.example/k8s/two", "shop")


def test_the_files_of_the_environment_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", str(write_kubeconfig(tmp_path / "config", {"token": "secret"})))
    assert load_access(context="second").server == "https://two.example/k8s/two"


def test_without_anything_said_the_home_directory_counts(tmp_path: Path) -> None:
    write_kubeconfig(tmp_path / "home" / ".kube" / "config", {"token": "secret"})
    assert load_access().server == "https://one.example:6443"


def test_what_is_given_goes_before_the_pod_around_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    config = write_kubeconfig(tmp_path / "config", {"token": "secret"})
    assert load_access(kubeconfig=str(config)).server == "https://one.example:6443"


def test_a_token_file_is_read_without_its_line_end(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("from-file\n", encoding="utf-8")
    config = write_kubeconfig(tmp_path / "config", {"tokenFile": str(tmp_path / "token")})
    assert authorization(kubeconfig=config) == "Bearer from-file"


def test_a_password_is_basic_authentication(tmp_path: Path) -> None:
    config = write_kubeconfig(tmp_path / "config", {"username": "me", "password": "secret"})
    assert authorization(kubeconfig=config) == "Basic bWU6c2VjcmV0"


def test_a_client_certificate_needs_no_header(tmp_path: Path) -> None:
    assert authorization(kubeconfig=write_kubeconfig(tmp_path / "config", {})) is None


def test_the_address_of_a_proxy_and_the_name_in_the_certificate(tmp_path: Path) -> None:
    config = write_kubeconfig(
        tmp_path / "config", {"token": "t"}, **{"proxy-url": "http://proxy.example:3128", "tls-server-name": "api"}
    )
    access = load_access(kubeconfig=str(config))
    assert (access.proxy, access.server_name) == ("http://proxy.example:3128", "api")


@pytest.mark.parametrize(
    ("variables", "proxy"),
    [
        ({}, None),
        ({"HTTPS_PROXY": "http://proxy.example:3128"}, "http://proxy.example:3128"),
        ({"HTTP_PROXY": "http://proxy.example:3128"}, None),
        ({"HTTPS_PROXY": "http://proxy.example:3128", "NO_PROXY": "other.example,.example"}, None),
    ],
)
def test_else_the_environments_proxy_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], proxy: str | None
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    config = write_kubeconfig(tmp_path / "config", {"token": "t"})
    assert load_access(kubeconfig=str(config)).proxy == proxy


def test_an_exec_plugin_is_asked_again_once_its_token_expires(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    plugin.write_text(
        f"""#!{sys.executable}
import datetime, json, pathlib
count = pathlib.Path({str(tmp_path / "count")!r})
number = int(count.read_text()) + 1 if count.exists() else 1
count.write_text(str(number))
end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=0 if number == 1 else 3600)
print(json.dumps({{"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status":
    {{"token": f"token-{{number}}", "expirationTimestamp": end.strftime("%Y-%m-%dT%H:%M:%SZ")}}}}))
""",
        encoding="utf-8",
    )
    plugin.chmod(plugin.stat().st_mode | stat.S_IXUSR)
    command = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin), "interactiveMode": "Never"}
    access = load_access(kubeconfig=str(write_kubeconfig(tmp_path / "config", {"exec": command})))

    async def ask() -> list[str | None]:
        return [await access.authorization() for _ in range(3)]

    assert asyncio.run(ask()) == ["Bearer token-2"] * 3


def test_the_pods_token_is_read_again_every_minute(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    token, namespace = tmp_path / "token", tmp_path / "namespace"
    token.write_text("first", encoding="utf-8")
    namespace.write_text("respread", encoding="utf-8")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", certifi.where())  # any will do
    monkeypatch.setattr(access_module, "_NAMESPACE_FILE", namespace)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    access = load_access()
    assert (access.server, access.namespace) == ("https://10.0.0.1:443", "respread")
    token.write_text("second", encoding="utf-8")
    assert asyncio.run(access.authorization()) == "Bearer first"

    class Later(datetime):
        @classmethod
        def now(cls, tz: Any = None) -> datetime:  # type: ignore[override]  # the client asks for a naive time
            return datetime.now(tz) + timedelta(seconds=61)

    monkeypatch.setattr("kubernetes.config.incluster_config.datetime.datetime", Later)
    assert asyncio.run(access.authorization()) == "Bearer second"


def test_without_a_cluster_the_message_says_what_to_give() -> None:
    with pytest.raises(
        AccessError, match=r"no access to a cluster through the kubeconfig ~/\.kube/config: .*KUBECONFIG"
    ):
        load_access()


def test_a_context_that_is_not_there_is_named(tmp_path: Path) -> None:
    config = write_kubeconfig(tmp_path / "config", {"token": "secret"})
    with pytest.raises(AccessError, match="third"):
        load_access(kubeconfig=str(config), context="third")


@pytest.mark.parametrize("text", ["", "[]", "{", "clusters: 5", "contexts: []\ncurrent-context: x"])
def test_a_file_that_is_no_kubeconfig_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "broken"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(AccessError, match="broken"):
        load_access(kubeconfig=str(file))


def test_an_exec_plugin_that_fails_is_named(tmp_path: Path) -> None:
    command = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/false", "interactiveMode": "Never"}
    config = write_kubeconfig(tmp_path / "config", {"exec": command})
    with pytest.raises(AccessError, match="exec plugin of the user user gave no credentials"):
        load_access(kubeconfig=str(config))


def test_a_pod_without_a_token_is_told_what_it_lacks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "absent"))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(AccessError, match="automountServiceAccountToken"):
        load_access()
