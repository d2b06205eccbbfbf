"""Whether the pod that a controller's template creates now would be placed like the pod that it replaces.

A pod differs if it was resized in place, changed by a webhook or admission policy, relabeled, or created from a
template that has changed since. A plan that was made from the pod says nothing about such a replacement.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, cast

import msgspec

from respread.api.maps import encode_map
from respread.api.reasons import Reason
from respread.cluster.decode.decoder import Decoder
from respread.cluster.pod import Pod, PodAffinityTerm, PodSpec, TopologySpreadConstraint
from respread.eviction.owners.admitted_pod import Json, without_merged_keys
from respread.planning.held import Held
from respread.scheduling.filters.taint_toleration import for_scheduling
from respread.spread.group import GroupKey


class TemplateDifference(NamedTuple):
    """The values of one field in a pod and in its controller's template."""

    field: str
    of_pod: object
    of_template: object


_FIELDS: Final[Mapping[str, Callable[[PodSpec], object]]] = {
    "nodeSelector": lambda spec: dict(spec.node_selector),
    "affinity.nodeAffinity": lambda spec: spec.node_affinity,
    "affinity.podAffinity": lambda spec: spec.pod_affinity,
    "affinity.podAntiAffinity": lambda spec: spec.pod_anti_affinity,
    "topologySpreadConstraints": lambda spec: spec.topology_spread_constraints,
    "tolerations": lambda spec: _sorted(set(for_scheduling(spec.tolerations))),
    "hostPort of the containers": lambda spec: _sorted(spec.host_ports),
    "schedulerName": lambda spec: spec.scheduler_name,
    "priority": lambda spec: spec.priority,
    "volumes": lambda spec: _sorted(
        (
            *spec.shared_claims,
            *spec.stateful_claims,
            *spec.ephemeral_volumes,
            *spec.disks,
            *spec.migrated_volumes,
        )
    ),
    "resourceClaims": lambda spec: spec.has_resource_claims,
    "schedulingGates": lambda spec: spec.has_scheduling_gates,
    "schedulingGroup": lambda spec: spec.is_in_scheduling_group,
    "features that nodes declare": lambda spec: spec.needs_declared_features,
}
"""The fields that affect where a pod can be placed, by the API's names. Requests and labels are compared separately."""
_NAMES: Final = ("runtimeClassName", "priorityClassName")
_SHOWN: Final = 120
"""The number of characters of a value that are shown."""


def why_differs(pod: Json, replacement: Json, groups: Collection[GroupKey], decoder: Decoder) -> Held | None:
    """Return what affects the placement of a pod and would differ in its replacement, or None.

    Args:
        pod: the pod as the API server shows it.
        replacement: what its controller's template creates (`admitted_pod.admitted`).
        groups: the spread groups that its eviction should improve.
        decoder: decodes both.

    Raises:
        DecodeError: the API would reject the content of one of them.
    """
    compared = _compared(pod, replacement, groups, decoder)
    differences = [each for each in compared if each.of_pod != each.of_template]
    if not differences:
        return None
    said = "; ".join(
        f"{each.field} is {_shown(each.of_pod)}, in the template {_shown(each.of_template)}" for each in differences[:3]
    )
    return Held(
        Reason.TEMPLATE_DIFFERS,
        f"it differs from its controller's template, and so would its replacement differ from it: {said}; restart it "
        "or change the template, or let such pods be evicted by victims.changedPods: Evict",
    )


def _compared(
    pod: Json, replacement: Json, groups: Collection[GroupKey], decoder: Decoder
) -> Iterator[TemplateDifference]:
    was, will_be = _decoded(without_merged_keys(pod), decoder), _decoded(replacement, decoder)
    for resource in sorted({*was.spec.requests, *will_be.spec.requests}):
        unit = "m" if resource == "cpu" else ""
        amounts = (f"{each.spec.requests.get(resource, 0)}{unit}" for each in (was, will_be))
        yield TemplateDifference(f"the request for {resource}", *amounts)
    for name, of in _FIELDS.items():
        yield TemplateDifference(name, of(was.spec), of(will_be.spec))
    for name in _NAMES:
        yield TemplateDifference(name, pod["spec"].get(name, ""), replacement["spec"].get(name, ""))
    if will_be.node_name:
        yield TemplateDifference("nodeName", "chosen by the scheduler", will_be.node_name)
    relevant = _keys_asked_for(will_be, groups)
    for key in sorted({*was.labels, *will_be.labels}):
        if key in will_be.labels or key in relevant:
            yield TemplateDifference(f"the label {key}", was.labels.get(key), will_be.labels.get(key))


def _decoded(document: Json, decoder: Decoder) -> Pod:
    return cast("Pod", decoder.decode_object("pods", document))


def _keys_asked_for(pod: Pod, groups: Iterable[GroupKey]) -> set[str]:
    """Return the label keys by which a pod counts for its own constraints and for the groups of a move."""
    keys = {each.key for group in groups for each in group.selector.requirements}
    terms: tuple[TopologySpreadConstraint | PodAffinityTerm, ...] = (
        *pod.spec.topology_spread_constraints,
        *pod.spec.pod_affinity,
        *pod.spec.pod_anti_affinity,
    )
    for term in terms:
        if term.label_selector is not None:
            keys.update(term.label_selector.match_labels)
            keys.update(each.key for each in term.label_selector.match_expressions)
        keys.update(term.match_label_keys)
        if isinstance(term, PodAffinityTerm):
            keys.update(term.mismatch_label_keys)
    return keys


def _sorted(values: Iterable[Any]) -> list[Any]:
    return sorted(values, key=repr)


def _shown(value: object) -> str:
    """Return a value as in a manifest, shortened."""
    if not value:
        return "absent"
    text = value if isinstance(value, str) else msgspec.json.encode(value, enc_hook=encode_map).decode()
    return text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
