"""Kubeconfigs, read as by client-go.

This takes 5 ms. The official client is only used if a user's credentials come from an exec plugin or an auth provider
(`plugins`).
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec
import yaml

from respread.kube.credentials import CredentialsError, Endpoint, FixedIdentity, Identity, Impersonation, Pem, TokenFile


class NoKubeconfigError(Exception):
    """There is no such file."""


class NoContextError(Exception):
    """There is no such context, or none was named and none is current. The message lists the contexts."""


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
    as_user: str | None = msgspec.field(default=None, name="as")
    as_uid: str | None = None
    as_groups: tuple[str, ...] | None = None
    as_user_extra: dict[str, tuple[str, ...] | None] | None = None


class _Context(msgspec.Struct, frozen=True, kw_only=True):
    cluster: str | None = None
    user: str | None = None
    namespace: str | None = None


class _Entry(msgspec.Struct, frozen=True, kw_only=True):
    """What a list of a kubeconfig has under a name: one of the three."""

    name: str
    cluster: _Cluster | None = None
    user: _User | None = None
    context: _Context | None = None


class _Kubeconfig(msgspec.Struct, frozen=True, kw_only=True, rename="kebab"):
    current_context: str | None = None
    clusters: tuple[_Entry, ...] | None = None
    users: tuple[_Entry, ...] | None = None
    contexts: tuple[_Entry, ...] | None = None


_NOBODY: Final = _Entry(name="")


def find_in_kubeconfig(files: str, context: str | None) -> tuple[Endpoint, Identity]:
    """Return the API server of a context, and the credentials for it.

    Files are one kubeconfig, or several joined as in `KUBECONFIG`; of duplicate entries, the first is used. A context
    of None is the current one.

    Raises:
        NoKubeconfigError: none of the files exists.
        NoContextError: there is no such context.
        CredentialsError: the context is incomplete, or a plugin returned no credentials.
        OSError: a file can't be read.
        ValueError: a file is not a kubeconfig.
        Exception: an error of the official client while it runs a plugin.
    """
    loaded = [(path, _load(path)) for path in _existing(files)]
    if not loaded:
        raise NoKubeconfigError(f"{files} does not exist")
    name, chosen = _chosen_context(files, context, [each for _, each in loaded])
    if not chosen.cluster:
        raise CredentialsError(f"the context {name} names no cluster")
    found = _named(chosen.cluster, ((path, each.clusters) for path, each in loaded))
    if found is None:
        raise CredentialsError(f"it has no cluster {chosen.cluster!r}")
    base, cluster = found[0], found[1].cluster or _Cluster()
    if not cluster.server:
        raise CredentialsError(f"the cluster {chosen.cluster} has no server")
    # As in client-go, a missing user is anonymous, which the API server may allow.
    user_base, named_user = _named(chosen.user or "", ((path, each.users) for path, each in loaded)) or (base, _NOBODY)
    user = named_user.user or _User()
    endpoint = Endpoint(
        server=cluster.server.rstrip("/"),
        name=f"context {name}",
        namespace=chosen.namespace or "default",
        certificate_authority=_pem(base, cluster.certificate_authority, cluster.certificate_authority_data),
        client_certificate=_pem(user_base, user.client_certificate, user.client_certificate_data),
        client_key=_pem(user_base, user.client_key, user.client_key_data),
        verified=not cluster.insecure_skip_tls_verify,
        server_name=cluster.tls_server_name or None,
        proxy=cluster.proxy_url,
        impersonation=_impersonation(user),
    )
    if user.exec is None and user.auth_provider is None:
        return endpoint, _identity(user_base, user)
    return _of_plugin(files, name, chosen.user or "", user, endpoint)


def _of_plugin(files: str, context: str, user_name: str, user: _User, endpoint: Endpoint) -> tuple[Endpoint, Identity]:
    """Return the API server with the certificate that a plugin gives, and the plugin's credentials."""
    try:
        from respread.kube.plugins import run_plugin  # noqa: PLC0415 - 0.3 s and 20 MiB, which few need
    except ModuleNotFoundError as error:
        raise CredentialsError(
            f"the user {user_name} gets its credentials from an exec plugin or an auth provider, which need Python's "
            "package kubernetes. The image does not contain it. `pip install respread` installs it, or use a token or "
            "a certificate"
        ) from error

    identity, certificate, key = run_plugin(files, context)
    # The client logs the failure of a plugin and continues as anonymous.
    if user.exec is not None and not certificate.path and not identity.authorization():
        raise CredentialsError(
            f"the exec plugin of the user {user_name} gave no credentials; it may have said why, see above"
        )
    return msgspec.structs.replace(endpoint, client_certificate=certificate, client_key=key), identity


def _chosen_context(files: str, context: str | None, loaded: Sequence[_Kubeconfig]) -> tuple[str, _Context]:
    contexts = _contexts(loaded)
    chosen = context or _current(loaded)
    there_are = f"it has {', '.join(sorted(contexts))}" if contexts else "it has none"
    if not chosen:
        raise NoContextError(f"the kubeconfig {files} has no current context: choose one by --context; {there_are}")
    if chosen not in contexts:
        raise NoContextError(f"there is no context {chosen!r} in the kubeconfig {files}; {there_are}")
    return chosen, contexts[chosen]


def contexts_in(files: str) -> list[str]:
    """Return the names of the contexts in a kubeconfig, or several joined as in `KUBECONFIG`.

    Raises:
        OSError: a file can't be read.
        ValueError: a file is not a kubeconfig.
    """
    return sorted(_contexts(map(_load, _existing(files))))


def current_context(files: str) -> str | None:
    """Return the name of the current context; None if there is none. Argument and errors as those of `contexts_in`."""
    return _current(map(_load, _existing(files)))


def _current(loaded: Iterable[_Kubeconfig]) -> str | None:
    return next((each.current_context for each in loaded if each.current_context), None)


def _contexts(loaded: Iterable[_Kubeconfig]) -> dict[str, _Context]:
    contexts: dict[str, _Context] = {}
    for each in loaded:
        for entry in each.contexts or ():
            contexts.setdefault(entry.name, entry.context or _Context())
    return contexts


def _existing(files: str) -> list[Path]:
    """Return the existing files. If there are several, some may be missing."""
    # Path.expanduser raises where there is no home, as in a container.
    paths = [Path(os.path.expanduser(each)) for each in files.split(os.pathsep) if each]  # noqa: PTH111
    return [path for path in paths if path.exists()]


def _load(path: Path) -> _Kubeconfig:
    try:
        return msgspec.convert(yaml.safe_load(path.read_text(encoding="utf-8")), _Kubeconfig)
    except (yaml.YAMLError, msgspec.ValidationError, UnicodeDecodeError) as error:
        raise ValueError(f"{path} is not a kubeconfig: {error}") from error


def _named(name: str, lists: Iterable[tuple[Path, tuple[_Entry, ...] | None]]) -> tuple[Path, _Entry] | None:
    """Return the first entry of that name, and the folder of its relative paths."""
    for path, entries in lists:
        for entry in entries or ():
            if entry.name == name:
                return path.absolute().parent, entry
    return None


def _pem(base: Path, path: str | None, data: str | None) -> Pem:
    if not data:
        return Pem(path=str(base / path) if path else None)
    try:
        return Pem(data=base64.b64decode("".join(data.split()), validate=True))
    except binascii.Error as error:
        raise ValueError(f"a certificate or key in it is not base64: {error}") from error


def _identity(base: Path, user: _User) -> Identity:
    """Return the user's credentials. As in client-go, a token file has priority over a token."""
    if user.token_file:
        token = TokenFile(base / user.token_file)
        token.authorization()
        return token
    if user.token and user.token.strip():
        return FixedIdentity(f"Bearer {user.token.strip()}")
    if user.username and user.password:
        return FixedIdentity("Basic " + base64.b64encode(f"{user.username}:{user.password}".encode()).decode("ascii"))
    return FixedIdentity()


def _impersonation(user: _User) -> Impersonation:
    extra = sorted((user.as_user_extra or {}).items())
    return Impersonation(
        user.as_user, user.as_groups or (), user.as_uid, tuple((name, values or ()) for name, values in extra)
    )
