"""The LimitRanges and ResourceQuotas of a namespace, read right before an eviction."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import msgspec

from respread.api.reasons import Reason
from respread.kube.api_status import Meaning
from respread.kube.requests import NoResponseError, Requests
from respread.planning.held import Held

TIMEOUT_SECONDS: Final = 10.0
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


class ScopeRequirement(msgspec.Struct, frozen=True, rename="camel"):
    """One entry of `scopeSelector.matchExpressions` of a ResourceQuota."""

    scope_name: str
    operator: str = "Exists"
    values: tuple[str, ...] = ()


class ScopeSelector(msgspec.Struct, frozen=True, rename="camel"):
    """`scopeSelector` of a ResourceQuota."""

    match_expressions: tuple[ScopeRequirement, ...] = ()


class QuotaSpec(msgspec.Struct, frozen=True, rename="camel"):
    """`spec` of a ResourceQuota."""

    hard: dict[str, Any] = {}
    scopes: tuple[str, ...] = ()
    scope_selector: ScopeSelector | None = None

    @property
    def requirements(self) -> tuple[ScopeRequirement, ...]:
        """The conditions under which the quota counts a pod."""
        selected = () if self.scope_selector is None else self.scope_selector.match_expressions
        return (*map(ScopeRequirement, self.scopes), *selected)


class QuotaStatus(msgspec.Struct, frozen=True):
    """`status` of a ResourceQuota, which admission uses."""

    hard: dict[str, Any] = {}
    used: dict[str, Any] = {}


class ResourceQuota(msgspec.Struct, frozen=True):
    """A ResourceQuota."""

    metadata: ObjectName
    spec: QuotaSpec = QuotaSpec()
    status: QuotaStatus = QuotaStatus()


class NamespaceRules(msgspec.Struct, frozen=True):
    """The LimitRanges and ResourceQuotas of a namespace, by name."""

    limit_ranges: tuple[LimitRange, ...] | None = ()
    """None without the permission to list them."""
    quotas: tuple[ResourceQuota, ...] = ()
    """Empty without the permission to list them."""


class _LimitRanges(msgspec.Struct):
    items: list[LimitRange] = []


class _Quotas(msgspec.Struct):
    items: list[ResourceQuota] = []


async def read_namespace_rules(
    requests: Requests, namespace: str, timeout_seconds: float = TIMEOUT_SECONDS
) -> NamespaceRules | Held:
    """Read what would change or refuse a new pod of a namespace.

    Returns:
        The rules, without those that may not be listed, or why they could not be read.
    """
    limits, quotas = await asyncio.gather(
        _list(requests, namespace, "limitranges", timeout_seconds),
        _list(requests, namespace, "resourcequotas", timeout_seconds),
    )
    if isinstance(limits, Held):
        return limits
    if isinstance(quotas, Held):
        return quotas
    try:
        ranges = None if limits is None else msgspec.json.decode(limits, type=_LimitRanges).items
        counted = [] if quotas is None else msgspec.json.decode(quotas, type=_Quotas).items
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        return _unread(namespace, str(error))
    known = None if ranges is None else tuple(sorted(ranges, key=lambda each: each.metadata.name))
    return NamespaceRules(known, tuple(counted))


async def _list(requests: Requests, namespace: str, resource: str, timeout_seconds: float) -> bytes | Held | None:
    """Return the undecoded list of a namespace, None without the permission."""
    names = {"namespace": namespace}
    try:
        response = await requests.send("GET", f"{_PATH}{resource}", names, timeout_seconds=timeout_seconds)
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
