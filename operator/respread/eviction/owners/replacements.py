"""The last look at the replacement of an evicted pod: whether it is equivalent, and admitted by the API server.

A pod differs if it was resized in place, changed by a webhook or admission policy, relabeled, or created from a
template that has changed since. A plan that was made from the pod says nothing about such a replacement.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final, NamedTuple, cast

import msgspec

from respread.api.json_documents import decoded, encode_map
from respread.api.policy import VictimRules
from respread.api.reasons import Held, Reason
from respread.cluster.decode.decoder import Decoder
from respread.cluster.incremental import are_same
from respread.cluster.objects import DecodeError, FieldError
from respread.cluster.pod import Pod, PodAffinityTerm, PodSpec, TopologySpreadConstraint
from respread.eviction.owners.admission import (
    Json,
    NamespaceRules,
    admitted,
    read_namespace_rules,
    why_limit_range_refuses,
    why_quota_refuses,
    without_merged_keys,
)
from respread.eviction.owners.reading import READING_ERRORS, BatchReadings, OwnerReading, unread, unreadable
from respread.eviction.owners.rest_rules import revision_of_pod
from respread.kube.requests import Meaning, Requests
from respread.moves.ledger import Ledger
from respread.planning.placement import is_replaced_when_gone
from respread.planning.plan import Move
from respread.scheduling.filters.taint_toleration import for_scheduling
from respread.spread.group import GroupKey

Usage = Mapping[str, int]
"""Amounts by the names in a quota."""

_NO_REPLACEMENT: Final = "the ResourceQuotas of namespace {} do not show the replacement of {} yet"


class ComingReplacements:
    """The replacements of moves about to be made, and of moves in flight without one."""

    def __init__(self) -> None:
        self._usages: dict[str, Usage] = {}
        """By the UIDs of the pods that are replaced."""

    def add(self, pod: Pod, usage: Usage) -> None:
        """Add the replacement of a pod whose move may be made, as far as its controllers are concerned."""
        self._usages[pod.uid] = usage

    def usages_beside(self, pod: Pod, moves: Ledger) -> list[Usage] | Held:
        """Return what other replacements in a pod's namespace use that quotas don't show, or why that is unknown."""
        awaited = {each.uid: each for each in moves.under_way if each.replacement is None}
        self._usages = {uid: usage for uid, usage in self._usages.items() if uid in awaited}
        here = {uid: each for uid, each in awaited.items() if each.move.pod.namespace == pod.namespace}
        here.pop(pod.uid, None)
        unknown = [uid for uid, each in here.items() if each.is_in_flight and uid not in self._usages]
        if unknown:
            return Held(Reason.IN_MOTION, _NO_REPLACEMENT.format(pod.namespace, here[min(unknown)].move.pod.name))
        return [self._usages[uid] for uid in here if uid in self._usages]


_NOT_OF_THE_API: Final = (
    AttributeError,
    DecodeError,
    FieldError,
    KeyError,
    RecursionError,
    TypeError,
    msgspec.MsgspecError,
)
"""What reading documents raises that no API server has validated: a proxy may answer anything, and the template of a
custom resource may contain anything."""
_POD: Final = "/api/v1/namespaces/{namespace}/pods/{name}"
_REVISION: Final = "/apis/apps/v1/namespaces/{namespace}/controllerrevisions/{name}"


class _Prediction(NamedTuple):
    basis: tuple[OwnerReading, NamespaceRules, VictimRules]
    """What it was made of."""
    pod: Json
    replacement: Json
    differs: Held | None
    """What affects the placement of the pod and would differ in its replacement."""


class Replacements:
    """Predicts the replacements of pods from their controllers' templates."""

    def __init__(
        self, requests: Requests, clock: Callable[[], float], fresh_seconds: float, coming: ComingReplacements
    ) -> None:
        """Read from the API server. What permitted replacements use of quotas is added to `coming`."""
        self._requests = requests
        self._objects: BatchReadings[Json] = BatchReadings(clock, fresh_seconds)
        self._namespaces: BatchReadings[NamespaceRules] = BatchReadings(clock, fresh_seconds)
        self._predicted: dict[str, _Prediction] = {}
        """By the UIDs of the pods: a pod is looked at twice before it is evicted, mostly with the same readings."""
        self._decoder = Decoder()
        self._coming = coming

    async def why_unknown(self, pod: Pod) -> Held | None:
        """Return why it is unknown what a pod's namespace would admit, or None if it is known."""
        rules = await self._rules_of(pod.namespace)
        return rules if isinstance(rules, Held) else None

    async def why_not(self, move: Move, reading: OwnerReading, moves: Ledger, rules: VictimRules) -> Held | None:
        """Return why a pod must not be evicted because of its replacement, or None."""
        try:
            namespace = await self._rules_of(move.pod.namespace)
            if isinstance(namespace, Held):
                return namespace
            known = self._predicted.get(move.pod.uid)
            if known is None or not are_same(known.basis, (reading, namespace, rules)):
                found = await self._predict(move, reading, namespace, rules)
                if isinstance(found, Held):
                    return found
                known = self._predicted[move.pod.uid] = found
            return known.differs or self._why_refused(move, known.pod, known.replacement, namespace, moves)
        except _NOT_OF_THE_API as error:
            what = f"{type(error).__name__}: {error}"
            return Held(Reason.API_UNAVAILABLE, f"the pod or the template of its controller can't be read: {what}")

    async def _pod(self, pod: Pod, reading: OwnerReading) -> Json | Held:
        """Return a pod as the API server shows it. One that the list of its controller's pods left out is read."""
        if (document := reading.documents.get(pod.uid)) is not None:
            known: Json = decoded(msgspec.json.decode, document)
            return known
        if all(each.metadata.uid != pod.uid for each in reading.pods):
            return Held(Reason.IN_MOTION, "it is not there any more")
        found = await self._get(_POD, pod.namespace, pod.name, f"pod {pod.name}")
        if isinstance(found, Held) or found["metadata"]["uid"] == pod.uid:
            return found
        return Held(Reason.IN_MOTION, "it is not there any more")

    async def _predict(
        self, move: Move, reading: OwnerReading, namespace: NamespaceRules, rules: VictimRules
    ) -> _Prediction | Held:
        pod = await self._pod(move.pod, reading)
        if isinstance(pod, Held):
            return pod
        template = await self._template(move.pod, reading)
        if isinstance(template, Held):
            return template
        claims = reading.controller.spec.volume_claim_templates
        replacement = admitted(template, pod, namespace.limit_ranges, claims)
        is_compared = rules.changed_pods == "Protect"
        differs = why_differs(pod, replacement, move.groups, self._decoder) if is_compared else None
        return _Prediction((reading, namespace, rules), pod, replacement, differs)

    def _why_refused(
        self, move: Move, pod: Json, replacement: Json, namespace: NamespaceRules, moves: Ledger
    ) -> Held | None:
        spec = replacement["spec"]
        if (held := why_limit_range_refuses(spec, namespace.limit_ranges or ())) is not None:
            return held
        if namespace.quotas:
            was, will_be = (cast("Pod", self._decoder.decode_object("pods", each)).spec for each in (pod, replacement))
            freed = was.quota_usage if is_replaced_when_gone(move.pod) else {}
            others = self._coming.usages_beside(move.pod, moves)
            if isinstance(others, Held):
                return others
            if (held := why_quota_refuses(will_be, spec, namespace.quotas, freed, others)) is not None:
                return held
            self._coming.add(move.pod, will_be.quota_usage)
        return None

    async def _rules_of(self, namespace: str) -> NamespaceRules | Held:
        return await self._namespaces.get(namespace, lambda: read_namespace_rules(self._requests, namespace))

    async def _template(self, pod: Pod, reading: OwnerReading) -> Json | Held:
        """Return the template of the pod's replacement. A StatefulSet may use an earlier revision."""
        controller = reading.controller
        revision = revision_of_pod(controller, pod.name) if reading.kind == "StatefulSet" else ""
        if revision and revision != controller.status.update_revision:
            what = f"ControllerRevision {revision}"
            found = await self._objects.get(
                (pod.namespace, revision), lambda: self._get(_REVISION, pod.namespace, revision, what)
            )
            return found if isinstance(found, Held) else found["data"]["spec"]["template"]
        template: Json = decoded(msgspec.json.decode, controller.spec.template)
        return template

    async def _get(self, path: str, namespace: str, name: str, what: str) -> Json | Held:
        names = {"namespace": namespace, "name": name}
        try:
            response = await self._requests.send("GET", path, names)
            if response.meaning is Meaning.ABSENT:
                return Held(Reason.IN_MOTION, f"{what} is gone")
            if not response.succeeded:
                return unreadable(what, response)
            found: Any = decoded(msgspec.json.decode, response.body)
        except READING_ERRORS as error:
            return unread(what, error)
        return found if isinstance(found, dict) else Held(Reason.API_UNAVAILABLE, f"{what} could not be read")


class _TemplateDifference(NamedTuple):
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
        (*spec.shared_claims, *spec.stateful_claims, *spec.ephemeral_volumes, *spec.disks, *spec.migrated_volumes)
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

    The pod is as the API server shows it, and the replacement as `admission.admitted` returns it. The eviction should
    improve the groups.

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
) -> Iterator[_TemplateDifference]:
    was, will_be = _decoded(without_merged_keys(pod), decoder), _decoded(replacement, decoder)
    for resource in sorted({*was.spec.requests, *will_be.spec.requests}):
        unit = "m" if resource == "cpu" else ""
        amounts = (f"{each.spec.requests.get(resource, 0)}{unit}" for each in (was, will_be))
        yield _TemplateDifference(f"the request for {resource}", *amounts)
    for name, of in _FIELDS.items():
        yield _TemplateDifference(name, of(was.spec), of(will_be.spec))
    for name in _NAMES:
        yield _TemplateDifference(name, pod["spec"].get(name) or "", replacement["spec"].get(name) or "")
    if will_be.node_name:
        yield _TemplateDifference("nodeName", "chosen by the scheduler", will_be.node_name)
    relevant = _keys_asked_for(will_be, groups)
    for key in sorted({*was.labels, *will_be.labels}):
        if key in will_be.labels or key in relevant:
            yield _TemplateDifference(f"the label {key}", was.labels.get(key), will_be.labels.get(key))


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
