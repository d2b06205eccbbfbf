"""How the API server is reached: from within the cluster or by a kubeconfig, as kubectl and client-go would."""

from __future__ import annotations

import asyncio
import os
import ssl
from typing import Final
from urllib.parse import urlsplit
from urllib.request import getproxies, proxy_bypass

from respread.kube.credentials import CredentialsError, Endpoint, Identity
from respread.kube.kubeconfig import NoContextError, NoKubeconfigError, find_in_kubeconfig
from respread.kube.service_account import SERVICE_HOST, find_service_account

DEFAULT_KUBECONFIG: Final = "~/.kube/config"
_ADVICE: Final = "Give one by --kubeconfig or KUBECONFIG (and --context), or run in a cluster"


class AccessError(Exception):
    """No API server is configured, or its credentials can't be had; the message has no full stop at its end."""


class ClusterAccess:
    """One API server, with the credentials for it as they are now.

    Credentials change while the operator runs: the kubelet replaces a ServiceAccount's token well before its hour is
    over, and exec plugins issue short-lived ones. So they are asked for at every request; what has not expired costs
    nothing.
    """

    __slots__ = ("_asking", "_endpoint", "_identity", "in_cluster", "proxy", "ssl_context")

    def __init__(self, endpoint: Endpoint, identity: Identity, *, in_cluster: bool = False) -> None:
        """Reach an API server.

        Args:
            endpoint: where it is.
            identity: what says who we are.
            in_cluster: whether it is the cluster that this process runs in, by its pod's ServiceAccount.

        Raises:
            OSError: a certificate can't be read, or (ssl.SSLError) is none.
        """
        self._endpoint = endpoint
        self._identity = identity
        self._asking: asyncio.Task[str | None] | None = None
        self.in_cluster = in_cluster
        """Whether it is the cluster that this process runs in, by its pod's ServiceAccount."""
        self.ssl_context: ssl.SSLContext = endpoint.ssl_context()
        self.proxy = endpoint.proxy or _proxy_of_environment(endpoint.server)
        """The kubeconfig's `proxy-url`, else what HTTPS_PROXY and NO_PROXY say of the API server's address.

        Sessions are given it instead of being told to trust the environment, by which aiohttp would read that, and
        the person's .netrc, in threads of their own before every single request.
        """

    @property
    def server(self) -> str:
        """The API server's address, with the path prefix if it has one, without a slash at the end."""
        return self._endpoint.server

    @property
    def name(self) -> str:
        """How to call the cluster in a sentence: `context prod`."""
        return self._endpoint.name

    @property
    def verified(self) -> bool:
        """Whether the API server's certificate has to be right."""
        return self._endpoint.verified

    @property
    def server_name(self) -> str | None:
        """The name to expect in the API server's certificate, if it is another than the address."""
        return self._endpoint.server_name

    @property
    def namespace(self) -> str:
        """The operator's own namespace in a cluster, the context's elsewhere."""
        return self._endpoint.namespace

    def adopt(self, other: ClusterAccess) -> None:
        """Go on with the credentials of another access to the same API server, as found anew."""
        self._identity = other._identity
        self.ssl_context = other.ssl_context

    async def authorization(self) -> str | None:
        """Return the value of the Authorization header, or None where a client certificate says who we are.

        Raises:
            CredentialsError: there is none now.
            OSError: a file can't be read.
        """
        if self._identity.is_current:
            return self._identity.authorization()
        # A plugin must not be run twice at a time, nor be given up on because one of those who wait for it does.
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(asyncio.to_thread(self._identity.authorization))
        return await asyncio.shield(self._asking)

    def authorization_now(self) -> str | None:
        """Return the same without an event loop; may read a file or run a plugin, in whichever thread asks.

        Raises:
            CredentialsError: there is none now.
            OSError: a file can't be read.
        """
        return self._identity.authorization()


def load_access(*, kubeconfig: str | None = None, context: str | None = None, advice: str = _ADVICE) -> ClusterAccess:
    """Find the API server and the credentials for it; may read files and run an exec plugin, so it may take a while.

    What is said explicitly counts: a kubeconfig or context that is given, else the files of `KUBECONFIG`, else the
    pod's ServiceAccount, else `~/.kube/config`.

    Args:
        kubeconfig: A kubeconfig, or several joined as in `KUBECONFIG`.
        context: A context of it; its current one if left out.
        advice: What a person can do if there is none, as a sentence without its full stop.

    Raises:
        AccessError: if there is none, or it can't be read or used.
    """
    files = kubeconfig or os.environ.get("KUBECONFIG") or None
    if files is None and context is None and SERVICE_HOST in os.environ:
        return _in_cluster()
    shown = files or DEFAULT_KUBECONFIG
    try:
        return ClusterAccess(*find_in_kubeconfig(shown, context))
    except NoContextError as error:
        raise AccessError(str(error)) from error
    except NoKubeconfigError as error:
        raise AccessError(f"there is no kubeconfig: {error}. {advice}") from error
    except Exception as error:  # the official client raises whatever it trips over while it runs a plugin
        raise AccessError(
            f"no cluster can be reached through the kubeconfig {shown}: {_said(error)}. {advice}"
        ) from error


def _in_cluster() -> ClusterAccess:
    try:
        return ClusterAccess(*find_service_account(), in_cluster=True)
    except (CredentialsError, OSError) as error:
        raise AccessError(
            f"no cluster can be reached through the pod's ServiceAccount: {error}. Does the pod have a "
            "ServiceAccount whose token is mounted (automountServiceAccountToken)?"
        ) from error


def _said(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"a certificate in it is of no use ({error})"
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


def _proxy_of_environment(server: str) -> str | None:
    address = urlsplit(server)
    if address.hostname is None or proxy_bypass(address.hostname):
        return None
    return getproxies().get(address.scheme)
