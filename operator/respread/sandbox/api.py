"""Requests to a sandbox's API server, through pykube-ng's client."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pykube

from respread.sandbox.errors import SandboxError

REQUEST_SECONDS: Final = 30
CONNECTION_ERRORS: Final = (OSError,)
"""What a request raises while nobody answers; the errors of requests and urllib3 are OSErrors."""


class ApiError(SandboxError):
    """The API server refused a request; `status` is the HTTP status code."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class SandboxApi:
    """JSON requests by path, as the kubeconfig's user; usable from several threads."""

    def __init__(self, kubeconfig: Path) -> None:
        self.client = pykube.HTTPClient(pykube.KubeConfig.from_file(str(kubeconfig)), timeout=REQUEST_SECONDS)
        self.client.session.trust_env = False  # a proxy or CA bundle of the person's is not for 127.0.0.1

    def request(self, method: str, path: str, body: Any = None, *, patch_type: str = "merge") -> Any:
        """Send a request and return the decoded answer.

        Args:
            method: The HTTP method.
            path: With query, such as `/api/v1/nodes?limit=500`.
            body: Anything that json can encode; None sends none.
            patch_type: merge, strategic-merge, json or apply; only for PATCH.

        Raises:
            ApiError: The answer is not a success; the message is the API server's own.
            OSError: Nobody answered.

        """
        response = self.client.session.request(
            method,
            self.client.url + path,
            data=None if body is None else json.dumps(body),
            headers={
                "Content-Type": f"application/{patch_type}-patch+json" if method == "PATCH" else "application/json"
            },
            timeout=REQUEST_SECONDS,
        )
        is_json = "json" in response.headers.get("Content-Type", "")
        if not response.ok:
            message = response.json().get("message", response.text) if is_json else response.text
            raise ApiError(response.status_code, f"{method} {path}: {response.status_code} {message}")
        return response.json() if is_json else response.text

    def get(self, path: str) -> Any:
        """GET; see request."""
        return self.request("GET", path)

    def exists(self, path: str) -> bool:
        """Whether there is an object at a path."""
        try:
            self.get(path)
        except ApiError as error:
            if error.status == 404:  # noqa: PLR2004  # Not Found
                return False
            raise
        return True

    def close(self) -> None:
        """Close its connections."""
        self.client.session.close()
