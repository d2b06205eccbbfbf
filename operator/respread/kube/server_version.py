"""The Kubernetes version of the cluster, because schedulers of some versions have bugs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

import msgspec

from respread.kube.requests import NoResponseError, Requests
from respread.kube.retry import Retry, RetryDelays
from respread.telemetry.logs import get_logger

_log: Final = get_logger(__name__)

TIMEOUT_SECONDS: Final = 10.0
ASK_AGAIN_SECONDS: Final = 600.0
"""A cluster may be upgraded while Respread runs."""


class _Version(msgspec.Struct, rename="camel"):
    git_version: str


class ServerVersion:
    """The API server's version, requested at intervals."""

    __slots__ = ("_on_change", "_requests", "_retry", "asked", "version")

    def __init__(self, requests: Requests, on_change: Callable[[], None]) -> None:
        """Start without a version.

        Args:
            requests: sends requests.
            on_change: called when it changes, and after the first answer.
        """
        self._requests = requests
        self._on_change = on_change
        self._retry = Retry(RetryDelays(greatest_seconds=ASK_AGAIN_SECONDS))
        self.version = ""
        """Such as `v1.36.3`; empty while it is unknown."""
        self.asked = False
        """Whether it was requested at all, with or without success."""

    async def run(self) -> None:
        """Request it until cancelled."""
        while True:
            seconds = await self._ask()
            await asyncio.sleep(seconds)

    async def _ask(self) -> float:
        """Request it once, and return for how many seconds the answer is used."""
        found, fault = "", ""
        try:
            response = await self._requests.send("GET", "/version", {}, timeout_seconds=TIMEOUT_SECONDS)
            if response.succeeded:
                found = msgspec.json.decode(response.body, type=_Version).git_version
            else:
                fault = f"the answer was {response.status_code}"
        except NoResponseError as error:
            fault = error.message
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            fault = str(error)
        if not self.asked or (found and found != self.version):
            self._on_change()
        self.asked = True
        if not found:
            seconds = self._retry.failed()
            _log.warning(
                "The cluster's version is not known; asking again", fault=fault, wait_seconds=round(seconds, 1)
            )
            return seconds
        self._retry.succeeded()
        self.version = found
        return ASK_AGAIN_SECONDS
