"""What a pod uses of ResourceQuotas, and what LimitRanges measure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from respread.api.maps import decode_map
from respread.cluster.decode.metadata import nano_amounts
from respread.cluster.decode.pod_specs import WirePodSpec, requests_of
from respread.cluster.quantity import NANO_PER_UNIT
from respread.cluster.requests import COUNTED_BY_NAME, NanoAmounts, total_requests, usage_of_requests
from respread.eviction.owners.admitted_pod import Json, containers_of, has_pod_level_resources, resources_of


def requests_and_limits(spec: Json) -> tuple[NanoAmounts, NanoAmounts]:
    """Return the requests and limits of a pod in billionths of a unit, by resource.

    Raises:
        FieldError: a value is not a quantity.
    """
    return _total(spec, spec.get("overhead") or {}), _total_limits(spec)


def usage(spec: Json) -> dict[str, int]:
    """Return what a pod uses of quotas by their names, in billionths of a unit (`PodUsageFunc`).

    The claims of its ephemeral volumes count too: the old pod's still exist when the new ones are created.

    Raises:
        FieldError: a value is not a quantity.
    """
    requests, limits = requests_and_limits(spec)
    used = usage_of_requests(requests)
    used |= {f"limits.{name}": amount for name, amount in limits.items() if name in COUNTED_BY_NAME}
    for name, amount in _claims(spec):
        used[name] = used.get(name, 0) + amount
    return used


def is_best_effort(spec: Json) -> bool:
    """Return whether a pod requests neither cpu nor memory (`ComputePodQOS`)."""
    asking = [spec] if has_pod_level_resources(spec) else list(containers_of(spec))
    return not any(
        amount and name in {"cpu", "memory"}
        for each in asking
        for amounts in resources_of(each)
        for name, amount in nano_amounts(amounts, "resources").items()
    )


def containers_without(spec: Json, resource: str) -> list[str]:
    """Return the containers without a value for a resource that a quota counts, such as `limits.cpu`.

    The API server refuses them, unless the pod has a pod-level value (`podEvaluator.Constraints`).
    """
    if has_pod_level_resources(spec) or resource.removeprefix("requests.").removeprefix("limits.") not in {
        "cpu",
        "memory",
    }:
        return []
    which = 1 if resource.startswith("limits.") else 0
    name = resource.removeprefix("requests.").removeprefix("limits.")
    return [each.get("name", "") for each in containers_of(spec) if name not in resources_of(each)[which]]


def claimed_requests(spec: Json) -> Iterator[tuple[str, NanoAmounts]]:
    """Yield the name of each ephemeral volume, and what its claim requests, in billionths of a unit.

    Raises:
        FieldError: a value is not a quantity.
    """
    for name, claim in _ephemeral_claims(spec):
        yield name, nano_amounts(resources_of(claim)[0], "spec.volumes")


def _ephemeral_claims(spec: Json) -> Iterator[tuple[str, Json]]:
    for volume in spec.get("volumes") or ():
        if ephemeral := volume.get("ephemeral"):
            yield volume.get("name", ""), (ephemeral.get("volumeClaimTemplate") or {}).get("spec") or {}


def _claims(spec: Json) -> Iterator[tuple[str, int]]:
    for _, claim in _ephemeral_claims(spec):
        storage = nano_amounts(resources_of(claim)[0], "spec.volumes").get("storage", 0)
        storage_class = claim.get("storageClassName")
        for prefix in ("", f"{storage_class}.storageclass.storage.k8s.io/") if storage_class else ("",):
            yield f"{prefix}persistentvolumeclaims", NANO_PER_UNIT
            yield f"{prefix}requests.storage", storage
        yield "count/persistentvolumeclaims", NANO_PER_UNIT


def _total_limits(spec: Json) -> NanoAmounts:
    """Return limits by the same sums, including overhead for limited resources (`PodLimits`)."""
    limited: dict[str, Any] = {key: spec[key] for key in ("containers", "initContainers", "resources") if spec.get(key)}
    for kind in ("containers", "initContainers"):
        limited[kind] = [_with_limits_for_requests(each) for each in limited.get(kind, ())]
    if "resources" in limited:
        limited = _with_limits_for_requests(limited)
    found = _total(limited, {})
    overhead = nano_amounts(spec.get("overhead"), "spec.overhead")
    return {name: amount + (overhead.get(name, 0) if amount else 0) for name, amount in found.items()}


def _with_limits_for_requests(container: Mapping[str, Any]) -> dict[str, Any]:
    resources = container.get("resources") or {}
    return {**container, "resources": {"requests": resources.get("limits") or {}}}


def _total(spec: Mapping[str, Any], overhead: Mapping[str, Any]) -> NanoAmounts:
    kept = {key: spec[key] for key in ("containers", "initContainers", "resources") if spec.get(key)}
    wire = msgspec.convert({**kept, "overhead": dict(overhead)}, type=WirePodSpec, dec_hook=decode_map)
    return total_requests(requests_of(wire))
