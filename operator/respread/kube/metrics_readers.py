"""Who may read the metrics: whom the API server knows by a bearer token, and lets get the path `/metrics`.

The components of Kubernetes ask the same (k8s.io/apiserver/pkg/authentication/authenticatorfactory and
authorization/authorizerfactory, which delegate), and controller-runtime's `WithAuthenticationAndAuthorization`.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Callable, Mapping
from http import HTTPStatus
from typing import Any, Final, TypeVar

import msgspec

from respread.kube.requests import NoResponseError, Requests
from respread.telemetry.logs import get_logger

_log: Final = get_logger(__name__)

PATH: Final = "/metrics"
REMEMBERED_SECONDS: Final = 60.0
"""How long a permission is not asked for again, so that a scrape costs the API server little, and so that the metrics
can be read while it is down."""
MOST_REMEMBERED: Final = 100
TIMEOUT_SECONDS: Final = 4.0
"""Of a request. Two of them are made within a scrape, for which Prometheus waits for ten seconds."""


class _User(msgspec.Struct):
    username: str = ""
    uid: str = ""
    groups: list[str] = []
    extra: dict[str, list[str]] = {}


class _TokenStatus(msgspec.Struct):
    authenticated: bool = False
    user: _User = msgspec.field(default_factory=_User)


class _AccessStatus(msgspec.Struct):
    allowed: bool = False


_Status = TypeVar("_Status")


class _UnansweredError(Exception):
    """The API server does not say."""


class MetricsReaders:
    """Asks the API server, for one client at a time, whether it may read the metrics."""

    def __init__(self, requests: Requests, clock: Callable[[], float]) -> None:
        """Ask with requests that need `create` of tokenreviews and subjectaccessreviews."""
        self._requests = requests
        self._clock = clock
        self._asking = asyncio.Lock()
        self._allowed_until: dict[bytes, float] = {}
        """By the token's digest, so that no token is kept."""

    async def judge(self, token: str) -> HTTPStatus:
        """Return OK if who has a token may read the metrics.

        Returns:
            UNAUTHORIZED: the API server does not know the token.
            FORBIDDEN: who has it may not get the path.
            SERVICE_UNAVAILABLE: the API server does not say.
        """
        digest = hashlib.sha256(token.encode(errors="surrogateescape")).digest()
        if self._allowed_until.get(digest, 0.0) > self._clock():
            return HTTPStatus.OK
        async with self._asking:
            try:
                found = await self._asked(token)
            except _UnansweredError as error:
                _log.warning("Nobody can read the metrics", reason=str(error))
                return HTTPStatus.SERVICE_UNAVAILABLE
        self._allowed_until.pop(digest, None)
        if found == HTTPStatus.OK:
            if len(self._allowed_until) >= MOST_REMEMBERED:
                del self._allowed_until[next(iter(self._allowed_until))]
            self._allowed_until[digest] = self._clock() + REMEMBERED_SECONDS
        return found

    async def _asked(self, token: str) -> HTTPStatus:
        known = await self._review("authentication.k8s.io", "TokenReview", {"token": token}, _TokenStatus)
        if not known.authenticated:
            return HTTPStatus.UNAUTHORIZED
        user = known.user
        spec = {"user": user.username, "uid": user.uid, "groups": user.groups, "extra": user.extra}
        spec["nonResourceAttributes"] = {"path": PATH, "verb": "get"}
        access = await self._review("authorization.k8s.io", "SubjectAccessReview", spec, _AccessStatus)
        return HTTPStatus.OK if access.allowed else HTTPStatus.FORBIDDEN

    async def _review(self, group: str, kind: str, spec: Mapping[str, Any], of: type[_Status]) -> _Status:
        """Return the status of a review.

        Raises:
            _UnansweredError: there is none.
        """
        resource = f"{kind.lower()}s"
        body = {"apiVersion": f"{group}/v1", "kind": kind, "spec": spec}
        try:
            response = await self._requests.send(
                "POST", f"/apis/{group}/v1/{resource}", {}, body=body, timeout_seconds=TIMEOUT_SECONDS
            )
            if not response.succeeded:
                raise _UnansweredError(f"the API server refuses to create {resource}.{group}: {response.refusal}")
            fields = msgspec.json.decode(response.body, type=dict[str, msgspec.Raw])
            return msgspec.json.decode(fields["status"], type=of)
        except (NoResponseError, KeyError, msgspec.DecodeError, UnicodeDecodeError) as error:
            raise _UnansweredError(f"no answer about {resource}.{group}: {error}") from error
