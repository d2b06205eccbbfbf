"""The connection that a command's options select, and raw answers of the API server: pages of LISTs, events of watches.

The client is pykube-ng, which is synchronous, with our ways to an API server. It reads kubeconfigs too, but differently
from client-go, so it gets the result of `load_access`: the same TLS context, proxy and credentials as the operator's
requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from http import HTTPStatus
from typing import Any, Final

import msgspec
import pykube
import requests
from requests import PreparedRequest, Response
from requests.adapters import HTTPAdapter
from requests.exceptions import SSLError
from urllib3 import HTTPHeaderDict
from urllib3.util import Retry

from respread.api.json_documents import decoded
from respread.cluster.decode.decoder import KINDS
from respread.cluster.decode.metadata import WireIdentity
from respread.cluster.stores import UNFINISHED_PODS, full_name
from respread.kube.access import AccessError, ClusterAccess, load_access
from respread.kube.credentials import OURSELVES, CredentialsError, Endpoint, Impersonation
from respread.program.command_line import CommandError
from respread_cli.read.cluster_view import ConnectionOptions, WantedKind

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
_ONLY_METADATA: Final = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json"
PAGE_OBJECTS: Final = 500
TIMEOUT_SECONDS: Final = (10, 60)
"""To connect, and to wait for the next bytes of an answer."""
WATCH_SECONDS: Final = 45
"""How long a watch lasts before it is continued by the next one: less than the wait for the next bytes, so that a
watch without events is not considered broken."""
LINES_BYTES: Final = 64 * 1024
"""The most bytes of a watch to read at once. What has arrived is never held back for more."""


class Connection(msgspec.Struct, frozen=True):
    """A client for one API server."""

    client: pykube.HTTPClient
    endpoint: Endpoint
    timeout_seconds: float | None = None
    """How long to wait for each answer; None for the caller's own limit."""

    @property
    def _whole_name(self) -> str:
        return f"the API server at {self.endpoint.server} ({self.endpoint.name})"

    def close(self) -> None:
        """Close what is open."""
        self.client.session.close()

    def pages(self, wanted: WantedKind) -> Iterator[bytes]:
        """Return the pages of a list. The first one is requested now.

        Raises:
            CommandError: the API server can't be reached, or rejects our credentials; also while iterating.
            UnreadableError: this kind can't be read.
        """
        return self._from(wanted, self._get(wanted, ""))

    def _from(self, wanted: WantedKind, page: bytes) -> Iterator[bytes]:
        yield page
        while more := _continue_token(page):
            page = self._get(wanted, more)
            yield page

    def _get(self, wanted: WantedKind, more: str) -> bytes:
        parameters: dict[str, str | int] = {"limit": PAGE_OBJECTS}
        if wanted.kind == KINDS["pods"]:
            parameters["fieldSelector"] = UNFINISHED_PODS
        if more:
            parameters["continue"] = more
        response = self.get(wanted.path, parameters)
        if response.status_code == HTTPStatus.GONE and more:
            raise ListExpiredError
        if response.ok:
            return response.content
        raise self._refusal(wanted, response, "list")

    def _refusal(self, wanted: WantedKind, response: requests.Response, verb: str) -> UnreadableError | CommandError:
        name, said = full_name(wanted.kind), _message_of(response)
        if response.status_code == HTTPStatus.FORBIDDEN:
            return UnreadableError(f"you are not allowed to {verb} {name}: {said}", absent=False)
        if response.status_code == HTTPStatus.NOT_FOUND:
            return UnreadableError(f"the API server has no {name} in version {wanted.kind.version}", absent=True)
        return CommandError(f"the API server at {self.endpoint.server} can't {verb} {name}: {said}.")

    def lines(self, wanted: WantedKind, version: str) -> Iterator[bytes]:
        """Return the events of a watch, each as JSON, as they arrive, until the API server ends the watch.

        The watch is requested now. The version is that of a list or an event, after which the watch begins.

        Raises:
            CommandError: the API server can't be reached, or rejects our credentials; also while iterating.
            UnreadableError: this kind can't be watched.
            ListExpiredError: the version is too old.
        """
        parameters: dict[str, str | int] = {
            "watch": 1,
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": WATCH_SECONDS,
        }
        if wanted.kind == KINDS["pods"]:
            parameters["fieldSelector"] = UNFINISHED_PODS
        response = self.get(wanted.path, parameters, stream=True)
        if response.ok:
            return self._lines(response)
        with closing(response):
            if response.status_code == HTTPStatus.GONE:
                raise ListExpiredError
            raise self._refusal(wanted, response, "watch")

    def _lines(self, response: requests.Response) -> Iterator[bytes]:
        with closing(response):
            try:
                yield from response.iter_lines(chunk_size=LINES_BYTES)
            except (requests.exceptions.RequestException, OSError) as error:
                raise CommandError(f"the connection to {self._whole_name} broke: {_innermost(error)}.") from error

    def version(self) -> str:
        """Return the API server's version, such as `v1.36.3`; empty if it does not report one.

        Raises:
            CommandError: the API server can't be reached, or rejects our credentials.
        """
        response = self.get("/version")
        try:
            return msgspec.json.decode(response.content, type=_Version).git_version if response.ok else ""
        except msgspec.DecodeError:
            return ""

    def identities(self, path: str, parameters: dict[str, str | int]) -> list[WireIdentity]:
        """Return the names of listed objects; none if they may not be listed.

        Raises:
            CommandError: there was no answer, or our credentials were rejected.
        """
        response = self.get(path, parameters, accept=_ONLY_METADATA)
        if not response.ok:
            return []
        return [each.metadata for each in msgspec.json.decode(response.content, type=_Identities).items or ()]

    def get(
        self,
        path: str,
        parameters: dict[str, str | int] | None = None,
        *,
        accept: str = "application/json",
        stream: bool = False,
    ) -> requests.Response:
        """Return the answer to a GET, unless the server can't be reached or rejects our credentials.

        With `stream`, the body is read as it arrives.

        Raises:
            CommandError: there was no answer, or our credentials were rejected.
        """
        try:
            response: requests.Response = self.client.session.get(
                self.endpoint.server + path,
                params=parameters,
                headers={"Accept": accept},
                timeout=self.timeout_seconds or TIMEOUT_SECONDS,
                stream=stream,
            )
        except requests.exceptions.SSLError as error:
            raise CommandError(f"{self._whole_name} is not who the kubeconfig says: {_innermost(error)}.") from error
        except requests.exceptions.RequestException as error:
            raise CommandError(f"{self._whole_name} can't be reached: {_innermost(error)}.") from error
        except (CredentialsError, OSError) as error:  # of a plugin, or a token's file
            raise CommandError(f"the credentials of {self.endpoint.name} can't be used: {error}.") from error
        if response.status_code == HTTPStatus.UNAUTHORIZED:
            raise CommandError(
                f"the API server at {self.endpoint.server} does not accept the credentials of {self.endpoint.name}: "
                "they may have expired; log in again."
            )
        return response


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

    A request raises CredentialsError or OSError if there are no credentials at that moment. The impersonation replaces
    what the kubeconfig says.
    """
    name = "cluster"
    kubeconfig = pykube.KubeConfig(
        {
            "clusters": [{"name": name, "cluster": {"server": access.endpoint.server}}],
            "users": [{"name": name, "user": {}}],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        }
    )
    headers = access.impersonation.replaced_by(impersonation).headers()
    adapter = _Adapter(access, retry, headers)
    client = pykube.HTTPClient(kubeconfig, http_adapter=adapter, verify=access.endpoint.verified)
    client.session.auth = _Authorization(access)
    client.session.trust_env = False  # proxies of the environment are in the access; a .netrc is not for an API server
    client.session.headers["User-Agent"] = "respread"
    if access.proxy is not None:
        client.session.proxies = {"http": access.proxy, "https": access.proxy}
    return Connection(client, access.endpoint, timeout_seconds)


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
        tls = {"ssl_context": self._access.ssl_context, "server_hostname": self._access.endpoint.server_name}
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


class UnreadableError(Exception):
    """A kind that the API server does not have, or does not allow us to read.

    The message is a sentence without its end.
    """

    def __init__(self, message: str, *, absent: bool) -> None:
        super().__init__(message)
        self.absent = absent


class ListExpiredError(Exception):
    """A list took so long that its continue token expired."""


class _Identified(msgspec.Struct):
    metadata: WireIdentity


class _Identities(msgspec.Struct):
    items: list[_Identified] | None = None  # an empty PartialObjectMetadataList has null


class _Version(msgspec.Struct, rename="camel"):
    git_version: str = ""


class _ListMeta(msgspec.Struct):
    continue_: str = msgspec.field(default="", name="continue")


class _AnyList(msgspec.Struct):
    metadata: _ListMeta = msgspec.field(default_factory=_ListMeta)


_read_list: Final = msgspec.json.Decoder(_AnyList).decode


def _continue_token(page: bytes) -> str:
    try:
        return decoded(_read_list, page).metadata.continue_
    except msgspec.DecodeError:
        return ""  # The decoder of the page reports what is wrong with it.


def _message_of(response: requests.Response) -> str:
    """Return the message of an error answer: that of its Status, else the status line."""
    try:
        message = response.json().get("message")
    except (ValueError, AttributeError):
        message = None
    return message if isinstance(message, str) and message else f"{response.status_code} {response.reason}"


def _innermost(error: BaseException) -> str:
    """Return the innermost error of a chain, in its own words."""
    while True:
        inner = error.__cause__ or error.__context__ or getattr(error, "reason", None)
        if not isinstance(inner, BaseException) or inner is error:
            break
        error = inner
    said = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
    return said or type(error).__name__
