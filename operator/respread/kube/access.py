"""How the API server is reached: from within the cluster or by a kubeconfig, as kubectl and client-go would."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from kubernetes import client, config
from kubernetes.config import kube_config

# The client's own functions carry no types.
_load_kube_config: Callable[..., None] = config.load_kube_config
_list_contexts: Callable[..., tuple[list[dict[str, Any]], dict[str, Any]]] = config.list_kube_config_contexts
_merge_kubeconfigs: Callable[..., Any] = kube_config.KubeConfigMerger
_load_in_cluster: Callable[..., None] = config.load_incluster_config

_NAMESPACE_FILE: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount/namespace")


class AccessError(Exception):
    """No API server is configured, or its credentials can't be had."""


class ClusterAccess:
    """One API server, with the credentials for it as they are now.

    Credentials change while the operator runs: the kubelet replaces a ServiceAccount's token well before its hour is
    over, and exec plugins issue short-lived ones. So they are asked for at every request; what has not expired costs
    nothing.
    """

    __slots__ = ("_asking", "_configuration", "in_cluster", "namespace", "ssl_context")

    def __init__(self, configuration: client.Configuration, namespace: str, *, in_cluster: bool = False) -> None:
        self._configuration = configuration
        self._asking: asyncio.Task[str | None] | None = None
        self.namespace = namespace
        """The operator's own namespace in a cluster, the context's elsewhere."""
        self.in_cluster = in_cluster
        """Whether it is the cluster that this process runs in, by its pod's ServiceAccount."""
        self.ssl_context: ssl.SSLContext = _ssl_context(configuration)

    @property
    def configuration(self) -> client.Configuration:
        """What was configured, in the official client's terms; credentials are in `authorization`."""
        return self._configuration

    @property
    def server(self) -> str:
        """The API server's address, with the path prefix if it has one, without a slash at the end."""
        return str(self._configuration.host).rstrip("/")

    @property
    def server_name(self) -> str | None:
        """The name to expect in the API server's certificate, if it is another than the address."""
        name: str | None = self._configuration.tls_server_name
        return name or None

    @property
    def proxy(self) -> str | None:
        """The kubeconfig's `proxy-url`, else what HTTPS_PROXY and NO_PROXY say of the API server's address.

        Sessions are given it instead of being told to trust the environment, by which aiohttp would read that, and
        the person's .netrc, in threads of their own before every single request.
        """
        proxy: str | None = self._configuration.proxy
        return proxy or _proxy_of_environment(self.server)

    def adopt(self, other: ClusterAccess) -> None:
        """Go on with the credentials of another access to the same API server, as found anew."""
        self._configuration = other.configuration

    async def authorization(self) -> str | None:
        """Return the value of the Authorization header, or None where a client certificate says who we are."""
        renew: object = self._configuration.refresh_api_key_hook
        if renew is None:
            return _authorization(self._configuration)
        # A plugin must not be run twice at a time, nor be given up on because one of those who wait for it does.
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(asyncio.to_thread(_authorization, self._configuration))
        return await asyncio.shield(self._asking)


def load_access(*, kubeconfig: str | None = None, context: str | None = None) -> ClusterAccess:
    """Find the API server and the credentials for it; may read files and run an exec plugin, so it may take a while.

    What is said explicitly counts: a kubeconfig or context that is given, else the files of `KUBECONFIG`, else the
    pod's ServiceAccount, else `~/.kube/config`.

    Args:
        kubeconfig: A kubeconfig, or several joined as in `KUBECONFIG`.
        context: A context of it; its current one if left out.

    Raises:
        AccessError: if there is none, or it can't be read or used.
    """
    configuration = client.Configuration(
        proxy=""
    )  # not None: that would take the environment's, without its exceptions
    files = kubeconfig or os.environ.get("KUBECONFIG") or None
    if files is None and context is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        return _in_cluster(configuration)
    shown = files or "~/.kube/config"
    try:
        return _through_kubeconfig(configuration, shown, context)
    except Exception as error:  # the client's loader raises whatever it trips over in a file that is none
        raise AccessError(
            f"no access to a cluster through the kubeconfig {shown}: {error}. Give one by --kubeconfig or KUBECONFIG "
            "(and --context), or run in a cluster"
        ) from error


def _through_kubeconfig(configuration: client.Configuration, files: str, context: str | None) -> ClusterAccess:
    _load_kube_config(config_file=files, context=context, client_configuration=configuration)
    contexts, current = _list_contexts(config_file=files)
    chosen = current if context is None else next(each for each in contexts if each["name"] == context)
    user = chosen["context"].get("user") or ""
    # The client logs the failure of a plugin and goes on as nobody.
    if not _authorization(configuration) and not configuration.cert_file and _has_plugin(files, user):
        raise AccessError(f"the exec plugin of the user {user} gave no credentials; it may have said why, see above")
    return ClusterAccess(configuration, chosen["context"].get("namespace") or "default")


def _has_plugin(files: str, user: str) -> bool:
    users = _merge_kubeconfigs(files).config["users"]
    found = users.get_with_name(user, safe=True)
    return found is not None and "exec" in found["user"]


def _in_cluster(configuration: client.Configuration) -> ClusterAccess:
    try:
        _load_in_cluster(client_configuration=configuration)
        return ClusterAccess(configuration, _NAMESPACE_FILE.read_text(encoding="utf-8").strip(), in_cluster=True)
    except (config.ConfigException, OSError, ssl.SSLError) as error:
        raise AccessError(
            f"no access to the cluster through the pod's ServiceAccount: {error}. Does the pod have a "
            "ServiceAccount whose token is mounted (automountServiceAccountToken)?"
        ) from error


def _authorization(configuration: client.Configuration) -> str | None:
    value: str | None = configuration.get_api_key_with_prefix("BearerToken")
    if not value:
        return None
    scheme, _, credentials = value.strip().partition(" ")
    # The client writes the in-cluster token's scheme in lower case, and keeps a newline that a hand-made file ends in.
    return f"{scheme.capitalize()} {credentials.strip()}"


def _proxy_of_environment(server: str) -> str | None:
    address = urlsplit(server)
    if address.hostname is None or proxy_bypass(address.hostname):
        return None
    return getproxies().get(address.scheme)


def _ssl_context(configuration: client.Configuration) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert or None)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if configuration.cert_file and configuration.key_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    return context
