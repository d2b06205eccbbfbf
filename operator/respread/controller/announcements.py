"""Reports single decisions to users: log lines, and Events on the policy, the pod and the workload."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final

from respread.api.conditions import MissingPermission, describe_missing
from respread.api.policy import API_VERSION, Policy
from respread.api.reasons import EVICTED_FOR_SPREAD, Held
from respread.cluster.pod import Pod
from respread.eviction.answers import Answer
from respread.eviction.owners.last_look import TopOwners
from respread.kube.events import Event, EventObject, EventType
from respread.moves.entry import Ended, Outcome
from respread.planning.plan import Move
from respread.telemetry.logs import get_logger

_log: Final = get_logger(__name__)

_EVICT: Final = "Evict"


class Announcements:
    """Reports what was done."""

    def __init__(self, record: Callable[[Event], None], current_policy: Callable[[str], Policy | None]) -> None:
        """Report through Events on the current policies."""
        self._record = record
        self._current_policy = current_policy
        self.top_owners = TopOwners()
        """The top owners of pods, which receive Events. The code that reads controllers notes them here."""

    def eviction(self, move: Move, answer: Answer) -> None:
        """Report the API server's answer to an eviction."""
        because = describe(move)
        fields = {"pod": str(move.pod.key), "policy": move.policy, "node": move.pod.node_name}
        if answer.evicted:
            _log.info("Evicted", **fields, why=because)
            self._tell(move, EVICTED_FOR_SPREAD, f"Evicted pod {move.pod.name}: {because}", on_pod=True)
            return
        _log.warning("Not evicted", **fields, result=answer.result, answer=answer.message)
        note = f"Pod {move.pod.name} was not evicted: {answer.message}"
        self._tell(move, answer.result, note, EventType.WARNING, on_pod=True)

    def held_back(self, move: Move, held: Held) -> None:
        """Report that a planned eviction was not sent. It is tried again, so this is only logged."""
        _log.info(
            "Eviction held back", pod=str(move.pod.key), policy=move.policy, reason=held.reason, message=held.message
        )

    def end(self, ended: Ended) -> None:
        """Report the outcome of a move."""
        fields = {
            "pod": str(ended.move.pod.key),
            "policy": ended.move.policy,
            "outcome": ended.outcome,
            "seconds": round(ended.seconds, 1),
        }
        if ended.outcome is Outcome.IMPROVED:
            _log.info("Move ended", **fields, how=ended.message)
            return
        _log.warning("Move ended without improving the spread", **fields, how=ended.message)
        note = f"Replacing pod {ended.move.pod.name} did not improve the spread ({ended.outcome}): {ended.message}"
        self._tell(ended.move, "SpreadNotImproved", note, EventType.WARNING)

    def paused(self, policy: Policy, held: Held) -> None:
        """Report that a policy is paused."""
        _log.warning("Paused", policy=policy.name, message=held.message)
        self._tell_of(policy, "EvictionsPaused", f"{held.message[0].upper()}{held.message[1:]}", EventType.WARNING)

    def resumed(self, policy: Policy) -> None:
        """Report that a policy is no longer paused."""
        _log.info("Not paused any more", policy=policy.name)
        self._tell_of(policy, "EvictionsResumed", "An eviction has improved the spread: others follow")

    def permissions(self, policy: Policy, missing: Collection[MissingPermission]) -> None:
        """Report that a policy misses other permissions than before, or none any more. The log has them."""
        if missing:
            self._tell_of(policy, "PermissionMissing", describe_missing(missing), EventType.WARNING)
        else:
            self._tell_of(policy, "PermissionGranted", "Every permission that the policy needs is granted")

    def _tell_of(self, policy: Policy, reason: str, note: str, kind: EventType = EventType.NORMAL) -> None:
        self._record(Event(regarding=_policy(policy), reason=reason, action=_EVICT, note=note, type=kind))

    def _tell(
        self, move: Move, reason: str, note: str, kind: EventType = EventType.NORMAL, *, on_pod: bool = False
    ) -> None:
        """Write an Event on the policy and the workload, and on the pod if requested."""
        pod, workload = _pod(move.pod), self._workload(move.pod)
        policy = self._current_policy(move.policy)
        told = [
            (None if policy is None else _policy(policy), pod),
            (workload, pod),
            (pod if on_pod else None, workload),
        ]
        for about, related in told:
            if about is not None:
                self._record(
                    Event(regarding=about, reason=reason, action=_EVICT, note=note, type=kind, related=related)
                )

    def _workload(self, pod: Pod) -> EventObject | None:
        owner = self.top_owners.of(pod)
        if owner is None:
            return None
        return EventObject(
            api_version=owner.api_version, kind=owner.kind, namespace=pod.namespace, name=owner.name, uid=owner.uid
        )


def describe(move: Move) -> str:
    """Return why a move is made, in a clause: which skew it reduces and where the replacement may land."""
    return "; ".join(
        f"{key.topology_key} {before} holds more than maxSkew {key.max_skew} allows, and the replacement "
        f"{'goes' if move.certain else 'should go'} to {' or '.join(after)}"
        for key, before, after in zip(move.groups, move.from_domains, move.to_domains, strict=True)
    )


def _policy(policy: Policy) -> EventObject:
    return EventObject(
        api_version=API_VERSION, kind=policy.kind, namespace=policy.namespace, name=policy.object_name, uid=policy.uid
    )


def _pod(pod: Pod) -> EventObject:
    return EventObject(api_version="v1", kind="Pod", namespace=pod.namespace, name=pod.name, uid=pod.uid)
