"""TLS: our clients accept exactly the API servers that kubectl accepts, with every version of Python."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import aiohttp
import pytest
import yaml

from respread.handlers.session import open_session
from respread.kube.access import ClusterAccess, load_access
from respread.kube.requests import NoResponseError, open_requests
from respread_cli.read.connection import open_connection
from respread_sandbox import Sandbox, SandboxError
from tests.integration.tls_front import RSA, Authority, Certificate, TlsFront

HERE = "IP:127.0.0.1"
PATH = "/api/v1/namespaces/kube-system"


@pytest.fixture(params=["of this Python", "of Python 3.13"], autouse=True)
def defaults(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Python's own settings of TLS for clients, also those of Python 3.13, which the image has."""
    original = ssl.create_default_context

    def strict(*args: Any, **options: Any) -> ssl.SSLContext:
        context = original(*args, **options)
        context.verify_flags |= ssl.VERIFY_X509_STRICT | ssl.VERIFY_X509_PARTIAL_CHAIN
        return context

    with monkeypatch.context() as changed:
        if request.param == "of Python 3.13":
            changed.setattr(ssl, "create_default_context", strict)
        yield


class Served(NamedTuple):
    """What a server shows, and which authority its clients know."""

    chain: tuple[Certificate, ...]
    authority: Certificate
    server_name: str | None = None


def with_key_identifiers(folder: Path) -> Served:
    authority = Authority.create(folder)
    return Served((authority.server(HERE),), authority.own)


def without_key_identifiers(folder: Path) -> Served:
    authority = Authority.create(folder, identifiers=False)
    return Served((authority.server(HERE),), authority.own)


def rsa_without_key_identifiers(folder: Path) -> Served:
    authority = Authority.create(folder, key=RSA, identifiers=False)
    return Served((authority.server(HERE, key=RSA),), authority.own)


def an_intermediate_authority(folder: Path) -> Served:
    authority = Authority.create(folder)
    intermediate = authority.intermediate()
    return Served((intermediate.server(HERE), intermediate.own), authority.own)


def only_the_intermediate_authority_is_known(folder: Path) -> Served:
    intermediate = Authority.create(folder).intermediate()
    return Served((intermediate.server(HERE),), intermediate.own)


def a_name(folder: Path) -> Served:
    authority = Authority.create(folder)
    return Served((authority.server("DNS:kubernetes.default.svc"),), authority.own, "kubernetes.default.svc")


def another_authority_of_the_same_name(folder: Path) -> Served:
    (other := folder / "other").mkdir()
    return Served((Authority.create(folder).server(HERE),), Authority.create(other).own)


def another_authority_without_key_identifiers(folder: Path) -> Served:
    (other := folder / "other").mkdir()
    chain = (Authority.create(folder, identifiers=False).server(HERE),)
    return Served(chain, Authority.create(other, identifiers=False).own)


def another_address(folder: Path) -> Served:
    authority = Authority.create(folder)
    return Served((authority.server("IP:127.0.0.2", "DNS:localhost"),), authority.own)


def another_name(folder: Path) -> Served:
    authority = Authority.create(folder)
    return Served((authority.server(HERE),), authority.own, "kubernetes.default.svc")


def an_intermediate_authority_that_nobody_shows(folder: Path) -> Served:
    authority = Authority.create(folder)
    return Served((authority.intermediate().server(HERE),), authority.own)


def no_authority_of_its_issuer(folder: Path) -> Served:
    """A server's certificate issues another one's."""
    authority = Authority.create(folder)
    no_authority = Authority(folder, authority.server(HERE), identifiers=True)
    return Served((no_authority.server(HERE), no_authority.own), authority.own)


ACCEPTED = (
    with_key_identifiers,
    without_key_identifiers,
    rsa_without_key_identifiers,
    an_intermediate_authority,
    only_the_intermediate_authority_is_known,
    a_name,
)
REFUSED = (
    another_authority_of_the_same_name,
    another_authority_without_key_identifiers,
    another_address,
    another_name,
    an_intermediate_authority_that_nobody_shows,
    no_authority_of_its_issuer,
)


def answers(access: ClusterAccess) -> list[str]:
    """Return what the clients get: the operator's, Kopf's and the commands'. It is "200", or why there is no answer."""

    async def of_operator() -> list[str]:
        async with open_requests(access) as requests, open_session(access, {}) as session:
            try:
                own = str((await requests.send("GET", PATH, {}, timeout_seconds=30)).status_code)
            except NoResponseError as error:
                own = str(error)
            try:
                async with session.get(access.endpoint.server + PATH) as response:
                    kopfs = str(response.status)
            except aiohttp.ClientConnectionError as error:
                kopfs = str(error)
            return [own, kopfs]

    connection = open_connection(access)
    try:
        commands = str(connection.client.session.get(access.endpoint.server + PATH, timeout=30).status_code)
    except OSError as error:
        commands = str(error)
    finally:
        connection.close()
    return [*asyncio.run(of_operator()), commands]


def kubeconfig(sandbox: Sandbox, folder: Path, server: str, served: Served) -> Path:
    content = yaml.safe_load(sandbox.kubeconfig.read_text(encoding="utf-8"))
    cluster = {"server": server, "certificate-authority": str(served.authority.certificate)}
    if served.server_name is not None:
        cluster["tls-server-name"] = served.server_name
    content["clusters"][0]["cluster"] = cluster
    file = folder / "kubeconfig"
    file.write_text(yaml.safe_dump(content), encoding="utf-8")
    return file


@pytest.mark.parametrize("certificates", ACCEPTED, ids=lambda each: each.__name__)
def test_our_clients_accept_a_server_that_kubectl_accepts(
    api_sandbox: Sandbox, tmp_path: Path, certificates: Callable[[Path], Served]
) -> None:
    served = certificates(tmp_path)
    with TlsFront(api_sandbox, *served.chain) as front:
        file = kubeconfig(api_sandbox, tmp_path, front.server, served)
        api_sandbox.kubectl("get", "--raw", "/version", kubeconfig=file)
        assert answers(load_access(kubeconfig=str(file))) == ["200"] * 3


def test_our_clients_follow_the_file_of_the_authority_when_it_changes(api_sandbox: Sandbox, tmp_path: Path) -> None:
    before, after = (Authority.create(tmp_path, name) for name in ("before", "after"))
    with TlsFront(api_sandbox, before.server(HERE)) as front:
        known = tmp_path / "known.crt"
        served = Served((), Certificate(known, before.own.key))
        known.write_text(before.own.text, encoding="utf-8")
        access = load_access(kubeconfig=str(kubeconfig(api_sandbox, tmp_path, front.server, served)))
        assert answers(access) == ["200"] * 3
        front.replace(after.server(HERE))
        assert all("CERTIFICATE_VERIFY_FAILED" in refused for refused in answers(access))
        known.write_text(after.own.text[:100], encoding="utf-8")
        assert all("CERTIFICATE_VERIFY_FAILED" in refused for refused in answers(access))
        known.write_text(after.own.text, encoding="utf-8")
        assert answers(access) == ["200"] * 3
        front.replace(before.server(HERE))
        assert all("CERTIFICATE_VERIFY_FAILED" in refused for refused in answers(access))


@pytest.mark.parametrize("certificates", REFUSED, ids=lambda each: each.__name__)
def test_our_clients_refuse_a_server_that_kubectl_refuses(
    api_sandbox: Sandbox, tmp_path: Path, certificates: Callable[[Path], Served]
) -> None:
    served = certificates(tmp_path)
    with TlsFront(api_sandbox, *served.chain) as front:
        file = kubeconfig(api_sandbox, tmp_path, front.server, served)
        with pytest.raises(SandboxError, match="certificate"):
            api_sandbox.kubectl("get", "--raw", "/version", kubeconfig=file)
        for refused in answers(load_access(kubeconfig=str(file))):
            assert "CERTIFICATE_VERIFY_FAILED" in refused
