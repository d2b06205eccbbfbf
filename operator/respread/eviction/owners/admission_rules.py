"""Whether ResourceQuotas and LimitRanges of a namespace would refuse the replacement of a pod.

The evicted pod counts for quotas until it is gone. If its replacement is created before that, both must have room. A
StatefulSet creates it afterwards.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, Literal

import msgspec

from respread.api.maps import decode_map
from respread.api.reasons import Reason
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
from respread.cluster.objects import ResourceQuota
from respread.cluster.pod import PodSpec
from respread.cluster.quantity import NANO_PER_UNIT, shown
from respread.cluster.requests import total_requests
from respread.eviction.owners.admitted_pod import Json
from respread.eviction.owners.namespace_rules import LimitRange, LimitRangeItem
from respread.planning.held import Held

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

    Args:
        pod: the spec of the pod.
        spec: the same as the API shows it.
        quotas: those of its namespace.
        freed: what the replaced pod returns before it is created.
        others: what other future replacements use.
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


def _why_outside(item: LimitRangeItem, requests: Mapping[str, int], limits: Mapping[str, int]) -> str | None:
    for resource, least in nano_amounts(item.min, "min").items():
        if requests.get(resource, -1) < least or limits.get(resource, least) < least:
            return f"takes less {resource} than the least, {shown(least)}, or does not say how much"
    for resource, most in nano_amounts(item.max, "max").items():
        if limits.get(resource, most + 1) > most or requests.get(resource, 0) > most:
            return f"may take more {resource} than the most, {shown(most)}"
    for resource, ratio in nano_amounts(item.max_limit_request_ratio, "maxLimitRequestRatio").items():
        request, limit = requests.get(resource, 0), limits.get(resource, 0)
        if not request or not limit or limit * NANO_PER_UNIT > ratio * request:
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
