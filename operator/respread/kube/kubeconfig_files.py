"""Kubeconfigs whose credentials are in files, read as client-go reads them.

They are most of those that an operator gets outside a cluster, and reading them takes 5 ms. The official client's
loader, which runs exec plugins and knows auth providers, takes 0.3 s and 20 MiB to be imported, so it is asked where a
user needs one of those (`plugins`).
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec
import yaml

from respread.kube.credentials import CredentialsError, Endpoint, FixedIdentity, Identity, Pem, TokenFile


class NeedsPluginError(Exception):
    """A user's credentials come from an exec plugin or an auth provider."""


class _Cluster(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    server: str | None = None
    certificate_authority: str | None = None
    certificate_authority_data: str | None = None
    insecure_skip_tls_verify: bool | None = None
    tls_server_name: str | None = None
    proxy_url: str | None = None


class _User(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    client_certificate: str | None = None
    client_certificate_data: str | None = None
    client_key: str | None = None
    client_key_data: str | None = None
    token: str | None = None
    token_file: str | None = msgspec.field(default=None, name="tokenFile")
    username: str | None = None
    password: str | None = None
    exec: Any = None
    auth_provider: Any = None


class _Context(msgspec.Struct, frozen=True, kw_only=True):
    cluster: str | None = None
    user: str | None = None
    namespace: str | None = None


class _NamedCluster(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    cluster: _Cluster | None = None


class _NamedUser(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    user: _User | None = None


class _NamedContext(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    context: _Context | None = None


class _Kubeconfig(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    current_context: str | None = None
    clusters: tuple[_NamedCluster, ...] | None = None
    users: tuple[_NamedUser, ...] | None = None
    contexts: tuple[_NamedContext, ...] | None = None


_Named = TypeVar("_Named", _NamedCluster, _NamedUser, _NamedContext)
_NOBODY: Final = _NamedUser(name="", user=_User())


def find_in_kubeconfig(files: str, context: str | None) -> tuple[Endpoint, Identity]:
    """Return the API server of a context, and what says who we are to it.

    Args:
        files: a kubeconfig, or several joined as in `KUBECONFIG`: of what is there twice, the first counts.
        context: the context's name; None for the current one.

    Raises:
        NeedsPluginError: credentials come from an exec plugin or an auth provider.
        CredentialsError: there is no such context, or it is incomplete.
        OSError: a file can't be read.
        ValueError: a file is no kubeconfig.
    """
    loaded = [(path, _load(path)) for path in _existing(files)]
    if not loaded:
        raise CredentialsError("there is no such file")
    name = context or next((each.current_context for _, each in loaded if each.current_context), None)
    if not name:
        raise CredentialsError("it has no current context")
    chosen = _named(name, "context", ((path, each.contexts) for path, each in loaded))[1].context or _Context()
    if not chosen.cluster:
        raise CredentialsError(f"the context {name} names no cluster")
    base, named_cluster = _named(chosen.cluster, "cluster", ((path, each.clusters) for path, each in loaded))
    cluster = named_cluster.cluster or _Cluster()
    if not cluster.server:
        raise CredentialsError(f"the cluster {chosen.cluster} has no server")
    user_base, named_user = base, _NOBODY
    if chosen.user:
        user_base, named_user = _named(chosen.user, "user", ((path, each.users) for path, each in loaded))
    user = named_user.user or _User()
    if user.exec is not None or user.auth_provider is not None:
        raise NeedsPluginError(chosen.user)
    endpoint = Endpoint(
        server=cluster.server.rstrip("/"),
        namespace=chosen.namespace or "default",
        certificate_authority=_pem(base, cluster.certificate_authority, cluster.certificate_authority_data),
        client_certificate=_pem(user_base, user.client_certificate, user.client_certificate_data),
        client_key=_pem(user_base, user.client_key, user.client_key_data),
        verified=not cluster.insecure_skip_tls_verify,
        server_name=cluster.tls_server_name or None,
        proxy=cluster.proxy_url or None,
    )
    return endpoint, _identity(user_base, user)


def _existing(files: str) -> list[Path]:
    """Return the files that there are: of several, some may not be."""
    paths = [Path(each).expanduser() for each in files.split(os.pathsep) if each]
    return [path for path in paths if path.exists()]


def _load(path: Path) -> _Kubeconfig:
    try:
        return msgspec.convert(yaml.safe_load(path.read_text(encoding="utf-8")), _Kubeconfig)
    except (yaml.YAMLError, msgspec.ValidationError) as error:
        raise ValueError(f"{path} is no kubeconfig: {error}") from error


def _named(name: str, what: str, lists: Iterable[tuple[Path, tuple[_Named, ...] | None]]) -> tuple[Path, _Named]:
    """Return the first of that name, and the folder that its relative paths begin at."""
    for path, entries in lists:
        for entry in entries or ():
            if entry.name == name:
                return path.absolute().parent, entry
    raise CredentialsError(f"it has no {what} {name!r}")


def _pem(base: Path, path: str | None, data: str | None) -> Pem:
    if not data:
        return Pem(path=str(base / path) if path else None)
    try:
        return Pem(data=base64.b64decode("".join(data.split()), validate=True))
    except binascii.Error as error:
        raise ValueError(f"a certificate or key in it is no base64: {error}") from error


def _identity(base: Path, user: _User) -> Identity:
    """Return what says who the user is; a token's file counts more than a token, as in client-go."""
    if user.token_file:
        token = TokenFile(base / user.token_file)
        token.authorization()
        return token
    if user.token and user.token.strip():
        return FixedIdentity(f"Bearer {user.token.strip()}")
    if user.username and user.password:
        return FixedIdentity.of_password(user.username, user.password)
    return FixedIdentity()
