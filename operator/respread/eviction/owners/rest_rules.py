"""Whether a controller is at rest: after an eviction it creates one equivalent pod, and nothing else.

This prevents Respread from restoring the same skew twice when nobody remembers the first eviction. After a restart, a
lost Lease or a watch that silently stopped, an evicted pod is missing from its controller's count until its replacement
exists. So every controller is read right before one of its pods is evicted, and the watched pods must agree with it.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Final, TypeAlias

from immutables import Map

from respread.api.reasons import Held, Reason
from respread.cluster.pod import Pod
from respread.eviction.owners.reading import ControllerObject, ListedPod, OwnerReading
from respread.planning.victims.protection import ordinal_of
from respread.planning.victims.selection import why_too_few

_REVISION_LABEL: Final = "controller-revision-hash"
_PARALLEL: Final = "Parallel"
"""The `podManagementPolicy` with which no pod waits for another."""


def why_not_at_rest(
    reading: OwnerReading,
    pod: Pod,
    known: Iterable[Pod],
    leaving: Collection[str] = (),
    *,
    unreplaced: int = 0,
    expected: int = 0,
    exchanged: Mapping[str, str] = Map(),
    now: datetime,
    together: Collection[str] = (),
) -> Held | None:
    """Return why a pod's controller is not at rest, or None if it is.

    Args:
        reading: the controller, just read.
        pod: the pod to be evicted.
        known: the controller's pods from the watch.
        leaving: UIDs of the controller's pods that Respread evicted and whose move is in flight.
        unreplaced: how many of these moves have no replacement among the pods that were read.
        expected: how many of them have none among those from the watch. The plan reckons with these.
        exchanged: the UIDs of the pods that moves have replaced since the plan may have been made, by that of each pod.
        now: the time, with a time zone.
        together: UIDs of the pods to be evicted together with it.
    """
    active = [each for each in reading.pods if each.active and each.metadata.uid not in leaving]
    return (
        why_incomplete(reading.kind, reading.controller, [each.metadata.name for each in active], unreplaced)
        or _of_owner(reading)
        or (_of_revisions(reading.controller, active, pod) if reading.kind == "StatefulSet" else None)
        or (why_clone_set_holds(reading.controller) if reading.kind == "CloneSet" else None)
        or _of_view(active, pod, known, (*leaving, *exchanged), expected, frozenset(exchanged.values()))
        or (why_replacement_waits(reading, pod, leaving, together, now) if reading.kind == "StatefulSet" else None)
    )


def why_too_small(reading: OwnerReading, min_replicas: int) -> Held | None:
    """Return why the pods of a workload with so few replicas are left alone, or None if it has enough.

    The reading is of the controller and of the Deployment or Rollout above it, if there is one.
    """
    owner = reading.owner
    kind, top = (reading.kind, reading.controller) if owner is None else (reading.owner_kind, owner)
    return why_too_few(f"{kind} {top.metadata.name}", top.spec.replicas, min_replicas)


def why_incomplete(kind: str, controller: ControllerObject, active: Collection[str], unreplaced: int) -> Held | None:
    """Return why a controller does not have exactly the pods that it wants, or None if it has.

    `active` has the names of its pods, without those being deleted and those that Respread evicted, of which
    `unreplaced` have no replacement yet.
    """
    if (held := _of_controller(kind, controller)) is not None:
        return held
    named, wanted = f"{kind} {controller.metadata.name}", controller.spec.replicas
    has = f"{named} has {len(active)} pods and wants {wanted}"
    if len(active) > wanted:
        return Held(Reason.IN_MOTION, f"{has}: being scaled down, it would not replace the pod")
    if kind == "StatefulSet" and (others := [name for name in active if not _has_ordinal(controller, name)]):
        return Held(
            Reason.IN_MOTION,
            f"the ordinals of {named} start at {controller.spec.ordinals.start}, and {min(others)} is none of its "
            f"{wanted} pods any more: one with another ordinal is still to come",
        )
    if len(active) + unreplaced < wanted:
        return Held(Reason.IN_MOTION, f"{has}: a replacement is still to come")
    return None


def wants_replacement(kind: str, controller: ControllerObject, pod_name: str, active: int) -> bool:
    """Return whether a controller still wants a pod in place of a leaving or gone one.

    `active` is the number of its other pods.
    """
    if controller.metadata.deletion_timestamp is not None:
        return False
    return _has_ordinal(controller, pod_name) if kind == "StatefulSet" else active < controller.spec.replicas


def _has_ordinal(stateful_set: ControllerObject, pod_name: str) -> bool:
    start = stateful_set.spec.ordinals.start
    return start <= ordinal_of(pod_name) < start + stateful_set.spec.replicas


def _of_controller(kind: str, controller: ControllerObject) -> Held | None:
    named = f"{kind} {controller.metadata.name}"
    if controller.metadata.deletion_timestamp is not None:
        return Held(Reason.UNKNOWN_REPLACEMENT, f"{named} is being deleted: nothing would replace the pod")
    if not controller.is_observed:
        return Held(Reason.IN_MOTION, f"{named} has changed and its controller has not caught up with that yet")
    return None


def _of_owner(reading: OwnerReading) -> Held | None:
    """Return why the Deployment or Rollout above a ReplicaSet is not at rest, or None if it is or was not read."""
    owner, kind = reading.owner, reading.owner_kind
    if owner is None:
        return None
    of_kind = why_rollout_holds(owner) if kind == "Rollout" else _of_deployment(owner)
    return _of_controller(kind, owner) or of_kind or _of_number(kind, owner, reading.controller)


def _of_deployment(deployment: ControllerObject) -> Held | None:
    """A rollout is complete when no pod has an older template, as for `kubectl rollout status`."""
    named = f"Deployment {deployment.metadata.name}"
    older = deployment.status.replicas - deployment.status.updated_replicas
    if older > 0:
        if deployment.spec.paused:
            return Held(
                Reason.PROTECTED_POD,
                f"{named} is paused in the middle of a rollout, {older} of its pods are of an older template: "
                "resume it, or roll it back",
            )
        return Held(Reason.IN_MOTION, f"{named} is being rolled out: {older} of its pods are of an older template")
    return None


def _of_number(kind: str, owner: ControllerObject, replica_set: ControllerObject) -> Held | None:
    if owner.spec.replicas == replica_set.spec.replicas:
        return None
    return Held(
        Reason.IN_MOTION,
        f"{kind} {owner.metadata.name} wants {owner.spec.replicas} pods and has told its ReplicaSet "
        f"{replica_set.metadata.name} {replica_set.spec.replicas}: it is being scaled or rolled out",
    )


def _of_revisions(stateful_set: ControllerObject, active: Iterable[ListedPod], pod: Pod) -> Held | None:
    """Every pod must have the revision at which the StatefulSet would create it again."""
    name = stateful_set.metadata.name
    rolls_by_itself = stateful_set.spec.update_strategy.type == "RollingUpdate"
    for each in sorted(active, key=lambda each: each.metadata.uid != pod.uid):
        has = each.metadata.labels.get(_REVISION_LABEL)
        would_have = revision_of_pod(stateful_set, each.metadata.name)
        if has == would_have:
            continue
        if each.metadata.uid == pod.uid and not rolls_by_itself:
            return Held(
                Reason.PROTECTED_POD,
                f"StatefulSet {name} would bring it back at revision {would_have} instead of {has}, and its update "
                "strategy leaves that to people",
            )
        if rolls_by_itself:
            return Held(
                Reason.IN_MOTION,
                f"StatefulSet {name} is being rolled out: {each.metadata.name} is still at revision {has}",
            )
    return None


def revision_of_pod(stateful_set: ControllerObject, pod_name: str) -> str:
    """Return the revision at which a StatefulSet would create a pod again (`newVersionedStatefulSetPod`)."""
    spec, status, ordinal = stateful_set.spec, stateful_set.status, ordinal_of(pod_name)
    rolling = spec.update_strategy.rolling_update
    if rolling is not None:
        stays = ordinal < spec.ordinals.start + rolling.partition
    elif spec.update_strategy.type == "RollingUpdate":
        stays = ordinal < spec.ordinals.start + status.current_replicas
    else:
        stays = False
    return status.current_revision if stays else status.update_revision


def _of_view(
    active: Sequence[ListedPod],
    pod: Pod,
    known: Iterable[Pod],
    leaving: Collection[str],
    expected: int,
    arrived: Collection[str],
) -> Held | None:
    """The plan was made from the watched pods, so it is only valid if these are still the actual pods.

    It reckons with replacements that come, and with those without a node, wherever they land. Those that have arrived
    since came for it too.
    """
    there = {each.metadata.uid: each for each in active if each.metadata.uid not in leaving}
    staying = [each for each in known if not each.terminating and not each.finished and each.uid not in leaving]
    watched = {each.uid: each for each in staying}
    if pod.uid not in there:
        return Held(Reason.IN_MOTION, "it is not where it was when the plan was made")
    new = [each.metadata.name for uid, each in there.items() if uid not in watched and uid not in arrived]
    differing = new if len(new) > expected else []
    differing += [each.name for uid, each in watched.items() if uid not in there]
    if differing:
        return Held(
            Reason.IN_MOTION,
            f"pods of its workload have changed since the plan was made ({', '.join(sorted(set(differing))[:5])})",
        )
    ready = {each.metadata.uid for each in active if each.ready is not None}
    if not_ready := [each.name for each in staying if each.ready and each.uid not in ready]:
        return Held(
            Reason.IN_MOTION,
            f"pods of its workload are no longer Ready since the plan was made ({', '.join(sorted(not_ready)[:5])})",
        )
    return None


# An Argo Rollout at rest has one ReplicaSet with pods, which replaces them as that of a Deployment does. In a canary or
# before the promotion of a blue-green update, an eviction would distort what is measured. A CloneSet of OpenKruise
# replaces pods by itself; at rest it has one revision, and its template is that of all its pods.


def why_rollout_holds(rollout: ControllerObject) -> Held | None:
    """Return why an Argo Rollout is not at rest, or None if its template was rolled out in full."""
    named, status = f"Rollout {rollout.metadata.name}", rollout.status
    if status.current_pod_hash != status.stable_hash:
        return Held(
            Reason.IN_MOTION,
            f"{named} is being rolled out, or was stopped in the middle: promote it, or roll it back, and its pods may "
            "move",
        )
    if (older := status.replicas - status.updated_replicas) > 0:
        return Held(Reason.IN_MOTION, f"{named} is being rolled out: {older} of its pods are of an older template")
    restart_at = rollout.spec.restart_at
    if restart_at is not None and status.restarted_at != restart_at:
        return Held(Reason.IN_MOTION, f"{named} is restarting its pods (spec.restartAt)")
    return None


def why_clone_set_holds(clone_set: ControllerObject) -> Held | None:
    """Return why it is not certain what a CloneSet puts in place of a pod, or None if it is."""
    named, spec, status = f"CloneSet {clone_set.metadata.name}", clone_set.spec, clone_set.status
    if spec.volume_claim_templates:
        return Held(
            Reason.UNKNOWN_REPLACEMENT,
            f"{named} has volumeClaimTemplates: whether a replacement gets new claims, or those of the pod with their "
            "volumes, is not known",
        )
    older = status.replicas - status.updated_replicas
    if older <= 0 and status.current_revision == status.update_revision:
        return None
    if spec.update_strategy.paused or spec.update_strategy.partition not in (0, "0", "0%"):
        return Held(
            Reason.PROTECTED_POD,
            f"{named} keeps {older} of its pods at an older revision (spec.updateStrategy), and of which revision a "
            "replacement would be is not known: finish the update, or roll it back",
        )
    return Held(Reason.IN_MOTION, f"{named} is being rolled out: {older} of its pods are of an older revision")


_Lack: TypeAlias = tuple[Reason, str]
"""Why a StatefulSet's controller would stop at a pod, in words."""


def why_replacement_waits(
    reading: OwnerReading, pod: Pod, leaving: Collection[str], together: Collection[str], now: datetime
) -> Held | None:
    """Return which pods would wait for one another after the eviction of a StatefulSet's pod, or None.

    Mirrors `updateStatefulSet` and `processReplica` (pkg/controller/statefulset/stateful_set_control.go, 1.36): with
    `podManagementPolicy: OrderedReady` the controller processes the ordinals from the lowest up, and stops at the first
    pod that it has just created, that is being deleted, or that is not Running, Ready and available.

    Missing or leaving pods are a temporary reason (`InMotion`). Others may last. For the arguments see
    `why_not_at_rest`.
    """
    spec, name, pod_name = reading.controller.spec, reading.controller.metadata.name, pod.name
    if spec.pod_management_policy == _PARALLEL:
        return None
    by_ordinal = {ordinal_of(each.metadata.name): each for each in reading.pods}
    start, own = spec.ordinals.start, ordinal_of(pod_name)

    def lack(ordinal: int) -> _Lack | None:
        return _absence(by_ordinal.get(ordinal), leaving, together)

    for ordinal in range(start, own):
        found = lack(ordinal) or _unavailability(by_ordinal[ordinal], spec.min_ready_seconds, now)
        if found is not None:
            reason, words = found
            return Held(
                reason,
                f"StatefulSet {name} (podManagementPolicy OrderedReady) recreates {pod_name} only when all lower "
                f"ordinals are Ready and available, and {name}-{ordinal} {words}",
            )
    for ordinal in range(own + 1, start + spec.replicas):
        if (found := lack(ordinal)) is not None:
            reason, words = found
            return Held(
                reason,
                f"StatefulSet {name} (podManagementPolicy OrderedReady) would create {name}-{ordinal}, which "
                f"{words}, only when the replacement of {pod_name} is Ready and available",
            )
    return None


def _absence(pod: ListedPod | None, leaving: Collection[str], together: Collection[str]) -> _Lack | None:
    """Return why a pod is missing, or soon will be; None if it stays."""
    if pod is None:
        return Reason.IN_MOTION, "is missing"
    if pod.metadata.uid in leaving:
        return Reason.IN_MOTION, "is being moved"
    if not pod.active:
        return Reason.IN_MOTION, "is being deleted or has run to its end"
    if pod.metadata.uid in together:
        return Reason.REPLACEMENT_WOULD_WAIT, "would have to go together with it"
    return None


def _unavailability(pod: ListedPod, min_ready_seconds: int, now: datetime) -> _Lack | None:
    """Return why the controller would wait for an existing pod, or None."""
    if not pod.is_available(0, now):
        return Reason.REPLACEMENT_WOULD_WAIT, "is not Ready"
    if not pod.is_available(min_ready_seconds, now):
        return Reason.REPLACEMENT_WOULD_WAIT, f"has not been Ready for minReadySeconds, {min_ready_seconds} s, yet"
    return None
