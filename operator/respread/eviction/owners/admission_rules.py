"""Whether ResourceQuotas and LimitRanges of a namespace would refuse the replacement of a pod.

The evicted pod counts for quotas until it is gone. If its replacement is created before that, both must have room. A
StatefulSet creates it afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from respread.api.reasons import Reason
from respread.cluster.decode.metadata import nano_amounts
from respread.cluster.quantity import NANO_PER_UNIT
from respread.eviction.owners.admitted_pod import Json, containers_of, resources_of
from respread.eviction.owners.namespace_rules import LimitRange, LimitRangeItem, ResourceQuota, ScopeRequirement
from respread.eviction.owners.pod_usage import (
    claimed_requests,
    containers_without,
    is_best_effort,
    requests_and_limits,
    usage,
)
from respread.planning.held import Held

_AFFINITIES: Final = ("podAffinity", "podAntiAffinity")
_NAMED: Final = 3
"""How many containers a message names."""


def why_quota_refuses(
    spec: Json, quotas: Iterable[ResourceQuota], freed: Mapping[str, int], others: Sequence[Mapping[str, int]]
) -> Held | None:
    """Return which quota would refuse a pod, or None.

    Args:
        spec: of the pod.
        quotas: those of its namespace.
        freed: what the replaced pod returns before it is created (`usage`).
        others: what other future replacements use.
    """
    wanted = usage(spec)
    for quota in quotas:
        if not all(_meets(spec, each) for each in quota.spec.requirements):
            continue
        named = f"ResourceQuota {quota.metadata.name}"
        hard, used = (nano_amounts(amounts, named) for amounts in (quota.status.hard, quota.status.used))
        if hard != nano_amounts(quota.spec.hard, named):
            return Held(Reason.IN_MOTION, f"{named} has changed and its status has not caught up with that yet")
        for resource in hard:
            if without := containers_without(spec, resource):
                return Held(
                    Reason.REPLACEMENT_REFUSED,
                    f"{named} counts {resource}, of which containers of the replacement say nothing "
                    f"({', '.join(without[:_NAMED])}{', …' if len(without) > _NAMED else ''}): it would be refused",
                )
            if not (takes := wanted.get(resource, 0)):
                continue
            if resource not in used:
                return Held(Reason.IN_MOTION, f"the status of {named} does not say yet how much {resource} is used")
            least = used[resource] - freed.get(resource, 0) + takes
            if least > hard[resource]:
                return Held(
                    Reason.REPLACEMENT_REFUSED,
                    f"{named} would refuse the replacement, which takes {_shown(takes)} of {resource}: "
                    f"{_shown(used[resource])} of {_shown(hard[resource])} are used, and an evicted pod counts until "
                    "it is gone",
                )
            if least + sum(each.get(resource, 0) for each in others) > hard[resource]:
                return Held(
                    Reason.IN_MOTION,
                    f"{named} has no room for the replacement beside those of other pods that were evicted: "
                    f"{_shown(used[resource])} of {_shown(hard[resource])} of {resource} are used",
                )
    return None


def why_limit_range_refuses(spec: Json, limit_ranges: Iterable[LimitRange]) -> Held | None:
    """Return which LimitRange would refuse a pod or the claims of its ephemeral volumes, or None.

    Mirrors `PodValidateLimitFunc` and `PersistentVolumeClaimValidateLimitFunc`.
    """
    for limit_range in limit_ranges:
        for item in limit_range.spec.limits:
            for whose, requests, limits in _measured(spec, item.type):
                if (why := _why_outside(item, requests, limits)) is not None:
                    return Held(
                        Reason.REPLACEMENT_REFUSED,
                        f"LimitRange {limit_range.metadata.name} would refuse the replacement: {whose} {why}",
                    )
    return None


def _measured(spec: Json, kind: str) -> Iterator[tuple[str, Mapping[str, int], Mapping[str, int]]]:
    if kind == "Container":
        for container in containers_of(spec):
            requests, limits = (nano_amounts(each, "resources") for each in resources_of(container))
            yield f"container {container.get('name')}", requests, limits
    elif kind == "Pod":
        without_overhead = {key: value for key, value in spec.items() if key != "overhead"}
        yield "the pod", *requests_and_limits(without_overhead)
    elif kind == "PersistentVolumeClaim":  # its maximum bounds the request; limits don't count
        for name, claimed in claimed_requests(spec):
            yield f"the claim of volume {name}", claimed, claimed


def _why_outside(item: LimitRangeItem, requests: Mapping[str, int], limits: Mapping[str, int]) -> str | None:
    for resource, least in nano_amounts(item.min, "min").items():
        if requests.get(resource, -1) < least or limits.get(resource, least) < least:
            return f"takes less {resource} than the least, {_shown(least)}, or does not say how much"
    for resource, most in nano_amounts(item.max, "max").items():
        if limits.get(resource, most + 1) > most or requests.get(resource, 0) > most:
            return f"may take more {resource} than the most, {_shown(most)}"
    for resource, ratio in nano_amounts(item.max_limit_request_ratio, "maxLimitRequestRatio").items():
        request, limit = requests.get(resource, 0), limits.get(resource, 0)
        if not request or not limit or limit * NANO_PER_UNIT > ratio * request:
            return f"has a limit of {resource} of more than {_shown(ratio)} times its request, or lacks one of them"
    return None


def _meets(spec: Json, requirement: ScopeRequirement) -> bool:
    """Return whether a quota with a scope counts a pod (`podMatchesScopeFunc`)."""
    meets = _SCOPES.get(requirement.scope_name)
    return meets is not None and meets(spec, requirement)


def _has_value(name: str, requirement: ScopeRequirement) -> bool:
    match requirement.operator:
        case "In":
            return name in requirement.values
        case "NotIn":
            return name not in requirement.values
        case "DoesNotExist":
            return not name
        case _:
            return bool(name)


def _affinity_terms(spec: Json) -> Iterator[dict[str, Any]]:
    for kind in _AFFINITIES:
        affinity = (spec.get("affinity") or {}).get(kind) or {}
        yield from affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or ()
        for preferred in affinity.get("preferredDuringSchedulingIgnoredDuringExecution") or ():
            yield preferred.get("podAffinityTerm") or {}


def _crosses_namespaces(term: Mapping[str, Any]) -> bool:
    return bool(term.get("namespaces")) or term.get("namespaceSelector") is not None


def _shown(nano: int) -> str:
    """Return an amount in readable form: whole units unchanged, fractions to a thousandth."""
    units, rest = divmod(nano, NANO_PER_UNIT)
    return f"{nano / NANO_PER_UNIT:.3f}".rstrip("0") if rest else str(units)


_SCOPES: Final[Mapping[str, Callable[[Json, ScopeRequirement], bool]]] = {
    "Terminating": lambda spec, _: spec.get("activeDeadlineSeconds") is not None,
    "NotTerminating": lambda spec, _: spec.get("activeDeadlineSeconds") is None,
    "BestEffort": lambda spec, _: is_best_effort(spec),
    "NotBestEffort": lambda spec, _: not is_best_effort(spec),
    "PriorityClass": lambda spec, requirement: _has_value(spec.get("priorityClassName", ""), requirement),
    "CrossNamespacePodAffinity": lambda spec, _: any(map(_crosses_namespaces, _affinity_terms(spec))),
}
