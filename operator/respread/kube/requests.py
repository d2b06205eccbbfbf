"""Requests through the official client, without its models: status, body and what went wrong on the way.

The models of `kubernetes.aio` take longer to build than the API server takes to answer, and its exceptions hide whether
a request was ever sent. Its `ApiClient` still does what is worth having: addresses, TLS, credentials and their renewal.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import Awaitable, Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, Literal

import aiohttp
import msgspec
from kubernetes.aio.client import ApiClient
from kubernetes.aio.config import ConfigException

Method = Literal["GET", "PATCH", "POST", "PUT"]

CONNECT_TIMEOUT_SECONDS: Final = 5.0
_CONTENT_TYPES: Final[Mapping[str, Mapping[str, str]]] = {"PATCH": {"Content-Type": "application/merge-patch+json"}}
_LEAST_TIMEOUT_SECONDS: Final = 0.05
"""aiohttp takes 0 for no limit at all."""


class Response(msgspec.Struct, frozen=True, kw_only=True):
    """What the API server answered."""

    status_code: int
    body: bytes
    retry_after_seconds: float | None = None

    @property
    def succeeded(self) -> bool:
        """Whether it did what it was asked to."""
        return HTTPStatus.OK <= self.status_code < HTTPStatus.MULTIPLE_CHOICES


class NoResponseError(Exception):
    """The API server did not answer.

    Args:
        message: what went wrong on the way.
        sent: whether the request may have reached the API server and been carried out there.
    """

    def __init__(self, message: str, *, sent: bool) -> None:
        super().__init__(message)
        self.message = message
        self.sent = sent


class Requests:
    """Sends requests to the API server. Nothing is ever sent twice: who asks decides whether to ask again."""

    __slots__ = ("_client", "_on_unauthorized")

    def __init__(self, client: ApiClient, on_unauthorized: Callable[[], Awaitable[None]] | None = None) -> None:
        """Send requests.

        Args:
            client: a client of `kubernetes.aio`, which the caller makes and closes.
            on_unauthorized: called after an answer 401, to find other credentials for the next request; cancelled
                where it takes longer than the request was given.
        """
        self._client = client
        self._on_unauthorized = on_unauthorized

    async def send(
        self,
        method: Method,
        path: str,
        names: Mapping[str, str],
        *,
        query: Mapping[str, str] | None = None,
        body: Mapping[str, Any] | None = None,
        content_type: str | None = None,
        accept: str = "application/json",
        timeout_seconds: float,
        last_look: Callable[[], None] = lambda: None,
    ) -> Response:
        """Send one request and return what came back, whatever the status code.

        Args:
            method: the HTTP method.
            path: a template such as `/api/v1/namespaces/{namespace}/pods/{name}`.
            names: what to put into the template; it is quoted.
            query: parameters of the query.
            body: an object to send as JSON.
            content_type: of the body; None: JSON, and for a PATCH a merge patch.
            accept: in which form the answer is wanted; always JSON.
            timeout_seconds: for all of it, from looking for credentials to the last byte of the answer.
            last_look: called when the request is ready, with nothing left to wait for but the connection; what it
                raises is raised, and nothing is sent.

        Raises:
            NoResponseError: no answer came, or not all of it.
        """
        total_seconds = max(timeout_seconds, _LEAST_TIMEOUT_SECONDS)
        deadline = asyncio.get_running_loop().time() + total_seconds
        client: Any = self._client  # its methods have no annotations
        type_header = _CONTENT_TYPES.get(method, {}) if content_type is None else {"Content-Type": content_type}
        try:  # credentials are renewed in here: files are read, plugins run
            async with asyncio.timeout_at(deadline):
                method_, url, headers, body_, _ = await client.param_serialize(
                    method,
                    path,
                    path_params=dict(names),
                    query_params=list((query or {}).items()),
                    header_params={"Accept": accept, **type_header},
                    body=None if body is None else dict(body),
                    auth_settings=["BearerToken"],
                )
        except (ConfigException, OSError) as error:  # TimeoutError is one of the latter
            raise NoResponseError(
                f"there are no credentials for the API server: {_words(error)}", sent=False
            ) from error
        # The client makes an empty header of it where a certificate says who we are.
        headers = {name: value for name, value in headers.items() if value is not None}
        left_seconds = max(deadline - asyncio.get_running_loop().time(), _LEAST_TIMEOUT_SECONDS)
        timeout = aiohttp.ClientTimeout(total=left_seconds, connect=min(CONNECT_TIMEOUT_SECONDS, left_seconds))
        last_look()
        try:
            raw = await client.call_api(method_, url, headers, body_, _request_timeout=timeout)
            content: bytes = await raw.read()
        except (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.InvalidURL) as error:
            raise NoResponseError(f"the API server could not be reached: {_words(error)}", sent=False) from error
        except (TimeoutError, aiohttp.ClientError, OSError) as error:
            raise NoResponseError(f"the API server did not answer: {_words(error)}", sent=True) from error
        if raw.status == HTTPStatus.UNAUTHORIZED and self._on_unauthorized is not None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(deadline):
                    await self._on_unauthorized()
        return Response(
            status_code=raw.status,
            body=content,
            retry_after_seconds=retry_after_seconds(raw.getheader("Retry-After")),
        )


def retry_after_seconds(header: str | None) -> float | None:
    """Read a Retry-After header in seconds, as Kubernetes writes it; a date, as proxies may write, is passed over."""
    try:
        seconds = 0.0 if header is None else float(header)
    except ValueError:
        return None
    return max(0.0, seconds) if header is not None and math.isfinite(seconds) else None


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
