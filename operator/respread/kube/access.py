"""How the API server is reached: from within the cluster or by a kubeconfig, and by which proxy, as with kubectl.

Credentials are loaded again when the API server no longer accepts them. HTTPS_PROXY and NO_PROXY choose the proxy as
for every Go program (golang.org/x/net/http/httpproxy). Python's `urllib` reads the same variables, but no ranges of
addresses: with NO_PROXY=10.0.0.0/8, which pods often have, requests to 10.96.0.1 would go to the proxy.
"""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import Callable, Mapping
from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from math import inf
from pathlib import Path
from time import monotonic
from typing import Final, TypeAlias
from urllib.parse import SplitResult, urlsplit

from respread.kube.credentials import CredentialsError, Endpoint, Identity, Pem, TlsContext, TokenFile
from respread.kube.kubeconfig import NoContextError, NoKubeconfigError, find_in_kubeconfig
from respread.telemetry.logs import get_logger

SERVICE_HOST: Final = "KUBERNETES_SERVICE_HOST"
SERVICE_PORT: Final = "KUBERNETES_SERVICE_PORT"
FOLDER: Final = Path("/var/run/secrets/kubernetes.io/serviceaccount")


def find_service_account(folder: Path = FOLDER, clock: Callable[[], float] = monotonic) -> tuple[Endpoint, TokenFile]:
    """Return the API server of the cluster in which this process runs, and the pod's token.

    The kubelet puts them into the folder.

    Raises:
        CredentialsError: there is none, or it is incomplete.
        OSError: a file can't be read.
    """
    host, port = os.environ.get(SERVICE_HOST), os.environ.get(SERVICE_PORT)
    if not host or not port:
        raise CredentialsError(f"{SERVICE_HOST} and {SERVICE_PORT} are not both set")
    token = TokenFile(folder / "token", clock)
    token.authorization()
    return Endpoint(
        server=f"https://[{host}]:{port}" if ":" in host else f"https://{host}:{port}",
        namespace=(folder / "namespace").read_text(encoding="utf-8").strip(),
        certificate_authority=Pem(path=str(folder / "ca.crt")),
    ), token


DEFAULT_KUBECONFIG: Final = "~/.kube/config"
_ADVICE: Final = "Give one by --kubeconfig or KUBECONFIG (and --context), or run in a cluster"


class AccessError(Exception):
    """No API server is configured, or its credentials are not available. The message has no full stop at its end."""


class ClusterAccess:
    """One API server, with its current credentials.

    Credentials change while the operator runs: the kubelet replaces a ServiceAccount token well before it expires, and
    exec plugins issue short-lived ones. So every request asks for them, which costs nothing while they are valid.
    """

    def __init__(self, endpoint: Endpoint, identity: Identity, *, in_cluster: bool = False) -> None:
        """Create it. `in_cluster` says whether this process runs in that cluster and uses its pod's ServiceAccount.

        Raises:
            OSError: a certificate can't be read, or (ssl.SSLError) is invalid.
            _ProxyError: the proxy can't be used.
        """
        self.endpoint = endpoint
        self._identity = identity
        self._asking: asyncio.Task[str | None] | None = None
        self.in_cluster = in_cluster
        """Whether this process runs in that cluster and uses its pod's ServiceAccount."""
        self.impersonation = endpoint.impersonation
        """As whom requests are made."""
        self._tls = TlsContext(endpoint)
        proxy = endpoint.proxy or _proxy_of_environment(endpoint.server, os.environ)
        self.proxy = None if proxy is None else proxy_url(proxy)
        """The kubeconfig's `proxy-url`, else the proxy from HTTPS_PROXY and NO_PROXY for the API server's address.

        Sessions get it explicitly. If they trusted the environment, aiohttp would read it, and the user's .netrc, in
        threads before every single request.
        """

    @property
    def ssl_context(self) -> ssl.SSLContext:
        """The TLS context for a new connection. A request gets it after its credentials, which may change it."""
        return self._tls.current

    def adopt(self, other: ClusterAccess) -> None:
        """Continue with the credentials of another access to the same API server."""
        self._identity = other._identity
        self.impersonation = other.impersonation
        self._tls = other._tls

    async def authorization(self) -> str | None:
        """Return the value of the Authorization header, or None with a client certificate.

        Raises:
            CredentialsError: there are no credentials now.
            OSError: a file can't be read.
        """
        if self._identity.is_current and self._tls.is_current:
            return self._identity.authorization()
        # A plugin must not run twice at a time, and must not be cancelled because one of its waiters is.
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(asyncio.to_thread(self.authorization_now))
        return await asyncio.shield(self._asking)

    def authorization_now(self) -> str | None:
        """Return the same without an event loop. It may read a file or run a plugin in the caller's thread.

        Raises:
            CredentialsError: there are no credentials now.
            OSError: a file can't be read.
        """
        if not self._tls.is_current:
            self._tls.look()
        return self._identity.authorization()

    def certificate_refused(self) -> None:
        """Look for other certificates before the next request: there was no agreement about those of now."""
        self._tls.doubt()


def load_access(*, kubeconfig: str | None = None, context: str | None = None, advice: str = _ADVICE) -> ClusterAccess:
    """Find the API server and its credentials. It may read files and run an exec plugin, so it may take some time.

    The order is: an explicit kubeconfig or context, the files of `KUBECONFIG`, the pod's ServiceAccount,
    `~/.kube/config`. `kubeconfig` may be several files, joined as in `KUBECONFIG`. The default of `context` is the
    current one. `advice` is what a user can do if there is no access, as a sentence without its full stop.

    Raises:
        AccessError: if there is none, or it can't be read or used.
    """
    files = kubeconfig or os.environ.get("KUBECONFIG") or None
    if files is None and context is None and SERVICE_HOST in os.environ:
        return _in_cluster()
    shown = files or DEFAULT_KUBECONFIG
    try:
        return ClusterAccess(*find_in_kubeconfig(shown, context))
    except (NoContextError, _ProxyError) as error:
        raise AccessError(str(error)) from error
    except NoKubeconfigError as error:
        raise AccessError(f"there is no kubeconfig: {error}. {advice}") from error
    except Exception as error:  # The official client raises arbitrary exceptions while it runs a plugin.
        raise AccessError(
            f"no cluster can be reached through the kubeconfig {shown}: {_said(error)}. {advice}"
        ) from error


def _in_cluster() -> ClusterAccess:
    try:
        return ClusterAccess(*find_service_account(), in_cluster=True)
    except _ProxyError as error:
        raise AccessError(str(error)) from error
    except (CredentialsError, OSError) as error:
        raise AccessError(
            f"no cluster can be reached through the pod's ServiceAccount: {error}. Does the pod have a "
            "ServiceAccount whose token is mounted (automountServiceAccountToken)?"
        ) from error


def _said(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return f"a certificate in it is of no use ({error})"
    return " ".join(str(error).split()).rstrip(".") or type(error).__name__


_log: Final = get_logger(__name__)

LEAST_INTERVAL_SECONDS: Final = 2.0


class Renewal:
    """Loads credentials from their source, and passes them to all users of the access."""

    def __init__(self, access: ClusterAccess, find: Callable[[], ClusterAccess], clock: Callable[[], float]) -> None:
        """Share an access. `find` loads another one. It may read files and run plugins, so it is called in a thread."""
        self.access = access
        self._find = find
        self._clock = clock
        self._looked_at = -inf
        self._looking: asyncio.Task[None] | None = None

    def load(self) -> ClusterAccess:
        """Load an access. The shared one continues with its credentials.

        Raises:
            AccessError: there is none.
        """
        found = self._find()
        self.access.adopt(found)
        return found

    async def __call__(self) -> None:
        """Do this in a thread, once for all callers meanwhile, and not again at once.

        If nothing is found, nothing changes. A caller may be cancelled; the loading continues.
        """
        if self._looking is None or self._looking.done():
            if self._clock() - self._looked_at < LEAST_INTERVAL_SECONDS:
                return
            self._looked_at = self._clock()
            self._looking = asyncio.create_task(self._look())
        await asyncio.shield(self._looking)

    async def _look(self) -> None:
        try:
            await asyncio.to_thread(self.load)
        except AccessError as error:
            _log.warning("The API server does not accept the credentials, and there are no others", error=str(error))


_SCHEMES: Final = ("http", "https")
_PORTS: Final = {"http": 80, "https": 443}

_Address: TypeAlias = IPv4Address | IPv6Address


class _ProxyError(ValueError):
    """A proxy can't be used."""


def _proxy_of_environment(server: str, environment: Mapping[str, str]) -> str | None:
    """Return the URL of the proxy for a server, or None if there is none, or NO_PROXY excludes the server."""
    address = urlsplit(server)
    proxy = _variable(environment, f"{address.scheme}_proxy")
    return None if proxy is None or _is_direct(address, _variable(environment, "no_proxy") or "") else proxy


def proxy_url(proxy: str) -> str:
    """Return a proxy as a URL, with http if it has no scheme.

    Raises:
        _ProxyError: it is of a kind that is not supported.
    """
    url = proxy if "://" in proxy else f"http://{proxy}"
    scheme = urlsplit(url).scheme
    if scheme not in _SCHEMES:
        raise _ProxyError(
            f"proxies of the scheme {scheme} are not supported: name an http or https proxy in proxy-url or "
            "HTTPS_PROXY, or exclude the API server by NO_PROXY"
        )
    return url


def _variable(environment: Mapping[str, str], name: str) -> str | None:
    return environment.get(name) or environment.get(name.upper()) or None


def _is_direct(server: SplitResult, exceptions: str) -> bool:
    host = (server.hostname or "").lower()
    address = _as_address(host)
    if host == "localhost" or (address is not None and address.is_loopback):
        return True
    port = server.port or _PORTS[server.scheme]
    return any(_excludes(each.strip().lower(), host, address, port) for each in exceptions.split(","))


def _excludes(exception: str, host: str, address: _Address | None, port: int) -> bool:
    """Return whether one entry of NO_PROXY is about a server."""
    if exception == "*":
        return True
    if "/" in exception:
        return address is not None and _contains(exception, address)
    name, of_port = _split_port(exception)
    if not name or of_port not in ("", str(port)):
        return False
    if address is not None:
        return _as_address(name) == address
    name = name.removeprefix("*")
    return host.endswith(name) if name.startswith(".") else host == name or host.endswith(f".{name}")


def _contains(network: str, address: _Address) -> bool:
    try:
        return address in ip_network(network, strict=False)
    except ValueError:
        return False


def _split_port(exception: str) -> tuple[str, str]:
    """Return the host and the port, empty if there is none. An IPv6 address with a port is in brackets."""
    if exception.startswith("["):
        host, _, rest = exception[1:].partition("]")
        return host, rest.removeprefix(":")
    host, _, port = exception.partition(":")
    return (exception, "") if ":" in port else (host, port)


def _as_address(host: str) -> _Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None
