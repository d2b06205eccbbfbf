"""Waits until Respread's own kinds are installed.

Kopf determines the resources to watch once, at its start, and nobody may evict without a record of it. The
CustomResourceDefinitions may be applied shortly after the operator, together with it, or by a user who has read the
log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from http import HTTPStatus
from typing import Final

import aiohttp

from respread.api.policy import API_VERSION
from respread.cluster.decode.decoder import Kind
from respread.handlers.health import WatchHealth
from respread.handlers.session import open_plain_session
from respread.kube.access import ClusterAccess
from respread.kube.retry import Retry, RetryDelays
from respread.stores.watched_kinds import RECORDS, full_name
from respread.telemetry.logs import get_logger

_log: Final = get_logger(__name__)

_REQUEST_SECONDS: Final = 10


async def wait_until_installed(policies: Iterable[Kind], access: ClusterAccess, health: WatchHealth) -> None:
    """Wait until the API server serves these kinds of policies and those of their records.

    The obstacle is logged whenever it changes, and readiness reports it meanwhile.
    """
    watched = tuple(policies)
    kinds = (*watched, *(RECORDS[each] for each in watched))
    retry = Retry(RetryDelays(least_seconds=0.5, greatest_seconds=5))
    last_problem = ""
    async with open_plain_session(access) as session:
        while True:
            problem = await _problem(session, access.server, kinds)
            if not problem:
                return
            for kind in watched:
                health.asked(kind.resource)
                health.hindered(kind.resource, problem)
            if problem != last_problem:
                _log.error("Waiting for the cluster before anything can be watched", problem=problem)
                last_problem = problem
            await asyncio.sleep(retry.failed())


async def _problem(session: aiohttp.ClientSession, server: str, kinds: tuple[Kind, ...]) -> str:
    """Return why these kinds are not available, or an empty string if they are."""
    try:
        async with session.get(
            f"{server}/apis/{API_VERSION}", timeout=aiohttp.ClientTimeout(total=_REQUEST_SECONDS)
        ) as response:
            if response.status not in (HTTPStatus.OK, HTTPStatus.NOT_FOUND):
                return f"the API server answers {response.status} {response.reason} to who asks for {API_VERSION}"
            document = await response.json(content_type=None) if response.status == HTTPStatus.OK else {}
    except (aiohttp.ClientError, TimeoutError, ValueError) as error:
        return f"the API server at {server} can't be reached: {str(error) or type(error).__name__}"
    served = {resource.get("name") for resource in document.get("resources", ())}
    missing = [full_name(kind) for kind in kinds if kind.resource not in served]
    if not missing:
        return ""
    return (
        f"the CustomResourceDefinitions {', '.join(missing)} are not installed in version {API_VERSION}: "
        "kubectl apply -f crds/"
    )
