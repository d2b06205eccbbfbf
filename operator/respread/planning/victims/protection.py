"""Which pods may be evicted, by a policy's rules for victims and by the pods' annotations, and which are preferred.

A protected pod still counts wherever kube-scheduler counts it. Protection is only about victims.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from datetime import datetime, timedelta
from fractions import Fraction
from itertools import islice
from typing import Final, NamedTuple

import msgspec

from respread.api.policy import PriorityThreshold, TrustedController, VictimRules
from respread.api.reasons import Held, Reason
from respread.cluster.meta import (
    DO_NOT_DISRUPT,
    EVICT,
    POD_DELETION_COST,
    PREFER_NO_EVICTION,
    SAFE_TO_EVICT,
    SAFE_TO_EVICT_LOCAL_VOLUMES,
    Labels,
    ObjectKey,
    OwnerReference,
)
from respread.cluster.objects import Workload
from respread.cluster.pod import Pod
from respread.cluster.state import ClusterSnapshot

NEVER: Final = "never"
"""The value of the annotation `respread.dev/evict` that protects a pod."""
_YES: Final = "true"
_NO: Final = "false"


def _why_it_refuses(pod: Pod, now: datetime) -> Held | None:
    """Return the annotation that protects a pod from eviction, or None.

    Each is interpreted as by the project that defines it. A value without a defined meaning protects the pod, because
    it more likely means no than yes. docs/policy.md lists the annotations.
    """
    annotations = pod.annotations
    if (word := annotations.get(EVICT)) is not None:
        known = "" if word == NEVER else f", which counts as {NEVER!r}, the only value there is"
        return _protected(EVICT, f"its annotation {EVICT} says {word!r}{known}")
    if (word := annotations.get(SAFE_TO_EVICT, _YES)) != _YES:
        known = "" if word == _NO else f", which counts as {_NO!r}: it is neither that nor {_YES!r}"
        return _protected(SAFE_TO_EVICT, f"its annotation {SAFE_TO_EVICT} says {word!r}{known}")
    if PREFER_NO_EVICTION in annotations:
        return _protected(PREFER_NO_EVICTION, f"it has the annotation {PREFER_NO_EVICTION}")
    return _while_not_to_be_disrupted(pod, now)


def _minds_local_storage(pod: Pod) -> bool:
    """Return whether a pod has storage on its node that its annotations don't allow to lose.

    Mirrors Cluster Autoscaler's `HasBlockingLocalStorage`: names are separated by commas and nothing else.
    """
    annotations = pod.annotations
    if not pod.spec.has_local_storage or annotations.get(SAFE_TO_EVICT) == _YES:
        return False
    if (named := annotations.get(SAFE_TO_EVICT_LOCAL_VOLUMES)) is None:
        return True
    return not pod.spec.local_volumes or not set(named.split(",")).issuperset(pod.spec.local_volumes)


def _while_not_to_be_disrupted(pod: Pod, now: datetime) -> Held | None:
    """Mirrors Karpenter's `IsDoNotDisruptActive`, except for values that it ignores: those protect here."""
    word = pod.annotations.get(DO_NOT_DISRUPT, _NO)
    if word == _NO:
        return None
    says = f"its annotation {DO_NOT_DISRUPT} says {word!r}"
    if word == _YES:
        return _protected(DO_NOT_DISRUPT, says)
    duration = parse_go_duration(word)
    if duration is None or duration <= timedelta(0):
        return _protected(
            DO_NOT_DISRUPT,
            f"{says}, which counts as {_YES!r}: it is neither that nor {_NO!r} nor a duration such as 30m",
        )
    return _for_a_time(f"{says}, counted from its start", pod.start_time, duration, now)


def _for_a_time(says: str, start: datetime | None, duration: timedelta, now: datetime) -> Held | None:
    if start is None:
        return Held(Reason.PROTECTED_POD, f"{says}, and it has not started yet", named=DO_NOT_DISRUPT)
    if now - start >= duration:
        return None
    try:
        until = start + duration
    except OverflowError:
        return _protected(DO_NOT_DISRUPT, says)
    message = f"{says}: until {until.isoformat(timespec='seconds')}"
    return Held(Reason.PROTECTED_POD, message, until=until, named=DO_NOT_DISRUPT)


def _protected(annotation: str, which: str) -> Held:
    return Held(Reason.PROTECTED_POD, f"{which}; without it, the pod may be evicted", named=annotation)


SYSTEM_PRIORITY_CLASSES: Final[Mapping[str, int]] = {
    "system-cluster-critical": 2_000_000_000,
    "system-node-critical": 2_000_001_000,
}
"""The PriorityClasses of every cluster, with values that can't be changed (`scheduling.SystemPriorityClasses`)."""

OWN_LABELS: Final[Mapping[str, str]] = {"app.kubernetes.io/name": "respread", "app.kubernetes.io/component": "operator"}
"""The labels of the operator's own pods, as in manifests/base/deployment.yaml."""

_REPLACING: Final = {
    "ReplicaSet": "apps",
    "StatefulSet": "apps",
    "ReplicationController": "",
    "CloneSet": "apps.kruise.io",
}
"""The controllers, with their API group, that replace an evicted pod by one of the same template."""
_LEAVING_IT_TO_THEIR_REPLICA_SETS: Final = frozenset({("apps", "Deployment"), ("argoproj.io", "Rollout")})
"""The owners, by API group and kind, whose ReplicaSet replaces an evicted pod. They are read before an eviction, so
that none is made in the middle of a rollout."""
_RESTARTING_GROUPS: Final[Mapping[tuple[str, str], str]] = {
    ("leaderworkerset.x-k8s.io", "LeaderWorkerSet"): "which restarts the whole group of a pod that is evicted",
    ("", "Pod"): "as those of a LeaderWorkerSet's workers do, whose whole group restarts for one pod",
}
_DELETION_COST: Final = re.compile(r"-[0-9]+|0|[1-9][0-9]*")
_DELETION_COST_BITS: Final = 31


class VictimOrder(NamedTuple):
    """The sort key for pods that may equally well be evicted: the lowest is evicted first."""

    ready: bool
    """Pods that are not Ready come first, because they serve no traffic."""
    deletion_cost: int
    priority: int
    turn: tuple[int, int]
    """Where others are evicted too, what is less for those that should go first for the sake of the rest."""
    age: float
    """Seconds from some moment to the pod's creation, negated, so that younger pods come first."""
    name: str
    """Makes the order unique, so that the same pods are chosen every time."""


class Protection(msgspec.Struct, frozen=True, kw_only=True):
    """A policy's rules for victims, prepared for questions about pods."""

    rules: VictimRules
    priority_threshold: int
    """Pods of this priority and above are protected."""

    @classmethod
    def of(cls, rules: VictimRules, priority_classes: Mapping[str, int] = SYSTEM_PRIORITY_CLASSES) -> Protection:
        """Prepare a policy's rules. The PriorityClasses of the system are always known.

        Raises:
            ValueError: `priorityThreshold` names a PriorityClass that does not exist. The message says so.
        """
        threshold = threshold_value(rules.priority_threshold, priority_classes)
        return cls(rules=rules, priority_threshold=threshold)

    def of_pod(self, pod: Pod, now: datetime) -> Held | None:
        """Return why a pod may not be evicted, or None if it may.

        Rules that never change for a pod come first, so that the reason is the lasting one.
        """
        return (
            why_not_replaced(pod)
            or _by_owner(pod)
            or _why_it_refuses(pod, now)
            or self._by_priority(pod)
            or self._by_storage(pod)
            or _by_phase(pod)
            or self._by_age(pod, now)
        )

    def _by_priority(self, pod: Pod) -> Held | None:
        if pod.spec.priority < self.priority_threshold:
            return None
        named = self.rules.priority_threshold.name
        of_class = f" (that of PriorityClass {named})" if named else ""
        return Held(
            Reason.PRIORITY_TOO_HIGH,
            f"its priority, {pod.spec.priority}, is not below the policy's victims.priorityThreshold of "
            f"{self.priority_threshold}{of_class}; a higher threshold would allow it",
        )

    def _by_storage(self, pod: Pod) -> Held | None:
        if self.rules.local_storage == "Protect" and _minds_local_storage(pod):
            return Held(
                Reason.LOCAL_STORAGE,
                "it keeps data on its node (a hostPath volume, or an emptyDir on disk), which would be lost; "
                "victims.localStorage: Evict would allow it, or the pod's annotation "
                f"{SAFE_TO_EVICT_LOCAL_VOLUMES}, naming all of these volumes",
            )
        claims = pod.spec.shared_claims or pod.spec.stateful_claims or pod.spec.ephemeral_volumes
        if self.rules.persistent_volume_claims == "Protect" and claims:
            return Held(
                Reason.PERSISTENT_VOLUME_CLAIM,
                "it uses PersistentVolumeClaims; victims.persistentVolumeClaims: Evict would allow it",
            )
        return None

    def _by_age(self, pod: Pod, now: datetime) -> Held | None:
        if self.rules.min_age <= timedelta(0) or pod.creation_timestamp is None:
            return None
        if now - pod.creation_timestamp >= self.rules.min_age:
            return None
        old_enough = pod.creation_timestamp + self.rules.min_age
        return Held(  # Without its age, so that the message stays the same while nothing changes.
            Reason.TOO_YOUNG,
            f"it is younger than the policy's victims.minAge, {self.rules.min_age.total_seconds():.0f} s; it is old "
            f"enough at {old_enough.isoformat(timespec='seconds')}",
            until=old_enough,
        )


def threshold_value(threshold: PriorityThreshold, priority_classes: Mapping[str, int]) -> int:
    """Return the priority of a policy's threshold.

    Raises:
        ValueError: it names a PriorityClass that does not exist.
    """
    if threshold.value is not None:
        return threshold.value
    name = threshold.name or "system-cluster-critical"
    if (value := SYSTEM_PRIORITY_CLASSES.get(name, priority_classes.get(name))) is None:
        raise ValueError(
            f"spec.victims.priorityThreshold.name: there is no PriorityClass {name!r}: "
            "name one that exists, or set spec.victims.priorityThreshold.value"
        )
    return value


def victim_order(pod: Pod, turn: tuple[int, int] = (0, 0)) -> VictimOrder:
    """Return the sort key that puts pods with the lowest disruption cost first."""
    created = pod.creation_timestamp
    return VictimOrder(
        pod.ready,
        deletion_cost(pod),
        pod.spec.priority,
        turn,
        -created.timestamp() if created is not None else 0.0,
        pod.name,
    )


def deletion_cost(pod: Pod) -> int:
    """Return a pod's deletion cost, 0 if it has none or one that Kubernetes can't parse."""
    text = pod.annotations.get(POD_DELETION_COST)
    return 0 if text is None else read_deletion_cost(text)


def read_deletion_cost(text: str) -> int:
    """Return a deletion cost from an annotation, 0 if Kubernetes can't parse it.

    Mirrors `GetDeletionCostFromPodAnnotations`: a 32-bit integer without plus sign or leading zeros.
    """
    if _DELETION_COST.fullmatch(text) is None:
        return 0
    cost = int(text)
    return cost if -(1 << _DELETION_COST_BITS) <= cost < 1 << _DELETION_COST_BITS else 0


def why_not_replaced(pod: Pod) -> Held | None:
    """Return why no equivalent pod is known to replace a pod, or None if its controller creates one."""
    controller = pod.controller
    if pod.is_mirror or (controller is not None and controller.kind == "Node"):
        return Held(Reason.MIRROR_POD, "it mirrors a static pod, which the kubelet runs whatever the API says")
    if controller is None:
        return Held(
            Reason.BARE_POD, "no controller owns it, so nothing would replace it; a Deployment or StatefulSet would"
        )
    if controller.kind == "DaemonSet":
        return Held(Reason.DAEMON_SET_POD, f"DaemonSet {controller.name} runs one on each of its nodes")
    if _REPLACING.get(controller.kind) != _group(controller):
        return Held(
            Reason.UNKNOWN_REPLACEMENT,
            f"what {controller.kind} {controller.name} ({controller.api_version}) would put in its place is not known; "
            "the pods of ReplicaSets, StatefulSets, ReplicationControllers and CloneSets are",
        )
    return None


def leaves_it_to_its_replica_set(owner: OwnerReference) -> bool:
    """Return whether an owner is known to let its ReplicaSets replace evicted pods: a Deployment or Argo Rollout."""
    return (_group(owner), owner.kind) in _LEAVING_IT_TO_THEIR_REPLICA_SETS


def why_owner_unknown(
    controller: OwnerReference, owner: OwnerReference | None, trusted: Collection[TrustedController]
) -> Held | None:
    """Return why the owner of a pod's controller protects the pod, or None if it does not.

    The controller of the pod is a ReplicaSet, StatefulSet or ReplicationController, and the owner its own, if there is
    one.
    """
    if owner is None or leaves_it_to_its_replica_set(owner) or is_trusted(owner, trusted):
        return None
    belongs = f"{controller.kind} {controller.name} belongs to {owner.kind} {owner.name} ({owner.api_version})"
    listed = f"victims.trustedControllers with group {_group(owner)!r} and kind {owner.kind!r} would allow it"
    if (known := _RESTARTING_GROUPS.get((_group(owner), owner.kind))) is not None:
        return Held(Reason.UNKNOWN_OWNER, f"{belongs}, {known}; {listed} all the same")
    return Held(
        Reason.UNKNOWN_OWNER,
        f"{belongs}, and what that does when a pod is evicted is not known; if it leaves it to the {controller.kind} "
        f"to replace the pod, {listed}",
    )


def is_trusted(owner: OwnerReference, trusted: Collection[TrustedController]) -> bool:
    """Return whether a policy's `victims.trustedControllers` name an owner's kind."""
    return TrustedController(group=_group(owner), kind=owner.kind) in trusted


def _group(owner: OwnerReference) -> str:
    return owner.api_version.rpartition("/")[0]


def are_own(labels: Labels) -> bool:
    """Return whether labels are those of Respread's own pods."""
    return all(labels.get(key) == value for key, value in OWN_LABELS.items())


def _by_owner(pod: Pod) -> Held | None:
    if are_own(pod.labels):
        return Held(Reason.PROTECTED_POD, "it runs Respread itself")
    return None


def _by_phase(pod: Pod) -> Held | None:
    if pod.terminating:
        return Held(Reason.IN_MOTION, "it is being deleted already")
    if pod.finished:
        return Held(Reason.FINISHED_POD, f"it has run to its end ({pod.phase}) and counts for nothing any more")
    return None


_NANOSECONDS: Final = {
    "ns": 1,
    "us": 10**3,
    "\u00b5s": 10**3,  # micro sign
    "\u03bcs": 10**3,  # Greek letter mu
    "ms": 10**6,
    "s": 10**9,
    "m": 60 * 10**9,
    "h": 3600 * 10**9,
}
_PART: Final = re.compile(r"([0-9]+(?:\.[0-9]*)?|\.[0-9]+)(ns|us|\u00b5s|\u03bcs|ms|s|m|h)")
_LEAST: Final = -(1 << 63)
_GREATEST: Final = (1 << 63) - 1
_LONGEST_TEXT: Final = 256
"""Go accepts longer ones. Nobody writes them, and exact arithmetic with them would take time."""


def parse_go_duration(text: str) -> timedelta | None:
    """Return a duration, rounded up to a microsecond, or None if `time.ParseDuration` would reject it.

    Unlike durations in policies, it may be negative, and it is at most the 292 years of Go's `time.Duration`.
    """
    if len(text) > _LONGEST_TEXT:
        return None
    sign, unsigned = (-1, text[1:]) if text.startswith("-") else (1, text.removeprefix("+"))
    if unsigned == "0":
        return timedelta(0)
    nanoseconds, end = Fraction(0), 0
    while (part := _PART.match(unsigned, end)) is not None:
        # Go truncates each part to nanoseconds.
        nanoseconds += int(Fraction(part[1].rstrip(".")) * _NANOSECONDS[part[2]])
        end = part.end()
    if not end or end != len(unsigned) or not _LEAST <= sign * nanoseconds <= _GREATEST:
        return None
    return timedelta(microseconds=-(-sign * int(nanoseconds) // 1000))


def siblings_of(snapshot: ClusterSnapshot, pod: Pod) -> Iterator[Pod]:
    """Yield the pods of a snapshot with the same controller as a pod, including itself."""
    in_namespace = snapshot.pods_by_controller.get(pod.namespace)
    if in_namespace is not None and pod.controller is not None:
        yield from in_namespace.get(pod.controller.uid, {}).values()


def is_active(pod: Pod) -> bool:
    """Return whether controllers count a pod among their pods (`IsPodActive`)."""
    return not pod.terminating and not pod.finished


def ordinal_of(pod_name: str) -> int:
    """Return the ordinal at the end of a pod's name, -1 if there is none (`getOrdinal`)."""
    digits = pod_name.rpartition("-")[2]
    return int(digits) if digits.isdecimal() else -1


def controller_of(snapshot: ClusterSnapshot, pod: Pod) -> Workload | None:
    """Return a pod's controller from a snapshot; None if it was not read, or if another object has its name now."""
    controller = pod.controller
    if controller is None:
        return None
    held = {
        "ReplicaSet": snapshot.replica_sets,
        "StatefulSet": snapshot.stateful_sets,
        "ReplicationController": snapshot.replication_controllers,
    }.get(controller.kind)
    found = None if held is None else held.get(ObjectKey(pod.namespace, controller.name))
    return found if found is not None and found.uid == controller.uid else None


def is_ordered(snapshot: ClusterSnapshot, pod: Pod) -> bool:
    """Whether a pod's controller is a StatefulSet with OrderedReady."""
    controller = controller_of(snapshot, pod)
    return controller is not None and controller.is_ordered


class ActivePods:
    """The number of active pods of the controllers of a snapshot, each counted once and only as far as needed."""

    def __init__(self, snapshot: ClusterSnapshot) -> None:
        self._snapshot = snapshot
        self._counts: dict[tuple[str, int], int] = {}

    def up_to(self, pod: Pod, most: int) -> int:
        """Return the number of active pods of a pod's controller, including itself, or `most` if there are more."""
        if pod.controller is None:
            return 0
        asked = (pod.controller.uid, most)
        if (count := self._counts.get(asked)) is None:
            active = filter(is_active, siblings_of(self._snapshot, pod))
            count = self._counts[asked] = sum(1 for _ in islice(active, most))
        return count
