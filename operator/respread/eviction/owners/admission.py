"""The pod that the API server creates from a template, with defaults and built-in admission, and whether it does.

Mirrors `SetDefaults_Pod` (pkg/apis/core/v1/defaults.go), the claims of `newStatefulSetPod`, and the admission plugins
LimitRanger, Priority, RuntimeClass, DefaultTolerationSeconds, ExtendedResourceToleration and PodTolerationRestriction.
What others added to a pod (webhooks, admission policies) can't be derived from its template. Their containers are
assumed to be added again. The evicted pod counts for quotas until it is gone. If its replacement is created before
that, both must have room. A StatefulSet creates it afterwards.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final, Literal, TypeAlias, cast

import msgspec

from respread.api.json_documents import decode_map
from respread.api.reasons import Held, Reason
from respread.cluster.decode.decoder import Decoder
from respread.cluster.decode.metadata import nano_amounts
from respread.cluster.decode.pod_specs import (
    WireContainer,
    WirePodSpec,
    amounts_of,
    claimed,
    claims_of,
    limits_of,
    requests_of,
)
from respread.cluster.objects import DecodeError, ResourceQuota
from respread.cluster.pod import PodSpec
from respread.cluster.quantity import NANO_PER_UNIT, shown, total_requests
from respread.kube.requests import Meaning, NoResponseError, Requests

Json: TypeAlias = dict[str, Any]
"""An object of the API, or a part of it."""

_OF_STATEFUL_SETS: Final = (
    "statefulset.kubernetes.io/pod-name",
    "apps.kubernetes.io/pod-index",
    "controller-revision-hash",
)
"""The labels that a StatefulSet sets on each pod. The revision is checked elsewhere."""
_IDENTITY: Final = ("name", "namespace", "uid", "ownerReferences")
_TAINTS_OF_ALL: Final = ("node.kubernetes.io/not-ready", "node.kubernetes.io/unreachable")
_MEMORY_PRESSURE: Final = "node.kubernetes.io/memory-pressure"
_NATIVE: Final = frozenset({"cpu", "memory", "ephemeral-storage"})


def admitted(
    template: Json, pod: Json, limit_ranges: Sequence[LimitRange] | None, claim_templates: Sequence[Json] = ()
) -> Json:
    """Return the pod that a template creates in place of another, as the API would show it.

    `template` is `spec.template` of the controller, or of the revision that the pod is created from, and the claim
    templates are those of a StatefulSet. If the limit ranges of the namespace are unknown, the pod shows what they set.
    """
    spec, was = deepcopy(template.get("spec") or {}), pod["spec"]
    _default_requests(spec)
    if limit_ranges is None:
        _default_as_before(spec, was)
    else:
        _default_by_limit_ranges(spec, limit_ranges)
    _default_pod_level(spec, was)
    if spec.get("hostNetwork"):
        _default_host_ports(spec)
    _add_injected(spec, was)
    _add_claims(spec, pod["metadata"]["name"], claim_templates)
    _add_tolerations(spec, was)
    if spec.get("runtimeClassName") and spec["runtimeClassName"] == was.get("runtimeClassName"):
        _add_runtime_class(spec, was)
    if spec.get("priorityClassName") in {None, "", was.get("priorityClassName")}:  # None: the cluster's default class
        spec |= {key: was[key] for key in ("priorityClassName", "priority") if key in was}
    metadata = {key: pod["metadata"][key] for key in _IDENTITY if key in pod["metadata"]}
    return {"metadata": {**metadata, "labels": _labels(template, pod)}, "spec": spec}


def without_merged_keys(pod: Json) -> Json:
    """Return a pod with the selectors of its template.

    The API server adds the values of `matchLabelKeys` and `mismatchLabelKeys` to them, from 1.34 on also for topology
    spread constraints (`applyMatchLabelKeys`, pkg/registry/core/pod/strategy.go).
    """
    spec, labels = deepcopy(pod["spec"]), pod["metadata"].get("labels", {})
    for constraint in spec.get("topologySpreadConstraints", ()):
        _take_out(constraint, "matchLabelKeys", "In", labels)
    affinity = spec.get("affinity", {})
    for kind in ("podAffinity", "podAntiAffinity"):
        for term in affinity.get(kind, {}).get("requiredDuringSchedulingIgnoredDuringExecution", ()):
            _take_out(term, "matchLabelKeys", "In", labels)
            _take_out(term, "mismatchLabelKeys", "NotIn", labels)
    return {**pod, "spec": spec}


def _containers_of(spec: Json) -> Iterator[Json]:
    """Yield the containers and init containers of a pod's spec."""
    yield from spec.get("containers") or ()
    yield from spec.get("initContainers") or ()


def _resources_of(container: Json) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return the requests and the limits of a container, by resource."""
    resources = container.get("resources") or {}
    return resources.get("requests") or {}, resources.get("limits") or {}


def _default_requests(spec: Json) -> None:
    for container in _containers_of(spec):
        requests, limits = _resources_of(container)
        _set_resources(container, {**limits, **requests}, limits)


def _default_by_limit_ranges(spec: Json, limit_ranges: Sequence[LimitRange]) -> None:
    for limit_range in limit_ranges:
        for container in _containers_of(spec):
            requests, limits = _resources_of(container)
            _set_resources(
                container, {**limit_range.default_requests, **requests}, {**limit_range.default_limits, **limits}
            )


def _default_as_before(spec: Json, was: Json) -> None:
    before = {container.get("name"): _resources_of(container) for container in _containers_of(was)}
    for container in _containers_of(spec):
        requests, limits = _resources_of(container)
        had_requests, had_limits = before.get(container.get("name"), ({}, {}))
        _set_resources(container, {**had_requests, **requests}, {**had_limits, **limits})


def _set_resources(container: Json, requests: dict[str, Any], limits: dict[str, Any]) -> None:
    container["resources"] = {"requests": requests, "limits": limits}


def _default_pod_level(spec: Json, was: Json) -> None:
    """Copy the pod-level requests that a pod got because it has limits: they follow from its containers."""
    if not any(_resources_of(spec)):
        return
    given, _ = _resources_of(was)
    requests, limits = _resources_of(spec)
    spec["resources"] = {"requests": {**given, **requests}, "limits": limits}


def _default_host_ports(spec: Json) -> None:
    for container in _containers_of(spec):
        for port in container.get("ports") or ():
            port["hostPort"] = port.get("containerPort", 0)  # The API server admits no other.


def _add_injected(spec: Json, was: Json) -> None:
    """Add the containers that the template does not have: whatever added them to the pod is assumed to do so again."""
    named = {container.get("name") for container in _containers_of(spec)}
    for kind in ("containers", "initContainers"):
        injected = [each for each in was.get(kind, ()) if each.get("name") not in named]
        spec[kind] = [*(spec.get(kind) or ()), *injected]


def _add_claims(spec: Json, pod_name: str, claim_templates: Sequence[Json]) -> None:
    claims = {
        name: {"name": name, "persistentVolumeClaim": {"claimName": f"{name}-{pod_name}"}}
        for name in (each["metadata"]["name"] for each in claim_templates)
    }
    others = [volume for volume in spec.get("volumes") or () if volume.get("name") not in claims]
    spec["volumes"] = [*claims.values(), *others]


def _add_tolerations(spec: Json, was: Json) -> None:
    added = [each for each in was.get("tolerations", ()) if _is_of_admission(each, was)]
    spec["tolerations"] = [*(spec.get("tolerations") or ()), *added]


def _is_of_admission(toleration: Json, was: Json) -> bool:
    key, effect, operator = (toleration.get(field, "") for field in ("key", "effect", "operator"))
    if key in _TAINTS_OF_ALL:
        return bool(effect == "NoExecute" and operator == "Exists")
    if key == _MEMORY_PRESSURE:
        return bool(effect == "NoSchedule" and operator == "Exists")
    asked_for = {name for container in _containers_of(was) for name in _resources_of(container)[0]}
    return bool(operator == "Exists" and key in asked_for - _NATIVE)


def _add_runtime_class(spec: Json, was: Json) -> None:
    """Copy what the RuntimeClass has set in the pod: its overhead, node selector and tolerations."""
    if "overhead" in was:
        spec["overhead"] = was["overhead"]
    spec["nodeSelector"] = {**was.get("nodeSelector", {}), **(spec.get("nodeSelector") or {})}
    spec["tolerations"] = [*spec["tolerations"], *was.get("tolerations", ())]


def _labels(template: Json, pod: Json) -> dict[str, str]:
    labels = dict((template.get("metadata") or {}).get("labels") or {})
    of_pod: Mapping[str, str] = pod["metadata"].get("labels", {})
    return labels | {key: of_pod[key] for key in _OF_STATEFUL_SETS if key in of_pod}


def _take_out(term: Json, field: str, operator: str, labels: Mapping[str, str]) -> None:
    selector = term.get("labelSelector", {})
    merged = [
        {"key": key, "operator": operator, "values": [labels[key]]} for key in term.get(field, ()) if key in labels
    ]
    selector["matchExpressions"] = [each for each in selector.get("matchExpressions", ()) if each not in merged]


_PATH: Final = "/api/v1/namespaces/{namespace}/"


class _ObjectName(msgspec.Struct, frozen=True):
    """`metadata`, of which only the name is needed."""

    name: str


class _LimitRangeItem(msgspec.Struct, frozen=True, rename="camel"):
    """One entry of `spec.limits` of a LimitRange."""

    type: str
    default: dict[str, Any] = {}
    default_request: dict[str, Any] = {}
    min: dict[str, Any] = {}
    max: dict[str, Any] = {}
    max_limit_request_ratio: dict[str, Any] = {}


class _LimitRangeSpec(msgspec.Struct, frozen=True):
    """`spec` of a LimitRange."""

    limits: tuple[_LimitRangeItem, ...] = ()


class LimitRange(msgspec.Struct, frozen=True):
    """A LimitRange: defaults for containers, and what is refused."""

    metadata: _ObjectName
    spec: _LimitRangeSpec = _LimitRangeSpec()

    @property
    def default_requests(self) -> dict[str, Any]:
        """The default requests of containers."""
        return {name: it for item in self._of_containers() for name, it in item.default_request.items()}

    @property
    def default_limits(self) -> dict[str, Any]:
        """The default limits of containers."""
        return {name: it for item in self._of_containers() for name, it in item.default.items()}

    def _of_containers(self) -> tuple[_LimitRangeItem, ...]:
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
    """Return what would change or refuse a new pod, without what may not be listed, or why it could not be read."""
    limits, quotas = await asyncio.gather(
        _list(requests, namespace, "limitranges"), _list(requests, namespace, "resourcequotas")
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


_MEASURED: Final = ("containers", "initContainers", "resources", "volumes")
_NAMED: Final = 3
"""How many containers a message names."""


def why_quota_refuses(
    pod: PodSpec,
    spec: Json,
    quotas: Iterable[ResourceQuota],
    freed: Mapping[str, int],
    others: Sequence[Mapping[str, int]],
) -> Held | None:
    """Return which quota would refuse a pod, or None.

    `freed` is what the replaced pod returns before this one is created, and `others` what other future replacements
    use.
    """
    wire = _wire(spec)
    for quota in quotas:
        if not quota.counts(pod):
            continue
        named, hard, used = f"ResourceQuota {quota.name}", quota.hard, quota.used
        if hard != quota.wanted:
            return Held(Reason.IN_MOTION, f"{named} has changed and its status has not caught up with that yet")
        for resource in hard:
            if without := _containers_without(wire, resource):
                return Held(
                    Reason.REPLACEMENT_REFUSED,
                    f"{named} counts {resource}, of which containers of the replacement say nothing "
                    f"({', '.join(without[:_NAMED])}{', …' if len(without) > _NAMED else ''}): it would be refused",
                )
            if not (takes := pod.quota_usage.get(resource, 0)):
                continue
            if resource not in used:
                return Held(Reason.IN_MOTION, f"the status of {named} does not say yet how much {resource} is used")
            left = quota.left(resource, freed.get(resource, 0)) - takes
            if left < 0:
                return Held(
                    Reason.REPLACEMENT_REFUSED,
                    f"{named} would refuse the replacement, which takes {shown(takes)} of {resource}: "
                    f"{shown(used[resource])} of {shown(hard[resource])} are used, and an evicted pod counts until "
                    "it is gone",
                )
            if left < sum(each.get(resource, 0) for each in others):
                return Held(
                    Reason.IN_MOTION,
                    f"{named} has no room for the replacement beside those of other pods that were evicted: "
                    f"{shown(used[resource])} of {shown(hard[resource])} of {resource} are used",
                )
    return None


def why_limit_range_refuses(spec: Json, limit_ranges: Iterable[LimitRange]) -> Held | None:
    """Return which LimitRange would refuse a pod or the claims of its ephemeral volumes, or None.

    Mirrors `PodValidateLimitFunc` and `PersistentVolumeClaimValidateLimitFunc`.
    """
    wire = _wire(spec)
    for limit_range in limit_ranges:
        for item in limit_range.spec.limits:
            for whose, requests, limits in _measured(wire, item.type):
                if (why := _why_outside(item, requests, limits)) is not None:
                    return Held(
                        Reason.REPLACEMENT_REFUSED,
                        f"LimitRange {limit_range.metadata.name} would refuse the replacement: {whose} {why}",
                    )
    return None


def _measured(wire: WirePodSpec, kind: str) -> Iterator[tuple[str, Mapping[str, int], Mapping[str, int]]]:
    if kind == "Container":
        for each in _containers(wire):
            requests, limits = (amounts_of(each.resources, which, "resources") for which in ("requests", "limits"))
            yield f"container {each.name}", requests, limits
    elif kind == "Pod":
        yield "the pod", total_requests(requests_of(wire)), limits_of(wire)
    elif kind == "PersistentVolumeClaim":  # its maximum bounds the request; limits don't count
        for name, claim in claims_of(wire).items():
            yield f"the claim of volume {name}", claimed(claim), claimed(claim)


def _why_outside(item: _LimitRangeItem, requests: Mapping[str, int], limits: Mapping[str, int]) -> str | None:
    for resource, least in nano_amounts(item.min, "min").items():
        if resource not in requests or requests[resource] < least:  # no limit is less than its request
            return f"takes less {resource} than the least, {shown(least)}, or does not say how much"
    for resource, most in nano_amounts(item.max, "max").items():
        if resource not in limits or limits[resource] > most:
            return f"may take more {resource} than the most, {shown(most)}"
    for resource, ratio in nano_amounts(item.max_limit_request_ratio, "maxLimitRequestRatio").items():
        limit = limits.get(resource)
        if not limit or limit * NANO_PER_UNIT > ratio * requests.get(resource, 0):
            return f"has a limit of {resource} of more than {shown(ratio)} times its request, or lacks one of them"
    return None


def _containers_without(wire: WirePodSpec, resource: str) -> list[str]:
    """Return the containers without a value for a resource that a quota counts, such as `limits.cpu`.

    The API server refuses them, unless the pod has a pod-level value (`podEvaluator.Constraints`).
    """
    which: Literal["requests", "limits"] = "limits" if resource.startswith("limits.") else "requests"
    name = resource.removeprefix(f"{which}.")
    if name not in {"cpu", "memory"} or (wire.resources and (wire.resources.requests or wire.resources.limits)):
        return []
    return [each.name for each in _containers(wire) if name not in amounts_of(each.resources, which, "resources")]


def _containers(wire: WirePodSpec) -> Iterator[WireContainer]:
    yield from wire.containers
    yield from wire.init_containers or ()


def _wire(spec: Json) -> WirePodSpec:
    """Return what LimitRanges and quotas measure of a pod's spec."""
    return msgspec.convert(
        {key: spec[key] for key in _MEASURED if spec.get(key)}, type=WirePodSpec, dec_hook=decode_map
    )
