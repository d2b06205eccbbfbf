"""The last look at what would come in an evicted pod's place: like it, and let in by the API server?"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus
from typing import Any, Final

import msgspec

from respread.api.policy import VictimRules
from respread.api.reasons import Reason
from respread.cluster.decode.decoder import Decoder
from respread.cluster.errors import DecodeError, FieldError
from respread.cluster.pod import Pod
from respread.eviction.in_flight import InFlight
from respread.eviction.owners.admission_rules import why_limit_range_refuses, why_quota_refuses
from respread.eviction.owners.admitted_pod import Json, admitted
from respread.eviction.owners.namespace_rules import NamespaceRules, read_namespace_rules
from respread.eviction.owners.pod_usage import usage
from respread.eviction.owners.reading import ControllerObject, OwnerReading
from respread.eviction.owners.rest_rules import revision_of_pod
from respread.eviction.owners.template_rules import why_differs
from respread.eviction.owners.wave_readings import WaveReadings
from respread.kube.api_status import status_of
from respread.kube.requests import NoResponseError, Requests
from respread.planning.held import Held
from respread.planning.plan import Move
from respread.planning.search.placement import is_replaced_when_gone

TIMEOUT_SECONDS: Final = 10.0
_NOT_OF_THE_API: Final = (AttributeError, DecodeError, FieldError, KeyError, TypeError, msgspec.MsgspecError)
"""What reading documents raises that no API server has validated: a proxy may answer anything."""
_POD: Final = "/api/v1/namespaces/{namespace}/pods/{name}"
_REVISION: Final = "/apis/apps/v1/namespaces/{namespace}/controllerrevisions/{name}"


class Replacements:
    """Predicts the replacements of pods from their controllers' templates."""

    __slots__ = ("_decoder", "_namespaces", "_objects", "_planned", "_requests", "_usages")

    def __init__(self, requests: Requests, clock: Callable[[], float], fresh_seconds: float) -> None:
        """Look through the API server.

        Args:
            requests: how to ask it.
            clock: seconds that never go back.
            fresh_seconds: how long a reading serves.
        """
        self._requests = requests
        self._objects: WaveReadings[Json] = WaveReadings(clock, fresh_seconds)
        self._namespaces: WaveReadings[NamespaceRules] = WaveReadings(clock, fresh_seconds)
        self._decoder = Decoder()
        self._usages: dict[str, dict[str, int]] = {}
        """What the replacements take of quotas, by the UIDs of the pods: of moves of this wave, and of those under
        way that have no replacement yet."""
        self._planned: dict[str, str] = {}
        """The namespaces of the moves of this wave that nothing has spoken against, by the UIDs of the pods."""

    def forget(self) -> None:
        """Forget all readings: what follows is another wave."""
        self._objects.forget()
        self._namespaces.forget()
        self._planned.clear()

    async def why_not(self, move: Move, reading: OwnerReading, in_flight: InFlight, rules: VictimRules) -> Held | None:
        """Return why a pod must not be evicted for its replacement's sake, or None if nothing speaks against it.

        Args:
            move: the move that is to be made.
            reading: its controller, read fresh, and at rest.
            in_flight: the moves under way.
            rules: `spec.victims` of its policy.
        """
        self._planned.pop(move.pod.uid, None)
        try:
            pod, template, namespace = await asyncio.gather(
                self._pod(move.pod), self._template(move.pod, reading), self._rules_of(move.pod.namespace)
            )
            if isinstance(pod, Held):
                return pod
            if isinstance(template, Held):
                return template
            if isinstance(namespace, Held):
                return namespace
            claims = reading.controller.spec.volume_claim_templates
            replacement = admitted(template, pod, namespace.limit_ranges, claims)
            held = None
            if rules.changed_pods == "Protect":
                held = why_differs(pod, replacement, move.groups, self._decoder)
            return held or self._why_refused(move, pod, replacement, namespace, in_flight)
        except _NOT_OF_THE_API as error:
            what = f"{type(error).__name__}: {error}"
            return Held(Reason.API_UNAVAILABLE, f"the pod or the template of its controller can't be read: {what}")

    def _why_refused(
        self, move: Move, pod: Json, replacement: Json, namespace: NamespaceRules, in_flight: InFlight
    ) -> Held | None:
        spec, uid = replacement["spec"], move.pod.uid
        if (held := why_limit_range_refuses(spec, namespace.limit_ranges or ())) is not None:
            return held
        if namespace.quotas:
            freed = usage(pod["spec"]) if is_replaced_when_gone(move.pod) else {}
            others = self._others(move, in_flight)
            if isinstance(others, Held):
                return others
            if (held := why_quota_refuses(spec, namespace.quotas, freed, others)) is not None:
                return held
            self._usages[uid] = usage(spec)
        self._planned[uid] = move.pod.namespace
        return None

    def _others(self, move: Move, in_flight: InFlight) -> list[dict[str, int]] | Held:
        """Return what replacements take that quotas do not show yet."""
        replaced = {each.uid for each in in_flight.flights if each.replacement is not None}
        awaited = {each.uid: each.move.pod for each in in_flight.flights if each.replacement is None}
        self._usages = {uid: it for uid, it in self._usages.items() if uid in awaited or uid in self._planned}
        here = {uid for uid, pod in awaited.items() if pod.namespace == move.pod.namespace}
        here |= {uid for uid, namespace in self._planned.items() if namespace == move.pod.namespace}
        here -= {move.pod.uid, *replaced}
        if unknown := sorted(here - self._usages.keys()):
            name = awaited[unknown[0]].name if unknown[0] in awaited else unknown[0]
            return Held(
                Reason.IN_MOTION,
                f"the ResourceQuotas of namespace {move.pod.namespace} do not show the replacement of {name} yet",
            )
        return [self._usages[uid] for uid in here]

    async def _rules_of(self, namespace: str) -> NamespaceRules | Held:
        return await self._namespaces.get(namespace, lambda: read_namespace_rules(self._requests, namespace))

    async def _pod(self, pod: Pod) -> Json | Held:
        found = await self._objects.get(pod.uid, lambda: self._get(_POD, pod.namespace, pod.name, f"pod {pod.name}"))
        if isinstance(found, Held) or found["metadata"]["uid"] == pod.uid:
            return found
        return Held(Reason.IN_MOTION, f"the pod named {pod.name} is another one now")

    async def _template(self, pod: Pod, reading: OwnerReading) -> Json | Held:
        """Return the template of the pod's replacement: a StatefulSet may go back to an earlier revision."""
        controller = reading.controller
        if reading.kind == "StatefulSet" and _is_earlier(revision := revision_of_pod(controller, pod.name), controller):
            what = f"ControllerRevision {revision}"
            key = (pod.namespace, revision)
            found = await self._objects.get(key, lambda: self._get(_REVISION, pod.namespace, revision, what))
            return found if isinstance(found, Held) else found["data"]["spec"]["template"]
        template: Json = msgspec.json.decode(controller.spec.template)
        return template

    async def _get(self, path: str, namespace: str, name: str, what: str) -> Json | Held:
        names = {"namespace": namespace, "name": name}
        try:
            response = await self._requests.send("GET", path, names, timeout_seconds=TIMEOUT_SECONDS)
        except NoResponseError as error:
            return Held(Reason.API_UNAVAILABLE, f"{what} could not be read: {error.message}")
        if response.status_code == HTTPStatus.NOT_FOUND:
            return Held(Reason.IN_MOTION, f"{what} is gone")
        if not response.succeeded:
            why = f"{response.status_code}, {status_of(response.body).message or 'no reason given'}"
            return Held(Reason.API_UNAVAILABLE, f"{what} could not be read: {why}")
        try:
            found: Any = msgspec.json.decode(response.body)
        except (msgspec.DecodeError, UnicodeDecodeError) as error:
            return Held(Reason.API_UNAVAILABLE, f"{what} could not be read: {error}")
        return found if isinstance(found, dict) else Held(Reason.API_UNAVAILABLE, f"{what} could not be read")


def _is_earlier(revision: str, stateful_set: ControllerObject) -> bool:
    return bool(revision) and revision != stateful_set.status.update_revision
