"""The pod that the API server creates from a template, with defaults and the effects of built-in admission.

Mirrors `SetDefaults_Pod` (pkg/apis/core/v1/defaults.go), the claims of `newStatefulSetPod`, and the admission plugins
LimitRanger, Priority, RuntimeClass, DefaultTolerationSeconds, ExtendedResourceToleration and PodTolerationRestriction.
What others added to a pod (webhooks, admission policies) can't be derived from its template. Their containers are
assumed to be added again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from copy import deepcopy
from typing import Any, Final, TypeAlias

from respread.eviction.owners.namespace_rules import LimitRange

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

    Args:
        template: `spec.template` of the controller, or of the revision that the pod is created from.
        pod: the pod that it replaces, as the API server shows it.
        limit_ranges: those of its namespace; None: unknown, and the pod shows what they set.
        claim_templates: `spec.volumeClaimTemplates` of a StatefulSet.
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
    if not spec.get("priorityClassName"):  # The cluster's default class, or none.
        spec |= {key: was[key] for key in ("priorityClassName", "priority") if key in was}
    elif spec["priorityClassName"] == was.get("priorityClassName"):
        spec["priority"] = was.get("priority", 0)
    metadata = {key: pod["metadata"][key] for key in _IDENTITY if key in pod["metadata"]}
    return {"metadata": {**metadata, "labels": _labels(template, pod)}, "spec": spec}


def without_merged_keys(pod: Json) -> Json:
    """Return a pod with the selectors of its template.

    The API server adds the values of `matchLabelKeys` and `mismatchLabelKeys` to them, from 1.34 on also for topology
    spread constraints (`applyMatchLabelKeys`, pkg/registry/core/pod/strategy.go).
    """
    spec, labels = deepcopy(pod["spec"]), pod["metadata"].get("labels") or {}
    for constraint in spec.get("topologySpreadConstraints") or ():
        _take_out(constraint, "matchLabelKeys", "In", labels)
    affinity = spec.get("affinity") or {}
    for kind in ("podAffinity", "podAntiAffinity"):
        for term in (affinity.get(kind) or {}).get("requiredDuringSchedulingIgnoredDuringExecution") or ():
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


def _has_pod_level_resources(spec: Json) -> bool:
    """Return whether a pod has pod-level resources."""
    return any(_resources_of(spec))


def _default_requests(spec: Json) -> None:
    for container in _containers_of(spec):
        requests, limits = _resources_of(container)
        _set_resources(container, {**limits, **requests}, limits)


def _default_by_limit_ranges(spec: Json, limit_ranges: Sequence[LimitRange]) -> None:
    for limit_range in limit_ranges:
        for container in _containers_of(spec):
            requests, limits = _resources_of(container)
            _set_resources(
                container,
                {**limit_range.default_requests, **requests},
                {**limit_range.default_limits, **limits},
            )


def _default_as_before(spec: Json, was: Json) -> None:
    before = {container.get("name"): _resources_of(container) for container in _containers_of(was)}
    for container in _containers_of(spec):
        requests, limits = _resources_of(container)
        had_requests, had_limits = before.get(container.get("name"), ({}, {}))
        _set_resources(container, {**had_requests, **requests}, {**had_limits, **limits})


def _set_resources(container: Json, requests: dict[str, Any], limits: dict[str, Any]) -> None:
    container["resources"] = {**(container.get("resources") or {}), "requests": requests, "limits": limits}


def _default_pod_level(spec: Json, was: Json) -> None:
    """Copy the pod-level requests that a pod got because it has limits: they follow from its containers."""
    if not _has_pod_level_resources(spec):
        return
    given, _ = _resources_of(was)
    requests, limits = _resources_of(spec)
    spec["resources"] = {"requests": {**given, **requests}, "limits": limits}


def _default_host_ports(spec: Json) -> None:
    for container in _containers_of(spec):
        for port in container.get("ports") or ():
            port["hostPort"] = port.get("hostPort") or port.get("containerPort", 0)


def _add_injected(spec: Json, was: Json) -> None:
    """Add the containers that the template does not have: whatever added them to the pod is assumed to do so again."""
    named = {container.get("name") for container in _containers_of(spec)}
    for kind in ("containers", "initContainers"):
        injected = [each for each in was.get(kind) or () if each.get("name") not in named]
        if injected:
            spec[kind] = [*(spec.get(kind) or ()), *injected]


def _add_claims(spec: Json, pod_name: str, claim_templates: Sequence[Json]) -> None:
    claims = {
        name: {"name": name, "persistentVolumeClaim": {"claimName": f"{name}-{pod_name}"}}
        for name in (each["metadata"]["name"] for each in claim_templates)
    }
    if claims:
        others = [volume for volume in spec.get("volumes") or () if volume.get("name") not in claims]
        spec["volumes"] = [*claims.values(), *others]


def _add_tolerations(spec: Json, was: Json) -> None:
    wanted = spec.get("tolerations") or []
    added = [each for each in was.get("tolerations") or () if each not in wanted and _is_of_admission(each, was)]
    if added:
        spec["tolerations"] = [*wanted, *added]


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
    spec["nodeSelector"] = {**(was.get("nodeSelector") or {}), **(spec.get("nodeSelector") or {})}
    wanted = spec.get("tolerations") or []
    spec["tolerations"] = [*wanted, *(each for each in was.get("tolerations") or () if each not in wanted)]


def _labels(template: Json, pod: Json) -> dict[str, str]:
    labels = dict((template.get("metadata") or {}).get("labels") or {})
    of_pod: Mapping[str, str] = pod["metadata"].get("labels") or {}
    return labels | {key: of_pod[key] for key in _OF_STATEFUL_SETS if key in of_pod and key not in labels}


def _take_out(term: Json, field: str, operator: str, labels: Mapping[str, str]) -> None:
    selector = term.get("labelSelector") or {}
    merged = [
        {"key": key, "operator": operator, "values": [labels[key]]} for key in term.get(field) or () if key in labels
    ]
    if merged and selector.get("matchExpressions"):
        selector["matchExpressions"] = [each for each in selector["matchExpressions"] if each not in merged]
