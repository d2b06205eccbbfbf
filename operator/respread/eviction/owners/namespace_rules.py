"""The LimitRanges and ResourceQuotas of a namespace, read right before an eviction."""

from __future__ import annotations

import asyncio
from typing import Any, Final, cast

import msgspec

from respread.api.reasons import Reason
from respread.cluster.decode.decoder import Decoder
from respread.cluster.errors import DecodeError
from respread.cluster.objects import ResourceQuota
from respread.kube.api_status import Meaning
from respread.kube.requests import NoResponseError, Requests
from respread.planning.held import Held

_PATH: Final = "/api/v1/namespaces/{namespace}/"


class ObjectName(msgspec.Struct, frozen=True):
    """`metadata`, of which only the name is needed."""

    name: str


class LimitRangeItem(msgspec.Struct, frozen=True, rename="camel"):
    """One entry of `spec.limits` of a LimitRange."""

    type: str
    default: dict[str, Any] = {}
    default_request: dict[str, Any] = {}
    min: dict[str, Any] = {}
    max: dict[str, Any] = {}
    max_limit_request_ratio: dict[str, Any] = {}


class LimitRangeSpec(msgspec.Struct, frozen=True):
    """`spec` of a LimitRange."""

    limits: tuple[LimitRangeItem, ...] = ()


class LimitRange(msgspec.Struct, frozen=True):
    """A LimitRange: defaults for containers, and what is refused."""

    metadata: ObjectName
    spec: LimitRangeSpec = LimitRangeSpec()

    @property
    def default_requests(self) -> dict[str, Any]:
        """The default requests of containers."""
        return {name: it for item in self._of_containers() for name, it in item.default_request.items()}

    @property
    def default_limits(self) -> dict[str, Any]:
        """The default limits of containers."""
        return {name: it for item in self._of_containers() for name, it in item.default.items()}

    def _of_containers(self) -> tuple[LimitRangeItem, ...]:
        return tuple(item for item in self.spec.limits if item.type == "Container")


class NamespaceRules(msgspec.Struct, frozen=True):
    """The LimitRanges and ResourceQuotas of a namespace, by name."""

    limit_ranges: tuple[LimitRange, ...] | None = ()
    """None without the permission to list them."""
    quotas: tuple[ResourceQuota, ...] = ()
    """Empty without the permission to list them."""


class _LimitRanges(msgspec.Struct):
    items: list[LimitRange] = []


async def read_namespace_rules(requests: Requests, namespace: str) -> NamespaceRules | Held:
    """Read what would change or refuse a new pod of a namespace.

    Returns:
        The rules, without those that may not be listed, or why they could not be read.
    """
    limits, quotas = await asyncio.gather(
        _list(requests, namespace, "limitranges"),
        _list(requests, namespace, "resourcequotas"),
    )
    if isinstance(limits, Held):
        return limits
    if isinstance(quotas, Held):
        return quotas
    try:
        ranges = None if limits is None else msgspec.json.decode(limits, type=_LimitRanges).items
        page = None if quotas is None else Decoder().decode_page("resourcequotas", quotas)
    except (msgspec.DecodeError, UnicodeDecodeError, DecodeError) as error:
        return _unread(namespace, str(error))
    if page is not None and page.errors:
        return _unread(namespace, str(page.errors[0]))
    known = None if ranges is None else tuple(sorted(ranges, key=lambda each: each.metadata.name))
    return NamespaceRules(known, () if page is None else tuple(cast("list[ResourceQuota]", page.items)))


async def _list(requests: Requests, namespace: str, resource: str) -> bytes | Held | None:
    """Return the undecoded list of a namespace, None without the permission."""
    names = {"namespace": namespace}
    try:
        response = await requests.send("GET", f"{_PATH}{resource}", names)
    except NoResponseError as error:
        return _unread(namespace, error.message)
    if response.succeeded:
        return response.body
    if response.meaning is Meaning.FORBIDDEN:
        return None
    return _unread(namespace, response.refusal)


def _unread(namespace: str, why: str) -> Held:
    return Held(
        Reason.API_UNAVAILABLE, f"the LimitRanges and ResourceQuotas of namespace {namespace} could not be read: {why}"
    )
