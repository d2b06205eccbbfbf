"""The result of the demo, and whether it is as expected."""

from __future__ import annotations

from collections.abc import Iterator
from http import HTTPStatus
from pathlib import Path

import msgspec

from respread.api.words import listed, number_of
from respread_sandbox.demo.picture import Pair, Picture
from respread_sandbox.demo.world import SIDES, Side


class Ending(msgspec.Struct, frozen=True, kw_only=True):
    """The result of the demo."""

    before: Pair
    """After the scale-down, before any eviction."""
    after: Pair
    restored_seconds: float | None
    """From the moment the operator was allowed to evict until every constraint held; None if some don't."""
    operator_exit_code: int
    requests: OperatorRequests

    @property
    def missing(self) -> list[str]:
        """What is not as expected, each as a sentence without its end; nothing if all is."""
        found = [
            f"{sentence} in {side.namespace}"
            for side, before, after in zip(SIDES, self.before, self.after, strict=True)
            for sentence in _missing(side, before, after)
        ]
        evicted, requests = sum(picture.evicted for picture in self.after), self.requests
        if evicted != requests.evictions:
            found.append(f"the API server carried out {number_of(requests.evictions, 'eviction')} for the operator")
        if requests.refused:
            found.append(f"the operator's rights do not cover {listed(requests.refused)}")
        if self.operator_exit_code:
            found.append(f"the operator ended with exit code {self.operator_exit_code}")
        return found


def _missing(side: Side, before: Picture, after: Picture) -> Iterator[str]:
    fewest, not_ready = before.fewest_evictions, after.pods - after.ready
    if side.prevents and fewest:
        yield f"{number_of(fewest, 'eviction')} needed after the scale-down, and there should be none,"
    if after.violated_zones:
        yield f"the zone constraint of {listed(after.violated_zones)} does not hold"
    if after.violated_hosts:
        yield f"the hostname constraint of {listed(after.violated_hosts)} does not hold"
    if after.pending:
        yield f"{_are(after.pending, 'pod')} Pending"
    if not_ready:
        yield f"{_are(not_ready, 'pod')} not Ready"
    if after.terminating:
        yield f"{_are(after.terminating, 'pod')} still being deleted"
    if after.evicted != fewest:
        yield f"{number_of(after.evicted, 'eviction')}, where {fewest} would have done,"
    if after.otherwise_deleted:
        yield f"{_are(after.otherwise_deleted, 'pod')} gone otherwise than by an eviction"


def _are(number: int, thing: str) -> str:
    return f"{number_of(number, thing)} {'is' if number == 1 else 'are'}"


class OperatorRequests(msgspec.Struct, frozen=True):
    """The operator's requests that the demo reports."""

    evictions: int
    """The number of evictions that the API server carried out."""
    patches: int
    """The number of patches of pods that the API server carried out."""
    refused: tuple[str, ...]
    """The requests that were forbidden, each once, as verb and path."""


class _User(msgspec.Struct):
    username: str = ""


class _Object(msgspec.Struct):
    resource: str = ""
    subresource: str = ""


class _Answer(msgspec.Struct):
    code: int = 0


class _Entry(msgspec.Struct, rename="camel"):
    user: _User = msgspec.field(default_factory=_User)
    verb: str = ""
    path: str = msgspec.field(default="", name="requestURI")
    object_ref: _Object | None = None
    response_status: _Answer | None = None


def requests_of(service_account: str, audit_log: Path) -> OperatorRequests:
    """Read the audit log.

    Args:
        service_account: its namespace and name, with a colon between.
        audit_log: the file, a line of JSON a request.
    """
    user = f"system:serviceaccount:{service_account}"
    evictions, patches, refused = 0, 0, dict[str, None]()
    with audit_log.open("rb") as lines:
        for line in lines:
            if user.encode() not in line:
                continue
            entry = msgspec.json.decode(line, type=_Entry)
            if entry.user.username != user or entry.response_status is None:
                continue
            code, about = entry.response_status.code, entry.object_ref or _Object()
            if code == HTTPStatus.CREATED and about.subresource == "eviction":
                evictions += 1
            elif code == HTTPStatus.OK and (entry.verb, about.resource, about.subresource) == ("patch", "pods", ""):
                patches += 1
            elif code in (HTTPStatus.UNAUTHORIZED, HTTPStatus.FORBIDDEN):
                refused[f"{entry.verb} {entry.path.partition('?')[0]}"] = None
    return OperatorRequests(evictions, patches, tuple(refused))
