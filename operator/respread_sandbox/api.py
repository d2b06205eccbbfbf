"""Requests to a sandbox's API server, through pykube-ng's client."""

from __future__ import annotations

import time
from http import HTTPStatus
from pathlib import Path
from typing import Any, Final

import msgspec
from urllib3.util import Retry

from respread.kube.access import AccessError, load_access
from respread_cli.read.connection import open_connection
from respread_sandbox.options import SandboxError

REQUEST_SECONDS: Final = 30
REINITIALIZING: Final = "storage is (re)initializing"
"""In the message of 429s to every request for a kind whose definition was just created or changed."""
RETRY_SECONDS: Final = 0.2
_ONCE_MORE: Final = Retry(connect=0, read=1, redirect=0, allowed_methods=None, respect_retry_after_header=False)
"""The API server may close a connection that was idle when the next request comes. Go's clients repeat it then."""


class ApiError(SandboxError):
    """The API server refused a request; `status` is the HTTP status code, `body` the answer, usually a Status."""

    def __init__(self, status: int, message: str, body: Any) -> None:
        super().__init__(message)
        self.status = status
        self.body = body


class NotFoundError(ApiError):
    """The path does not exist, or no longer exists."""


class SandboxApi:
    """JSON requests by path, as the kubeconfig's user. Several threads may use it."""

    def __init__(self, kubeconfig: Path) -> None:
        """Prepare a client without sending a request.

        Raises:
            SandboxError: there is no such kubeconfig, or it leads nowhere.
        """
        try:
            self.client = open_connection(load_access(kubeconfig=str(kubeconfig)), _ONCE_MORE).client
        except AccessError as error:
            raise SandboxError(f"{error}.") from error

    def request(self, method: str, path: str, body: Any = None, *, patch_type: str = "merge") -> Any:
        """Send a request and return the decoded answer.

        It is repeated while the storage of the kind is started, as client-go does it for each Retry-After.

        Args:
            method: The HTTP method.
            path: With query, such as `/api/v1/nodes?limit=500`.
            body: Anything that json can encode; None sends none.
            patch_type: merge, strategic-merge, json or apply; only for PATCH.

        Raises:
            ApiError: The answer is not a success; the message is the API server's own.
            OSError: Nobody answered.
        """
        deadline = time.monotonic() + REQUEST_SECONDS
        while True:
            try:
                return self._request(method, path, body, patch_type)
            except ApiError as error:
                starts = error.status == HTTPStatus.TOO_MANY_REQUESTS and REINITIALIZING in str(error)
                if not starts or time.monotonic() > deadline:
                    raise
            time.sleep(RETRY_SECONDS)

    def _request(self, method: str, path: str, body: Any, patch_type: str) -> Any:
        response = self.client.session.request(
            method,
            self.client.url + path,
            data=None if body is None else msgspec.json.encode(body),
            headers={
                "Content-Type": f"application/{patch_type}-patch+json" if method == "PATCH" else "application/json",
                "Accept-Encoding": "identity",  # compressing for this machine takes longer than what it saves
            },
            timeout=REQUEST_SECONDS,
        )
        is_json = "json" in response.headers.get("Content-Type", "")
        answer: Any = msgspec.json.decode(response.content) if is_json else response.text
        if not response.ok:
            message = answer.get("message", answer) if isinstance(answer, dict) else answer
            kind = NotFoundError if response.status_code == HTTPStatus.NOT_FOUND else ApiError
            raise kind(response.status_code, f"{method} {path}: {response.status_code} {message}", answer)
        return answer

    def get(self, path: str) -> Any:
        """Send a GET request; see `request`."""
        return self.request("GET", path)

    def exists(self, path: str) -> bool:
        """Return whether an object exists at a path."""
        try:
            self.get(path)
        except NotFoundError:
            return False
        return True

    def close(self) -> None:
        """Close the connections."""
        self.client.session.close()
