"""The cluster is found as by kubectl, and credentials are renewed while the operator runs."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import shutil
import ssl
import stat
import sys
from functools import partial
from pathlib import Path
from typing import Any

import certifi
import pytest
from kubernetes import client
from kubernetes.config import load_kube_config

from respread.kube import access as access_module
from respread.kube.access import AccessError, find_service_account, load_access
from respread.kube.credentials import CredentialsError, TokenFile
from respread.kube.kubeconfig import find_in_kubeconfig
from respread.kube.plugins import PluginIdentity


@pytest.fixture(autouse=True)
def no_cluster(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither the user's kubeconfig nor a surrounding pod affects the test."""
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))


JWT = "e30.eyJleHAiOiA5OTk5OTk5OTk5fQ.x"
FAILING = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/bin/false", "interactiveMode": "Never"}


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


@pytest.mark.parametrize(
    ("context", "server", "namespace"),
    [(None, "https://one.example:6443", "default"), ("second", "https://two.example/k8s/two", "shop")],
)
@pytest.mark.parametrize("named_by", ["option", "variable", "home"])
def test_a_kubeconfig_has_precedence_over_the_service_account_if_it_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, named_by: str, context: str | None, server: str, namespace: str
) -> None:
    config = str(write_kubeconfig(tmp_path / named_by / ".kube" / "config", {"token": "secret"}))
    if named_by != "home":
        monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    if named_by == "variable":
        monkeypatch.setenv("KUBECONFIG", config)
    access = load_access(kubeconfig=config if named_by == "option" else None, context=context)
    assert (access.endpoint.server, access.endpoint.namespace) == (server, namespace)
    assert asyncio.run(access.authorization()) == "Bearer secret"


@pytest.mark.parametrize(
    ("user", "value"),
    [
        ({"tokenFile": "token", "token": "another"}, "Bearer from-file"),
        ({"token": " secret\n", "tokenFile": ""}, "Bearer secret"),
        ({"token": " ", "username": "me"}, None),
        ({"username": "me", "password": "secret"}, "Basic bWU6c2VjcmV0"),
        ({"auth-provider": {"name": "oidc", "config": {"id-token": JWT}}}, f"Bearer {JWT}"),
        ({}, None),  # with a client certificate
    ],
)
def test_a_user_has_a_token_a_password_or_neither(tmp_path: Path, user: dict[str, Any], value: str | None) -> None:
    (tmp_path / "token").write_text("from-file\n", encoding="utf-8")
    access = load_access(kubeconfig=str(write_kubeconfig(tmp_path / "config", user)))
    assert asyncio.run(access.authorization()) == value


@pytest.mark.parametrize(
    ("user", "headers"),
    [
        (
            {
                "as": "jane",
                "as-uid": "7",
                "as-groups": ["dev", "ops"],
                "as-user-extra": {"example.com/why": ["a", "b"], "50%": ["c"], "nothing": None},
            },
            "User jane Uid 7 Group dev Group ops Extra-50%25 c Extra-example.com%2Fwhy a Extra-example.com%2Fwhy b",
        ),
        ({"as": "", "as-groups": ["system:masters"], "as-user-extra": None}, ""),  # the rule of client-go
    ],
)
def test_a_user_may_impersonate_another_one(tmp_path: Path, user: dict[str, Any], headers: str) -> None:
    access = load_access(kubeconfig=str(write_kubeconfig(tmp_path / "config", {"token": "t", **user})))
    names, values = headers.split()[::2], headers.split()[1::2]
    assert access.impersonation.headers() == tuple(zip((f"Impersonate-{name}" for name in names), values, strict=True))
    assert asyncio.run(access.authorization()) == "Bearer t"


def test_credentials_that_are_loaded_again_have_the_impersonated_user(tmp_path: Path) -> None:
    access = load_access(kubeconfig=str(write_kubeconfig(tmp_path / "config", {"token": "t", "as": "jane"})))
    access.adopt(load_access(kubeconfig=str(write_kubeconfig(tmp_path / "config", {"token": "t", "as": "john"}))))
    assert access.impersonation.headers() == (("Impersonate-User", "john"),)


def test_the_proxy_and_the_tls_server_name_are_used(tmp_path: Path) -> None:
    config = write_kubeconfig(
        tmp_path / "config", {"token": "t"}, **{"proxy-url": "http://proxy.example:3128", "tls-server-name": "api"}
    )
    access = load_access(kubeconfig=str(config))
    assert (access.proxy, access.endpoint.server_name) == ("http://proxy.example:3128", "api")
    config = write_kubeconfig(tmp_path / "config", {"token": "t"}, **{"proxy-url": "", "tls-server-name": ""})
    access = load_access(kubeconfig=str(config))
    assert (access.proxy, access.endpoint.server_name) == (None, None)


@pytest.mark.parametrize(
    ("variables", "proxy"),
    [
        ({}, None),
        ({"HTTPS_PROXY": "http://proxy.example:3128"}, "http://proxy.example:3128"),
        ({"HTTP_PROXY": "http://proxy.example:3128"}, None),
        ({"HTTPS_PROXY": "proxy.example:3128", "NO_PROXY": "192.0.2.0/24"}, "http://proxy.example:3128"),
        ({"HTTPS_PROXY": "http://proxy.example:3128", "NO_PROXY": "other.example,.example"}, None),
    ],
)
def test_the_proxy_of_the_environment_is_the_fallback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variables: dict[str, str], proxy: str | None
) -> None:
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.lower(), raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    config = write_kubeconfig(tmp_path / "config", {"token": "t"})
    assert load_access(kubeconfig=str(config)).proxy == proxy


@pytest.mark.parametrize(
    ("server", "direct", "by_proxy"),
    [
        ("https://240.0.0.1:6443", "240.0.0.1 240.0.0.1:6443 10.0.0.0/8,240.0.0.0/16", "10.0.0.0/8,.svc 240.0.0.1:443"),
        ("https://[fd00::1]", "fd00::/64 fd00::1 [fd00::1]:443", "[fd00::1]:6443 fd00::/a,,fd00 *.1"),
        ("https://api.test.invalid:6443", "test.invalid .test.invalid *.test.invalid:6443 * API.TEST.INVALID",
         "i.test.invalid,api.test.invalid:443 .api.test.invalid 0.0.0.0/0 :6443"),
        *((f"https://{host}:1", "nothing", "") for host in ("127.0.0.1", "localhost", "[::1]")),
    ],
)  # fmt: skip
def test_no_proxy_excludes_a_server_as_with_kubectl(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, server: str, direct: str, by_proxy: str
) -> None:
    """Kubectl itself is asked in tests/integration."""
    monkeypatch.setenv("https_proxy", "proxy.example:3128")
    config = str(write_kubeconfig(tmp_path / "config", {"token": "t"}, server=server))
    for exceptions in (*direct.split(), *by_proxy.split()):
        monkeypatch.setenv("no_proxy", exceptions)
        assert (load_access(kubeconfig=config).proxy is None) is (exceptions in direct.split()), exceptions


async def test_an_exec_plugin_is_called_again_once_its_token_expires(tmp_path: Path) -> None:
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
    assert [await access.authorization() for _ in range(3)] == ["Bearer token-2"] * 3


@pytest.mark.parametrize(
    ("host", "server"),
    [
        ("10.96.0.1", "https://10.96.0.1:443"),
        ("fd00:10:96::1", "https://[fd00:10:96::1]:443"),
        ("demo.hcp.example", "https://demo.hcp.example:443"),
    ],
)
def test_the_api_server_of_a_pod_has_an_address_of_either_family_or_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, host: str, server: str
) -> None:
    for name in ("token", "namespace"):
        (tmp_path / name).write_text("first", encoding="utf-8")
    shutil.copy(certifi.where(), tmp_path / "ca.crt")  # any valid authority
    seconds = [0.0]
    find = partial(find_service_account, tmp_path, lambda: seconds[0])
    monkeypatch.setattr(access_module, "find_service_account", find)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    access = load_access()
    assert (access.endpoint.server, access.endpoint.namespace, access.in_cluster) == (server, "first", True)
    (tmp_path / "token").write_text("second", encoding="utf-8")
    for seconds[0], value in ((0.0, "Bearer first"), (61.0, "Bearer second")):
        assert asyncio.run(access.authorization()) == value


def test_without_a_cluster_the_error_says_which_options_to_set_or_which_context_is_missing(tmp_path: Path) -> None:
    config = write_kubeconfig(tmp_path / "config", {"token": "secret"})
    with pytest.raises(AccessError, match=r"no context 'third' in the kubeconfig .*; it has first, second"):
        load_access(kubeconfig=str(config), context="third")
    with pytest.raises(AccessError, match=r"there is no kubeconfig: ~/\.kube/config does not exist\. .*KUBECONFIG"):
        load_access()


@pytest.mark.parametrize(
    ("text", "said"),
    [*((text, "broken") for text in ("", "[]", "{", "clusters: 5")), ("current-context: x", "broken; it has none")],
)
def test_the_error_names_a_file_that_is_not_a_kubeconfig(tmp_path: Path, text: str, said: str) -> None:
    file = tmp_path / "broken"
    file.write_text(text, encoding="utf-8")
    with pytest.raises(AccessError, match=said):
        load_access(kubeconfig=str(file))


def test_the_error_in_a_pod_without_a_token_names_what_is_missing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(access_module, "find_service_account", partial(find_service_account, tmp_path))
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    with pytest.raises(AccessError, match="automountServiceAccountToken"):
        load_access()


def test_a_token_file_of_a_kubeconfig_is_read_again_every_minute(tmp_path: Path) -> None:
    seconds, file = [0.0], tmp_path / "token"
    file.write_text("first", encoding="utf-8")
    token = TokenFile(file, lambda: seconds[0])
    assert token.authorization() == "Bearer first"
    file.write_text("second", encoding="utf-8")
    assert (token.is_current, token.authorization()) == (True, "Bearer first")
    seconds[0] += 61
    assert (token.is_current, token.authorization()) == (False, "Bearer second")
    file.write_text("\n", encoding="utf-8")
    seconds[0] += 61
    with pytest.raises(CredentialsError, match="token is empty"):
        token.authorization()


def test_the_first_of_several_files_has_precedence_and_paths_are_relative_to_their_file(tmp_path: Path) -> None:
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "token").write_text("from one", encoding="utf-8")
    users = {"users": [{"name": "user", "user": {"tokenFile": "token"}}], "contexts": None}
    (tmp_path / "one" / "users").write_text(json.dumps(users), encoding="utf-8")
    rest = write_kubeconfig(tmp_path / "two" / "config", {"token": "of the second"})
    files = os.pathsep.join((str(tmp_path / "absent"), str(tmp_path / "one" / "users"), str(rest)))
    access = load_access(kubeconfig=files)
    assert access.endpoint.server == "https://one.example:6443"
    assert asyncio.run(access.authorization()) == "Bearer from one"


def test_certificate_authorities_may_be_inline(tmp_path: Path) -> None:
    authorities = base64.b64encode(Path(certifi.where()).read_bytes()).decode("ascii")
    user = {"token": "secret"}
    config = write_kubeconfig(tmp_path / "config", user, **{"certificate-authority-data": authorities})
    context = load_access(kubeconfig=str(config)).ssl_context
    assert len(context.get_ca_certs()) > 1
    assert context.check_hostname
    config = write_kubeconfig(tmp_path / "config", user, **{"insecure-skip-tls-verify": True})
    assert load_access(kubeconfig=str(config)).ssl_context.verify_mode is ssl.CERT_NONE


@pytest.mark.parametrize(
    ("user", "cluster", "said"),
    [
        ({"client-certificate-data": "%%%", "client-key-data": "%%%"}, {}, "not base64"),
        ({}, {"certificate-authority": "absent.crt"}, "no such file: .*absent.crt"),
        ({"token": 5}, {}, "Expected `str . null`, got `int`"),
        ({"token": "t"}, {"server": ""}, "the cluster one has no server"),
        (
            {"token": "t"},
            {"proxy-url": "socks5://proxy.example:1080"},
            "proxies of the scheme socks5 are not supported: name an http or https",
        ),
        ({"exec": FAILING}, {}, "exec plugin of the user user gave no credentials"),
    ],
)
def test_the_error_says_what_is_wrong_in_a_kubeconfig(
    tmp_path: Path, user: dict[str, Any], cluster: dict[str, Any], said: str
) -> None:
    config = write_kubeconfig(tmp_path / "config", user, **cluster)
    with pytest.raises(AccessError, match=said):
        load_access(kubeconfig=str(config))


def test_the_official_client_reads_a_kubeconfig_the_same_way(tmp_path: Path) -> None:
    """The official client also reads kubeconfigs if a plugin runs."""
    (tmp_path / "token").write_text("from-file", encoding="utf-8")
    ca = Path(certifi.where())
    cluster = {"certificate-authority": str(ca), "tls-server-name": "api", "proxy-url": "http://proxy.example:3128"}
    for user in ({"token": "secret"}, {"tokenFile": str(tmp_path / "token")}, {"username": "me", "password": "no"}, {}):
        config = str(write_kubeconfig(tmp_path / "config", user, **cluster))
        for context in (None, "first", "second"):
            theirs = client.Configuration(proxy="")
            load_kube_config(config_file=config, context=context, client_configuration=theirs)  # type: ignore[no-untyped-call]  # it has no types
            endpoint, identity = find_in_kubeconfig(config, context)
            assert endpoint.server == theirs.host.rstrip("/")
            assert endpoint.certificate_authority.path == theirs.ssl_ca_cert
            assert endpoint.verified == theirs.verify_ssl
            assert (endpoint.server_name, endpoint.proxy) == (theirs.tls_server_name, theirs.proxy)
            assert identity.authorization() == PluginIdentity(theirs).authorization()
