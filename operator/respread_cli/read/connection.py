"""The connection that a command's options select: pykube-ng, which is synchronous, with our ways to an API server.

pykube-ng reads kubeconfigs too, but differently from client-go. So it gets the result of `load_access`: the same TLS
context, proxy and credentials as the operator's requests.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

import msgspec
import pykube
from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter
from requests.exceptions import SSLError
from urllib3 import HTTPHeaderDict
from urllib3.util import Retry

from respread.kube.access import AccessError, ClusterAccess, load_access
from respread.kube.credentials import OURSELVES, Impersonation
from respread.program.command_line import CommandError
from respread_cli.read.cluster_view import ConnectionOptions

READS_AGAIN: Final = Retry(
    total=None,
    connect=0,
    read=1,
    other=0,
    status=4,
    status_forcelist=(429, 500, 502, 503, 504),
    backoff_factor=0.5,
    raise_on_status=False,
)
"""For reads for which a user waits."""
_NEVER: Final = Retry(0, read=False)
_ADVICE: Final = (
    "Name a kubeconfig by --kubeconfig or KUBECONFIG, look at a file by --snapshot, or start a cluster to try things "
    "with by `respread sandbox up`"
)


class Connection(msgspec.Struct, frozen=True):
    """A client for one API server."""

    client: pykube.HTTPClient
    server: str
    name: str
    """How to call the cluster in a sentence: `context prod`."""
    namespace: str
    """The context's."""
    timeout_seconds: float | None = None
    """How long to wait for each answer; None for the caller's own limit."""

    def close(self) -> None:
        """Close what is open."""
        self.client.session.close()


def connect(options: ConnectionOptions) -> Connection:
    """Return a client for the API server. It makes no request yet.

    Raises:
        CommandError: there is none, or its credentials are not available.
    """
    try:
        access = load_access(kubeconfig=options.kubeconfig, context=options.context, advice=_ADVICE)
    except AccessError as error:
        raise CommandError(f"{error}.") from error
    if options.as_groups and not (options.as_user or access.impersonation.user):
        raise CommandError(
            "--as-group needs --as, or `as` in the kubeconfig: the API server impersonates groups only together with a "
            "user."
        )
    return open_connection(
        access,
        READS_AGAIN,
        impersonation=Impersonation(options.as_user, options.as_groups),
        timeout_seconds=options.request_timeout_seconds,
    )


def open_connection(
    access: ClusterAccess,
    retry: Retry = _NEVER,
    *,
    impersonation: Impersonation = OURSELVES,
    timeout_seconds: float | None = None,
) -> Connection:
    """Return a client for an API server, for several threads. It makes no request yet.

    A request raises CredentialsError or OSError if there are no credentials at that moment.

    Args:
        access: how the API server is reached.
        retry: which requests are repeated, and how often.
        impersonation: as whom requests are made, in place of what the kubeconfig says.
        timeout_seconds: how long to wait for each answer; None for the caller's own limit.
    """
    name = "cluster"
    kubeconfig = pykube.KubeConfig(
        {
            "clusters": [{"name": name, "cluster": {"server": access.server}}],
            "users": [{"name": name, "user": {}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }
    )
    headers = access.impersonation.replaced_by(impersonation).headers()
    client = pykube.HTTPClient(kubeconfig, http_adapter=_Adapter(access, retry, headers), verify=access.verified)
    client.session.auth = _Authorization(access)
    client.session.trust_env = False  # proxies of the environment are in the access; a .netrc is not for an API server
    client.session.headers["User-Agent"] = "respread"
    if access.proxy is not None:
        client.session.proxies = {"http": access.proxy, "https": access.proxy}
    return Connection(client, access.server, access.name, access.namespace, timeout_seconds)


class _Adapter(HTTPAdapter):
    """Makes TLS connections with the access's own context, and adds no other authorities."""

    def __init__(self, access: ClusterAccess, retry: Retry, headers: Iterable[tuple[str, str]]) -> None:
        self._headers = tuple(headers)
        self._access = access
        super().__init__(max_retries=retry)

    def send(self, request: PreparedRequest, *args: Any, **options: Any) -> Response:
        """Send a request, with all headers of an impersonation: those of requests' own have one value for a name."""
        headers = HTTPHeaderDict({name: str(value) for name, value in request.headers.items()})
        for name, value in self._headers:
            headers.add(name, value)
        request.headers = headers  # type: ignore[assignment]  # urllib3 sends each of its items
        try:
            return super().send(request, *args, **options)
        except SSLError:
            self._access.certificate_refused()
            raise

    def build_connection_pool_key_attributes(self, *args: Any) -> tuple[dict[str, Any], dict[str, Any]]:
        """Return the host and the TLS options of a connection: those of now, because files may have changed."""
        host, options = super().build_connection_pool_key_attributes(*args)
        tls = {"ssl_context": self._access.ssl_context, "server_hostname": self._access.server_name}
        return host, {**options, **tls}

    def cert_verify(self, *_: Any) -> None:
        """Do not change the context."""


class _Authorization:
    """Adds the current credentials to each request."""

    def __init__(self, access: ClusterAccess) -> None:
        self._access = access

    def __call__(self, request: PreparedRequest) -> PreparedRequest:
        if (value := self._access.authorization_now()) is not None:
            request.headers["Authorization"] = value
        return request
