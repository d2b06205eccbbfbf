"""Reads the history of a cluster's spread from a Prometheus that scrapes the operator."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

import msgspec
import requests

from respread.program.command_line import CommandError

HOURS: Final = 6
_STEP_SECONDS: Final = 60
_TIMEOUT_SECONDS: Final = (3, 10)
_VIOLATED: Final = "sum(max by (policy_namespace, policy, when_unsatisfiable) (respread_spread_groups_violated))"
_IN_FLIGHT: Final = "sum(max by (policy_namespace, policy) (respread_evictions_in_flight))"
"""Without what tells the replicas of the operator apart, of which the leader alone knows these."""


class PastPoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The cluster in numbers at one time of the past."""

    time: datetime
    violated: int
    in_flight: int


def read_past(url: str, now: datetime) -> tuple[PastPoint, ...]:
    """Return a point for each minute of the last `HOURS` in which the operator was scraped, oldest first.

    Args:
        url: of the Prometheus, with the prefix of its paths if it has one.
        now: the time, with a time zone.

    Raises:
        CommandError: it can't be read.
    """
    violated, in_flight = (_series(url, query, now) for query in (_VIOLATED, _IN_FLIGHT))
    return tuple(
        PastPoint(time=datetime.fromtimestamp(moment, UTC), violated=number, in_flight=in_flight.get(moment, 0))
        for moment, number in sorted(violated.items())
    )


def _series(url: str, query: str, now: datetime) -> dict[float, int]:
    end = now.timestamp()
    asked: dict[str, str | float] = {
        "query": query,
        "start": end - 3600 * HOURS,
        "end": end,
        "step": _STEP_SECONDS,
    }
    try:
        answer = requests.get(f"{url.rstrip('/')}/api/v1/query_range", params=asked, timeout=_TIMEOUT_SECONDS)
        answer.raise_for_status()
        found = msgspec.json.decode(answer.content, type=_Answer).data.result
    except (requests.exceptions.RequestException, msgspec.DecodeError) as error:
        raise CommandError(f"The history can't be read from the Prometheus at {url}: {error}.") from error
    return {moment: round(float(value)) for series in found for moment, value in series.values}


class _Series(msgspec.Struct):
    values: tuple[tuple[float, str], ...] = ()


class _Data(msgspec.Struct):
    result: tuple[_Series, ...] = ()


class _Answer(msgspec.Struct):
    data: _Data
