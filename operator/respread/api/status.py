"""The `status` of a policy, which `kubectl get` and `kubectl describe` show.

The control loop writes it (`respread.api.conditions` computes it) and reads it back after a restart.
"""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeAlias

import msgspec
from msgspec import Meta

from respread.api.fields import Count, Moment, described
from respread.api.policy import WhenUnsatisfiable

MAX_VIOLATIONS: Final = 20
"""How many violated constraints a status contains, the worst first."""
MAX_DOMAINS: Final = 20
"""How many domains of a violated constraint a status contains."""
MAX_WORKLOADS: Final = 20
"""How many workloads of a violated constraint a status contains."""
MAX_UNWORKABLE: Final = 10
"""How many constraints that can't work a status contains, the worst first."""
MAX_MESSAGE_LENGTH: Final = 2048


MAX_CONDITIONS: Final = 16
MAX_GENERATION: Final = 2**53

ConditionStatus: TypeAlias = Literal["True", "False", "Unknown"]
ConditionType: TypeAlias = Literal[
    "Ready",
    "Balanced",
    "Progressing",
    "Blocked",
    "Reconciling",
    "Stalled",
    "Paused",
    "Oscillating",
    "CostsContested",
    "OtherDescheduler",
    "RoomMissing",
    "PermissionMissing",
]


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
                "Ready: the policy is valid and in force. Balanced: every constraint that it restores holds. "
                "Progressing: evictions are in progress. Blocked: a constraint is violated and can't be restored now. "
                "Reconciling: no plan has been made yet for the current generation. Stalled: the policy is invalid. "
                "Paused: evictions failed in a row, and none is made for some time. Oscillating: a constraint is "
                "violated again after as many evictions as limits.perHourPerGroup allows. CostsContested: somebody "
                "else removes or replaces the pod deletion costs that Respread writes. OtherDescheduler: somebody else "
                "evicts pods of the policy again and again. RoomMissing: room is asked for in a domain. "
                "PermissionMissing: Respread lacks a permission that the policy needs."
            ),
        ),
    ]
    status: Annotated[ConditionStatus, described("Whether the condition holds.")]
    observed_generation: Annotated[
        _Generation, described("The metadata.generation of the policy that the condition describes.")
    ] = 0
    last_transition_time: Annotated[Moment, described("When the condition's status last changed.")]
    reason: Annotated[
        str,
        Meta(
            min_length=1,
            max_length=1024,
            pattern=r"^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$",
            description="The reason for the condition's status, as one word.",
        ),
    ]
    message: Annotated[str, Meta(max_length=32768, description="The reason as a sentence, and what to do.")] = ""


class Summary(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The pods and constraints that the policy governs, in numbers."""

    groups: Annotated[
        Count, described("Number of spread groups: constraints, each counted once for the pods that share it.")
    ] = 0
    violated: Annotated[Count, described("Spread groups whose skew is above their maxSkew.")] = 0
    unsatisfiable: Annotated[
        Count, described("Spread groups that keep pods Pending, now or at the next rollout or scale-up.")
    ] = 0
    ineffective: Annotated[Count, described("Spread groups that can't change where pods go.")] = 0
    worst_skew: Annotated[Count, described("The greatest skew of any spread group.")] = 0
    pods: Annotated[Count, described("Pods that the policy governs.")] = 0
    planned_evictions: Annotated[
        Count, described("Evictions in the plan, which restore everything that can be restored.")
    ] = 0
    in_flight: Annotated[Count, described("Evictions whose replacement is not Ready yet.")] = 0
    evicted: Annotated[Count, described("Evictions made for this policy so far.")] = 0


class PaceEstimate(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """An estimate of how long the evictions that are left take at the present limits."""

    evictions_left: Annotated[
        Count,
        described(
            "Evictions that are left to be made: those of the plan, and the fewest for constraints that are left alone "
            "only for the moment."
        ),
    ] = 0
    remaining: Annotated[
        str,
        Meta(
            max_length=16,
            description="About how long it takes until their last replacement is Ready, such as 41m, or Unknown.",
        ),
    ] = ""
    seconds: Annotated[Count | None, described("The same in seconds. Absent if it is unknown.")] = None
    bound_by: Annotated[
        str, Meta(max_length=400, description="The limit that bounds it, with its value: inFlightPerWorkload 1.")
    ] = ""


class DomainCount(msgspec.Struct, frozen=True):
    """A topology domain and the number of pods in it."""

    domain: Annotated[str, Meta(max_length=63, description="The domain: the value of the topology key.")]
    pods: Annotated[Count, described("The pods there that the constraint counts.")]


class AffectedWorkload(msgspec.Struct, frozen=True):
    """A workload of the pods, in their namespace."""

    kind: Annotated[str, Meta(max_length=63, description="The kind, such as Deployment.")]
    name: Annotated[str, Meta(max_length=253, description="The name.")]


_Namespace: TypeAlias = Annotated[str, Meta(max_length=63, description="The namespace of the pods.")]
_AffectedWorkloads: TypeAlias = Annotated[
    tuple[AffectedWorkload, ...],
    Meta(
        max_length=MAX_WORKLOADS,
        description="The workloads of the pods, at most 20.",
        extra_json_schema={"x-kubernetes-list-type": "atomic"},
    ),
]


class ViolatedConstraint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The constraint as in the pod spec."""

    topology_key: Annotated[str, Meta(max_length=317, description="The node label whose values are the domains.")]
    when_unsatisfiable: Annotated[
        WhenUnsatisfiable, described("What kube-scheduler does with pods that would violate it.")
    ]
    max_skew: Annotated[Count, described("The skew that it allows.")]


class Violation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A violated constraint and what is done about it."""

    namespace: _Namespace
    workloads: _AffectedWorkloads = ()
    constraint: ViolatedConstraint
    skew: Annotated[Count, described("The actual skew: the pods of the fullest domain minus the global minimum.")]
    domains: Annotated[
        tuple[DomainCount, ...],
        Meta(
            max_length=MAX_DOMAINS,
            description="Pods per domain, the fullest first. Of more than 20, the ten fullest and the ten emptiest.",
            extra_json_schema={"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()
    omitted_domains: Annotated[Count, described("Number of domains that are not listed.")] = 0
    planned_moves: Annotated[Count, described("Evictions planned to restore it.")] = 0
    reason: Annotated[
        _ReasonWord, described("Why it is not, or not fully, being restored, as one word. Empty if it is.")
    ] = ""
    message: Annotated[_Message, described("The reason as a sentence.")] = ""


class UnworkableConstraint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A constraint that can't work, and what cures it."""

    namespace: _Namespace
    workloads: _AffectedWorkloads = ()
    constraint: ViolatedConstraint
    state: Annotated[_ReasonWord, described("Unsatisfiable if it keeps pods Pending, Ineffective if it does nothing.")]
    when: Annotated[_ReasonWord, described("When it keeps a pod Pending: Now, NextRollout or NextScaleUp.")] = "Now"
    rule: Annotated[_ReasonWord, described("The rule of the audit that found it, as one word.")]
    message: Annotated[_Message, described("The cause as a sentence.")] = ""
    cure: Annotated[_Message, described("What to do.")] = ""


class BlockedCount(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A reason why Respread does not evict, and how often it applies."""

    reason: Annotated[_ReasonWord, described("The reason as one word.")]
    groups: Annotated[Count, described("Violated spread groups that stay violated for this reason.")] = 0
    pods: Annotated[
        Count,
        described(
            "Pods in domains with too many pods that stay there for this reason: planned evictions that are not made "
            "now, and pods of violated spread groups for which no eviction is planned. A pod that may not be evicted "
            "counts for its own reason, any other for the reason of its spread group. For DomainHasNoNode, pods in "
            "domains with more than maxSkew pods."
        ),
    ] = 0


class PolicyStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What Respread knows and does for the policy. Respread writes it, and only when it changes."""

    observed_generation: Annotated[
        _Generation, described("The metadata.generation of the policy that this status describes.")
    ] = 0
    conditions: Annotated[
        tuple[Condition, ...],
        Meta(
            max_length=MAX_CONDITIONS,
            description=(
                "Ready, Balanced, Progressing and Blocked. Reconciling, Stalled, Paused, Oscillating, CostsContested, "
                "OtherDescheduler, RoomMissing and PermissionMissing after they were True once."
            ),
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        ),
    ] = ()
    summary: Summary = Summary()
    pace: PaceEstimate = PaceEstimate()
    violations: Annotated[
        tuple[Violation, ...],
        Meta(
            max_length=MAX_VIOLATIONS,
            description="The worst violated constraints, at most 20.",
            extra_json_schema={"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()
    unworkable: Annotated[
        tuple[UnworkableConstraint, ...],
        Meta(
            max_length=MAX_UNWORKABLE,
            description="Constraints that can't work, the worst first, at most 10. docs/audit.md explains the rules.",
            extra_json_schema={"x-kubernetes-list-type": "atomic"},
        ),
    ] = ()
    blocked: Annotated[
        tuple[BlockedCount, ...],
        Meta(
            max_length=64,
            description="What Respread does not do, by reason, the most frequent first.",
            extra_json_schema={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["reason"]},
        ),
    ] = ()
    last_plan_time: Annotated[
        Moment | None, described("When the plan in this status was made. Later plans had the same result.")
    ] = None
    last_eviction_time: Annotated[Moment | None, described("When a pod was last evicted.")] = None

    def condition(self, condition_type: ConditionType) -> Condition | None:
        """Return the condition of a type, or None if it was never written."""
        return next((each for each in self.conditions if each.type == condition_type), None)


def encode_status(status: PolicyStatus) -> dict[str, Any]:
    """Return the status as JSON values for a merge patch of the `status` subresource.

    Empty lists and zeros are included, so that they overwrite old values and the printer columns show 0. Fields that
    only a later version knows stay as they are.
    """
    encoded: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(status))
    return {name: value for name, value in encoded.items() if value is not None}
