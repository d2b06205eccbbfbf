"""The `status` of a policy: what people see of it with `kubectl get` and `kubectl describe`.

Written by the control loop (`respread.api.conditions` says what), read back after a restart.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from respread.api.fields import Moment, described
from respread.api.policy import WhenUnsatisfiable

MAX_VIOLATIONS: Final = 20
"""How many violated constraints a status names, the worst first."""
MAX_DOMAINS: Final = 20
"""How many domains of a violated constraint a status names."""
MAX_WORKLOADS: Final = 20
"""How many workloads of a violated constraint a status names."""
MAX_MESSAGE_LENGTH: Final = 2048
MAX_BACK_OFFS: Final = 100
"""How many spread groups that are left alone a status remembers, those that failed most often first."""
MAX_RECENT_EVICTIONS: Final = 64
"""The minutes of an hour, and a few for clocks that differ."""
MAX_MOVES_IN_FLIGHT: Final = 500
"""How many moves under way a status remembers. No policy has more under way, however high its limits are."""
MAX_GROUPS_OF_MOVE: Final = 64
MAX_GROUP_EVICTIONS: Final = 200
"""Of how many spread groups a status remembers the evictions of the last hour, those with the most first."""
MAX_FAILED_WORKLOADS: Final = 20
"""How many workloads that failed in a row a status remembers."""
MAX_FAILED_WORKLOAD_LENGTH: Final = 512
MAX_NEWEST_PODS: Final = 32
"""How many pods that are no replacement a move under way remembers by name."""

MAX_CONDITIONS: Final = 16
MAX_FAILURES: Final = 1000
"""Longer than this no back-off is told from the one before."""
MAX_COUNT: Final = 2**31 - 1
MAX_GENERATION: Final = 2**53

ConditionStatus: TypeAlias = Literal["True", "False", "Unknown"]
ConditionType: TypeAlias = Literal[
    "Ready", "Balanced", "Progressing", "Blocked", "Reconciling", "Stalled", "Paused", "Oscillating"
]

_Count = Annotated[int, Meta(ge=0, le=MAX_COUNT)]
_Generation = Annotated[int, Meta(ge=0, le=MAX_GENERATION)]
_Message = Annotated[str, Meta(max_length=MAX_MESSAGE_LENGTH)]
_ReasonWord = Annotated[str, Meta(max_length=64)]


class Condition(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """One condition, in the shape of `metav1.Condition`."""

    type: Annotated[
        str,
        Meta(
            max_length=316,
            pattern=r"^([a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*/)?"
            r"(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])$",
            description=(
                "Ready: the policy is valid and in force. Balanced: every constraint it restores holds. Progressing: "
                "evictions are under way. Blocked: a constraint is violated and nothing can be done about it for now. "
                "Reconciling: the policy as it is now has not been planned for yet. Stalled: it is invalid. "
                "Paused: evictions have failed in a row, and none is made for a while. Oscillating: a constraint is "
                "violated again after as many evictions as limits.perHourPerGroup allows."
            ),
        ),
    ]
    status: Annotated[ConditionStatus, described("Whether the condition holds.")]
    observed_generation: Annotated[
        _Generation, described("The metadata.generation of the policy that the condition is about.")
    ] = 0
    last_transition_time: Annotated[Moment, described("When the condition's status last changed.")]
    reason: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=1024,
            pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            description="Why the condition has this status, in one word.",
        ),
    ]
    message: Annotated[str, Meta(max_length=32768, description="The same for people, with what they can do.")] = ""


class Summary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The pods and constraints that the policy governs, in numbers."""

    groups: Annotated[
        _Count, described("Spread groups: topology spread constraints, each counted once for the pods that share it.")
    ] = 0
    violated: Annotated[_Count, described("Spread groups whose skew is above their maxSkew.")] = 0
    worst_skew: Annotated[_Count, described("The greatest skew of any spread group.")] = 0
    pods: Annotated[_Count, described("Pods that the policy governs.")] = 0
    planned_evictions: Annotated[_Count, described("Evictions that would restore what can be restored.")] = 0
    in_flight: Annotated[_Count, described("Evictions whose replacement is not Ready yet.")] = 0
    evicted: Annotated[_Count, described("Evictions made in the name of this policy so far.")] = 0


class DomainCount(msgspec.Struct, frozen=True):
    """A topology domain and how many pods are in it."""

    domain: Annotated[str, Meta(max_length=63, description="The domain: the value of the topology key.")]
    pods: Annotated[_Count, described("The pods there that the constraint counts.")]


class AffectedWorkload(msgspec.Struct, frozen=True):
    """A workload that pods belong to, in their namespace."""

    kind: Annotated[str, Meta(max_length=63, description="Its kind, such as Deployment.")]
    name: Annotated[str, Meta(max_length=253, description="Its name.")]


class ViolatedConstraint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The constraint, as the pods carry it."""

    topology_key: Annotated[str, Meta(max_length=317, description="The node label whose values are the domains.")]
    when_unsatisfiable: Annotated[
        WhenUnsatisfiable, described("What the kube-scheduler does with pods that would violate it.")
    ]
    max_skew: Annotated[_Count, described("The skew that it allows.")]


class Violation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A violated constraint and what becomes of it."""

    namespace: Annotated[str, Meta(max_length=63, description="The namespace of the pods.")]
    workloads: Annotated[
        tuple[AffectedWorkload, ...],
        Meta(
            max_length=MAX_WORKLOADS,
            description="The workloads that the pods belong to, 20 at most.",
            extra_json_schema={"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()
    constraint: ViolatedConstraint
    skew: Annotated[
        _Count, described("The skew now: the pods of the fullest domain minus those of the emptiest, or minus 0.")
    ]
    domains: Annotated[
        tuple[DomainCount, ...],
        Meta(
            max_length=MAX_DOMAINS,
            description="Pods per domain, the fullest first. Of more than 20 domains the ten at either end.",
            extra_json_schema={"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()
    omitted_domains: Annotated[_Count, described("How many domains between these two ends are left out.")] = 0
    planned_moves: Annotated[_Count, described("Evictions planned to restore it.")] = 0
    reason: Annotated[
        _ReasonWord, described("Why it is not, or not fully, being restored, in one word. Empty: it is.")
    ] = ""
    message: Annotated[_Message, described("The same for people.")] = ""


class BlockedCount(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A reason why something is not done, and how often it applies."""

    reason: Annotated[_ReasonWord, described("The reason, in one word.")]
    groups: Annotated[_Count, described("Violated spread groups that are left as they are for it.")] = 0
    pods: Annotated[_Count, described("Pods that would help and may not be evicted for it.")] = 0


class RememberedBackOff(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A spread group that is left alone because moves did not improve it, for the next process to know."""

    group: Annotated[str, Meta(max_length=64, description="A digest of the group: its constraint and its pods.")]
    failures: Annotated[int, Meta(ge=0, le=MAX_FAILURES, description="Moves in a row that did not improve it.")]
    until: Annotated[Moment, described("Until when it is left alone, if nothing changes for it.")]
    situation: Annotated[str, Meta(max_length=64, description="A digest of how things stood when the last one failed.")]


class RecentEvictions(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many evictions were made in a minute."""

    minute: Annotated[Moment, described("When the minute began.")]
    evictions: Annotated[_Count, described("Evictions in it that count for limits.perHour.")]


class GroupEvictionCount(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """How many evictions were made for a spread group within the last hour, for the next process to know."""

    group: Annotated[str, Meta(max_length=64, description="A digest of the group, as in backOffs.")]
    evictions: Annotated[_Count, described("Evictions within the last hour, whatever came of them.")]
    last: Annotated[Moment, described("When the minute of the last one began.")]


class FailuresInARow(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What failed since an eviction last improved something, for the next process to know."""

    workloads: Annotated[
        tuple[Annotated[str, Meta(max_length=MAX_FAILED_WORKLOAD_LENGTH)], ...],
        Meta(
            max_length=MAX_FAILED_WORKLOADS,
            description="The workloads whose pods were evicted, each once, such as Deployment/web in shop.",
            extra_json_schema={"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()
    pauses: Annotated[int, Meta(ge=0, le=MAX_FAILURES, description="Pauses in a row.")] = 0
    paused_until: Annotated[Moment | None, described("When the last of them ends.")] = None


class LeftDomain(msgspec.Struct, frozen=True):
    """A spread group that a move is to help."""

    group: Annotated[str, Meta(max_length=64, description="A digest of the group, as in backOffs.")]
    domain: Annotated[str, Meta(max_length=63, description="The domain that the pod leaves.")]


class MoveInFlight(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A move under way, for the next process to follow. It is written down before its eviction is sent."""

    uid: Annotated[str, Meta(max_length=64, description="The UID of the evicted pod.")]
    namespace: Annotated[str, Meta(max_length=63, description="Its namespace.")]
    pod: Annotated[str, Meta(max_length=253, description="Its name.")]
    node: Annotated[str, Meta(max_length=253, description="The node that it leaves.")]
    workload: Annotated[str, Meta(max_length=512, description="What it belongs to, such as Deployment/web.")]
    controller_kind: Annotated[str, Meta(max_length=63, description="The kind of the controller that replaces it.")]
    controller_name: Annotated[str, Meta(max_length=253, description="The controller's name.")]
    controller_uid: Annotated[str, Meta(max_length=64, description="The controller's UID.")]
    groups: Annotated[
        tuple[LeftDomain, ...],
        Meta(
            max_length=MAX_GROUPS_OF_MOVE,
            description="The spread groups that it is to help.",
            extra_json_schema={"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()
    sent: Annotated[Moment, described("When its eviction was about to be sent.")]
    newest: Annotated[Moment, described("When the newest pod that the controller had by then was created.")]
    newest_pods: Annotated[
        tuple[Annotated[str, Meta(max_length=253)], ...],
        Meta(
            max_length=MAX_NEWEST_PODS,
            description="Pods created then or later of which it is known that they are not its replacement.",
            extra_json_schema={"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()


class PolicyStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What Respread knows and does in the name of the policy. It is written by Respread, and only when it changes."""

    observed_generation: Annotated[
        _Generation, described("The metadata.generation of the policy that this status is about.")
    ] = 0
    conditions: Annotated[
        tuple[Condition, ...],
        Meta(
            max_length=MAX_CONDITIONS,
            description=(
                "Ready, Balanced, Progressing and Blocked; Reconciling, Stalled, Paused and Oscillating once they were "
                "True."
            ),
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = ()
    summary: Summary = Summary()
    violations: Annotated[
        tuple[Violation, ...],
        Meta(
            max_length=MAX_VIOLATIONS,
            description="The worst of the violated constraints, 20 at most.",
            extra_json_schema={"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()
    blocked: Annotated[
        tuple[BlockedCount, ...],
        Meta(
            max_length=64,
            description="Why what is not done is not done, most frequent first.",
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["reason"]},
        ),
    ] = ()
    back_offs: Annotated[
        tuple[RememberedBackOff, ...],
        Meta(
            max_length=MAX_BACK_OFFS,
            description="Spread groups left alone for a while because moves did not improve them.",
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["group"]},
        ),
    ] = ()
    recent_evictions: Annotated[
        tuple[RecentEvictions, ...],
        Meta(
            max_length=MAX_RECENT_EVICTIONS,
            description="The evictions of the last hour by the minute, where limits.perHour is set.",
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["minute"]},
        ),
    ] = ()
    group_evictions: Annotated[
        tuple[GroupEvictionCount, ...],
        Meta(
            max_length=MAX_GROUP_EVICTIONS,
            description="The evictions of the last hour by spread group, those with the most first.",
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["group"]},
        ),
    ] = ()
    failures_in_a_row: FailuresInARow = FailuresInARow()
    moves_in_flight: Annotated[
        tuple[MoveInFlight, ...],
        Meta(
            max_length=MAX_MOVES_IN_FLIGHT,
            description="Evictions made, or about to be made, whose replacement is not Ready yet.",
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["uid"]},
        ),
    ] = ()
    last_plan_time: Annotated[
        Moment | None,
        described("When the plan shown here was made. Plans since then have come to the same result."),
    ] = None
    last_eviction_time: Annotated[Moment | None, described("When a pod was last evicted.")] = None

    def condition(self, condition_type: ConditionType) -> Condition | None:
        """Return the condition of a type, or None if it was never written."""
        return next((each for each in self.conditions if each.type == condition_type), None)


def encode_status(status: PolicyStatus) -> dict[str, Any]:
    """Return the status as JSON values, to be written to the `status` subresource.

    Empty lists and zeros are there, so that a merge patch clears what was there before and the printer columns show 0.
    """
    encoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(status))
    return {name: value for name, value in encoded.items() if value is not None}
