"""Requests that a test answers or observes, prepared and sent like the operator's."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from respread.kube.requests import PreparedRequest, Requests, Response, TooLargeError

Send = Callable[[], Awaitable[Response]]


def prepared_by(answer: Send) -> PreparedRequest:
    """Return a request that a test answers when it is sent, if the answer is not too large."""

    async def send(most_bytes: int | None) -> Response:
        response = await answer()
        if most_bytes is not None and len(response.body) > most_bytes:
            raise TooLargeError
        return response

    return PreparedRequest(send)


class FakeRequests(Requests):
    """Requests that never leave this process."""

    def __init__(self) -> None:
        """Create requests without a client."""
        self._gate = None

    async def prepare(self, method: Any, path: str, names: Mapping[str, str], **options: Any) -> PreparedRequest:
        """Keep the request until it is sent."""
        assert options["timeout_seconds"] > 0
        return prepared_by(lambda: self.answer(method, path, names, **options))

    async def answer(self, method: str, path: str, names: Mapping[str, str], **options: Any) -> Response:
        """Answer a request that was sent."""
        raise NotImplementedError


class PassedOn(Requests):
    """Requests that are forwarded to others."""

    def __init__(self, inner: Requests) -> None:
        self._inner = inner
        self._gate = None

    async def prepare(self, method: Any, path: str, names: Mapping[str, str], **options: Any) -> PreparedRequest:
        """Prepare the request with the inner requests."""
        prepared = await self._inner.prepare(method, path, names, **options)
        return prepared_by(lambda: self.pass_on(path, names, prepared.send, **options))

    async def pass_on(self, path: str, names: Mapping[str, str], send: Send, **options: Any) -> Response:
        """Send a request, and return the answer to it."""
        del path, names, options
        return await send()
